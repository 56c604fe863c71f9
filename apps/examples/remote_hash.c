/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A distributed hash table: remote_hash NAME SIZE INSERTS [LIFE]. Each of SIZE programs, on any
 * nodes, joins the group NAME and exports a part of the table; then each inserts INSERTS numbers of
 * its own. A number's hash names the part and the slot. Compare and swap takes the slot; a number
 * that finds it taken gets an element of that part's heap by fetch and add, and becomes the first
 * one in the slot's list. No program does anything for inserts of others.
 *
 * At the end each program looks up the numbers of the next one, and all count what they hold.
 *
 * A program with LIFE kills itself after LIFE inserts. Its part is lost with it: operations there
 * return an error, those on other parts go on. The next collective call fails at all others. They
 * agree on who lives, insert the numbers of theirs that were lost into other parts, and look again.
 */
#include <weir/group.h>
#include <weir/remote.h>

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
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

struct member {
	struct weir_remote *part; /* NULL once it is gone */
	bool lost;		  /* the member has ended: an operation on its part said so */
	uint32_t gone; /* the first round in which all do without its part; 0: none yet */
};

struct table {
	struct weir *w;
	struct weir_group *g; /* of the members that live */
	uint32_t id, size;    /* rank and members when the table was made */
	uint32_t round;	      /* 1, and one more each time that members are gone */
	uint32_t *living;     /* ids, by rank in g */
	uint64_t inserts;     /* of each member */
	uint64_t life;	      /* inserts after which this program kills itself; 0: it does not */
	uint64_t slots, heap; /* of a part */
	struct part *mine;
	struct member *member; /* by id */
};

/* Where a number belongs. */
struct place {
	struct member *member;
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

/* In that round: parts that are gone are left out. */
static struct place
place_of(const struct table *t, uint64_t number, uint32_t round)
{
	uint64_t h = hash(number);
	struct member *m = &t->member[h % t->size];

	while (m->gone && m->gone <= round) {
		h = hash(h + 1);
		m = &t->member[h % t->size];
	}
	return (struct place){m, offset(h / t->size % t->slots)};
}

static bool
has_ended(int rc)
{
	return rc == -ECONNRESET || rc == -EHOSTDOWN;
}

/* The result of an operation on a part. That its member has ended is no failure of this one. */
static int
survive(struct member *m, int rc)
{
	m->lost |= has_ended(rc);
	return has_ended(rc) ? 0 : rc;
}

static int
flush(const struct table *t)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < t->size; i++)
		if (!t->member[i].lost)
			rc = survive(&t->member[i], weir_remote_flush(t->member[i].part, PATIENT));
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
	struct member *m = b->place.member;

	return survive(m, weir_remote_compare_swap(m->part, b->place.slot + field, &expected, &to,
						   &b->was, WEIR_T_UINT64, 0));
}

/* Gets an element of the heap for each insert whose slot is taken. */
static int
take_elements(const struct table *t, struct begun *b, unsigned n)
{
	uint64_t one = 1;
	int rc = 0;

	for (unsigned i = 0; !rc && i < n; i++) {
		struct member *m = b[i].place.member;

		rc = survive(m, weir_remote_fetch_op(m->part, offsetof(struct part, used), &one,
						     &b[i].at, WEIR_T_UINT64, WEIR_ACC_SUM, 0));
	}
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
			struct member *m = b[i].place.member;

			rc = survive(m, weir_remote_put(m->part, offset(t->slots + b[i].at),
							&b[i].e, sizeof(b[i].e), 0));
			if (!rc)
				rc = swap(&b[i], offsetof(struct element, next), b[i].e.next,
					  b[i].at + 1);
		}
		if (!rc)
			rc = flush(t);
		left = 0;
		for (unsigned i = 0; !rc && i < n; i++) {
			if (b[i].place.member->lost || b[i].was == b[i].e.next)
				continue;
			b[left] = b[i];
			b[left].e.next = b[left].was;
			left++;
		}
		n = left;
	}
	return rc;
}

/* Inserts n numbers, all of them at a time: an insert costs a part of a round trip. */
static int
insert(const struct table *t, const uint64_t *numbers, unsigned n)
{
	struct begun b[BATCH];
	unsigned taken = 0;
	int rc = 0;

	for (unsigned i = 0; !rc && i < n; i++) {
		b[i] = (struct begun){.place = place_of(t, numbers[i], t->round),
				      .e.number = numbers[i]};
		rc = swap(&b[i], offsetof(struct element, number), 0, numbers[i]);
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
	struct place p = place_of(t, number, t->round);
	struct element e;
	uint64_t at = p.slot;
	int rc;

	for (*found = false;; at = offset(t->slots + e.next - 1)) {
		rc = weir_remote_get(p.member->part, at, &e, sizeof(e), 0);
		if (!rc)
			rc = weir_remote_flush(p.member->part, PATIENT);
		if (rc)
			return rc;
		*found = e.number == number;
		if (*found || !e.next)
			return 0;
	}
}

/* Exports this member's part, and opens all. */
static int
make(struct table *t)
{
	struct weir_key mine, *keys = calloc(t->size, sizeof(*keys));
	struct weir_region_info info;
	struct weir_region *region;
	struct weir_export *x;
	int rc;

	t->slots = 2 * t->inserts;
	t->heap = t->inserts + 1000;
	t->member = calloc(t->size, sizeof(*t->member));
	t->living = calloc(t->size, sizeof(*t->living));
	if (!keys || !t->member || !t->living) {
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
		rc = weir_remote_open(t->w, &keys[i], RIGHTS, 0, PATIENT, &t->member[i].part);
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

/*
 * All do without a member from this round on. Operations on its part return an error, on a part
 * that is mapped once the data plane has told of the end.
 */
static int
lose(struct table *t, struct member *m)
{
	double begun = seconds();
	uint64_t used;
	int rc = 0;

	while (!rc && !m->lost && seconds() - begun < PATIENT / 1e3) {
		rc = weir_remote_get(m->part, offsetof(struct part, used), &used, sizeof(used), 0);
		if (!rc)
			rc = weir_remote_flush(m->part, PATIENT);
		rc = survive(m, rc);
	}
	if (!rc && !m->lost) {
		fprintf(stderr, "remote_hash: a member has ended, and its part has not\n");
		exit(1);
	}
	weir_remote_close(m->part);
	m->part = NULL;
	m->gone = t->round;
	return rc;
}

/* A round begins when all members of the group have come: they are those that live. */
static int
meet(struct table *t)
{
	uint32_t n = weir_group_size(t->g), next = 0;
	int rc = weir_group_allgather(t->g, &t->id, sizeof(t->id), t->living, PATIENT);

	if (rc)
		return rc;
	t->round++;
	for (uint32_t i = 0; !rc && i < t->size; i++) {
		if (next < n && t->living[next] == i)
			next++;
		else if (!t->member[i].gone)
			rc = lose(t, &t->member[i]);
	}
	return rc;
}

/* Whether a number of this member is not in the table: at first none is, later those are not whose
 * part is gone since the last round. */
static bool
is_missing(const struct table *t, uint64_t number)
{
	return t->round == 1 || place_of(t, number, t->round - 1).member->gone;
}

/*
 * Inserts what is missing; the number of all members' inserts, and the seconds that the slowest one
 * took. A member that ends meanwhile stops nobody from inserting into other parts.
 */
static int
fill(struct table *t, uint64_t *count, double *took)
{
	uint64_t first = t->id * t->inserts + 1, batch[BATCH];
	double begun = seconds();
	unsigned n = 0;
	int rc = 0;

	*count = 0;
	for (uint64_t i = 0; !rc && i < t->inserts; i++) {
		if (is_missing(t, first + i))
			batch[n++] = first + i;
		if (n < BATCH && i + 1 < t->inserts)
			continue;
		rc = insert(t, batch, n);
		*count += n;
		n = 0;
		if (t->life && *count >= t->life)
			raise(SIGKILL);
	}
	*took = seconds() - begun;
	for (uint32_t i = 0; !rc && i < t->size; i++)
		if (t->member[i].lost && !t->member[i].gone)
			rc = -ECONNRESET;
	if (!rc)
		rc =
		    weir_group_allreduce(t->g, took, took, 1, WEIR_T_DOUBLE, WEIR_ACC_MAX, PATIENT);
	return rc ? rc
		  : weir_group_allreduce(t->g, count, count, 1, WEIR_T_UINT64, WEIR_ACC_SUM,
					 PATIENT);
}

/* Members that ended have inserted some numbers, or all. */
static int
check(const struct table *t)
{
	uint32_t rank = weir_group_rank(t->g), n = weir_group_size(t->g);
	uint64_t first = t->living[(rank + 1) % n] * t->inserts + 1, held = 0;
	bool found = true;
	int rc = 0;

	for (uint64_t i = 0; !rc && found && i < t->inserts; i++) {
		rc = look_up(t, first + i, &found);
		if (!rc && !found)
			fprintf(stderr, "remote_hash: number %" PRIu64 " is lost\n", first + i);
	}
	for (uint64_t i = 0; i < t->slots + t->heap; i++)
		held += t->mine->element[i].number != 0;
	if (!rc)
		rc = weir_group_allreduce(t->g, &held, &held, 1, WEIR_T_UINT64, WEIR_ACC_SUM,
					  PATIENT);
	if (!rc && (held < t->inserts * n || held > t->inserts * t->size)) {
		fprintf(stderr, "remote_hash: %" PRIu64 " numbers instead of %" PRIu64 "\n", held,
			t->inserts * n);
		exit(1);
	}
	return rc ? rc : found ? 0 : 1;
}

static int
run_round(struct table *t)
{
	uint64_t count;
	double took;
	int rc = meet(t);

	if (!rc)
		rc = fill(t, &count, &took);
	if (!rc)
		rc = check(t);
	/* the others may still look up numbers here */
	if (!rc)
		rc = weir_group_barrier(t->g, PATIENT);
	if (rc)
		return rc;
	printf("rank %u of %u: ", weir_group_rank(t->g), weir_group_size(t->g));
	if (weir_group_size(t->g) < t->size)
		printf("%u lost, ", t->size - weir_group_size(t->g));
	printf("%" PRIu64 " inserts of all, %.0f per second\n", count, (double)count / took);
	return 0;
}

/* The members that live make a group of their own. */
static int
regroup(struct table *t)
{
	struct weir_group *g;
	int rc;

	do
		rc = weir_group_survivors(t->g, PATIENT, &g);
	while (has_ended(rc));
	if (rc)
		return rc;
	if (weir_group_size(g) == weir_group_size(t->g)) {
		fprintf(stderr, "remote_hash: a part has ended, and its member has not\n");
		exit(1);
	}
	weir_group_leave(t->g);
	t->g = g;
	return 0;
}

/* Until all that live have seen what they look for. */
static int
run(struct table *t)
{
	int rc = run_round(t);

	while (has_ended(rc)) {
		rc = regroup(t);
		if (!rc)
			rc = run_round(t);
	}
	return rc;
}

int
main(int argc, char **argv)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	struct table t = {0};
	int rc;

	if (argc == 4 || argc == 5) {
		o.size = (uint32_t)strtoul(argv[2], NULL, 10);
		t.inserts = strtoull(argv[3], NULL, 10);
		t.life = argc == 5 ? strtoull(argv[4], NULL, 10) : 0;
	}
	if (!t.inserts || t.inserts > 1u << 24 || !o.size) {
		fprintf(stderr, "usage: remote_hash NAME SIZE INSERTS [LIFE]\n");
		return 2;
	}
	rc = weir_attach(NULL, &t.w);
	if (rc) {
		fprintf(stderr, "remote_hash: %s\n", weir_reason());
		return 1;
	}
	rc = weir_group_join(t.w, argv[1], &o, PATIENT, &t.g);
	if (!rc) {
		t.id = weir_group_rank(t.g);
		t.size = weir_group_size(t.g);
		rc = make(&t);
	}
	if (!rc)
		rc = run(&t);
	if (rc < 0)
		fprintf(stderr, "remote_hash: %s\n", weir_reason());
	weir_group_leave(t.g);
	weir_detach(t.w);
	free(t.member);
	free(t.living);
	return rc ? 1 : 0;
}
