/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "load.h"

#include "ipc/invariant.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Microseconds in which some thread waited for a CPU, since the host started; or with loadavg the
 * threads that run or wait for a CPU. False: the file can't be read. */
static bool
read_host(const struct load *l, uint64_t *value)
{
	char text[256];
	ssize_t n = pread(l->fd, text, sizeof(text) - 1, 0);
	const char *total;

	if (n <= 0)
		return false;
	text[n] = '\0';
	if (!l->pressure)
		return sscanf(text, "%*s %*s %*s %" SCNu64 "/", value) == 1;
	/* the first line is "some avg10=... total=..." */
	total = strncmp(text, "some ", 5) ? NULL : strstr(text, "total=");
	return total && sscanf(total, "total=%" SCNu64, value) == 1;
}

static bool
open_one(struct load *l, const char *proc, const char *name)
{
	char path[256];
	uint64_t value;

	snprintf(path, sizeof(path), "%s/%s", proc, name);
	l->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (l->fd >= 0 && read_host(l, &value))
		return true;
	load_close(l);
	return false;
}

void
load_open(struct load *l, const char *proc, unsigned cpus)
{
	*l = (struct load){.fd = -1, .cpus = cpus, .pressure = true};
	if (open_one(l, proc, "pressure/cpu"))
		return;
	l->pressure = false;
	open_one(l, proc, "loadavg");
}

void
load_close(struct load *l)
{
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
}

static void
measure_host(struct load *l, uint64_t now)
{
	uint64_t us = (now - l->host_at) / 1000, value;

	if (l->fd < 0)
		return;
	if (!read_host(l, &value)) {
		load_close(l);
		l->host = 0;
		return;
	}
	if (!l->pressure) { /* a sample: averaged */
		l->host = (l->host * 3 + (value > l->cpus ? 1000 : 0)) / 4;
	} else if (l->host_at && value >= l->waited) {
		uint64_t share = (value - l->waited) * 1000 / us;

		l->host = share < 1000 ? (uint32_t)share : 1000;
	}
	l->waited = value;
	l->host_at = now;
}

uint32_t
load_measure(struct load *l, uint64_t now, uint64_t busy, uint64_t idle)
{
	uint64_t some = busy - l->busy, all = some + idle - l->idle;
	uint64_t span = now - l->at < LOAD_SPAN_NS ? now - l->at : LOAD_SPAN_NS;

	weir_assert(some <= all);
	if (all)
		l->engine =
		    (uint32_t)((l->engine * (LOAD_SPAN_NS - span) + some * 1000 / all * span) /
			       LOAD_SPAN_NS);
	l->busy = busy;
	l->idle = idle;
	l->at = now;
	if (now - l->host_at >= LOAD_HOST_NS)
		measure_host(l, now);
	return (l->engine + l->host) / 2;
}
