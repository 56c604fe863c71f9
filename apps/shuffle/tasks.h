/* SPDX-License-Identifier: BSD-3-Clause */
/* Map tasks of a job and their attempts, in process 0. The clock is the caller's. */
#ifndef SHUFFLE_TASKS_H
#define SHUFFLE_TASKS_H

#include <stdbool.h>
#include <stdint.h>

#define TASK_ATTEMPTS_MAX 16u /* of one task; then the job fails */

enum task_answer { TASK_RUN, TASK_WAIT, TASK_OVER, TASK_FAILED };

struct task {
	uint32_t attempts; /* begun */
	uint32_t running;  /* of these */
	uint32_t process;  /* of the last one */
	bool done;
	uint64_t begin_ns; /* of the last one */
};

struct tasks {
	struct task *all;
	uint32_t count, done;
	uint32_t next;	     /* none before it is without an attempt */
	uint64_t longest_ns; /* of all attempts that have succeeded */
	uint64_t attempts;   /* begun, of all */
	bool failed;	     /* a task has used all its attempts */
};

int tasks_open(struct tasks *t, uint32_t count); /* 0 or -ENOMEM */
void tasks_close(struct tasks *t);

/* Chooses a task for a process: one that does not run, or one that has run for more than twice as
 * long as any other took. */
enum task_answer tasks_choose(struct tasks *t, uint32_t process, uint64_t now_ns, uint32_t *map,
			      uint32_t *attempt);
/* An attempt has ended. Ignores maps that do not exist. */
void tasks_ended(struct tasks *t, uint32_t map, bool ok, uint64_t now_ns);
/* A process was lost: its attempts have ended. */
void tasks_lost(struct tasks *t, uint32_t process);

#endif
