/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion of words at the prompt. Names come from the data plane at that moment. */
#include "weirctl.h"

#include "base/vec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_SECONDS 0.5 /* a data plane that is stopped holds the prompt no longer */

static void
offer(struct words *w, const char *text, const char *word)
{
	if (strncmp(word, text, strlen(text)))
		return;
	// Names come from programs: what could steer the terminal, or would need quotes, isn't
	// offered.
	for (const char *at = word; *at; at++)
		if (*at <= ' ' || *at > '~' || *at == '"' || *at == '\'')
			return;
	for (size_t i = 0; i < w->count; i++)
		if (!strcmp(w->word[i], word))
			return;
	if (VEC_RESERVE(w->word, w->room, w->count + 1))
		return;
	w->word[w->count] = strdup(word);
	w->count += w->word[w->count] != NULL;
}

static void
offer_all(struct words *w, const char *text, const char *const *words)
{
	for (; *words; words++)
		offer(w, text, *words);
}

// Offers a field of each row of a kind, between two words; none if the data plane doesn't answer.
static void
offer_rows(const struct weirctl_options *o, uint32_t kind, const char *field, const char *before,
	   const char *behind, struct words *w, const char *text)
{
	const struct weir_field *f = weir_field_named(weir_kind(kind), field, strlen(field));
	static struct query q;
	char word[2 * WEIR_VALUE_TEXT];
	struct weir_value v;
	struct rows rows;

	if (query_once(&q, o->instance, LOOK_SECONDS, kind, &rows))
		return;
	for (uint32_t i = 0; i < rows.count; i++) {
		weir_field_value(f, rows_at(&rows, i), &v);
		if (v.type == VALUE_NUMBER)
			snprintf(v.text, sizeof(v.text), f->unit == UNIT_HEX ? "0x%llx" : "%llu",
				 (unsigned long long)v.number);
		snprintf(word, sizeof(word), "%s%s%s", before, v.text, behind);
		offer(w, text, word);
	}
	free(rows.records);
}

static void
offer_word(const struct weirctl_options *o, enum weirctl_word kind, const char *before,
	   const char *text, struct words *w)
{
	static const char *const level[] = {"error", "warning", "info", "debug", NULL};
	static const char *const state[] = {"on", "off", NULL}, *const none[] = {"none", NULL};
	static const char *const limit[] = {".weight", ".rate", ".priority", ".connections"};
	static const char *const priority[] = {"low", "normal", "high", NULL};
	static const char *const condition[] = {"up", "connections:", NULL};
	static const char *const self[] = {"self", NULL}, *const off[] = {"off", NULL};
	const char *what = strrchr(before, '.');

	switch (kind) {
	case WORD_COMMAND:
		for (const struct weirctl_command *c = weirctl_commands; c->name; c++)
			offer(w, text, c->name);
		break;
	case WORD_ROWS:
		for (uint32_t i = WEIR_ROWS_NODES; i <= WEIR_ROWS_LAST; i++)
			offer(w, text, weir_kind(i)->name);
		break;
	case WORD_CONDITION:
		offer_all(w, text, condition);
		offer_rows(o, WEIR_ROWS_NODES, "id", "node:", "", w, text);
		break;
	case WORD_PORT:
		offer_rows(o, WEIR_ROWS_PORTS, "name", "", "", w, text);
		break;
	case WORD_KEY:
		offer_rows(o, WEIR_ROWS_SETTINGS, "key", "", "", w, text);
		// of a program that has no setting yet
		for (size_t i = 0; i < sizeof(limit) / sizeof(limit[0]); i++)
			offer_rows(o, WEIR_ROWS_SESSIONS, "name", "program.", limit[i], w, text);
		break;
	case WORD_VALUE:
		if (!strcmp(before, "log.level"))
			offer_all(w, text, level);
		else if (!strncmp(before, "drain.", 6))
			offer_all(w, text, state);
		else if (what && !strcmp(what, ".priority"))
			offer_all(w, text, priority);
		else if (!strncmp(before, "user.", 5) || (what && !strcmp(what, ".rate")))
			offer_all(w, text, none);
		break;
	case WORD_VICTIM:
		offer_rows(o, WEIR_ROWS_SESSIONS, "session", "session.", "", w, text);
		if (!strncmp(text, "vqpn.", 5)) // there may be many
			offer_rows(o, WEIR_ROWS_CONNECTIONS, "vqpn", "vqpn.", "", w, text);
		else
			offer(w, text, "vqpn.");
		if (!strncmp(text, "export.", 7))
			offer_rows(o, WEIR_ROWS_EXPORTS, "export", "export.", "", w, text);
		else
			offer(w, text, "export.");
		break;
	case WORD_NODE:
		offer_all(w, text, self);
		offer_rows(o, WEIR_ROWS_NODES, "id", "", "", w, text);
		break;
	case WORD_SWITCH:
		offer_all(w, text, off);
		break;
	case WORD_FILE:
	case WORD_NONE:
		break;
	}
}

static int
in_order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void
complete(const struct weirctl_options *o, int argc, char **argv, const char *text,
	 struct words *found)
{
	const struct weirctl_command *c = argc ? command_find(argv[0]) : NULL;
	char name[32];

	*found = (struct words){0};
	if (!strncmp(text, "--", 2))
		for (size_t i = 0; i < weirctl_option_table.count; i++) {
			snprintf(name, sizeof(name), "--%s", weirctl_option_table.specs[i].name);
			offer(found, text, name);
		}
	else if (!argc)
		offer_word(o, WORD_COMMAND, "", text, found);
	else if (c && argc <= 3)
		offer_word(o, c->word[argc - 1], argv[argc - 1], text, found);
	if (found->count)
		qsort(found->word, found->count, sizeof(*found->word), in_order);
}

void
words_free(struct words *w)
{
	for (size_t i = 0; i < w->count; i++)
		free(w->word[i]);
	free(w->word);
	*w = (struct words){0};
}
