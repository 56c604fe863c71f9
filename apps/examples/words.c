/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counts the words of a file: "weir-run -n 4 words FILE". Each process reads its part of the lines
 * and calls a function in the process that counts a word. When all calls have run, process 0 asks
 * each process for its most frequent word.
 */
#include <weir/invoke.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WORD 32u /* bytes; longer ones are cut */
#define WORDS (1u << 16)

enum { COUNT, MOST, FUNCTIONS };

struct word {
	char text[WORD];
	uint64_t count;
};

struct most {
	struct word word;
	uint64_t all, different, dropped;
};

/* Of this process: its one thread runs all calls. */
static struct word table[WORDS];
static struct most own;

static uint32_t
hash(const char *text, size_t length)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < length; i++)
		h = (h ^ (unsigned char)text[i]) * 16777619u;
	return h;
}

/* The arguments are a peer's: their length is within the bounds of the function, no more is known.
 */
static void
count(struct weir_incoming *c, const void *args, size_t length)
{
	char text[WORD] = "";
	struct word *w;
	uint32_t at;

	(void)c;
	memcpy(text, args, length);
	at = hash(text, length) >> 16;
	for (uint32_t i = 0; i < WORDS; i++) {
		w = &table[(at + i) % WORDS];
		if (w->count && strcmp(w->text, text) != 0)
			continue;
		memcpy(w->text, text, WORD);
		own.all++;
		own.different += !w->count++;
		if (w->count > own.word.count)
			own.word = *w;
		return;
	}
	own.dropped++;
}

static void
most(struct weir_incoming *c, const void *args, size_t length)
{
	(void)args;
	(void)length;
	weir_incoming_result(c, &own, sizeof(own));
}

static const struct weir_function functions[FUNCTIONS] = {
    [COUNT] = {.name = "words.count", .min_length = 1, .max_length = WORD - 1, .run = count},
    [MOST] = {.name = "words.most", .run = most},
};

/* Calls the processes to which the words of this process's lines belong. */
static int
read_lines(struct weir_invoker *v, FILE *f, uint32_t rank, uint32_t size)
{
	static const char between[] = " \t\n\r.,;:!?\"'()[]<>*-_";
	char line[4096], *rest, *text;
	int rc = 0;

	for (uint64_t i = 0; !rc && fgets(line, sizeof(line), f); i++) {
		rest = line;
		while (i % size == rank && !rc && (text = strsep(&rest, between))) {
			size_t length = strnlen(text, WORD - 1);
			struct weir_to to = {.process = hash(text, length) % size, .thread = 0};

			if (length)
				rc = weir_call(v, to, COUNT, text, length, NULL);
		}
	}
	return rc;
}

static int
print_most(struct weir_invoker *v, uint32_t size)
{
	struct most sum = {0}, m;
	struct weir_future f;
	int rc = 0;

	for (uint32_t p = 0; p < size && !rc; p++) {
		struct weir_to to = {.process = p, .thread = 0};

		f = (struct weir_future){0};
		rc = weir_call_return(v, to, MOST, NULL, 0, &f, &m, sizeof(m), NULL);
		if (!rc)
			rc = weir_future_wait(v, &f, -1);
		if (rc)
			break;
		sum.all += m.all;
		sum.different += m.different;
		sum.dropped += m.dropped;
		if (m.word.count > sum.word.count)
			sum.word = m.word;
	}
	if (!rc)
		printf("%llu words, %llu different; most often: %.31s, %llu times\n",
		       (unsigned long long)sum.all, (unsigned long long)sum.different,
		       sum.word.text, (unsigned long long)sum.word.count);
	return !rc && sum.dropped ? -ENOSPC : rc;
}

static int
work(struct weir_invoker *v, FILE *f, uint32_t rank, uint32_t size)
{
	int rc = weir_invoker_enter(v, 0);

	if (rc)
		return rc;
	rc = weir_invoker_barrier(v, -1); /* all have entered */
	if (!rc)
		rc = read_lines(v, f, rank, size);
	if (!rc)
		rc = weir_invoker_quiet(v, -1); /* all words are counted */
	if (!rc && !rank)
		rc = print_most(v, size);
	if (!rc)
		rc = weir_invoker_barrier(v, -1); /* nobody is called any more */
	weir_invoker_leave(v);
	return rc;
}

int
main(int argc, char **argv)
{
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;
	struct weir_invoker *v = NULL;
	struct weir_group *g = NULL;
	FILE *f = argc == 2 ? fopen(argv[1], "r") : NULL;
	struct weir *w = NULL;
	int rc;

	if (argc != 2) {
		fprintf(stderr, "usage: weir-run -n PROCESSES words FILE\n");
		return 2;
	}
	if (!f) {
		perror(argv[1]);
		return 1;
	}
	o.functions = functions;
	o.function_count = FUNCTIONS;
	o.threads = 1;
	rc = weir_attach(NULL, &w);
	if (!rc)
		rc = weir_group_join(w, NULL, NULL, 30000, &g);
	if (!rc)
		rc = weir_invoker_open(w, g, &o, &v);
	if (!rc)
		rc = work(v, f, weir_group_rank(g), weir_group_size(g));
	if (rc == -ENOSPC)
		fprintf(stderr, "words: more than %u different words in a process\n", WORDS);
	else if (rc)
		fprintf(stderr, "words: %s\n", weir_reason());
	weir_invoker_close(v);
	weir_group_leave(g);
	weir_detach(w);
	fclose(f);
	return rc != 0;
}
