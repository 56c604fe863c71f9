/* SPDX-License-Identifier: BSD-3-Clause */
#include "switch.h"

#include <time.h>

uint64_t
switch_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double
share(uint64_t cpu, uint64_t time)
{
	return time ? (double)cpu / (double)time : 0;
}

static void
json(const struct ether_switch *sw, double all, double last, uint64_t now, FILE *to)
{
	const struct switch_drops *d = &sw->drops;

	fprintf(to,
		"{\"program\":\"weir-switch\",\"version\":\"" WEIR_VERSION
		"\",\"time_s\":%.3f,\"cpu_share\":%.4f,\"cpu_share_last\":%.4f,\"sleeps\":%llu,"
		"\"addresses\":%u,\"moved\":%llu,\"crowded\":%llu,\"flooded\":%llu,"
		"\"drops\":{\"runt\":%llu,\"bad_source\":%llu,\"stayed\":%llu,\"too_long\":%llu,"
		"\"no_link\":%llu},\"ports\":[",
		(double)(now - sw->began) / 1e9, all, last, (unsigned long long)sw->sleeps,
		switch_table_count(&sw->table, (uint32_t)(now / 1000000000u)),
		(unsigned long long)sw->table.moved, (unsigned long long)sw->table.crowded,
		(unsigned long long)sw->flooded, (unsigned long long)d->runt,
		(unsigned long long)d->bad_source, (unsigned long long)d->stayed,
		(unsigned long long)d->too_long, (unsigned long long)d->no_link);
	for (unsigned i = 0; i < sw->ports; i++) {
		const struct switch_port *p = &sw->port[i];

		fprintf(to,
			"%s{\"name\":\"%s\",\"up\":%s,\"rx_frames\":%llu,\"rx_bytes\":%llu,"
			"\"tx_frames\":%llu,\"tx_bytes\":%llu,\"full\":%llu}",
			i ? "," : "", p->name, p->up ? "true" : "false",
			(unsigned long long)p->rx_frames, (unsigned long long)p->rx_bytes,
			(unsigned long long)p->tx_frames, (unsigned long long)p->tx_bytes,
			(unsigned long long)p->full);
	}
	fputs("]}\n", to);
}

static void
table(const struct ether_switch *sw, double all, double last, uint64_t now, FILE *to)
{
	const struct switch_drops *d = &sw->drops;

	fprintf(to,
		"%.1f s, %.1f %% of a CPU (%.1f %% since the last report), %u addresses, %llu "
		"moved, %llu crowded, %llu frames flooded\n"
		"dropped: %llu runt, %llu bad source, %llu stayed, %llu too long, %llu no link\n",
		(double)(now - sw->began) / 1e9, 100 * all, 100 * last,
		switch_table_count(&sw->table, (uint32_t)(now / 1000000000u)),
		(unsigned long long)sw->table.moved, (unsigned long long)sw->table.crowded,
		(unsigned long long)sw->flooded, (unsigned long long)d->runt,
		(unsigned long long)d->bad_source, (unsigned long long)d->stayed,
		(unsigned long long)d->too_long, (unsigned long long)d->no_link);
	fprintf(to, "%-16s %-4s %12s %16s %12s %16s %10s\n", "port", "", "rx frames", "rx bytes",
		"tx frames", "tx bytes", "full");
	for (unsigned i = 0; i < sw->ports; i++) {
		const struct switch_port *p = &sw->port[i];

		fprintf(to, "%-16s %-4s %12llu %16llu %12llu %16llu %10llu\n", p->name,
			p->up ? "up" : "down", (unsigned long long)p->rx_frames,
			(unsigned long long)p->rx_bytes, (unsigned long long)p->tx_frames,
			(unsigned long long)p->tx_bytes, (unsigned long long)p->full);
	}
}

void
switch_report(struct ether_switch *sw, uint64_t now, FILE *to)
{
	uint64_t cpu = switch_cpu_ns();
	double all = share(cpu - sw->began_cpu, now - sw->began);
	double last = share(cpu - sw->reported_cpu, now - sw->reported);

	if (sw->options->json)
		json(sw, all, last, now, to);
	else
		table(sw, all, last, now, to);
	fflush(to);
	sw->reported = now;
	sw->reported_cpu = cpu;
}
