/* SPDX-License-Identifier: BSD-3-Clause */
#include "result.h"

#include "clock.h"

void
perf_result_rate(struct perf_result *r)
{
	if (r->last_ns <= r->start_ns)
		return;
	r->duration_s = (double)(r->last_ns - r->start_ns) / NS_PER_S;
	r->msgs_per_s = (double)r->measured / r->duration_s;
	/* mixed sizes: the measured part has the whole's mean size */
	if (r->received)
		r->bytes_per_s = r->msgs_per_s * (double)r->payload / (double)r->received;
}

void
perf_shares_add(struct perf_shares *s, double rate)
{
	if (!s->count || rate < s->min)
		s->min = rate;
	if (!s->count || rate > s->max)
		s->max = rate;
	s->mean += (rate - s->mean) / ++s->count;
}

static void
add_ports(struct perf_ports *to, const struct perf_ports *from)
{
	to->tx_frames += from->tx_frames;
	to->rx_frames += from->rx_frames;
	to->tx_bytes += from->tx_bytes;
	to->rx_bytes += from->rx_bytes;
}

void
perf_result_add(struct perf_result *to, const struct perf_result *from)
{
	uint64_t trips = to->latency.count, more = from->latency.count;

	to->count += from->count;
	to->errors += from->errors;
	to->timeouts += from->timeouts;
	to->payload += from->payload;
	to->received += from->received;
	to->measured += from->measured;
	if (from->measured && (!to->start_ns || from->start_ns < to->start_ns))
		to->start_ns = from->start_ns;
	if (from->last_ns > to->last_ns)
		to->last_ns = from->last_ns;
	/* what each measured for itself; perf_result_rate() knows better where there is a common
	 * time */
	if (from->duration_s > to->duration_s)
		to->duration_s = from->duration_s;
	to->msgs_per_s += from->msgs_per_s;
	to->bytes_per_s += from->bytes_per_s;
	to->back_msgs_per_s += from->back_msgs_per_s;
	if (more) {
		to->mean_us = (to->mean_us * (double)trips + from->mean_us * (double)more) /
			      (double)(trips + more);
		histogram_add(&to->latency, &from->latency);
	}
	if (from->ports_known) {
		to->ports_known = true;
		add_ports(&to->ports, &from->ports);
	}
	if (from->peer_ports_known) {
		to->peer_ports_known = true;
		add_ports(&to->peer_ports, &from->peer_ports);
	}
	if (from->pid)
		to->pid = from->pid;
	if (from->peer_pid)
		to->peer_pid = from->peer_pid;
	perf_shares_add(&to->shares, from->msgs_per_s);
	perf_result_rate(to);
}
