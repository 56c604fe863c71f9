/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI: Open MPI and MPICH, started by their own mpirun with two processes. */
#include "peer.h"

#include <mpi.h>

#define TAG 1

static MPI_Request sends[PEER_SLOTS], recvs[PEER_SLOTS];
static int other;

static int
open_mpi(int rank, int pipe, bool nodes)
{
	(void)pipe, (void)nodes;
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	other = 1 - rank;
	return rank;
}

static void
send_mpi(unsigned slot, const void *buf, size_t size)
{
	MPI_Isend(buf, (int)size, MPI_BYTE, other, TAG, MPI_COMM_WORLD, &sends[slot]);
}

static void
sent_mpi(unsigned slot)
{
	MPI_Wait(&sends[slot], MPI_STATUS_IGNORE);
}

static void
recv_mpi(unsigned slot, void *buf, size_t size)
{
	MPI_Irecv(buf, (int)size, MPI_BYTE, other, TAG, MPI_COMM_WORLD, &recvs[slot]);
}

static void
received_mpi(unsigned slot)
{
	MPI_Wait(&recvs[slot], MPI_STATUS_IGNORE);
}

static void
close_mpi(void)
{
	MPI_Finalize();
}

const struct peer peer = {true, open_mpi, send_mpi, sent_mpi, recv_mpi, received_mpi, close_mpi};
