/* SPDX-License-Identifier: BSD-3-Clause */
/* The connections of a run, and what the ports of the data plane counted. */
#include "clock.h"
#include "driver.h"
#include "ports.h"

#include "ipc/dpctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define CONNECT_MS 5000
#define TOLD_EVERY 250u

int
perf_address_parse(const char *text, struct weir_address *address)
{
	char whole[WEIR_ADDRESS_TEXT_MAX];
	int n;

	if (weir_address_parse(text, address) == 0 && address->service[0])
		return 0;
	n = snprintf(whole, sizeof(whole), "%s:%s", text, PERF_SERVICE);
	if (n < 0 || (size_t)n >= sizeof(whole))
		return -EINVAL;
	return weir_address_parse(whole, address);
}

int
driver_connect(struct driver *d, const char *const *addresses, uint32_t n)
{
	struct weir_connect_options options = {.flags = d->options->loop ? WEIR_LOOP : 0};
	uint32_t all = n * d->options->connections;
	bool progress = d->progress && all > TOLD_EVERY;
	struct weir_address address;
	struct weir_conn *conn;
	char text[80];
	int fd, rc = 0;

	d->flows = calloc(all, sizeof(*d->flows));
	if (!d->flows || perf_queue_reserve(&d->ready, all))
		return -ENOMEM;
	for (uint32_t i = 0; i < all && !rc; i++) {
		struct perf_flow *f = &d->flows[i];

		if (atomic_load_explicit(&perf_stop, memory_order_relaxed))
			return -EINTR;
		if (d->team && atomic_load_explicit(&d->team->failed, memory_order_relaxed))
			return -ECANCELED;
		perf_flow_init(f, &d->buffers);
		d->flow_count = i + 1;
		if (d->weir) {
			rc = perf_address_parse(addresses[i % n], &address);
			if (!rc)
				rc = weir_connect_with(d->weir, &address, &options, CONNECT_MS,
						       &conn);
			if (!rc)
				perf_flow_conn(f, d->weir, conn);
		} else {
			snprintf(text, sizeof(text), "%s%s", addresses[i % n],
				 strrchr(addresses[i % n], ':') ? "" : PERF_TCP_PORT);
			rc = fd = perf_socket_connect(text);
			if (fd >= 0) {
				perf_flow_socket(f, fd);
				rc = perf_idle_watch(&d->idle, fd, f);
			}
		}
		f->queue = all > 1 ? &d->ready : NULL;
		if (!rc && d->own_server) {
			d->own_server->idle->accepts = true;
			rc = server_step(d->own_server);
			rc = rc > 0 ? 0 : rc;
		}
		if (d->team)
			atomic_store_explicit(&d->team->member[d->number].live.connected, i + 1,
					      memory_order_relaxed);
		if (progress && (i + 1) % TOLD_EVERY == 0)
			fprintf(stderr, "\r%u of %u connections \033[K", i + 1, all);
		if (progress && i + 1 == all)
			fputs("\r\033[K", stderr);
	}
	d->flow = d->flows;
	return rc;
}

void
driver_close(struct driver *d)
{
	for (uint32_t i = 0; i < d->flow_count; i++)
		perf_flow_close(&d->flows[i]);
	free(d->flows);
	perf_queue_free(&d->ready);
	perf_buffers_free(&d->buffers);
	if (d->idle.epoll >= 0)
		close(d->idle.epoll);
	d->flows = d->flow = NULL;
	d->flow_count = 0;
}

static int
connect_control(const char *instance)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = 2};
	const char *run = getenv("WEIR_RUN_DIR");
	int n, fd, error;

	n = snprintf(to.sun_path, sizeof(to.sun_path), "%s/%s/control.sock",
		     run && *run ? run : "/run/weir", instance);
	if (n < 0 || (size_t)n >= sizeof(to.sun_path))
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) ||
	    connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		error = errno;
		close(fd);
		return -error;
	}
	return fd;
}

/* Sends a message of fixed size. 0 or -errno. */
static int
say(int fd, struct weir_ctl_msg *m, uint32_t type)
{
	m->type = type;
	m->length = weir_ctl_length(type);
	if (send(fd, m, m->length, MSG_NOSIGNAL) != (ssize_t)m->length)
		return errno ? -errno : -EIO;
	return 0;
}

/* Receives a checked message of `type`. 0 or -errno. */
static int
hear(int fd, struct weir_ctl_msg *m, uint32_t type)
{
	ssize_t n = recv(fd, m, WEIR_CTL_MAX, 0);
	int rc;

	if (n <= 0)
		return n ? -errno : -ECONNRESET;
	rc = weir_ctl_check(m, (size_t)n);
	if (rc)
		return rc;
	if (m->type == WEIR_CTL_ERROR)
		return m->error.code > 0 ? -m->error.code : -EPROTO;
	return m->type == type ? 0 : -EPROTO;
}

static int
sum_rows(int fd, struct weir_ctl_msg *m, struct perf_ports *sum)
{
	const struct weir_row_port *row;
	int rc;

	do {
		rc = hear(fd, m, WEIR_CTL_ROWS);
		if (rc)
			return rc;
		if (m->rows.rows != WEIR_ROWS_PORTS || m->rows.record_bytes != sizeof(*row))
			return -EPROTO;
		row = (const struct weir_row_port *)m->rows.records;
		for (uint32_t i = 0; i < m->rows.count; i++, row++) {
			sum->tx_frames += row->tx_frames;
			sum->rx_frames += row->rx_frames;
			sum->tx_bytes += row->tx_bytes;
			sum->rx_bytes += row->rx_bytes;
		}
	} while (m->rows.more);
	return 0;
}

int
perf_ports_read(const char *instance, struct perf_ports *ports, pid_t *pid)
{
	struct weir_ctl_msg *m = calloc(1, WEIR_CTL_MAX);
	struct perf_ports sum = {0};
	pid_t found = 0;
	int fd, rc;

	if (!m)
		return -ENOMEM;
	fd = connect_control(instance);
	if (fd < 0) {
		free(m);
		return fd;
	}
	m->hello.version = WEIR_CTL_VERSION;
	m->hello.role = WEIR_ROLE_QUERY;
	rc = say(fd, m, WEIR_CTL_HELLO);
	if (!rc)
		rc = hear(fd, m, WEIR_CTL_HELLO);
	if (!rc) {
		found = (pid_t)m->hello.pid;
		m->query.rows = WEIR_ROWS_PORTS;
		rc = say(fd, m, WEIR_CTL_QUERY);
	}
	if (!rc)
		rc = sum_rows(fd, m, &sum);
	close(fd);
	free(m);
	if (rc)
		return rc;
	*ports = sum;
	*pid = found;
	return 0;
}

struct perf_ports
perf_ports_since(const struct perf_ports *before, const struct perf_ports *after)
{
	return (struct perf_ports){
	    .tx_frames = after->tx_frames - before->tx_frames,
	    .rx_frames = after->rx_frames - before->rx_frames,
	    .tx_bytes = after->tx_bytes - before->tx_bytes,
	    .rx_bytes = after->rx_bytes - before->rx_bytes,
	};
}
