/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A reduction over a 16-ary tree, on any nodes: remote_tree DIR RANK SIZE [ROUNDS]. Each rank
 * exports a few words and leaves its key in DIR. In a round a rank awaits a notice from each of its
 * children, adds their sums to its own value, and puts the sum with a notice into its parent's
 * memory. The root's sum comes down with a signal, a word that counts rounds. Each rank knows what
 * it must be.
 */
#include <weir/remote.h>

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHILDREN 16u
#define RIGHTS (WEIR_MAY_WRITE | WEIR_MAY_NOTIFY)
#define PATIENT 60000 /* ms */

/* The memory that each rank exports. */
struct words {
	uint64_t total, round; /* the root's sum, and of which round; `round` is a signal */
	uint64_t sum[CHILDREN];
};

struct rank {
	struct weir *w;
	const char *dir;
	uint32_t rank, size, children;
	struct weir_export *x;
	struct words *words;
	struct weir_remote *parent, *child[CHILDREN];
};

/* The name of a rank's key, and while it is written. */
static void
key_name(const struct rank *r, uint32_t rank, const char *end, char name[4096])
{
	snprintf(name, 4096, "%s/%u%s", r->dir, rank, end);
}

static int
leave_key(struct rank *r)
{
	char name[4096], begun[4096];
	struct weir_region_info info;
	struct weir_region *region;
	struct weir_key key;
	int rc = weir_region_alloc(r->w, sizeof(*r->words), NULL, &region);
	FILE *f;

	if (!rc)
		rc = weir_export(region, 0, sizeof(*r->words), RIGHTS, &r->x, &key);
	if (rc)
		return rc;
	weir_region_info(region, &info);
	r->words = info.base;
	key_name(r, r->rank, "", name);
	key_name(r, r->rank, ".begun", begun);
	f = fopen(begun, "wb");
	if (!f || fwrite(&key, sizeof(key), 1, f) != 1 || fclose(f) || rename(begun, name)) {
		perror(name);
		exit(1);
	}
	return 0;
}

static int
open_rank(struct rank *r, uint32_t rank, struct weir_remote **remote)
{
	const struct timespec pause = {.tv_nsec = 10000000};
	struct weir_key key;
	char name[4096];
	FILE *f = NULL;

	key_name(r, rank, "", name);
	for (uint32_t ms = 0; !f && ms < PATIENT; ms += 10) {
		f = fopen(name, "rb");
		if (!f)
			nanosleep(&pause, NULL);
	}
	if (!f || fread(&key, sizeof(key), 1, f) != 1) {
		perror(name);
		exit(1);
	}
	fclose(f);
	return weir_remote_open(r->w, &key, RIGHTS, 0, PATIENT, remote);
}

static int
join(struct rank *r)
{
	int rc = leave_key(r);

	if (!rc && r->rank)
		rc = open_rank(r, (r->rank - 1) / CHILDREN, &r->parent);
	for (uint32_t i = 0; !rc && i < CHILDREN; i++) {
		uint32_t child = r->rank * CHILDREN + 1 + i;

		if (child >= r->size)
			break;
		rc = open_rank(r, child, &r->child[i]);
		r->children++;
	}
	return rc;
}

/* The sum of this rank and all below. */
static int
gather(struct rank *r, uint64_t round, uint64_t *sum)
{
	struct weir_notice n;
	int rc = 0;

	*sum = (r->rank + 1) * round;
	for (uint32_t i = 0; !rc && i < r->children; i++) {
		rc = weir_notice_next(r->w, &n, PATIENT);
		if (!rc && (n.x != r->x || n.source >= r->children || n.tag != (uint32_t)round)) {
			fprintf(stderr,
				"remote_tree: a notice %u of child %u in round %" PRIu64 "\n",
				n.tag, n.source, round);
			exit(1);
		}
		*sum += rc ? 0 : r->words->sum[n.source];
	}
	return rc;
}

/* Up to the parent, and the total back. */
static int
exchange(struct rank *r, uint64_t round, uint64_t *sum)
{
	uint32_t slot = (r->rank - 1) % CHILDREN;
	struct weir_transfer up = {.offset = offsetof(struct words, sum[slot]),
				   .buf = sum,
				   .length = sizeof(*sum),
				   .notify = WEIR_WITH_NOTICE,
				   .tag = (uint32_t)round,
				   .source = slot};
	int rc;

	if (!r->parent)
		return 0;
	rc = weir_remote_put_with(r->parent, &up);
	if (!rc)
		rc = weir_signal_wait(r->x, offsetof(struct words, round), WEIR_GE, round, PATIENT,
				      NULL);
	*sum = r->words->total;
	return rc;
}

/* The total to the children. */
static int
spread(struct rank *r, uint64_t round, uint64_t total)
{
	struct weir_op op[CHILDREN], *ops[CHILDREN];
	int rc = 0;

	for (uint32_t i = 0; !rc && i < r->children; i++) {
		struct weir_transfer down = {.offset = offsetof(struct words, total),
					     .buf = &total,
					     .length = sizeof(total),
					     .op = &op[i],
					     .flags = WEIR_AT_TARGET,
					     .notify = WEIR_WITH_SIGNAL_SET,
					     .signal = offsetof(struct words, round),
					     .operand = round};

		ops[i] = &op[i];
		rc = weir_remote_put_with(r->child[i], &down);
	}
	return rc ? rc : weir_op_wait_all(ops, r->children, PATIENT);
}

static int
reduce(struct rank *r, uint64_t rounds)
{
	uint64_t all = (uint64_t)r->size * (r->size + 1) / 2, sum;
	int rc = 0;

	for (uint64_t round = 1; !rc && round <= rounds; round++) {
		rc = gather(r, round, &sum);
		if (!rc)
			rc = exchange(r, round, &sum);
		if (!rc && sum != all * round) {
			fprintf(stderr,
				"remote_tree: round %" PRIu64 ": %" PRIu64 " instead of %" PRIu64
				"\n",
				round, sum, all * round);
			exit(1);
		}
		if (!rc)
			rc = spread(r, round, sum);
	}
	if (!rc)
		printf("rank %u of %u: %" PRIu64 " rounds, %" PRIu64 " in the last one\n", r->rank,
		       r->size, rounds, all * rounds);
	return rc;
}

int
main(int argc, char **argv)
{
	struct rank r = {0};
	int rc;

	if (argc == 4 || argc == 5) {
		r.dir = argv[1];
		r.rank = (uint32_t)strtoul(argv[2], NULL, 10);
		r.size = (uint32_t)strtoul(argv[3], NULL, 10);
	}
	if (r.rank >= r.size) {
		fprintf(stderr, "usage: remote_tree DIR RANK SIZE [ROUNDS]\n");
		return 2;
	}
	rc = weir_attach(NULL, &r.w);
	if (rc) {
		fprintf(stderr, "remote_tree: %s\n", weir_reason());
		return 1;
	}
	rc = join(&r);
	if (!rc)
		rc = reduce(&r, argc == 5 ? strtoull(argv[4], NULL, 10) : 1);
	if (rc)
		fprintf(stderr, "remote_tree: rank %u: %s\n", r.rank, weir_reason());
	weir_detach(r.w);
	return rc ? 1 : 0;
}
