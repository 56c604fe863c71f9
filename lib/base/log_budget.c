/* SPDX-License-Identifier: BSD-3-Clause */
#include "log.h"

#include "ipc/invariant.h"

#include <stdio.h>
#include <string.h>

#define SHARED (LOG_CAUSES - 1)

static void
leave_out(struct log_cause *c, uint64_t now_ms)
{
	if (!c->left_out++)
		c->left_from = now_ms;
	c->left_at = now_ms;
}

bool
log_cause_take(struct log_cause *c, uint64_t now_ms)
{
	if (c->full_at < now_ms)
		c->full_at = now_ms;
	weir_assert(c->full_at - now_ms <= LOG_BURST * (uint64_t)LOG_PACE_MS);
	if (c->full_at - now_ms <= (LOG_BURST - 1) * (uint64_t)LOG_PACE_MS) {
		c->full_at += LOG_PACE_MS;
		return true;
	}
	leave_out(c, now_ms);
	return false;
}

void
log_cause_tell(struct log_cause *c, uint64_t now_ms)
{
	struct log_field about[] = {
	    {"kind", 0, c->kind}, {"who", 0, c->who}, {"left_out", c->left_out, NULL}};

	bool over = c->full_at <= now_ms && now_ms - c->left_at >= LOG_QUIET_MS;

	if (!c->left_out || (!over && now_ms - c->left_from < LOG_SUMMARY_MS))
		return;
	log_event(LOG_LEVEL_WARNING, about, 3, "%llu line%s left out (%s, %s)",
		  (unsigned long long)c->left_out, c->left_out == 1 ? "" : "s", c->kind, c->who);
	c->left_out = 0;
}

static bool
is(const struct log_cause *c, const char *who)
{
	return !strncmp(c->who, who, sizeof(c->who) - 1);
}

/* Its own one, else one that is not in use, else the one that all others share. */
static struct log_cause *
find(struct log_budget *b, const char *kind, const char *who, uint64_t now_ms)
{
	struct log_cause *unused = NULL;

	for (uint32_t i = 0; i < SHARED; i++) {
		struct log_cause *c = &b->cause[i];

		if (c->kind && !strcmp(c->kind, kind) && is(c, who))
			return c;
		if (!unused && !c->left_out && c->full_at <= now_ms)
			unused = c;
	}
	if (!unused) {
		unused = &b->cause[SHARED];
		kind = "of many kinds";
		who = "many others";
	}
	if (unused->kind && !strcmp(unused->kind, kind) && is(unused, who))
		return unused;
	*unused = (struct log_cause){.kind = kind};
	snprintf(unused->who, sizeof(unused->who), "%s", who);
	return unused;
}

bool
log_budget_take(struct log_budget *b, const char *kind, const char *who, const char *line,
		uint64_t now_ms)
{
	struct log_cause *c = find(b, kind, who, now_ms);
	uint64_t h = line ? UINT64_C(0xcbf29ce484222325) : 0; /* FNV-1a */

	for (const char *at = line; at && *at; at++)
		h = (h ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
	if (line && c->line == h && now_ms - c->line_at < LOG_SUMMARY_MS) {
		leave_out(c, now_ms);
		return false;
	}
	if (!log_cause_take(c, now_ms))
		return false;
	c->line = h;
	c->line_at = now_ms;
	return true;
}

bool
log_budget_tell(struct log_budget *b, uint64_t now_ms)
{
	bool more = false;

	for (uint32_t i = 0; i < LOG_CAUSES; i++) {
		log_cause_tell(&b->cause[i], now_ms);
		more |= b->cause[i].left_out > 0;
	}
	return more;
}
