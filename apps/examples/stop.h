/* SPDX-License-Identifier: BSD-3-Clause */
/* SIGINT and SIGTERM end the waits of an example: docs/stream.md, "Stopping a program". */
#ifndef EXAMPLES_STOP_H
#define EXAMPLES_STOP_H

#include <weir/weir.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

static atomic_bool stop;
static struct weir *stop_session;

static void
on_stop(int signal)
{
	(void)signal;
	stop = true;
	weir_wake(stop_session);
}

static inline void
stop_on_signals(struct weir *w)
{
	struct sigaction a = {.sa_handler = on_stop};

	stop_session = w;
	sigaction(SIGINT, &a, NULL);
	sigaction(SIGTERM, &a, NULL);
}

#endif
