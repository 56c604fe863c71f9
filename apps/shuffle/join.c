/* SPDX-License-Identifier: BSD-3-Clause */
/* weir-join: joins two tables of tab-separated columns by all threads of all processes. */
#include "output.h"
#include "pieces.h"
#include "stage.h"

#include "base/vec.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DONE, FAILED, USAGE }; /* exit codes */
enum { LEFT, RIGHT, TABLES };

struct join_options {
	struct shuffle_options common;
	uint64_t split;
	uint32_t column[TABLES];
	bool progress;
};

#define AT(field) OPTION_FIELD(struct join_options, field)
static const struct option_spec specs[] = {
    SHUFFLE_BLOCK(struct join_options),
    SHUFFLE_CODEC(struct join_options),
    SHUFFLE_HELP(struct join_options),
    SHUFFLE_INSTANCE(struct join_options),
    SHUFFLE_JSON(struct join_options),
    {"left", '1', OPTION_UNSIGNED, AT(column[LEFT]), "COLUMN", "1",
     "column of the first table that is its key", .min = 1, .max = 1000},
    SHUFFLE_MEMORY(struct join_options),
    SHUFFLE_PARTITIONS(struct join_options, "0",
		       "parts of the output; 0: one per thread of all processes"),
    {"progress", 0, OPTION_FLAG, AT(progress), NULL, NULL,
     "write progress to stderr, also to a file or pipe"},
    {"right", '2', OPTION_UNSIGNED, AT(column[RIGHT]), "COLUMN", "1",
     "column of the second table that is its key", .min = 1, .max = 1000},
    SHUFFLE_SOCKETS(struct join_options),
    SHUFFLE_SPILL(struct join_options),
    {"split", 0, OPTION_SIZE, AT(split), "BYTES", "4M", "input of a map task", .min = 1,
     .max = UINT64_C(1) << 40},
    SHUFFLE_THREADS(struct join_options),
    SHUFFLE_TRANSPORT(struct join_options),
    SHUFFLE_VERSION(struct join_options),
};

static const struct option_table table = {
    OPTION_SPECS(specs, struct join_options),
    .operands = 3,
    .head =
	"Usage: weir-run -n PROCESSES weir-join [options] FILE FILE DIR\n"
	"Joins two tables, lines of columns with a tab between them, by equal keys. Writes "
	"DIR/part-00000\n"
	"and so on: key, other columns of the first table, those of the second, for each pair of "
	"lines.\n"
	"\n",
    .tail = "\n"
	    "Exit codes: 0 done, 1 failure, 2 usage.\n",
};

struct joining {
	const struct join_options *o;
	const char *dir;
	struct input in[TABLES];
};

static int
failed(const char *reason)
{
	fprintf(stderr, "weir-join: %s\n", reason);
	return FAILED;
}

/* ---- map: the key, and the table and the other columns, each behind a tab ---- */

/* The column of this number, from 1. False: the line has fewer. */
static bool
find_column(const uint8_t *line, uint32_t length, uint32_t number, const uint8_t **from,
	    uint32_t *bytes)
{
	const uint8_t *end = line + length, *tab;

	for (;; line = tab + 1) {
		tab = memchr(line, '\t', (size_t)(end - line));
		if (!--number)
			break;
		if (!tab)
			return false;
	}
	*from = line;
	*bytes = (uint32_t)((tab ? tab : end) - line);
	return true;
}

static int
put_line(struct stage_thread *t, uint32_t which, uint8_t *value, const uint8_t *line,
	 uint32_t length)
{
	const struct joining *j = t->user;
	const uint8_t *key;
	struct weir_record r = {.value = value};
	uint32_t before, after; /* bytes of the other columns, with a tab for each */

	if (!find_column(line, length, j->o->column[which], &key, &r.key_length))
		return weir_fail(-EINVAL,
				 "a line of '%s' has less than %u columns; see --left and --right",
				 j->in[which].path, j->o->column[which]);
	r.key = key;
	before = (uint32_t)(key - line);
	after = length - before - r.key_length;
	value[0] = (uint8_t)which;
	r.value_length = 1;
	if (before) {
		value[1] = '\t';
		memcpy(value + 2, line, before - 1);
		r.value_length += before;
	}
	memcpy(value + r.value_length, key + r.key_length, after);
	r.value_length += after;
	return transport_put(t->th, &r);
}

static int
map(struct stage_thread *t, uint32_t map)
{
	const struct joining *j = t->user;
	uint32_t which = map >= j->in[LEFT].maps, length;
	struct pieces p;
	uint8_t *line, *value = malloc(PIECE_MAX + 2);
	int rc =
	    input_pieces(&j->in[which], which ? map - j->in[LEFT].maps : map, &piece_lines, &p);

	if (!value && !rc)
		rc = weir_fail(-ENOMEM, "no memory for a line; free some");
	while (!rc && !(rc = pieces_next(&p, &line, &length))) {
		rc = put_line(t, which, value, line, length);
		t->task_records++;
	}
	pieces_close(&p);
	free(value);
	t->task_bytes = j->in[which].size / j->in[which].maps;
	return rc == -ENODATA ? 0 : rc;
}

/* ---- reduce ---- */

/* The lines of one key: of each table, its lines one behind the other, each behind its length. */
struct group {
	uint8_t *key, *lines[TABLES];
	size_t key_room, room[TABLES], used[TABLES];
};

static int
add_line(struct group *g, const struct weir_record *r)
{
	const uint8_t *value = r->value;
	uint32_t which, length;

	if (!r->value_length || value[0] >= TABLES)
		return weir_fail(-EBADMSG, "a line is of no table");
	which = value[0];
	length = r->value_length - 1;
	if (VEC_RESERVE(g->lines[which], g->room[which], g->used[which] + sizeof(length) + length))
		return weir_fail(-ENOMEM, "no memory for the lines of one key; free some");
	memcpy(g->lines[which] + g->used[which], &length, sizeof(length));
	memcpy(g->lines[which] + g->used[which] + sizeof(length), value + 1, length);
	g->used[which] += sizeof(length) + length;
	return 0;
}

static const uint8_t *
line_at(const struct group *g, uint32_t which, size_t at, uint32_t *length)
{
	memcpy(length, g->lines[which] + at, sizeof(*length));
	return g->lines[which] + at + sizeof(*length);
}

static int
write_pairs(struct stage_thread *t, const struct group *g, uint32_t key_length, struct output *out)
{
	uint32_t left, right;
	int rc = 0;

	for (size_t i = 0; i < g->used[LEFT] && !rc; i += sizeof(left) + left) {
		const uint8_t *first = line_at(g, LEFT, i, &left);

		for (size_t k = 0; k < g->used[RIGHT] && !rc; k += sizeof(right) + right) {
			const uint8_t *second = line_at(g, RIGHT, k, &right);

			rc = output_write(out, g->key, key_length);
			if (!rc)
				rc = output_write(out, first, left);
			if (!rc)
				rc = output_write(out, second, right);
			if (!rc)
				rc = output_write(out, "\n", 1);
			t->out_records++;
		}
	}
	return rc;
}

static int
reduce_keys(struct stage_thread *t, struct group *g, struct output *out)
{
	const void *key;
	uint32_t length;
	struct weir_record r;
	int rc;

	while (!(rc = transport_key(t->th, &key, &length))) {
		if (VEC_RESERVE(g->key, g->key_room, length + 1))
			return weir_fail(-ENOMEM, "no memory for a key; free some");
		memcpy(g->key, key, length);
		g->used[LEFT] = g->used[RIGHT] = 0;
		while (!(rc = transport_next(t->th, &r, -1)) && !(rc = add_line(g, &r)))
			;
		if (rc != -ENODATA)
			return rc;
		rc = write_pairs(t, g, length, out);
		if (rc)
			return rc;
	}
	return rc == -ENODATA ? 0 : rc;
}

static int
reduce(struct stage_thread *t, uint32_t partition, uint32_t part)
{
	const struct joining *j = t->user;
	struct group g = {0};
	struct output out;
	char path[PATH_MAX];
	int rc;

	stage_path(t->stage, j->dir, partition, path, sizeof(path));
	rc = output_open(&out, path);
	if (!rc)
		rc = reduce_keys(t, &g, &out);
	free(g.key);
	free(g.lines[LEFT]);
	free(g.lines[RIGHT]);
	return output_close(&out, rc);
}

static int
join(struct joining *j, struct crew *crew, char **paths)
{
	const struct weir_shuffle_options defaults = WEIR_SHUFFLE_OPTIONS_INIT;
	struct stage_job job = {.program = "weir-join",
				.o = &j->o->common,
				.shuffle = defaults,
				.progress = j->o->progress || isatty(STDERR_FILENO),
				.map = map,
				.parts = 1,
				.reduce = reduce,
				.user = j};
	struct stage_result r;
	int rc = 0;

	for (int i = LEFT; i < TABLES && !rc; i++)
		rc = input_open(&j->in[i], paths[i], j->o->split);
	job.maps = j->in[LEFT].maps + j->in[RIGHT].maps;
	job.shuffle.flags = WEIR_SHUFFLE_GROUPED;
	if (!rc)
		rc = output_directory(j->dir);
	if (!rc)
		rc = stage_run(crew, &job, &r);
	if (rc)
		return failed(weir_reason());
	if (crew->rank)
		return DONE;
	if (j->o->common.json) {
		stage_print_json(&job, crew, &r);
		printf("}\n");
	} else {
		stage_print(&job, &r);
	}
	return DONE;
}

int
main(int argc, char **argv)
{
	static struct join_options o;
	struct joining j = {.o = &o, .in = {{.fd = -1}, {.fd = -1}}};
	struct crew crew;
	int words = argc - 1, status;

	status = option_main(&table, &o, "weir-join", WEIR_VERSION, &words, argv + 1);
	if (status >= 0)
		return status;
	if (words != 3) {
		failed("expected two FILEs and DIR; see --help");
		return USAGE;
	}
	if (crew_open(&crew, o.common.instance, "weir-join", o.common.transport == TRANSPORT_WEIR))
		return failed(weir_reason());
	j.dir = argv[3];
	status = join(&j, &crew, argv + 1);
	crew_close(&crew);
	for (int i = LEFT; i < TABLES; i++)
		if (j.in[i].fd >= 0)
			close(j.in[i].fd);
	if (status == DONE && (fflush(stdout) || ferror(stdout)))
		return failed("cannot write to stdout; check its target");
	return status;
}
