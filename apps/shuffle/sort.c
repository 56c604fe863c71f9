/* SPDX-License-Identifier: BSD-3-Clause */
/* weir-sort: sorts lines of 100 bytes by all threads of all processes; makes and checks them. */
#include "lines.h"
#include "output.h"
#include "stage.h"

#include "base/fail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER (10000u * LINE_BYTES) /* bytes of a read */
#define SAMPLE 1000u		     /* keys per partition */

enum { DONE, FAILED, USAGE }; /* exit codes */

struct sort_options {
	struct shuffle_options common;
	uint64_t seed, split;
	uint32_t same;
	const char *like;
	bool progress, unordered;
};

#define AT(field) OPTION_FIELD(struct sort_options, field)
static const struct option_spec specs[] = {
    SHUFFLE_BLOCK(struct sort_options),
    SHUFFLE_CODEC(struct sort_options),
    SHUFFLE_HELP(struct sort_options),
    SHUFFLE_INSTANCE(struct sort_options),
    SHUFFLE_JSON(struct sort_options),
    {"like", 0, OPTION_TEXT, AT(like), "FILE", NULL,
     "check: number and sum of lines are those of this file", .min = 1},
    SHUFFLE_MEMORY(struct sort_options),
    SHUFFLE_PARTITIONS(struct sort_options, "0",
		       "parts of the output; 0: one per thread of all processes"),
    {"progress", 0, OPTION_FLAG, AT(progress), NULL, NULL,
     "write progress to stderr, also to a file or pipe"},
    {"same", 0, OPTION_UNSIGNED, AT(same), "PERCENT", "0",
     "gen: lines that have one and the same key", .max = 100},
    {"seed", 0, OPTION_UNSIGNED, AT(seed), "N", "1", "gen: of all lines", .max = UINT64_MAX},
    SHUFFLE_SOCKETS(struct sort_options),
    SHUFFLE_SPILL(struct sort_options),
    {"split", 0, OPTION_SIZE, AT(split), "BYTES", "16M", "input of a map task", .min = LINE_BYTES,
     .max = UINT64_C(1) << 40},
    SHUFFLE_THREADS(struct sort_options),
    SHUFFLE_TRANSPORT(struct sort_options),
    {"unordered", 0, OPTION_FLAG, AT(unordered), NULL, NULL,
     "check: the lines need not be in order"},
    SHUFFLE_VERSION(struct sort_options),
};

static const struct option_table table = {
    OPTION_SPECS(specs, struct sort_options),
    .operands = 16,
    .head = "Usage: weir-sort [options] gen LINES FILE\n"
	    "       weir-run -n PROCESSES weir-sort [options] sort FILE DIR\n"
	    "       weir-sort [options] check FILE|DIR...\n"
	    "Sorts lines of 100 bytes by their first 10, as in the sort benchmark: gen makes them, "
	    "sort\n"
	    "writes DIR/part-00000 and so on, check tells their number, the sum of their CRC-32 "
	    "and\n"
	    "whether all of them, in the order of files, are sorted.\n"
	    "\n",
    .tail = "\n"
	    "Exit codes: 0 done, 1 failure, or check has found a fault, 2 usage.\n",
};

static int
failed(const char *reason)
{
	fprintf(stderr, "weir-sort: %s\n", reason);
	return FAILED;
}

static int
usage(const char *reason)
{
	failed(reason);
	return USAGE;
}

/* ---- gen ---- */

static int
generate(const struct sort_options *o, const char *number, const char *path)
{
	struct output out;
	uint64_t count;
	uint8_t line[LINE_BYTES];
	int rc;

	if (option_number(number, true, 0, UINT64_C(1) << 40, &count))
		return usage("invalid number of lines (expected a number, K, M or G may follow)");
	rc = output_open(&out, path);
	for (uint64_t i = 0; i < count && !rc; i++) {
		line_make(line, i, o->seed, o->same);
		rc = output_write(&out, line, LINE_BYTES);
	}
	rc = output_close(&out, rc);
	return rc ? failed(weir_reason()) : DONE;
}

/* ---- check ---- */

static int
check_file(struct lines_check *c, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
	uint8_t *buffer = malloc(BUFFER);
	size_t have = 0;
	ssize_t n = 1;

	if (fd < 0 || !buffer)
		rc = weir_fail(-errno, "cannot read '%s': %s; name another file", path,
			       strerror(errno));
	while (!rc && n > 0) {
		n = read(fd, buffer + have, BUFFER - have);
		if (n < 0) {
			rc = weir_fail(-errno, "cannot read '%s': %s; name another file", path,
				       strerror(errno));
			break;
		}
		have += (size_t)n;
		lines_check(c, buffer, have / LINE_BYTES);
		memmove(buffer, buffer + have - have % LINE_BYTES, have % LINE_BYTES);
		have %= LINE_BYTES;
	}
	if (!rc && have)
		rc = weir_fail(-EINVAL,
			       "'%s' has %zu bytes behind its last line of 100 bytes; see gen",
			       path, have);
	free(buffer);
	if (fd >= 0)
		close(fd);
	return rc;
}

static int
is_part(const struct dirent *e)
{
	return !strncmp(e->d_name, "part-", 5);
}

static int
check_path(struct lines_check *c, const char *path)
{
	struct dirent **parts;
	struct stat s;
	int count, rc = 0;

	if (stat(path, &s) || !S_ISDIR(s.st_mode))
		return check_file(c, path);
	count = scandir(path, &parts, is_part, alphasort);
	if (count < 0)
		return weir_fail(-errno, "cannot read '%s': %s; name another file", path,
				 strerror(errno));
	for (int i = 0; i < count; i++) {
		char name[PATH_MAX];

		snprintf(name, sizeof(name), "%s/%s", path, parts[i]->d_name);
		if (!rc)
			rc = check_file(c, name);
		free(parts[i]);
	}
	free(parts);
	return rc;
}

static int
check(const struct sort_options *o, int count, const char *const *paths)
{
	struct lines_check c = {0}, like = {0};
	int rc = 0;

	for (int i = 0; i < count && !rc; i++)
		rc = check_path(&c, paths[i]);
	if (!rc && o->like)
		rc = check_path(&like, o->like);
	if (rc)
		return failed(weir_reason());
	printf(o->common.json ? "{\"lines\": %llu, \"sum\": \"%llx\", \"same\": %llu, "
				"\"unordered\": %llu}\n"
			      : "%llu lines, sum %llx, %llu with the key of the line before, %llu "
				"not in order\n",
	       (unsigned long long)c.lines, (unsigned long long)c.sum, (unsigned long long)c.same,
	       (unsigned long long)c.unordered);
	if (c.unordered && !o->unordered) {
		char text[128];

		snprintf(text, sizeof(text),
			 "line %llu, counted from 0, is not in order; sort them",
			 (unsigned long long)c.first);
		return failed(text);
	}
	if (o->like && (c.lines != like.lines || c.sum != like.sum)) {
		char text[128];

		snprintf(text, sizeof(text),
			 "not the lines of --like, which has %llu, sum %llx; sort it again",
			 (unsigned long long)like.lines, (unsigned long long)like.sum);
		return failed(text);
	}
	return DONE;
}

/* ---- sort ---- */

struct sorting {
	const struct sort_options *o;
	const char *dir;
	int fd;
	uint64_t lines, per_map; /* of the input, of a map task */
	struct borders borders;
};

static uint32_t
partition_of(const void *key, uint32_t length, uint32_t partitions, void *user)
{
	const struct borders *b = user;

	return borders_find(b, key);
}

/* Whole lines from line `from` on. 0 or -errno. */
static int
read_lines(const struct sorting *s, uint64_t from, void *to, size_t count)
{
	size_t bytes = count * LINE_BYTES, have = 0;

	while (have < bytes) {
		ssize_t n = pread(s->fd, (uint8_t *)to + have, bytes - have,
				  (off_t)(from * LINE_BYTES + have));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return weir_fail(n ? -errno : -EIO, "cannot read the input: %s",
					 n ? strerror(errno) : "it has become shorter");
		have += (size_t)n;
	}
	return 0;
}

static int
map(struct stage_thread *t, uint32_t map)
{
	const struct sorting *s = t->user;
	uint64_t at = map * s->per_map,
		 end = at + s->per_map < s->lines ? at + s->per_map : s->lines;
	uint8_t *buffer = malloc(BUFFER);
	int rc = buffer ? 0 : weir_fail(-ENOMEM, "no memory to read; free some");

	while (at < end && !rc) {
		size_t count = end - at < BUFFER / LINE_BYTES ? end - at : BUFFER / LINE_BYTES;

		rc = read_lines(s, at, buffer, count);
		for (size_t i = 0; i < count && !rc; i++) {
			const uint8_t *line = buffer + i * LINE_BYTES;
			struct weir_record r = {line, line + LINE_KEY, LINE_KEY,
						LINE_BYTES - LINE_KEY};

			rc = transport_put(t->th, &r);
		}
		at += count;
		t->task_records += count;
		t->task_bytes += count * LINE_BYTES;
	}
	free(buffer);
	return rc;
}

static int
reduce(struct stage_thread *t, uint32_t partition, uint32_t part)
{
	const struct sorting *s = t->user;
	struct weir_record r;
	struct output out;
	char path[PATH_MAX];
	int rc;

	stage_path(t->stage, s->dir, partition, path, sizeof(path));
	rc = output_open(&out, path);
	while (!rc && !(rc = transport_next(t->th, &r, -1))) {
		rc = output_write(&out, r.key, r.key_length);
		if (!rc)
			rc = output_write(&out, r.value, r.value_length);
		t->out_records++;
	}
	return output_close(&out, rc == -ENODATA ? 0 : rc);
}

/* The same keys in each process: lines at equal distances. 0 or -errno. */
static int
find_borders(struct sorting *s, uint32_t partitions)
{
	uint64_t want = (uint64_t)partitions * SAMPLE, count = want < s->lines ? want : s->lines;
	uint8_t(*sample)[LINE_KEY] = calloc(count + 1, LINE_KEY);
	uint8_t line[LINE_BYTES];
	int rc = sample ? 0 : -ENOMEM;

	for (uint64_t i = 0; i < count && !rc; i++) {
		rc = read_lines(s, i * s->lines / count, line, 1);
		memcpy(sample[i], line, LINE_KEY);
	}
	if (!rc)
		rc = borders_make(&s->borders, sample, count, partitions);
	free(sample);
	return rc == -ENOMEM ? weir_fail(rc, "no memory for borders; free some") : rc;
}

static int
open_input(struct sorting *s, const char *path, uint32_t *maps)
{
	struct stat st;
	uint64_t count;

	s->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0 || fstat(s->fd, &st))
		return weir_fail(-errno, "cannot read '%s': %s; name another file", path,
				 strerror(errno));
	if (st.st_size % LINE_BYTES)
		return weir_fail(-EINVAL, "'%s' does not consist of lines of 100 bytes; see gen",
				 path);
	s->lines = (uint64_t)st.st_size / LINE_BYTES;
	s->per_map = s->o->split / LINE_BYTES;
	count = (s->lines + s->per_map - 1) / s->per_map;
	if (count > WEIR_SHUFFLE_MAPS_MAX)
		return weir_fail(-EINVAL, "more than %u map tasks; give a larger --split",
				 WEIR_SHUFFLE_MAPS_MAX);
	*maps = count ? (uint32_t)count : 1;
	return 0;
}

static int
sort(struct sorting *s, struct crew *crew, const char *path)
{
	const struct weir_shuffle_options defaults = WEIR_SHUFFLE_OPTIONS_INIT;
	struct stage_job job = {.program = "weir-sort",
				.o = &s->o->common,
				.shuffle = defaults,
				.progress = s->o->progress || isatty(STDERR_FILENO),
				.map = map,
				.parts = 1,
				.reduce = reduce,
				.user = s};
	struct stage_result r;
	uint32_t partitions = s->o->common.partitions;
	int rc = open_input(s, path, &job.maps);

	if (!partitions)
		partitions = s->o->common.threads * crew->size;
	if (!rc)
		rc = find_borders(s, partitions);
	job.shuffle.flags = WEIR_SHUFFLE_SORTED;
	job.shuffle.partition = partition_of;
	job.shuffle.user = &s->borders;
	if (!rc)
		rc = output_directory(s->dir);
	if (!rc)
		rc = stage_run(crew, &job, &r);
	if (rc)
		return failed(weir_reason());
	if (r.records != s->lines || r.out_records != s->lines)
		return failed("lines were lost, or written twice");
	if (crew->rank)
		return DONE;
	if (s->o->common.json) {
		stage_print_json(&job, crew, &r);
		printf("}\n");
	} else {
		stage_print(&job, &r);
	}
	return DONE;
}

static int
sort_files(const struct sort_options *o, const char *path, const char *dir)
{
	struct sorting s = {.o = o, .dir = dir, .fd = -1};
	struct crew crew;
	int status;

	if (crew_open(&crew, o->common.instance, "weir-sort",
		      o->common.transport == TRANSPORT_WEIR))
		return failed(weir_reason());
	status = sort(&s, &crew, path);
	crew_close(&crew);
	free(s.borders.keys);
	if (s.fd >= 0)
		close(s.fd);
	return status;
}

int
main(int argc, char **argv)
{
	static struct sort_options o;
	const char *const *word = (const char *const *)argv + 1;
	int words = argc - 1, status;

	status = option_main(&table, &o, "weir-sort", WEIR_VERSION, &words, argv + 1);
	if (status >= 0)
		return status;
	if (words == 3 && !strcmp(word[0], "gen"))
		status = generate(&o, word[1], word[2]);
	else if (words == 3 && !strcmp(word[0], "sort"))
		status = sort_files(&o, word[1], word[2]);
	else if (words >= 2 && !strcmp(word[0], "check"))
		status = check(&o, words - 1, word + 1);
	else
		return usage(
		    "expected gen LINES FILE, sort FILE DIR, or check FILE...; see --help");
	if (status == DONE && (fflush(stdout) || ferror(stdout)))
		return failed("cannot write to stdout; check its target");
	return status;
}
