/* SPDX-License-Identifier: BSD-3-Clause */
#include "nicperf.h"

static unsigned printed; /* results so far */
static bool latency_last;

static bool
is_latency(const struct nicperf_result *r)
{
	return r->test == NICPERF_LAT || r->test == NICPERF_BARE;
}

void
nicperf_report_begin(const struct nicperf *np, FILE *to)
{
	const struct nicperf_options *o = np->options;
	const char *path = o->connect ? "two processes" : "loop";

	if (o->json)
		fprintf(to,
			"{\"test_info\":{\"program\":\"weir-nicperf\",\"version\":\"" WEIR_VERSION
			"\",\"driver\":\"%s\",\"device\":\"%s\",\"mtu\":%u,\"path\":\"%s\","
			"\"qps\":%u,\"threads\":%u,\"depth\":%u,\"list\":%u,"
			"\"latency\":\"half of the round trip\"},\"results\":[",
			NIC_OPS(np->dev)->driver, np->attr.name, np->attr.mtu, path, np->qps,
			o->shared ? o->qps : 1, o->depth, o->list);
	else
		fprintf(to,
			"weir-nicperf " WEIR_VERSION ": %s on %s, path MTU %u, %s, %u queue "
			"pair%s, %u thread%s, tx depth %u, post list %u\n"
			"latency in us is half of the round trip; GB are 10^9 bytes\n",
			NIC_OPS(np->dev)->driver, np->attr.name, np->attr.mtu, path, np->qps,
			np->qps == 1 ? "" : "s", o->shared ? o->qps : 1,
			o->shared && o->qps > 1 ? "s" : "", o->depth, o->list);
}

static double
us(uint64_t ns)
{
	return (double)ns / 1e3;
}

static void
json_result(const struct nicperf_result *r, FILE *to)
{
	const struct histogram *h = &r->latency;
	double rate = (double)r->count / r->seconds;
	struct calibration c = calibration_mean(&r->before, &r->after);

	fprintf(to,
		"%s\n{\"test\":\"%s\",\"size\":%u,\"count\":%llu,\"duration_s\":%.6f,"
		"\"msgs_per_s\":%.0f,\"bytes_per_s\":%.0f,\"peak_bytes_per_s\":%.0f,",
		printed ? "," : "", nicperf_test_name(r->test), r->size,
		(unsigned long long)r->count, r->seconds, rate, rate * r->size, r->peak * r->size);
	if (is_latency(r))
		fprintf(to,
			"\"lat_us\":{\"min\":%.3f,\"mean\":%.4f,\"p50\":%.3f,\"p99\":%.3f,"
			"\"p999\":%.3f,\"max\":%.3f},",
			us(h->min), histogram_mean(h) / 1e3, us(histogram_percentile(h, 0.5)),
			us(histogram_percentile(h, 0.99)), us(histogram_percentile(h, 0.999)),
			us(h->max));
	else
		fputs("\"lat_us\":null,", to);
	if (r->test == NICPERF_VERIFY)
		fprintf(to, "\"repeated\":%llu,\"not_offered\":%llu,",
			(unsigned long long)r->repeated, (unsigned long long)r->not_offered);
	if (c.valid)
		fprintf(to,
			"\"calibration\":{\"line_ns\":%.1f,\"ring_mps\":%.1f,\"copy_gbps\":%.2f,"
			"\"before\":%.1f,"
			"\"after\":%.1f,\"label\":\"%s\"}}",
			c.line_ns, c.ring_mps, c.copy_gbps, r->before.line_ns, r->after.line_ns,
			calibration_label(&r->before, &r->after));
	else
		fputs("\"calibration\":{\"line_ns\":null,\"ring_mps\":null,\"copy_gbps\":null,"
		      "\"before\":null,"
		      "\"after\":null,\"label\":\"none\"}}",
		      to);
}

static void
table_result(const struct nicperf_result *r, FILE *to)
{
	const struct histogram *h = &r->latency;
	struct calibration c = calibration_mean(&r->before, &r->after);
	double rate = (double)r->count / r->seconds;

	if (!printed || latency_last != is_latency(r)) {
		latency_last = is_latency(r);
		if (latency_last)
			fprintf(to, "%-6s %8s %12s %9s %9s %9s %9s %9s %8s label\n", "test",
				"#bytes", "#iterations", "t_min", "t_typical", "99%", "99.9%",
				"t_max", "line ns");
		else
			fprintf(to, "%-6s %8s %12s %14s %17s %13s %8s label\n", "test", "#bytes",
				"#iterations", "BW peak[GB/s]", "BW average[GB/s]", "MsgRate[Mpps]",
				"line ns");
	}
	fprintf(to, "%-6s %8u %12llu ", nicperf_test_name(r->test), r->size,
		(unsigned long long)r->count);
	if (latency_last)
		fprintf(to, "%9.3f %9.3f %9.3f %9.3f %9.3f", us(h->min),
			us(histogram_percentile(h, 0.5)), us(histogram_percentile(h, 0.99)),
			us(histogram_percentile(h, 0.999)), us(h->max));
	else
		fprintf(to, "%14.3f %17.3f %13.6f", r->peak * r->size / 1e9, rate * r->size / 1e9,
			rate / 1e6);
	fprintf(to, " %8.1f %s\n", c.line_ns, calibration_label(&r->before, &r->after));
}

void
nicperf_report(const struct nicperf *np, const struct nicperf_result *r, FILE *to)
{
	if (np->options->json)
		json_result(r, to);
	else
		table_result(r, to);
	printed++;
	fflush(to);
}

void
nicperf_report_end(const struct nicperf *np, FILE *to)
{
	if (np->options->json)
		fputs("\n]}\n", to);
}
