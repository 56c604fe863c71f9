/* SPDX-License-Identifier: BSD-3-Clause */
/* The connections of a run, and what the ports of the data plane counted. */
#include "driver.h"
#include "ports.h"

#include "ipc/ctl_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_MS 5000
#define PROGRESS_EVERY 250u
#define ANSWER_SECONDS 2.0 /* for an answer of the data plane */

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
	struct weir_connect_options options = {.size = sizeof(options),
					       .flags = d->options->loop ? WEIR_LOOP : 0};
	uint32_t all = n * d->options->connections;
	bool progress = d->progress && all > PROGRESS_EVERY;
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
			if (!rc) {
				perf_flow_conn(f, d->weir, conn);
				f->address = address;
			}
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
		if (progress && (i + 1) % PROGRESS_EVERY == 0)
			fprintf(stderr, "\r%u of %u connections \033[K", i + 1, all);
		if (progress && i + 1 == all)
			fputs("\r\033[K", stderr);
	}
	d->flow = d->flows;
	return rc;
}

int
driver_connect_datagrams(struct driver *d, struct perf_flow *f, uint64_t number)
{
	struct weir_connect_options options = {
	    .size = sizeof(options), .flags = WEIR_UD | (d->options->loop ? WEIR_LOOP : 0)};
	struct weir_address address = f->address;
	struct weir_conn *conn;
	uint16_t node;
	int rc = weir_conn_peer(f->conn, &node, NULL);

	if (rc)
		return rc;
	if (address.kind == WEIR_ADDRESS_SERVICE) {
		address.kind = WEIR_ADDRESS_NODE;
		address.id = node;
	}
	perf_datagram_service(number, address.service);
	rc = weir_connect_with(d->weir, &address, &options, CONNECT_MS, &conn);
	if (rc)
		return rc;
	perf_flow_data(f, conn);
	if ((int)f->out.size <= weir_conn_mtu(conn))
		return 0;
	snprintf(d->reason, sizeof(d->reason),
		 "a datagram to this server has at most %d bytes, not %u; lower --size",
		 weir_conn_mtu(conn), f->out.size);
	return -EMSGSIZE;
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

int
perf_ports_read(const char *instance, struct perf_ports *ports, pid_t *pid)
{
	struct weir_ctl_client *c = calloc(1, sizeof(*c));
	struct perf_ports sum = {0};
	char path[128];
	pid_t found = 0;
	int rc;

	if (!c)
		return -ENOMEM;
	rc = weir_ctl_path(instance, path, sizeof(path));
	if (!rc)
		rc = weir_ctl_connect(c, path, ANSWER_SECONDS);
	if (rc) {
		free(c);
		return rc;
	}
	rc = weir_ctl_greet(c);
	if (!rc) {
		found = (pid_t)c->in.m.hello.pid;
		rc = weir_ctl_ask(c, WEIR_ROWS_PORTS);
	}
	for (bool more = !rc; more; more = rc > 0) {
		rc = weir_ctl_page(c);
		for (uint32_t i = 0; rc >= 0 && i < c->in.m.rows.count; i++) {
			const struct weir_row_port *row = weir_ctl_row(c, i);

			sum.tx_frames += row->tx_frames;
			sum.rx_frames += row->rx_frames;
			sum.tx_bytes += row->tx_bytes;
			sum.rx_bytes += row->rx_bytes;
		}
	}
	if (rc == -EREMOTEIO)
		rc = -c->in.m.error.code;
	weir_ctl_close(c);
	free(c);
	if (!rc) {
		*ports = sum;
		*pid = found;
	}
	return rc;
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
