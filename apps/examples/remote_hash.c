/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A distributed hash table: remote_hash NAME SIZE INSERTS. Each of SIZE programs, on any nodes,
 * joins the group NAME and exports a part of the table; then each inserts INSERTS numbers of its
 * own. A number's hash names the part and the slot. Compare and swap takes the slot; a number that
 * finds it taken gets an element of that part's heap by fetch and add, and becomes the first one in
 * the slot's list. No program does anything for inserts of others.
 *
 * At the end each program looks up the numbers of the next one, and all count what they hold.
 */
#include <weir/group.h>
#include <weir/remote.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RIGHTS (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE)
#define PATIENT 60000 /* ms */
#define BATCH 16u     /* inserts of a rank at a time */

struct element {
	uint64_t number; /* 0: none */
	uint64_t next;	 /* the next one in the slot's list: 1 + its index in the heap; 0: none */
};

/* The memory that each rank exports. */
struct part {
	uint64_t used; /* elements of the heap */
	uint64_t reserved;
	struct element element[]; /* slots, then the heap */
};

struct table {
	struct weir *w;
	struct weir_group *g;
	uint32_t rank, size;
	uint64_t slots, heap; /* of a part */
	struct part *mine;
	struct weir_remote **part;
};

/* Where a number belongs. */
struct place {
	struct weir_remote *part;
	uint64_t slot; /* offset of its element */
};

static uint64_t
hash(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9;
	x ^= x >> 27;
	x *= 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static uint64_t
offset(uint64_t element)
{
	return offsetof(struct part, element) + element * sizeof(struct element);
}

static struct place
place_of(const struct table *t, uint64_t number)
{
	uint64_t h = hash(number);

	return (struct place){t->part[h % t->size], offset(h / t->size % t->slots)};
}

static int
flush(const struct table *t)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < t->size; i++)
		rc = weir_remote_flush(t->part[i], PATIENT);
	return rc;
}

/* An insert that is under way. */
struct begun {
	struct place place;
	struct element e;
	uint64_t at;  /* its element in the heap */
	uint64_t was; /* what a swap found */
};

static int
swap(struct begun *b, size_t field, uint64_t expected, uint64_t to)
{
	return weir_remote_compare_swap(b->place.part, b->place.slot + field, &expected, &to,
					&b->was, WEIR_T_UINT64, 0);
}

/* Gets an element of the heap for each insert whose slot is taken. */
static int
take_elements(const struct table *t, struct begun *b, unsigned n)
{
	uint64_t one = 1;
	int rc = 0;

	for (unsigned i = 0; !rc && i < n; i++)
		rc = weir_remote_fetch_op(b[i].place.part, offsetof(struct part, used), &one,
					  &b[i].at, WEIR_T_UINT64, WEIR_ACC_SUM, 0);
	if (!rc)
		rc = flush(t);
	for (unsigned i = 0; !rc && i < n; i++) {
		if (b[i].at < t->heap)
			continue;
		fprintf(stderr, "remote_hash: a part's heap is full after %" PRIu64 " elements\n",
			t->heap);
		exit(1);
	}
	return rc;
}

/* Puts elements at the head of their slots' lists, again where others were faster. */
static int
chain(const struct table *t, struct begun *b, unsigned n)
{
	int rc = take_elements(t, b, n);
	unsigned left;

	while (!rc && n) {
		/* an element is whole before it is in the list: operations take effect in order */
		for (unsigned i = 0; !rc && i < n; i++) {
			rc = weir_remote_put(b[i].place.part, offset(t->slots + b[i].at), &b[i].e,
					     sizeof(b[i].e), 0);
			if (!rc)
				rc = swap(&b[i], offsetof(struct element, next), b[i].e.next,
					  b[i].at + 1);
		}
		if (!rc)
			rc = flush(t);
		left = 0;
		for (unsigned i = 0; !rc && i < n; i++) {
			if (b[i].was == b[i].e.next)
				continue;
			b[left] = b[i];
			b[left].e.next = b[left].was;
			left++;
		}
		n = left;
	}
	return rc;
}

/* Inserts n numbers from `first` on, all of them at a time: an insert costs a part of a round trip.
 */
static int
insert(const struct table *t, uint64_t first, unsigned n)
{
	struct begun b[BATCH];
	unsigned taken = 0;
	int rc = 0;

	for (unsigned i = 0; !rc && i < n; i++) {
		b[i] = (struct begun){.place = place_of(t, first + i), .e.number = first + i};
		rc = swap(&b[i], offsetof(struct element, number), 0, first + i);
	}
	if (!rc)
		rc = flush(t);
	for (unsigned i = 0; !rc && i < n; i++)
		if (b[i].was)
			b[taken++] = b[i];
	return rc ? rc : chain(t, b, taken);
}

static int
look_up(const struct table *t, uint64_t number, bool *found)
{
	struct place p = place_of(t, number);
	struct element e;
	uint64_t at = p.slot;
	int rc;

	for (*found = false;; at = offset(t->slots + e.next - 1)) {
		rc = weir_remote_get(p.part, at, &e, sizeof(e), 0);
		if (!rc)
			rc = weir_remote_flush(p.part, PATIENT);
		if (rc)
			return rc;
		*found = e.number == number;
		if (*found || !e.next)
			return 0;
	}
}

/* Exports this rank's part, and opens all. */
static int
make(struct table *t, uint64_t inserts)
{
	struct weir_key mine, *keys = calloc(t->size, sizeof(*keys));
	struct weir_region_info info;
	struct weir_region *region;
	struct weir_export *x;
	int rc;

	t->slots = 2 * inserts;
	t->heap = inserts + 1000;
	t->part = calloc(t->size, sizeof(*t->part));
	if (!keys || !t->part) {
		perror("remote_hash");
		exit(1);
	}
	rc = weir_region_alloc(t->w, offset(t->slots + t->heap), NULL, &region);
	if (!rc) {
		weir_region_info(region, &info);
		t->mine = info.base;
		/* on one host the programs map each other's parts */
		rc = weir_export(region, 0, info.bytes, RIGHTS | WEIR_MAY_MAP, &x, &mine);
	}
	if (!rc)
		rc = weir_group_allgather(t->g, &mine, sizeof(mine), keys, PATIENT);
	for (uint32_t i = 0; !rc && i < t->size; i++)
		rc = weir_remote_open(t->w, &keys[i], RIGHTS, 0, PATIENT, &t->part[i]);
	free(keys);
	return rc;
}

static double
seconds(void)
{
	struct timespec s;

	clock_gettime(CLOCK_MONOTONIC, &s);
	return (double)s.tv_sec + 1e-9 * (double)s.tv_nsec;
}

/* All inserts of all ranks; the seconds that the slowest one took. */
static int
fill(struct table *t, uint64_t inserts, double *took)
{
	uint64_t first = t->rank * inserts + 1;
	int rc = weir_group_barrier(t->g, PATIENT);
	double begun = seconds();

	for (uint64_t i = 0; !rc && i < inserts; i += BATCH)
		rc = insert(t, first + i, (unsigned)(inserts - i < BATCH ? inserts - i : BATCH));
	*took = seconds() - begun;
	return rc ? rc
		  : weir_group_allreduce(t->g, took, took, 1, WEIR_T_DOUBLE, WEIR_ACC_MAX, PATIENT);
}

static int
check(struct table *t, uint64_t inserts)
{
	uint64_t first = (t->rank + 1) % t->size * inserts + 1, held = 0;
	bool found = true;
	int rc = 0;

	for (uint64_t i = 0; !rc && found && i < inserts; i++) {
		rc = look_up(t, first + i, &found);
		if (!rc && !found)
			fprintf(stderr, "remote_hash: number %" PRIu64 " is lost\n", first + i);
	}
	for (uint64_t i = 0; i < t->slots + t->heap; i++)
		held += t->mine->element[i].number != 0;
	if (!rc)
		rc = weir_group_allreduce(t->g, &held, &held, 1, WEIR_T_UINT64, WEIR_ACC_SUM,
					  PATIENT);
	if (!rc && held != inserts * t->size) {
		fprintf(stderr, "remote_hash: %" PRIu64 " numbers instead of %" PRIu64 "\n", held,
			inserts * t->size);
		exit(1);
	}
	return rc ? rc : found ? 0 : 1;
}

int
main(int argc, char **argv)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	struct table t = {0};
	uint64_t inserts = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
	double took;
	int rc;

	o.size = argc == 4 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
	if (!inserts || inserts > 1u << 24 || !o.size) {
		fprintf(stderr, "usage: remote_hash NAME SIZE INSERTS\n");
		return 2;
	}
	rc = weir_attach(NULL, &t.w);
	if (rc) {
		fprintf(stderr, "remote_hash: %s\n", weir_reason());
		return 1;
	}
	rc = weir_group_join(t.w, argv[1], &o, PATIENT, &t.g);
	if (!rc) {
		t.rank = weir_group_rank(t.g);
		t.size = weir_group_size(t.g);
		rc = make(&t, inserts);
	}
	if (!rc)
		rc = fill(&t, inserts, &took);
	if (!rc)
		rc = check(&t, inserts);
	if (!rc)
		printf("rank %u of %u: %" PRIu64 " inserts of all, %.0f per second\n", t.rank,
		       t.size, inserts * t.size, (double)(inserts * t.size) / took);
	else if (rc < 0)
		fprintf(stderr, "remote_hash: %s\n", weir_reason());
	/* the others may still look up numbers here */
	if (!rc)
		rc = weir_group_barrier(t.g, PATIENT);
	weir_group_leave(t.g);
	weir_detach(t.w);
	free(t.part);
	return rc ? 1 : 0;
}
