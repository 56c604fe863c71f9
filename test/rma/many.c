/* SPDX-License-Identifier: BSD-3-Clause */
/* Many operations, handles of operations, threads. */
#include "part.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define PART 4096u

/* ---- many ---- */

/* Many puts, gets and sums of each rank at each, in each kind of epoch. */
static void
many_each(struct ranks *r)
{
	enum { N = 60 };
	const uint64_t row = 2 * N, sums = row * r->size; /* in words */
	struct weir_window *win;
	uint8_t *base = make(r, 8 * (sums + N), 0, &win);
	uint64_t in[N], one = 1;

	for (unsigned k = 0; k < EPOCH_KINDS; k++) {
		bool right = true;

		for (uint32_t i = 0; i < r->size; i++)
			for (uint64_t n = 0; n < N; n++)
				((_Atomic uint64_t *)(void *)base)[i * row + N + n] =
				    k * 1000 + i * 100 + n;
		epoch_begin(r, win, (enum epoch_kind)k);
		for (uint32_t i = 0; i < r->size; i++)
			for (uint64_t n = 0; n < N; n++) {
				uint64_t v = (k << 16) + r->rank * 1000 + n;

				OK(r, weir_window_put(win, i, r->rank * row + n, &v, 8, 0));
				OK(r, weir_window_accumulate(win, i, sums + n, &one, 1,
							     WEIR_T_UINT64, WEIR_ACC_SUM, 0));
				if (i == next_rank(r))
					OK(r, weir_window_get(win, i, r->rank * row + N + n, &in[n],
							      8, 0));
			}
		epoch_end(r, win, (enum epoch_kind)k);
		for (uint64_t n = 0; n < N; n++) {
			for (uint32_t i = 0; i < r->size; i++)
				right &= word(base, i * row + n) == (k << 16) + i * 1000 + n;
			right &= word(base, sums + n) == r->size * (k + 1);
			right &= in[n] == k * 1000 + r->rank * 100 + n;
		}
		CHECK(r, right);
	}
	OK(r, weir_window_free(win, CASE_MS));
}

/* Contiguous bytes of each size, put, summed and got. */
static void
many_sizes(struct ranks *r)
{
	const uint32_t most = 1u << 17;
	uint32_t to = next_rank(r);
	uint8_t *out = malloc(most), *in = malloc(most + 1);
	struct weir_window *win;

	make(r, most + 8, 0, &win);
	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (uint32_t n = 1; n <= most; n *= 2) {
		bool right = true;

		for (uint32_t i = 0; i < n; i++)
			out[i] = pattern(r->rank, n, i);
		in[n] = UNTOUCHED;
		OK(r, weir_window_put(win, to, 1, out, n, 0));
		OK(r, weir_window_accumulate(win, to, 1, out, n, WEIR_T_UINT8, WEIR_ACC_SUM, 0));
		OK(r, weir_window_flush(win, to, CASE_MS));
		OK(r, weir_window_get(win, to, 1, in, n, 0));
		OK(r, weir_window_flush(win, to, CASE_MS));
		for (uint32_t i = 0; i < n; i++)
			right &= in[i] == (uint8_t)(2 * out[i]);
		CHECK(r, right && in[n] == UNTOUCHED);
	}
	OK(r, weir_window_unlock_all(win, CASE_MS));
	free(in);
	free(out);
	OK(r, weir_window_free(win, CASE_MS));
}

/* All put to all and get from all at once, at places of their own. */
static void
many_all_to_all(struct ranks *r)
{
	enum { N = 5000, ROUNDS = 4 };
	const uint64_t gets = (uint64_t)N * RANKS_MAX / 8; /* where what is got begins, in words */
	struct weir_window *win;
	uint8_t *base = make(r, 2 * (uint64_t)N * RANKS_MAX, 0, &win), out[N],
		(*in)[N] = malloc(RANKS_MAX * N);

	for (uint32_t round = 0; round < ROUNDS; round++) {
		bool right = true;

		for (uint32_t k = 0; k < N; k++) {
			out[k] = pattern(r->rank, round, k);
			for (uint32_t i = 0; i < r->size; i++)
				base[8 * gets + i * N + k] = pattern(r->rank + i, round + 1, k);
		}
		epoch_begin(r, win, round % 2 ? BY_LOCK_ALL : BY_LOCKS);
		for (uint32_t k = 0; k < r->size; k++) {
			uint32_t i = (r->rank + k) % r->size;

			OK(r, weir_window_put(win, i, r->rank * N / 8, out, N, 0));
			OK(r, weir_window_get(win, i, gets + r->rank * N / 8, in[i], N, 0));
		}
		epoch_end(r, win, round % 2 ? BY_LOCK_ALL : BY_LOCKS);
		for (uint32_t i = 0; i < r->size; i++)
			for (uint32_t k = 0; k < N; k++)
				right &= base[i * N + k] == pattern(i, round, k) &&
					 in[i][k] == pattern(r->rank + i, round + 1, k);
		CHECK(r, right);
		together(r);
	}
	free(in);
	OK(r, weir_window_free(win, CASE_MS));
}

/* ---- handles ---- */

/* Handles of puts, gets and updates: test, wait, any, all. */
static void
op_each(struct ranks *r)
{
	enum { N = 24 };
	uint32_t to = next_rank(r);
	uint64_t v[N], in[N], was[N];
	struct weir_op op[3 * N], *all[3 * N + 1] = {NULL};
	struct weir_window *win;
	unsigned seen = 0;
	int rc;

	make(r, PART, 0, &win);
	OK(r, weir_window_lock(win, to, WEIR_LOCK_EXCLUSIVE, 0, CASE_MS));
	for (uint64_t i = 0; i < N; i++) {
		struct weir_transfer t = {.offset = i,
					  .buf = &v[i],
					  .length = 8,
					  .op = &op[3 * i],
					  .flags = WEIR_AT_TARGET};
		const struct weir_update u = {.offset = i,
					      .operand = &v[i],
					      .result = &was[i],
					      .count = 1,
					      .handle = &op[3 * i + 1],
					      .type = WEIR_T_UINT64,
					      .op = WEIR_ACC_SUM};

		v[i] = 100 * i + r->rank;
		OK(r, weir_window_put_with(win, to, &t));
		OK(r, weir_window_update_with(win, to, &u));
		t.buf = &in[i];
		t.op = &op[3 * i + 2];
		t.flags = 0;
		OK(r, weir_window_get_with(win, to, &t));
	}
	for (unsigned i = 0; i < 3 * N; i++)
		all[i] = &op[i]; /* the last entry is NULL */
	OK(r, weir_op_wait(&op[N], CASE_MS));
	CHECK(r, weir_op_test(&op[N]) == 1 && !op[N].status);
	while (weir_op_test(&op[2 * N]) == 0)
		let_others_run();
	while ((rc = weir_op_wait_any(all, 3 * N + 1, CASE_MS)) >= 0)
		seen++;
	CHECK(r, rc == -ENOENT && seen == 3 * N - 2); /* the two above were reported */
	OK(r, weir_op_wait_all(all, 3 * N + 1, CASE_MS));
	for (uint64_t i = 0; i < N; i++)
		CHECK(r, was[i] == v[i] && in[i] == 2 * v[i] && !op[3 * i].status);
	OK(r, weir_window_unlock(win, to, CASE_MS));
	OK(r, weir_window_free(win, CASE_MS));
}

static struct weir_transfer *
transfer_of(struct weir_transfer *t, unsigned i, void *buf, unsigned bytes, struct weir_op *op)
{
	*t = (struct weir_transfer){
	    .offset = (uint64_t)i * bytes / 8, .buf = buf, .length = bytes, .op = op};
	return t;
}

/* Gets into a few buffers; what has come is put back changed, and its buffer used again. */
static void
op_pipeline(struct ranks *r)
{
	enum { N = 100, DEPTH = 5, BYTES = 1000 };
	uint32_t to = next_rank(r);
	struct weir_window *win;
	uint8_t *base = make(r, (uint64_t)N * BYTES, 0, &win), buf[DEPTH][BYTES];
	struct weir_op get[DEPTH], put[DEPTH], *gets[DEPTH];
	struct weir_transfer t;
	unsigned of[DEPTH];
	int rc;

	for (unsigned i = 0; i < N; i++)
		memset(base + i * BYTES, (int)i, BYTES);
	epoch_begin(r, win, BY_LOCK_ALL);
	for (unsigned k = 0; k < DEPTH; k++) {
		gets[k] = &get[k];
		of[k] = k;
		OK(r, weir_window_get_with(win, to, transfer_of(&t, k, buf[k], BYTES, gets[k])));
	}
	for (unsigned next = DEPTH; (rc = weir_op_wait_any(gets, DEPTH, CASE_MS)) >= 0;) {
		CHECK(r, is_filled(buf[rc], (uint8_t)of[rc], BYTES));
		memset(buf[rc], (int)of[rc] + 1, BYTES);
		transfer_of(&t, of[rc], buf[rc], BYTES, &put[rc]);
		t.flags = WEIR_KEEP;
		OK(r, weir_window_put_with(win, to, &t));
		if (next == N)
			continue;
		OK(r, weir_op_wait(&put[rc], CASE_MS)); /* the buffer is free */
		of[rc] = next++;
		OK(r, weir_window_get_with(win, to,
					   transfer_of(&t, of[rc], buf[rc], BYTES, gets[rc])));
	}
	CHECK(r, rc == -ENOENT);
	epoch_end(r, win, BY_LOCK_ALL);
	for (unsigned i = 0; i < N; i++)
		CHECK(r, is_filled(base + i * BYTES, (uint8_t)(i + 1), BYTES));
	OK(r, weir_window_free(win, CASE_MS));
}

/* The end of the epoch comes before that of the handle is asked for. */
static void
op_unlock(struct ranks *r)
{
	uint32_t to = next_rank(r);
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	uint64_t in, was = 0, one = 1;
	struct weir_op op[2];

	for (uint64_t round = 0; round < 10; round++) {
		const struct weir_transfer t = {.offset = 7, .buf = &in, .length = 8, .op = &op[0]};
		const struct weir_update u = {.offset = 8,
					      .operand = &one,
					      .result = &was,
					      .count = 1,
					      .handle = &op[1],
					      .type = WEIR_T_UINT64,
					      .op = WEIR_ACC_SUM};

		((_Atomic uint64_t *)(void *)base)[7] = round * 100 + r->rank;
		together(r);
		OK(r, weir_window_lock(win, to, WEIR_LOCK_SHARED, 0, CASE_MS));
		OK(r, weir_window_get_with(win, to, &t));
		OK(r, weir_window_update_with(win, to, &u));
		OK(r, weir_window_unlock(win, to, CASE_MS));
		CHECK(r, in == round * 100 + to && was == round);
		CHECK(r, weir_op_test(&op[0]) == 1 && !op[0].status);
		OK(r, weir_op_wait(&op[1], 0));
		together(r);
	}
	OK(r, weir_window_free(win, CASE_MS));
}

/* ---- threads ---- */

#define THREADS 2u
#define TIMES 50u
#define BULK 200000u /* bytes of a thread's last puts to all members */

struct worker {
	struct ranks is;
	struct weir_window *win, *own; /* of all threads, with a group of its own */
	uint8_t *base;		       /* of own */
	uint32_t number;
	bool flushes;
	_Atomic bool began, over; /* its operations; the epoch */
};

/* Where the bytes of a thread lie in each part. */
static uint64_t
bulk_at(uint32_t rank, uint32_t thread)
{
	return PART + (uint64_t)(rank * THREADS + thread) * BULK;
}

/* Fences of the thread's own window, then puts and sums in the epoch of its program, which may end
 * while the last ones are under way. */
static void *
work(void *arg)
{
	struct worker *a = arg;
	struct ranks *r = &a->is;
	uint64_t one = 1, in = 0;
	uint8_t *bulk = malloc(BULK);

	memset(bulk, (int)(1 + r->rank * THREADS + a->number), BULK);
	for (uint64_t n = 1; n <= 5; n++) {
		OK(r, weir_window_fence(a->own, 0, CASE_MS));
		in = n * 10 + a->number;
		OK(r, weir_window_put(a->own, next_rank(r), 1, &in, 8, 0));
		OK(r, weir_window_fence(a->own, 0, CASE_MS));
		CHECK(r, word(a->base, 1) == n * 10 + a->number);
		OK(r, weir_window_get(a->own, next_rank(r), 1, &in, 8, 0));
		OK(r, weir_window_fence(a->own, WEIR_NO_SUCCEED, CASE_MS));
		CHECK(r, in == n * 10 + a->number);
	}
	for (uint64_t n = 1; n <= TIMES; n++)
		for (uint32_t i = 0; i < r->size; i++) {
			uint64_t v = n * 1000 + r->rank * THREADS + a->number,
				 at = 8 + r->rank * THREADS + a->number;

			OK(r, weir_window_put(a->win, i, at, &v, 8, 0));
			OK(r, weir_window_accumulate(a->win, i, 0, &one, 1, WEIR_T_UINT64,
						     WEIR_ACC_SUM, 0));
			if (n % 10 != 5)
				continue;
			OK(r, weir_window_get(a->win, i, at, &in, 8, 0));
			OK(r, weir_window_flush_local(a->win, i, CASE_MS));
			CHECK(r, in == v);
		}
	for (uint32_t i = 0; i < r->size; i++)
		OK(r, weir_window_put(a->win, i, bulk_at(r->rank, a->number) / 8, bulk,
				      BULK / r->size, 0));
	free(bulk);
	if (a->flushes)
		OK(r, weir_window_flush_all(a->win, CASE_MS));
	a->began = true;
	while (!a->over)
		let_others_run();
	return NULL;
}

/* Threads in one epoch, whose end covers them all, or each by its own flush; and each with a
 * window. */
static void
thread_each(struct ranks *r)
{
	struct worker a[THREADS];
	pthread_t id[THREADS];
	struct weir_window *win;

	for (unsigned k = 0; k < 2; k++) {
		uint8_t *base = make(r, bulk_at(r->size, 0), k ? WEIR_WINDOW_THREADS : 0, &win);

		for (uint32_t i = 0; i < THREADS; i++) {
			memset(&a[i], 0, sizeof(a[i]));
			a[i].is = *r;
			a[i].win = win;
			a[i].number = i;
			a[i].flushes = k;
			OK(r, weir_group_split(r->g, 0, (int)r->rank, CASE_MS, &a[i].is.g));
			a[i].is.failures = 0;
			a[i].base = make(&a[i].is, PART, 0, &a[i].own);
		}
		OK(r, weir_window_lock_all(win, 0, CASE_MS));
		for (uint32_t i = 0; i < THREADS; i++)
			OK(r, pthread_create(&id[i], NULL, work, &a[i]));
		for (uint32_t i = 0; i < THREADS; i++)
			while (!a[i].began)
				let_others_run();
		OK(r, weir_window_unlock_all(win, CASE_MS));
		for (uint32_t i = 0; i < THREADS; i++) {
			CHECK(r, is_filled(base + bulk_at(r->rank, i),
					   (uint8_t)(1 + r->rank * THREADS + i), BULK / r->size));
			a[i].over = true;
			OK(r, pthread_join(id[i], NULL));
		}
		together(r);
		CHECK(r, word(base, 0) == (uint64_t)r->size * THREADS * TIMES);
		for (uint32_t i = 0; i < r->size * THREADS; i++)
			CHECK(r, word(base, 8 + i) == TIMES * 1000 + i &&
				     is_filled(base + bulk_at(0, i), (uint8_t)(1 + i),
					       BULK / r->size));
		for (uint32_t i = 0; i < THREADS; i++) {
			OK(r, weir_window_free(a[i].own, CASE_MS));
			weir_group_leave(a[i].is.g);
			r->failures += a[i].is.failures;
		}
		OK(r, weir_window_free(win, CASE_MS));
	}
}

const struct rma_case many_cases[] = {
    {"many/each", many_each},
    {"many/sizes", many_sizes},
    {"many/all_to_all", many_all_to_all},
    {"op/each", op_each},
    {"op/pipeline", op_pipeline},
    {"op/unlock", op_unlock},
    {"thread/each", thread_each},
    {NULL, NULL},
};
