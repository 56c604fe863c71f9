/* SPDX-License-Identifier: BSD-3-Clause */
#include "clock.h"
#include "result.h"

#include <string.h>

static unsigned printed; /* results so far, for the commas between them */
/* Sums over them, for the last line of the table. */
static uint64_t payload;
static struct perf_ports counted;
static pid_t counters[2]; /* data planes, 0: unknown */

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

static const char *
boolean(bool b)
{
	return b ? "true" : "false";
}

static void
json_begin(const struct perf_info *info, FILE *to)
{
	const struct perf_options *o = info->options;

	fputs("{\"test_info\":{\"program\":\"weir-perf\",\"version\":\"" WEIR_VERSION
	      "\",\"instance\":",
	      to);
	json_string(to, o->instance ? o->instance : "default");
	fputs(",\"address\":", to);
	json_string(to, o->address);
	fprintf(to, ",\"path\":\"%s\",\"node\":%d,\"peer\":%d,\"wait\":\"%s\",\"cpu\":%d,",
		info->path, info->node, info->peer, o->sleep ? "sleep" : "poll", o->cpu);
	fprintf(to, "\"seed\":%llu,\"window\":%u,\"both\":%s,\"verify\":%s,\"api\":\"%s\",",
		(unsigned long long)o->seed, o->window, boolean(o->both), boolean(o->verify),
		o->adopt  ? "adopted"
		: o->copy ? "copy"
			  : "zero-copy");
	fprintf(to,
		"\"transport\":\"%s\",\"connections\":%u,\"programs\":%u,\"threads\":%u,"
		"\"rate\":%.0f,\"flags\":\"%s\",",
		o->tcp ? "tcp" : "weir", o->connections, o->programs, o->threads, o->rate,
		perf_flags_text(o));
	fputs("\"latency\":\"round trip\"},\"results\":[", to);
}

static void
json_latency(const struct perf_result *r, FILE *to)
{
	const struct histogram *h = &r->latency;

	if (!h->count) {
		fputs("null", to);
		return;
	}
	fprintf(to,
		"{\"min\":%.3f,\"mean\":%.4f,\"p50\":%.3f,\"p99\":%.3f,\"p999\":%.3f,\"max\":%.3f}",
		(double)h->min / 1e3, r->mean_us, (double)histogram_percentile(h, 0.5) / 1e3,
		(double)histogram_percentile(h, 0.99) / 1e3,
		(double)histogram_percentile(h, 0.999) / 1e3, (double)h->max / 1e3);
}

static void
json_calibration(const struct calibration *before, const struct calibration *after, FILE *to)
{
	struct calibration c = calibration_mean(before, after);

	if (!c.valid) {
		fputs("{\"line_ns\":null,\"ring_mps\":null,\"chain4_us\":null,\"before\":null,"
		      "\"after\":null,\"label\":\"none\"}",
		      to);
		return;
	}
	fprintf(
	    to,
	    "{\"line_ns\":%.1f,\"ring_mps\":%.1f,\"chain4_us\":%.2f,\"before\":%.1f,\"after\":%.1f,"
	    "\"label\":\"%s\"}",
	    c.line_ns, c.ring_mps, c.chain4_us, before->line_ns, after->line_ns,
	    calibration_label(before, after));
}

/* The result as multiples of what the machine itself takes. */
static void
json_ratio(const struct perf_result *r, FILE *to)
{
	struct calibration c = calibration_mean(&r->before, &r->after);
	double p50 = (double)histogram_percentile(&r->latency, 0.5);

	if (!c.valid)
		fputs("{}", to);
	else if (r->latency.count)
		fprintf(to, "{\"mean_line\":%.3f,\"p50_line\":%.3f,\"p50_chain4\":%.3f}",
			r->mean_us * 1e3 / c.line_ns, p50 / c.line_ns, p50 / 1e3 / c.chain4_us);
	else
		fprintf(to, "{\"ring\":%.4f}", r->msgs_per_s / 1e6 / c.ring_mps);
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
	fprintf(to, "%s\n{\"test\":\"%s\",\"size\":%u,\"count\":%llu,\"duration_s\":%.6f,",
		printed ? "," : "", perf_test_name(r->test), r->size, (unsigned long long)r->count,
		r->duration_s);
	fprintf(to, "\"msgs_per_s\":%.1f,\"bytes_per_s\":%.1f,", r->msgs_per_s, r->bytes_per_s);
	if (info->options->both && r->test != PERF_LAT)
		fprintf(to, "\"back_msgs_per_s\":%.1f,", r->back_msgs_per_s);
	if (r->test == PERF_CALL)
		fprintf(to, "\"timeouts\":%llu,", (unsigned long long)r->timeouts);
	if (r->shares.count > 1)
		fprintf(to, "\"shares\":{\"count\":%u,\"min\":%.1f,\"mean\":%.1f,\"max\":%.1f},",
			r->shares.count, r->shares.min, r->shares.mean, r->shares.max);
	fputs("\"lat_us\":", to);
	json_latency(r, to);
	fputs(",\"calibration\":", to);
	json_calibration(&r->before, &r->after, to);
	fputs(",\"ratio\":", to);
	json_ratio(r, to);
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
csv_result(const struct perf_info *info, const struct perf_result *r, FILE *to)
{
	struct calibration c = calibration_mean(&r->before, &r->after);
	const struct histogram *h = &r->latency;

	fprintf(to, "%s,%u,%llu,%.6f,%.1f,%.1f,", perf_test_name(r->test), r->size,
		(unsigned long long)r->count, r->duration_s, r->msgs_per_s, r->bytes_per_s);
	if (h->count)
		fprintf(to, "%.3f,%.4f,%.3f,%.3f,%.3f,%.3f,", (double)h->min / 1e3, r->mean_us,
			(double)histogram_percentile(h, 0.5) / 1e3,
			(double)histogram_percentile(h, 0.99) / 1e3,
			(double)histogram_percentile(h, 0.999) / 1e3, (double)h->max / 1e3);
	else
		fputs(",,,,,,", to);
	fprintf(to, "%.1f,%.1f,%.2f,%s,%llu,%s,%llu,%llu,%llu,%llu,%llu,%d,%d\n", c.line_ns,
		c.ring_mps, c.chain4_us, calibration_label(&r->before, &r->after),
		(unsigned long long)r->errors, boolean(info->options->verify && !r->errors),
		(unsigned long long)r->ports.tx_frames, (unsigned long long)r->ports.rx_frames,
		(unsigned long long)r->ports.tx_bytes, (unsigned long long)r->ports.rx_bytes,
		(unsigned long long)r->payload, (int)r->pid, (int)r->peer_pid);
}

static void
table_begin(const struct perf_info *info, FILE *to)
{
	const struct perf_options *o = info->options;

	fprintf(to, "weir-perf " WEIR_VERSION ": instance %s",
		o->instance ? o->instance : "default");
	if (info->node >= 0)
		fprintf(to, " (node %d)", info->node);
	fprintf(to, " to %s", o->alltoall ? "all others" : o->address ? o->address : "itself");
	if (info->peer >= 0)
		fprintf(to, " (node %d)", info->peer);
	fprintf(to, ", %s, %s, %s%s\n", info->path, o->sleep ? "sleeping" : "polling",
		o->tcp	   ? "sockets"
		: o->copy  ? "copying"
		: o->adopt ? "out of adopted memory"
			   : "zero-copy above 948 B",
		o->verify ? ", verified" : "");
	if (o->connections > 1 || o->programs > 1 || o->alltoall)
		fprintf(to, "%u %s, %u connections each%s\n",
			o->alltoall ? o->cluster_count : o->programs,
			o->alltoall ? "nodes" : "programs", o->connections,
			o->alltoall ? " to each other one" : "");
	fputs("latency in us is the round trip; M/s and MB/s are one direction, as received\n", to);
	fprintf(to, "%-7s %9s %11s %9s %9s %8s %8s %8s %8s %8s %8s %7s %s\n", "test", "size",
		"count", "M/s", "MB/s", "min", "mean", "p50", "p99", "p99.9", "max", "line ns",
		"label");
}

static void
table_result(const struct perf_info *info, const struct perf_result *r, FILE *to)
{
	struct calibration c = calibration_mean(&r->before, &r->after);
	const struct histogram *h = &r->latency;
	char size[16] = "mixed";

	if (r->test != PERF_MIX)
		snprintf(size, sizeof(size), "%u", r->size);
	fprintf(to, "%-7s %9s %11llu %9.3f %9.1f ", perf_test_name(r->test), size,
		(unsigned long long)r->count, r->msgs_per_s / 1e6, r->bytes_per_s / 1e6);
	if (h->count)
		fprintf(to, "%8.2f %8.2f %8.2f %8.2f %8.2f %8.2f ", (double)h->min / 1e3,
			r->mean_us, (double)histogram_percentile(h, 0.5) / 1e3,
			(double)histogram_percentile(h, 0.99) / 1e3,
			(double)histogram_percentile(h, 0.999) / 1e3, (double)h->max / 1e3);
	else
		fprintf(to, "%8s %8s %8s %8s %8s %8s ", "-", "-", "-", "-", "-", "-");
	if (c.valid)
		fprintf(to, "%7.1f %s", c.line_ns, calibration_label(&r->before, &r->after));
	else
		fprintf(to, "%7s %s", "-", "none");
	if (info->options->both && r->test != PERF_LAT)
		fprintf(to, "  back %.3f M/s", r->back_msgs_per_s / 1e6);
	if (r->errors)
		fprintf(to, "  %llu ERRORS", (unsigned long long)r->errors);
	if (r->timeouts)
		fprintf(to, " (%llu TIMEOUTS)", (unsigned long long)r->timeouts);
	putc('\n', to);
	if (r->shares.count > 1)
		fprintf(to, "     of each of %u: %.4f, %.4f, %.4f M/s (least, mean, most)\n",
			r->shares.count, r->shares.min / 1e6, r->shares.mean / 1e6,
			r->shares.max / 1e6);
	payload += r->payload;
	if (!r->ports_known)
		return;
	counted.tx_frames += r->ports.tx_frames;
	counted.tx_bytes += r->ports.tx_bytes;
	counters[0] = r->pid;
	counters[1] = r->peer_pid;
}

/* Bytes that went through ports were counted there, or it was another path that was measured. */
static void
table_end(const struct perf_info *info, FILE *to)
{
	if (strcmp(info->path, "local") == 0 || !counters[0])
		return;
	fprintf(to,
		"%llu bytes of payload left in %llu frames of %llu bytes, counted at the port by "
		"the data "
		"plane (pid %d",
		(unsigned long long)payload, (unsigned long long)counted.tx_frames,
		(unsigned long long)counted.tx_bytes, (int)counters[0]);
	if (counters[1] && counters[1] != counters[0])
		fprintf(to, "; the other one: pid %d", (int)counters[1]);
	fputs(")\n", to);
}

void
perf_report_begin(const struct perf_info *info, FILE *to)
{
	printed = 0;
	payload = 0;
	counted = (struct perf_ports){0};
	counters[0] = counters[1] = 0;
	if (info->options->format == FORMAT_JSON)
		json_begin(info, to);
	else if (info->options->format == FORMAT_CSV)
		fputs("test,size,count,duration_s,msgs_per_s,bytes_per_s,min_us,mean_us,p50_us,p99_"
		      "us,p999_us,"
		      "max_us,line_ns,ring_mps,chain4_us,label,errors,verified,tx_frames,rx_frames,"
		      "tx_bytes,"
		      "rx_bytes,payload_bytes,pid,peer_pid\n",
		      to);
	else
		table_begin(info, to);
	fflush(to);
}

void
perf_report(const struct perf_info *info, const struct perf_result *result, FILE *to)
{
	if (info->options->format == FORMAT_JSON)
		json_result(info, result, to);
	else if (info->options->format == FORMAT_CSV)
		csv_result(info, result, to);
	else
		table_result(info, result, to);
	printed++;
	fflush(to);
}

void
perf_report_end(const struct perf_info *info, FILE *to)
{
	if (info->options->format == FORMAT_JSON)
		fputs("\n]}\n", to);
	else if (info->options->format == FORMAT_TABLE)
		table_end(info, to);
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
		fprintf(to, "line_ns,ring_mps,chain4_us,label\n%.1f,%.1f,%.2f,%s\n", c->line_ns,
			c->ring_mps, c->chain4_us, calibration_label(c, c));
	} else if (!c->valid) {
		fputs("only one CPU: nothing to measure between\n", to);
	} else {
		fprintf(to, "cache line, round trip between two CPUs  %8.1f ns   %s\n", c->line_ns,
			calibration_label(c, c));
		fprintf(to, "bare ring of 64 B slots, published by 32 %8.1f M/s\n", c->ring_mps);
		fprintf(to, "line round 4 yielding processes, 2 CPUs  %8.2f us\n", c->chain4_us);
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
