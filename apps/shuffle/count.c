/* SPDX-License-Identifier: BSD-3-Clause */
/* weir-count: counts the words of a text by all threads of all processes. */
#include "output.h"
#include "pieces.h"
#include "stage.h"

#include "base/vec.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DONE, FAILED, USAGE }; /* exit codes */

struct count_options {
	struct shuffle_options common;
	uint64_t split;
	uint32_t parts;
	bool combine, progress;
};

#define AT(field) OPTION_FIELD(struct count_options, field)
static const struct option_spec specs[] = {
    SHUFFLE_BLOCK(struct count_options),
    SHUFFLE_CODEC(struct count_options),
    {"combine", 0, OPTION_WORD, AT(combine), NULL, "yes",
     "add up counts of a word before they leave; Weir only", .words = "no|yes"},
    SHUFFLE_HELP(struct count_options),
    SHUFFLE_INSTANCE(struct count_options),
    SHUFFLE_JSON(struct count_options),
    SHUFFLE_MEMORY(struct count_options),
    SHUFFLE_PARTITIONS(struct count_options, "0",
		       "parts of the output; 0: one per thread of all processes"),
    {"parts", 0, OPTION_UNSIGNED, AT(parts), "N", "1",
     "threads that read a partition together; Weir only", .min = 1, .max = 64},
    {"progress", 0, OPTION_FLAG, AT(progress), NULL, NULL,
     "write progress to stderr, also to a file or pipe"},
    SHUFFLE_SOCKETS(struct count_options),
    SHUFFLE_SPILL(struct count_options),
    {"split", 0, OPTION_SIZE, AT(split), "BYTES", "4M", "input of a map task", .min = 1,
     .max = UINT64_C(1) << 40},
    SHUFFLE_THREADS(struct count_options),
    SHUFFLE_TRANSPORT(struct count_options),
    SHUFFLE_VERSION(struct count_options),
};

static const struct option_table table = {
    OPTION_SPECS(specs, struct count_options),
    .operands = 2,
    .head = "Usage: weir-run -n PROCESSES weir-count [options] FILE DIR\n"
	    "Counts the words of FILE: runs of ASCII letters, of which upper and lower case are "
	    "equal.\n"
	    "Writes DIR/part-00000 and so on, with a number and a word per line as uniq -c does.\n"
	    "\n",
    .tail = "\n"
	    "Exit codes: 0 done, 1 failure, 2 usage.\n",
};

/* The counts of a partition: those of its parts, which may have the same words. */
struct counts {
	pthread_mutex_t lock; /* of all fields */
	uint32_t parts;	      /* that have been read */
	uint8_t *words;
	struct count *all;
	size_t words_used, words_room, count, room;
};

struct count {
	uint64_t count;
	size_t word; /* offset */
	uint32_t length;
};

struct counting {
	const struct count_options *o;
	const char *dir;
	struct input in;
	struct counts *partitions;
};

static int
failed(const char *reason)
{
	fprintf(stderr, "weir-count: %s\n", reason);
	return FAILED;
}

static int
map(struct stage_thread *t, uint32_t map)
{
	const struct counting *c = t->user;
	const uint64_t one = 1;
	struct pieces p;
	uint8_t *word;
	uint32_t length;
	int rc = input_pieces(&c->in, map, &piece_words, &p);

	while (!rc && !(rc = pieces_next(&p, &word, &length))) {
		struct weir_record r = {word, &one, length, sizeof(one)};

		for (uint32_t i = 0; i < length; i++)
			word[i] |= 0x20;
		rc = transport_put(t->th, &r);
		t->task_records++;
	}
	pieces_close(&p);
	t->task_bytes = c->in.size / c->in.maps;
	return rc == -ENODATA ? 0 : rc;
}

static int
sum(const struct weir_record *r, uint64_t *to)
{
	uint64_t n;

	if (r->value_length != sizeof(n))
		return weir_fail(-EBADMSG, "a count has %u bytes", r->value_length);
	memcpy(&n, r->value, sizeof(n));
	*to += n;
	return 0;
}

static int
combine(const struct weir_record *r, size_t n, struct weir_emit *out, void *user)
{
	uint64_t all = 0;
	struct weir_record one = *r;
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++)
		rc = sum(&r[i], &all);
	one.value = &all;
	return rc ? rc : weir_emit(out, &one);
}

static int
add_count(struct counts *c, const void *word, uint32_t length, uint64_t count)
{
	if (VEC_RESERVE(c->words, c->words_room, c->words_used + length) ||
	    VEC_RESERVE(c->all, c->room, c->count + 1))
		return weir_fail(-ENOMEM, "no memory for the words of a partition; free some");
	memcpy(c->words + c->words_used, word, length);
	c->all[c->count++] = (struct count){count, c->words_used, length};
	c->words_used += length;
	return 0;
}

/* Reads the words of a part of a partition. 0 or -errno. */
static int
read_words(struct stage_thread *t, struct counts *c)
{
	const void *key;
	uint32_t length;
	struct weir_record r;
	int rc;

	while (!(rc = transport_key(t->th, &key, &length))) {
		struct count *last;

		rc = add_count(c, key, length, 0);
		if (rc)
			return rc;
		last = &c->all[c->count - 1];
		while (!(rc = transport_next(t->th, &r, -1)) && !(rc = sum(&r, &last->count)))
			;
		if (rc != -ENODATA)
			return rc;
		t->out_records += last->count;
	}
	return rc == -ENODATA ? 0 : rc;
}

static int
compare(const void *x, const void *y, void *arg)
{
	const struct count *a = x, *b = y;
	const struct counts *c = arg;
	uint32_t shorter = a->length < b->length ? a->length : b->length;
	int order = memcmp(c->words + a->word, c->words + b->word, shorter);

	return order ? order : (a->length > b->length) - (a->length < b->length);
}

static int
write_counts(struct counts *c, struct output *out)
{
	char text[32];
	int rc = 0;

	if (c->count)
		qsort_r(c->all, c->count, sizeof(*c->all), compare, c);
	for (size_t i = 0; i < c->count && !rc; i++) {
		struct count *one = &c->all[i];
		int n;

		if (i + 1 < c->count && !compare(one, one + 1, c)) {
			one[1].count += one->count;
			continue;
		}
		n = snprintf(text, sizeof(text), "%7llu ", (unsigned long long)one->count);
		rc = output_write(out, text, (size_t)n);
		if (!rc)
			rc = output_write(out, c->words + one->word, one->length);
		if (!rc)
			rc = output_write(out, "\n", 1);
	}
	return rc;
}

static void
free_counts(struct counts *c)
{
	free(c->words);
	free(c->all);
	c->words = NULL;
	c->all = NULL;
}

/* Adds the counts of a part to those of its partition. True: all parts have been read. */
static bool
merge(struct counts *to, const struct counts *part, uint32_t parts, int *rc)
{
	bool last;

	pthread_mutex_lock(&to->lock);
	for (size_t i = 0; i < part->count && !*rc; i++)
		*rc = add_count(to, part->words + part->all[i].word, part->all[i].length,
				part->all[i].count);
	last = ++to->parts == parts;
	pthread_mutex_unlock(&to->lock);
	return last;
}

static int
reduce(struct stage_thread *t, uint32_t partition, uint32_t part)
{
	const struct counting *c = t->user;
	struct counts own = {0}, *all = &c->partitions[partition];
	struct output out;
	char path[PATH_MAX];
	int rc = read_words(t, &own);
	bool last = !rc && merge(all, &own, c->o->parts, &rc);

	free_counts(&own);
	if (rc || !last)
		return rc;
	stage_path(t->stage, c->dir, partition, path, sizeof(path));
	rc = output_open(&out, path);
	if (!rc)
		rc = write_counts(all, &out);
	free_counts(all);
	return output_close(&out, rc);
}

/* 0 or -ENOMEM. */
static int
make_partitions(struct counting *c, uint32_t count)
{
	c->partitions = calloc(count, sizeof(*c->partitions));
	if (!c->partitions)
		return weir_fail(-ENOMEM, "no memory for %u partitions", count);
	for (uint32_t i = 0; i < count; i++)
		pthread_mutex_init(&c->partitions[i].lock, NULL);
	return 0;
}

static int
count(struct counting *c, struct crew *crew, const char *path)
{
	const struct weir_shuffle_options defaults = WEIR_SHUFFLE_OPTIONS_INIT;
	struct stage_job job = {.program = "weir-count",
				.o = &c->o->common,
				.shuffle = defaults,
				.progress = c->o->progress || isatty(STDERR_FILENO),
				.map = map,
				.parts = c->o->parts,
				.reduce = reduce,
				.user = c};
	struct stage_result r;
	uint32_t partitions = c->o->common.partitions;
	int rc = input_open(&c->in, path, c->o->split);

	if (!rc)
		rc =
		    make_partitions(c, partitions ? partitions : c->o->common.threads * crew->size);

	job.maps = c->in.maps;
	job.shuffle.flags = WEIR_SHUFFLE_GROUPED;
	job.shuffle.combine = c->o->combine ? combine : NULL;
	if (!rc)
		rc = output_directory(c->dir);
	if (!rc)
		rc = stage_run(crew, &job, &r);
	if (rc)
		return failed(weir_reason());
	if (r.records != r.out_records)
		return failed("words were lost, or counted twice");
	if (crew->rank)
		return DONE;
	if (c->o->common.json) {
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
	static struct count_options o;
	struct counting c = {.o = &o, .in.fd = -1};
	struct crew crew;
	int words = argc - 1, status;

	status = option_main(&table, &o, "weir-count", WEIR_VERSION, &words, argv + 1);
	if (status >= 0)
		return status;
	if (words != 2) {
		failed("expected FILE and DIR; see --help");
		return USAGE;
	}
	if (crew_open(&crew, o.common.instance, "weir-count", o.common.transport == TRANSPORT_WEIR))
		return failed(weir_reason());
	c.dir = argv[2];
	status = count(&c, &crew, argv[1]);
	crew_close(&crew);
	free(c.partitions);
	if (c.in.fd >= 0)
		close(c.in.fd);
	if (status == DONE && (fflush(stdout) || ferror(stdout)))
		return failed("cannot write to stdout; check its target");
	return status;
}
