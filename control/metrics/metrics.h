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

/* A certificate of this control, and how long it is valid, in days; below 0: it has expired. */
#define METRICS_CERTIFICATES 2
struct metrics_certificate {
	const char *name;
	double days;
};

/* ---- text.c ---- */
/* rows: by metrics_kind, or NULL: there is no data plane. Text to free(), or NULL. */
char *metrics_text(const struct metrics_rows *rows, const char *cluster,
		   const struct metrics_certificate *certificates, uint32_t count);

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
struct metrics_config {
	const char *socket_path, *cluster; /* stay the caller's */
	/* Fills in up to METRICS_CERTIFICATES; returns their number. */
	uint32_t (*certificates)(void *user, struct metrics_certificate *certificates);
	void *user;
};
/* 0 and *metrics, or -errno. */
int metrics_open(struct event_base *base, const struct sockaddr *address, int length,
		 const struct metrics_config *config, struct metrics **metrics);
void metrics_close(struct metrics *m);

#endif
