/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Metrics for Prometheus: a listener that answers GET /metrics with the counters of our data
 * plane, and their format. Bounded: number of clients, length and time of a request; one question
 * to the data plane at a time, whose answer goes to all waiting clients.
 */
#ifndef WEIR_CONTROL_METRICS_H
#define WEIR_CONTROL_METRICS_H

#include "ipc/dpctl.h"

#include <stdbool.h>
#include <stddef.h>

struct event_base;
struct sockaddr;
struct metrics;

#define METRICS_KINDS 5

/* All records of one kind; those of metrics_kind[]. */
struct metrics_rows {
	uint32_t count;
	uint8_t *records;
};
extern const uint32_t metrics_kind[METRICS_KINDS];

/* ---- text.c ---- */
/* rows: by metrics_kind, or NULL: there is no data plane. Text to free(), or NULL. */
char *metrics_text(const struct metrics_rows *rows, const char *cluster);

/* ---- ask.c ---- */
struct metrics_ask;
/*
 * Asks the data plane behind a control.sock. `done` is called once, maybe before this returns, with
 * rows, or NULL: nobody answers. The rows are gone when it returns. NULL: done was called.
 */
struct metrics_ask *metrics_ask(struct event_base *base, const char *socket_path,
				void (*done)(void *user, const struct metrics_rows *rows),
				void *user);
/* Without calling done. NULL is allowed. */
void metrics_ask_stop(struct metrics_ask *a);

/* ---- metrics.c ---- */
/* 0 and *metrics, or -errno. The strings stay the caller's. */
int metrics_open(struct event_base *base, const struct sockaddr *address, int length,
		 const char *socket_path, const char *cluster, struct metrics **metrics);
void metrics_close(struct metrics *m);

#endif
