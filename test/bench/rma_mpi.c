/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided operations of MPI, beside those of Weir: rma_mpi KIND BYTES SECONDS, started by mpirun
 * with two processes. Process 0 operates on the window of process 1, on other slots in turn. Prints
 * microseconds and operations per second.
 *
 * put, get, acc, sum (of doubles), fop, cas: within one epoch; first an operation and its flush in
 * blocks of 512 without a clock inside, then operations with one flush per block. lock, lock_put,
 * lock_all: an epoch, with a put for lock_put. fence, pscw: what both processes do together; pscw
 * both ways. The processes agree after each block whether they go on, while no clock runs.
 */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 512
#define WINDOW_BYTES (1u << 20)
#define SLOTS_MAX 64u

enum kind { PUT, GET, ACC, SUM, FOP, CAS, LOCK, LOCK_PUT, LOCK_ALL, FENCE, PSCW, KINDS };

static MPI_Win window;
static char *buffer;
static int64_t fetched;
static int bytes, slots, rank;
static MPI_Group other; /* the other process */

static void
operate(enum kind kind, uint64_t i)
{
	static const int64_t one = 1;
	MPI_Aint at = (MPI_Aint)(i % (uint64_t)slots) * bytes;

	switch (kind) {
	case PUT:
		MPI_Put(buffer, bytes, MPI_BYTE, 1, at, bytes, MPI_BYTE, window);
		break;
	case GET:
		MPI_Get(buffer, bytes, MPI_BYTE, 1, at, bytes, MPI_BYTE, window);
		break;
	case ACC:
		MPI_Accumulate(buffer, bytes / 8, MPI_INT64_T, 1, at, bytes / 8, MPI_INT64_T,
			       MPI_SUM, window);
		break;
	case SUM:
		MPI_Accumulate(buffer, bytes / 8, MPI_DOUBLE, 1, at, bytes / 8, MPI_DOUBLE, MPI_SUM,
			       window);
		break;
	case LOCK:
	case LOCK_PUT:
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
		if (kind == LOCK_PUT)
			operate(PUT, i);
		MPI_Win_unlock(1, window);
		break;
	case LOCK_ALL:
		MPI_Win_lock_all(0, window);
		MPI_Win_unlock_all(window);
		break;
	case FENCE:
		MPI_Win_fence(0, window);
		break;
	case PSCW:
		MPI_Win_post(other, 0, window);
		MPI_Win_start(other, 0, window);
		MPI_Win_complete(window);
		MPI_Win_wait(window);
		break;
	case FOP:
		MPI_Fetch_and_op(&one, &fetched, MPI_INT64_T, 1, at, MPI_SUM, window);
		break;
	default:
		MPI_Compare_and_swap(&one, &fetched, &fetched, MPI_INT64_T, 1, at, window);
	}
}

/* Seconds per operation, of blocks with a flush per operation, or one at their end. */
static double
measure(enum kind kind, double seconds, int each)
{
	double start = MPI_Wtime(), now;
	uint64_t n = 0;

	do {
		for (int i = 0; i < BLOCK; i++) {
			operate(kind, n++);
			if (each)
				MPI_Win_flush(1, window);
		}
		if (!each)
			MPI_Win_flush(1, window);
		now = MPI_Wtime();
	} while (now - start < seconds);
	return (now - start) / (double)n;
}

/* Seconds per operation that both processes make, of blocks. */
static double
measure_both(enum kind kind, double seconds)
{
	double sum = 0, start;
	uint64_t n = 0;
	int more = 1;

	while (more) {
		start = MPI_Wtime();
		for (int i = 0; i < BLOCK; i++)
			operate(kind, n++);
		sum += MPI_Wtime() - start;
		more = sum < seconds;
		MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
	return sum / (double)n;
}

/* Seconds per epoch of process 0, of blocks. */
static double
measure_epochs(enum kind kind, double seconds)
{
	double start = MPI_Wtime(), now;
	uint64_t n = 0;

	do {
		for (int i = 0; i < BLOCK; i++)
			operate(kind, n++);
		now = MPI_Wtime();
	} while (now - start < seconds);
	return (now - start) / (double)n;
}

int
main(int argc, char **argv)
{
	static const char *const names[KINDS] = {"put",	     "get",   "acc",  "sum",
						 "fop",	     "cas",   "lock", "lock_put",
						 "lock_all", "fence", "pscw"};
	double seconds, lat = 0, rate = 0;
	enum kind kind = PUT;
	MPI_Group all;
	void *base;

	MPI_Init(&argc, &argv);
	while (argc == 4 && kind < KINDS && strcmp(argv[1], names[kind]))
		kind++;
	if (argc != 4 || kind == KINDS || (bytes = (int)strtol(argv[2], NULL, 10)) < 8 ||
	    bytes > (int)WINDOW_BYTES || bytes % 8) {
		fprintf(stderr, "usage: rma_mpi put|get|acc|sum|fop|cas|lock|lock_put|lock_all|"
				"fence|pscw BYTES SECONDS\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	seconds = strtod(argv[3], NULL);
	slots = (int)(WINDOW_BYTES / (unsigned)bytes);
	slots = slots > (int)SLOTS_MAX ? (int)SLOTS_MAX : slots;
	buffer = calloc(1, (size_t)bytes);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (!buffer ||
	    MPI_Win_allocate(WINDOW_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window))
		MPI_Abort(MPI_COMM_WORLD, 1);
	memset(base, 0, WINDOW_BYTES);
	MPI_Win_fence(0, window);
	if (kind == FENCE || kind == PSCW) {
		int peer = !rank;

		MPI_Comm_group(MPI_COMM_WORLD, &all);
		MPI_Group_incl(all, 1, &peer, &other);
		measure_both(kind, seconds / 10);
		lat = rate = measure_both(kind, seconds);
		MPI_Group_free(&other);
		MPI_Group_free(&all);
	} else if (rank == 0 && kind >= LOCK && kind <= LOCK_ALL) {
		measure_epochs(kind, seconds / 10);
		lat = rate = measure_epochs(kind, seconds);
	} else if (rank == 0) {
		MPI_Win_lock_all(0, window);
		measure(kind, seconds / 10, 1);
		lat = measure(kind, seconds, 1);
		rate = measure(kind, seconds, 0);
		MPI_Win_unlock_all(window);
	}
	if (rank == 0)
		printf("{\"us\": %.6f, \"msgs_per_s\": %.0f}\n", lat * 1e6, 1 / rate);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&window);
	MPI_Finalize();
	return 0;
}
