/* SPDX-License-Identifier: BSD-3-Clause */
/* Captures of ports that weirctl asked for. */
#ifndef WEIR_BROKER_CAPTURE_JOB_H
#define WEIR_BROKER_CAPTURE_JOB_H

#include "broker.h"

struct capture_job;

/* Called when the capture begins and once when it has ended. */
typedef void capture_told_fn(void *user, const struct weir_ctl_msg *m);

/*
 * Begins a capture by a CAPTURE message that was checked. Returns 0, and fd belongs to the capture;
 * or -errno and a reason, and told() is never called.
 */
int capture_open(struct broker *b, const struct weir_ctl_msg *m, int fd, capture_told_fn *told,
		 void *user, struct capture_job **job, char *reason, size_t size);
/* Ends a capture: told() is called when the file is complete, and then j is freed. */
void capture_end(struct capture_job *j);
/* Ends a capture without a further call of told(). */
void capture_orphan(struct capture_job *j);
/* Ends all captures and waits until their files are complete. */
void capture_close_all(struct broker *b);

#endif
