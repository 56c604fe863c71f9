/* SPDX-License-Identifier: BSD-3-Clause */
/* The run directory of an instance, and the pid files in it, which are also the locks of the name.
 */
#ifndef WEIR_COMMON_RUN_DIR_H
#define WEIR_COMMON_RUN_DIR_H

#include <stddef.h>

#define RUN_DIR_MAX 95	       /* "/control.sock" behind it still fits sun_path */
#define RUN_DIR_SOCKET_MAX 108 /* of that path */

struct run_dir {
	char path[RUN_DIR_MAX]; /* RUN-DIR/NAME */
	char pid_file[256];	/* PATH/DAEMON.pid, or in $RUNTIME_DIRECTORY: run_dir_take() */
	const char *daemon;
	int pid_fd; /* locked as long as we live */
};

/*
 * Makes the directory and takes the name for this daemon. If the directory is another user's to
 * write to, the pid file lies in $RUNTIME_DIRECTORY. The daemon ("dataplane", "control"; stays the
 * caller's). 0, -EBUSY (another one has it), or -errno, with a line "cause; remedy" in error.
 */
int run_dir_take(struct run_dir *r, const char *parent, const char *instance, const char *daemon,
		 char *error, size_t size);
/* Removes the pid file. The directories stay: containers may have mounted that of the instance, and
 * would keep one that nobody else sees. */
void run_dir_release(struct run_dir *r);

#endif
