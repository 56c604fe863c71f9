/* SPDX-License-Identifier: BSD-3-Clause */
/* The run directory of an instance and its pid file, which is also the lock of the name. No DPDK.
 */
#ifndef WEIR_RUN_DIR_H
#define WEIR_RUN_DIR_H

#include <stddef.h>

struct run_dir {
	char path[128]; /* RUN-DIR/NAME */
	int pid_fd;	/* locked as long as we live */
};

/*
 * Makes the directory and takes the name. 0, -EBUSY (another data plane has it) or -errno, with a
 * line "cause; remedy" in error.
 */
int run_dir_take(struct run_dir *r, const char *parent, const char *instance, char *error,
		 size_t size);
/* Removes the pid file, and the directory of the instance if it is empty now. */
void run_dir_release(struct run_dir *r);

#endif
