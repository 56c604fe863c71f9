/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion of words at the prompt. Names come from the data plane at that moment. */
#include "weirctl.h"

#include "base/vec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_SECONDS 0.5 /* a data plane that is stopped holds the prompt no longer */

// Names come from programs: what could steer the terminal, or would need quotes, isn't offered.
static bool
is_plain(const char *word)
{
	for (; *word; word++)
		if (*word <= ' ' || *word > '~' || *word == '"' || *word == '\'')
			return false;
	return true;
}

static void
offer(struct words *w, const char *text, const char *word)
{
	if (strncmp(word, text, strlen(text)) || !is_plain(word))
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

// Calls `each` for every record of a kind; none if the data plane doesn't answer.
static void
look(const struct weirctl_options *o, uint32_t kind, struct words *w, const char *text,
     void (*each)(const void *record, struct words *w, const char *text))
{
	static struct query q;
	struct rows rows;

	if (query_once(&q, o->instance, LOOK_SECONDS, kind, &rows))
		return;
	for (uint32_t i = 0; i < rows.count; i++)
		each(rows_at(&rows, i), w, text);
	free(rows.records);
}

static void
port_name(const void *record, struct words *w, const char *text)
{
	offer(w, text, ((const struct weir_row_port *)record)->name);
}

static void
node_id(const void *record, struct words *w, const char *text)
{
	char word[16];

	snprintf(word, sizeof(word), "%u", ((const struct weir_ctl_node *)record)->id);
	offer(w, text, word);
}

static void
node_condition(const void *record, struct words *w, const char *text)
{
	char word[24];

	snprintf(word, sizeof(word), "node:%u", ((const struct weir_ctl_node *)record)->id);
	offer(w, text, word);
}

static void
session_victim(const void *record, struct words *w, const char *text)
{
	char word[32];

	snprintf(word, sizeof(word), "session.%u",
		 ((const struct weir_row_session *)record)->session);
	offer(w, text, word);
}

static void
conn_victim(const void *record, struct words *w, const char *text)
{
	char word[32];

	snprintf(word, sizeof(word), "vqpn.0x%x",
		 ((const struct weir_row_connection *)record)->vqpn);
	offer(w, text, word);
}

static void
setting_key(const void *record, struct words *w, const char *text)
{
	struct weir_value v;

	weir_field_value(weir_kind(WEIR_ROWS_SETTINGS)->fields, record, &v); // with a user's name
	offer(w, text, v.text);
}

// Of a program that has no setting yet.
static void
program_keys(const void *record, struct words *w, const char *text)
{
	static const char *const what[] = {"weight", "rate", "connections"};
	const struct weir_row_session *s = record;
	char word[64];

	for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++) {
		snprintf(word, sizeof(word), "program.%s.%s", s->name, what[i]);
		offer(w, text, word);
	}
}

static void
offer_values(const char *key, struct words *w, const char *text)
{
	static const char *const level[] = {"error", "warning", "info", "debug", NULL};
	static const char *const state[] = {"on", "off", NULL};
	static const char *const none[] = {"none", NULL};
	const char *what = strrchr(key, '.');

	if (!strcmp(key, "log.level"))
		offer_all(w, text, level);
	else if (!strncmp(key, "drain.", 6))
		offer_all(w, text, state);
	else if (!strncmp(key, "user.", 5) || (what && !strcmp(what, ".rate")))
		offer_all(w, text, none);
}

static void
offer_options(struct words *w, const char *text)
{
	char name[32];

	for (size_t i = 0; i < weirctl_option_table.count; i++) {
		snprintf(name, sizeof(name), "--%s", weirctl_option_table.specs[i].name);
		offer(w, text, name);
	}
}

static void
offer_commands(struct words *w, const char *text)
{
	for (const struct weirctl_command *c = weirctl_commands; c->name; c++)
		offer(w, text, c->name);
}

static void
offer_word(const struct weirctl_options *o, enum weirctl_word kind, const char *before,
	   const char *text, struct words *w)
{
	static const char *const condition[] = {"up", "connections:", NULL};
	static const char *const self[] = {"self", NULL}, *const off[] = {"off", NULL};

	switch (kind) {
	case WORD_COMMAND:
		offer_commands(w, text);
		break;
	case WORD_ROWS:
		for (uint32_t i = WEIR_ROWS_NODES; i <= WEIR_ROWS_LAST; i++)
			offer(w, text, weir_kind(i)->name);
		break;
	case WORD_CONDITION:
		offer_all(w, text, condition);
		look(o, WEIR_ROWS_NODES, w, text, node_condition);
		break;
	case WORD_PORT:
		look(o, WEIR_ROWS_PORTS, w, text, port_name);
		break;
	case WORD_KEY:
		look(o, WEIR_ROWS_SETTINGS, w, text, setting_key);
		look(o, WEIR_ROWS_SESSIONS, w, text, program_keys);
		break;
	case WORD_VALUE:
		offer_values(before, w, text);
		break;
	case WORD_VICTIM:
		look(o, WEIR_ROWS_SESSIONS, w, text, session_victim);
		if (!strncmp(text, "vqpn.", 5)) // there may be many
			look(o, WEIR_ROWS_CONNECTIONS, w, text, conn_victim);
		else
			offer(w, text, "vqpn.");
		break;
	case WORD_NODE:
		offer_all(w, text, self);
		look(o, WEIR_ROWS_NODES, w, text, node_id);
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

	*found = (struct words){0};
	if (!strncmp(text, "--", 2))
		offer_options(found, text);
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
