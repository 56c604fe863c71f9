/* SPDX-License-Identifier: BSD-3-Clause */
/* The run directory of an instance, and the pid file in it that only one weir-control can hold. */
#ifndef WEIR_CONTROL_RUNDIR_H
#define WEIR_CONTROL_RUNDIR_H

#include <stddef.h>

#define RUNDIR_MAX 96 /* leaves room for a socket's name within sun_path */

struct rundir {
	char path[RUNDIR_MAX];
	int pid_fd;
};

/*
 * Makes the folder and takes the pid file. 0, -EBUSY (another one runs; its pid in *owner),
 * -ENAMETOOLONG, or another -errno.
 */
int rundir_enter(struct rundir *r, const char *instance, int *owner);
/* Removes the pid file, and the folder and the one above it if nothing else is in them. */
void rundir_leave(struct rundir *r);

#endif
