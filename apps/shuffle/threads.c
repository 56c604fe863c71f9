/* SPDX-License-Identifier: BSD-3-Clause */
#include "threads.h"

#include "weir/weir.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct all {
	int (*work)(void *job, uint32_t index);
	void *job;
	pthread_mutex_t lock; /* of these */
	int rc;
	char *reason;
	size_t size;
};

struct one {
	struct all *all;
	uint32_t index;
	pthread_t thread;
};

static void
note(struct all *all, int rc)
{
	pthread_mutex_lock(&all->lock);
	if (rc && !all->rc) {
		all->rc = rc;
		snprintf(all->reason, all->size, "%s", weir_reason());
	}
	pthread_mutex_unlock(&all->lock);
}

static void *
run(void *arg)
{
	struct one *one = arg;

	note(one->all, one->all->work(one->all->job, one->index));
	return NULL;
}

int
threads_run(uint32_t count, int (*work)(void *job, uint32_t index), void *job, char *reason,
	    size_t size)
{
	struct all all = {work, job, PTHREAD_MUTEX_INITIALIZER, 0, reason, size};
	struct one *ones = calloc(count, sizeof(*ones));
	int rc;

	for (uint32_t i = 0; ones && i < count; i++) {
		ones[i] = (struct one){&all, i, 0};
		rc = i ? pthread_create(&ones[i].thread, NULL, run, &ones[i]) : 0;
		/* the others would wait for it */
		if (rc) {
			fprintf(stderr, "cannot start thread %u: %s; give less --threads\n", i,
				strerror(rc));
			_exit(1);
		}
	}
	if (!ones) {
		snprintf(reason, size, "no memory for %u threads", count);
		return -1;
	}
	run(&ones[0]);
	for (uint32_t i = 1; i < count; i++)
		pthread_join(ones[i].thread, NULL);
	free(ones);
	return all.rc;
}
