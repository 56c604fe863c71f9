/* SPDX-License-Identifier: BSD-3-Clause */
#include "clock.h"
#include "result.h"

#include "weir/stream.h"

#include <string.h>

/* State of the report that is being printed. */
static struct {
	unsigned results; /* printed so far */
	/* sums over the results whose ports are known, for the last line of the table */
	uint64_t payload, came;
	struct perf_ports ports;
	pid_t pids[2]; /* data planes that counted them, 0: unknown */
} report;

static void
json_string(FILE *to, const char *text)
{
	if (!text) {
		fputs("null", to);
		return;
	}
	putc('"', to);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fprintf(to, "\\%c", *text);
		else if ((unsigned char)*text < 0x20)
			fprintf(to, "\\u%04x", (unsigned char)*text);
		else
			putc(*text, to);
	}
	putc('"', to);
}

static void
add_ports(struct perf_ports *to, const struct perf_ports *from)
{
	to->tx_frames += from->tx_frames;
	to->rx_frames += from->rx_frames;
	to->tx_bytes += from->tx_bytes;
	to->rx_bytes += from->rx_bytes;
}

static const char *
boolean(bool b)
{
	return b ? "true" : "false";
}

/* The columns of a latency: min, mean, p50, p99, p99.9, max and standard deviation in us. */
#define LATENCIES 7

static void
latencies(const struct perf_result *r, double us[LATENCIES])
{
	const struct histogram *h = &r->latency;

	us[0] = (double)h->min / 1e3;
	us[1] = r->mean_us;
	us[2] = (double)histogram_percentile(h, 0.5) / 1e3;
	us[3] = (double)histogram_percentile(h, 0.99) / 1e3;
	us[4] = (double)histogram_percentile(h, 0.999) / 1e3;
	us[5] = (double)h->max / 1e3;
	us[6] = histogram_deviation(h) / 1e3;
}

/* Mean of a call of PERF_PSCW. */
static double
call_us(const struct perf_result *r, enum perf_call call)
{
	return (double)r->calls.ns[call] / (double)r->calls.rounds / 1e3;
}

static double
per_message(const struct perf_result *r)
{
	return r->messages ? (double)r->made / (double)r->messages : 0;
}

static void
json_calibration(const struct calibration *before, const struct calibration *after, FILE *to)
{
	struct calibration c = calibration_mean(before, after);

	if (!c.valid) {
		fputs("{\"line_ns\":null,\"ring_mps\":null,\"slots_mps\":null,\"chain4_us\":null,"
		      "\"copy_gbps\":null,\"before\":null,\"after\":null,\"label\":\"none\"}",
		      to);
		return;
	}
	fprintf(to,
		"{\"line_ns\":%.1f,\"ring_mps\":%.1f,\"slots_mps\":%.1f,\"chain4_us\":%.2f,\"copy_"
		"gbps\":%.2f,"
		"\"before\":%.1f,\"after\":%.1f,\"label\":\"%s\"}",
		c.line_ns, c.ring_mps, c.slots_mps, c.chain4_us, c.copy_gbps, before->line_ns,
		after->line_ns, calibration_label(before, after));
}

static void
json_ports(bool known, const struct perf_ports *p, FILE *to)
{
	if (!known) {
		fputs("null", to);
		return;
	}
	fprintf(to, "{\"tx_frames\":%llu,\"rx_frames\":%llu,\"tx_bytes\":%llu,\"rx_bytes\":%llu}",
		(unsigned long long)p->tx_frames, (unsigned long long)p->rx_frames,
		(unsigned long long)p->tx_bytes, (unsigned long long)p->rx_bytes);
}

static void
json_result(const struct perf_info *info, const struct perf_result *r, FILE *to)
{
	struct calibration c = calibration_mean(&r->before, &r->after);
	double us[LATENCIES];

	fprintf(to, "%s\n{\"test\":\"%s\",\"size\":%u,\"count\":%llu,\"duration_s\":%.6f,",
		report.results ? "," : "", perf_test_name(r->test), r->size,
		(unsigned long long)r->count, r->duration_s);
	fprintf(to, "\"msgs_per_s\":%.1f,\"bytes_per_s\":%.1f,", r->msgs_per_s, r->bytes_per_s);
	if (info->options->both && r->test != PERF_LAT)
		fprintf(to, "\"back_msgs_per_s\":%.1f,", r->back_msgs_per_s);
	if (info->options->flags & WEIR_UD)
		fprintf(to, "\"lost\":%llu,", (unsigned long long)r->lost);
	if (r->test == PERF_REQUESTS)
		fprintf(to, "\"timeouts\":%llu,", (unsigned long long)r->timeouts);
	if (r->members)
		fprintf(to, "\"members\":%u,", r->members);
	if (r->shares.count > 1)
		fprintf(to, "\"shares\":{\"count\":%u,\"min\":%.1f,\"mean\":%.1f,\"max\":%.1f},",
			r->shares.count, r->shares.min, r->shares.mean, r->shares.max);
	latencies(r, us);
	if (r->latency.count)
		fprintf(to,
			"\"lat_us\":{\"min\":%.3f,\"mean\":%.4f,\"p50\":%.3f,\"p99\":%.3f,"
			"\"p999\":%.3f,\"max\":%.3f,\"stddev\":%.3f}",
			us[0], us[1], us[2], us[3], us[4], us[5], us[6]);
	else
		fputs("\"lat_us\":null", to);
	if (perf_is_call(r->test))
		fprintf(to, ",\"calls\":{\"run\":%llu,\"messages\":%llu,\"per_message\":%.3f}",
			(unsigned long long)r->received, (unsigned long long)r->messages,
			per_message(r));
	if (r->calls.rounds)
		fprintf(
		    to,
		    ",\"calls_us\":{\"post\":%.4f,\"start\":%.4f,\"complete\":%.4f,\"wait\":%.4f}",
		    call_us(r, CALL_POST), call_us(r, CALL_START), call_us(r, CALL_COMPLETE),
		    call_us(r, CALL_WAIT));
	fputs(",\"calibration\":", to);
	json_calibration(&r->before, &r->after, to);
	/* the result as multiples of the cost of the machine itself */
	if (!c.valid)
		fputs(",\"ratio\":{}", to);
	else if (r->latency.count)
		fprintf(to, ",\"ratio\":{\"mean_line\":%.3f,\"p50_line\":%.3f,\"p50_chain4\":%.3f}",
			us[1] * 1e3 / c.line_ns, us[2] * 1e3 / c.line_ns, us[2] / c.chain4_us);
	else
		fprintf(to, ",\"ratio\":{\"ring\":%.4f,\"slots\":%.4f,\"copy\":%.4f}",
			r->msgs_per_s / 1e6 / c.ring_mps, r->msgs_per_s / 1e6 / c.slots_mps,
			r->bytes_per_s / 1e9 / c.copy_gbps);
	fprintf(to, ",\"errors\":%llu,\"verified\":%s,\"payload_bytes\":%llu,\"ports\":",
		(unsigned long long)r->errors, boolean(info->options->verify && !r->errors),
		(unsigned long long)r->payload);
	json_ports(r->ports_known, &r->ports, to);
	fputs(",\"peer_ports\":", to);
	json_ports(r->peer_ports_known, &r->peer_ports, to);
	fputs(",\"pids\":[", to);
	if (r->pid)
		fprintf(to, "%d", (int)r->pid);
	if (r->peer_pid && r->peer_pid != r->pid)
		fprintf(to, "%s%d", r->pid ? "," : "", (int)r->peer_pid);
	fputs("]}", to);
}

static void
table_result(const struct perf_info *info, const struct perf_result *r, FILE *to)
{
	struct calibration c = calibration_mean(&r->before, &r->after);
	char size[16] = "mixed";
	double us[LATENCIES];

	latencies(r, us);
	if (r->test != PERF_MIX)
		snprintf(size, sizeof(size), "%u", r->size);
	fprintf(to, "%-7s %9s %11llu %9.3f %9.1f %8.2f ", perf_test_name(r->test), size,
		(unsigned long long)r->count, r->msgs_per_s / 1e6, r->bytes_per_s / 1e6,
		r->bytes_per_s * 8 / 1e9);
	if (r->latency.count)
		fprintf(to, "%8.2f %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f ", us[0], us[1], us[2],
			us[3], us[4], us[5], us[6]);
	else
		fprintf(to, "%8s %8s %8s %8s %8s %8s %8s ", "-", "-", "-", "-", "-", "-", "-");
	if (c.valid)
		fprintf(to, "%7.1f %s", c.line_ns, calibration_label(&r->before, &r->after));
	else
		fprintf(to, "%7s %s", "-", "none");
	if (info->options->both && r->test != PERF_LAT)
		fprintf(to, "  back %.3f M/s", r->back_msgs_per_s / 1e6);
	if (r->errors)
		fprintf(to, "  %llu ERRORS", (unsigned long long)r->errors);
	if (r->lost)
		fprintf(to, "  %llu lost", (unsigned long long)r->lost);
	if (r->timeouts)
		fprintf(to, " (%llu TIMEOUTS)", (unsigned long long)r->timeouts);
	putc('\n', to);
	if (r->shares.count > 1)
		fprintf(to, "     of each of %u: %.4f, %.4f, %.4f M/s (least, mean, most)\n",
			r->shares.count, r->shares.min / 1e6, r->shares.mean / 1e6,
			r->shares.max / 1e6);
	if (perf_is_call(r->test))
		fprintf(to, "     %llu calls run, %llu messages, %.1f calls per message\n",
			(unsigned long long)r->received, (unsigned long long)r->messages,
			per_message(r));
	if (r->calls.rounds)
		fprintf(to, "     post %.3f, start %.3f, complete %.3f, wait %.3f us (means)\n",
			call_us(r, CALL_POST), call_us(r, CALL_START), call_us(r, CALL_COMPLETE),
			call_us(r, CALL_WAIT));
	if (!r->ports_known)
		return;
	if (perf_is_fetch(r->test))
		report.came += r->payload;
	else
		report.payload += r->payload;
	add_ports(&report.ports, &r->ports);
	report.pids[0] = r->pid;
	report.pids[1] = r->peer_pid;
}

void
perf_report_begin(const struct perf_info *info, FILE *to)
{
	/* as in enum weir_batch_mode */
	static const char *const modes[] = {"auto", "eager", "full", "overflow"};
	const struct perf_options *o = info->options;

	memset(&report, 0, sizeof(report));
	switch (o->format) {
	case FORMAT_JSON:
		fputs("{\"test_info\":{\"program\":\"weir-perf\",\"version\":\"" WEIR_VERSION
		      "\",\"instance\":",
		      to);
		json_string(to, o->instance ? o->instance : "default");
		fputs(",\"address\":", to);
		json_string(to, o->address);
		fprintf(to, ",\"path\":\"%s\",\"node\":%d,\"peer\":%d,\"wait\":\"%s\",\"cpu\":%d,",
			info->path, info->node, info->peer, o->sleep ? "sleep" : "poll", o->cpu);
		fprintf(to, "\"seed\":%llu,\"window\":%u,\"both\":%s,\"verify\":%s,\"api\":\"%s\",",
			(unsigned long long)o->seed, o->window, boolean(o->both),
			boolean(o->verify),
			o->adopt  ? "adopted"
			: o->copy ? "copy"
				  : "zero-copy");
		fprintf(to,
			"\"transport\":\"%s\",\"connections\":%u,\"programs\":%u,\"threads\":%u,"
			"\"target\":\"%s\",\"apart\":%s,\"through\":\"%s\",\"by_engine\":%s,"
			"\"readers\":%u,\"partners\":%u,\"rate\":%.0f,\"flags\":\"%s\","
			"\"mode\":\"%s\",\"many\":%s,\"inside\":%s,",
			o->tcp ? "tcp" : "weir", o->connections, o->programs, o->threads,
			o->stop ? "stop" : "sleep", boolean(o->apart),
			o->through ? "window" : "remote", boolean(o->by_engine), o->readers,
			o->partners, o->rate, perf_flags_text(o), modes[o->mode], boolean(o->many),
			boolean(o->inside));
		fputs("\"latency\":\"round trip\"},\"results\":[", to);
		break;
	case FORMAT_CSV:
		fputs("test,size,count,duration_s,msgs_per_s,bytes_per_s,min_us,mean_us,p50_us,"
		      "p99_us,p999_us,max_us,line_ns,ring_mps,chain4_us,copy_gbps,label,errors,"
		      "verified,"
		      "tx_frames,rx_frames,tx_bytes,rx_bytes,payload_bytes,pid,peer_pid,stddev_us,"
		      "lost\n",
		      to);
		break;
	case FORMAT_TABLE:
		fprintf(to, "weir-perf " WEIR_VERSION ": instance %s",
			o->instance ? o->instance : "default");
		if (info->node >= 0)
			fprintf(to, " (node %d)", info->node);
		fprintf(to, " to %s",
			o->alltoall  ? "all others"
			: o->address ? o->address
				     : "itself");
		if (info->peer >= 0)
			fprintf(to, " (node %d)", info->peer);
		fprintf(to, ", %s, %s, %s%s\n", info->path, o->sleep ? "sleeping" : "polling",
			o->tcp		     ? "sockets"
			: o->copy	     ? "copying"
			: o->flags & WEIR_UD ? "datagrams"
			: o->adopt	     ? "out of adopted memory"
					     : "zero-copy above 948 B",
			o->verify ? ", verified" : "");
		if (o->connections > 1 || o->programs > 1 || o->alltoall)
			fprintf(to, "%u %s%s, %u connection%s each%s\n",
				o->alltoall ? o->cluster_count : o->programs,
				o->alltoall ? "node" : "program",
				!o->alltoall && o->programs == 1 ? "" : "s", o->connections,
				o->connections == 1 ? "" : "s",
				o->alltoall ? " to each other one" : "");
		fputs("latency in us is the round trip; M/s and MB/s are one direction, as "
		      "received\n",
		      to);
		fprintf(to, "%-7s %9s %11s %9s %9s %8s %8s %8s %8s %8s %8s %8s %8s %7s %s\n",
			"test", "size", "count", "M/s", "MB/s", "Gb/s", "min", "mean", "p50", "p99",
			"p99.9", "max", "stddev", "line ns", "label");
		break;
	}
	fflush(to);
}

void
perf_report(const struct perf_info *info, const struct perf_result *result, FILE *to)
{
	struct calibration c = calibration_mean(&result->before, &result->after);
	double us[LATENCIES];
	char deviation[32] = "";

	switch (info->options->format) {
	case FORMAT_JSON:
		json_result(info, result, to);
		break;
	case FORMAT_TABLE:
		table_result(info, result, to);
		break;
	case FORMAT_CSV:
		latencies(result, us);
		fprintf(to, "%s,%u,%llu,%.6f,%.1f,%.1f,", perf_test_name(result->test),
			result->size, (unsigned long long)result->count, result->duration_s,
			result->msgs_per_s, result->bytes_per_s);
		if (result->latency.count)
			fprintf(to, "%.3f,%.4f,%.3f,%.3f,%.3f,%.3f,", us[0], us[1], us[2], us[3],
				us[4], us[5]);
		else
			fputs(",,,,,,", to);
		if (result->latency.count)
			snprintf(deviation, sizeof(deviation), "%.3f", us[6]);
		fprintf(to,
			"%.1f,%.1f,%.2f,%.2f,%s,%llu,%s,%llu,%llu,%llu,%llu,%llu,%d,%d,%s,%llu\n",
			c.line_ns, c.ring_mps, c.chain4_us, c.copy_gbps,
			calibration_label(&result->before, &result->after),
			(unsigned long long)result->errors,
			boolean(info->options->verify && !result->errors),
			(unsigned long long)result->ports.tx_frames,
			(unsigned long long)result->ports.rx_frames,
			(unsigned long long)result->ports.tx_bytes,
			(unsigned long long)result->ports.rx_bytes,
			(unsigned long long)result->payload, (int)result->pid,
			(int)result->peer_pid, deviation, (unsigned long long)result->lost);
		break;
	}
	report.results++;
	fflush(to);
}

static void
ports_line(FILE *to, const char *way, uint64_t payload, uint64_t frames, uint64_t bytes)
{
	fprintf(to, "%llu bytes of payload %s in %llu frames of %llu bytes, ",
		(unsigned long long)payload, way, (unsigned long long)frames,
		(unsigned long long)bytes);
}

void
perf_report_end(const struct perf_info *info, FILE *to)
{
	if (info->options->format == FORMAT_JSON)
		fputs("\n]}\n", to);
	/* bytes counted at the ports show that the payload took this path */
	if (info->options->format == FORMAT_TABLE && strcmp(info->path, "local") != 0 &&
	    report.pids[0]) {
		if (report.payload)
			ports_line(to, "left", report.payload, report.ports.tx_frames,
				   report.ports.tx_bytes);
		if (report.came)
			ports_line(to, "came", report.came, report.ports.rx_frames,
				   report.ports.rx_bytes);
		fprintf(to, "counted at the port by the data plane (pid %d", (int)report.pids[0]);
		if (report.pids[1] && report.pids[1] != report.pids[0])
			fprintf(to, "; the other one: pid %d", (int)report.pids[1]);
		fputs(")\n", to);
	}
	fflush(to);
}

void
perf_report_calibration(const struct perf_options *options, const struct calibration *c, FILE *to)
{
	if (options->format == FORMAT_JSON) {
		fputs("{\"test_info\":{\"program\":\"weir-perf\",\"version\":\"" WEIR_VERSION "\"},"
		      "\"results\":[{\"test\":\"calibrate\",\"calibration\":",
		      to);
		json_calibration(c, c, to);
		fputs("}]}\n", to);
	} else if (options->format == FORMAT_CSV) {
		fprintf(to, "line_ns,ring_mps,chain4_us,copy_gbps,label\n%.1f,%.1f,%.2f,%.2f,%s\n",
			c->line_ns, c->ring_mps, c->chain4_us, c->copy_gbps,
			calibration_label(c, c));
	} else if (!c->valid) {
		fputs("only one CPU: nothing to measure between\n", to);
	} else {
		fprintf(to, "cache line, round trip between two CPUs  %8.1f ns   %s\n", c->line_ns,
			calibration_label(c, c));
		fprintf(to, "bare ring of 64 B slots, published by 32 %8.1f M/s\n", c->ring_mps);
		fprintf(to, "64 B messages, each in two such slots    %8.1f M/s\n", c->slots_mps);
		fprintf(to, "line round 4 yielding processes, 2 CPUs  %8.2f us\n", c->chain4_us);
		fprintf(to, "memcpy of 64 KiB, warm                   %8.2f GB/s\n", c->copy_gbps);
	}
}

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

void
perf_result_add(struct perf_result *to, const struct perf_result *from)
{
	uint64_t trips = to->latency.count, more = from->latency.count;

	to->members = from->members;
	to->count += from->count;
	to->errors += from->errors;
	to->lost += from->lost;
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
	to->made += from->made;
	to->messages += from->messages;
	to->calls.rounds += from->calls.rounds;
	for (uint32_t i = 0; i < CALLS; i++)
		to->calls.ns[i] += from->calls.ns[i];
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
