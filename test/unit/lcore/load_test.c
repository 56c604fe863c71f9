/* SPDX-License-Identifier: BSD-3-Clause */
/* The load that an engine tells: of itself, and of a host whose files the test writes. */
#include "worlds/test.h"

#include <sys/stat.h>

#include "lcore/load.h"

#define MS 1000000ull

static char proc[32];
static char pressure_dir[64], pressure[64], loadavg[64];
static struct load l;
static uint64_t now, busy, idle;

static void
put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void
put_waited(uint64_t us)
{
	char text[200];

	snprintf(text, sizeof(text),
		 "some avg10=97.57 avg60=84.61 avg300=40.87 total=%llu\n"
		 "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
		 (unsigned long long)us);
	put(pressure, text);
}

static void
put_running(unsigned n)
{
	char text[64];

	snprintf(text, sizeof(text), "13.77 5.84 7.05 %u/197 5673\n", n);
	put(loadavg, text);
}

static int
make_proc(void **state)
{
	snprintf(proc, sizeof(proc), "/tmp/weir-load-XXXXXX");
	if (!mkdtemp(proc))
		return -1;
	snprintf(pressure_dir, sizeof(pressure_dir), "%s/pressure", proc);
	snprintf(pressure, sizeof(pressure), "%s/pressure/cpu", proc);
	snprintf(loadavg, sizeof(loadavg), "%s/loadavg", proc);
	now = 1000 * MS;
	busy = idle = 0;
	return mkdir(pressure_dir, 0700);
}

static int
remove_proc(void **state)
{
	load_close(&l);
	unlink(pressure);
	unlink(loadavg);
	return rmdir(pressure_dir) || rmdir(proc) ? -1 : 0;
}

/* `share` of 1000 cycles are busy per ms. Returns the load at the end. */
static uint32_t
run(unsigned ms, unsigned share)
{
	uint32_t load = 0;

	for (unsigned i = 0; i < ms; i++) {
		now += MS;
		busy += share;
		idle += 1000 - share;
		load = load_measure(&l, now, busy, idle);
	}
	return load;
}

/* Without a word of the host the load is half of the engine's busy share, averaged over some ms. */
TEST_IN(make_proc, remove_proc, of_the_engine)
{
	load_open(&l, proc, 2);
	assert_int_equal(l.fd, -1);
	assert_int_equal(run(100, 0), 0);
	assert_in_range(run(1, 1000), 55, 70); /* an eighth of the span */
	assert_in_range(run(100, 1000), 490, 500);
	assert_in_range(run(100, 400), 195, 205);
	/* asleep: nothing was counted, all that is known stays; then one measurement of a span */
	now += 500 * MS;
	assert_in_range(load_measure(&l, now, busy, idle), 195, 205);
	now += 8 * MS;
	idle += 1;
	assert_int_equal(load_measure(&l, now, busy, idle), 0);
}

/* The host's pressure is the other half, as the time that threads waited has grown. */
TEST_IN(make_proc, remove_proc, of_the_host)
{
	put_waited(5000000);
	put_running(100); /* not asked */
	load_open(&l, proc, 2);
	assert_true(l.pressure);
	assert_int_equal(run(50, 0), 0); /* what was before doesn't count */
	put_waited(5000000 + 24000);	 /* in 40 ms */
	assert_int_equal(run(40, 0), 300);
	assert_in_range(run(20, 1000), 750, 800);
	put_waited(9000000); /* more than there was time for */
	assert_in_range(run(20, 0), 500, 540);
	assert_int_equal(run(41, 0), 0); /* nobody has waited since */
	put_waited(9000000 + 20000);
	assert_int_equal(run(40, 0), 250);
	put_waited(3); /* a counter that went back says nothing */
	assert_int_equal(run(40, 0), 250);
	/* the file became useless: the host counts as free from then on */
	put(pressure, "full total=9999999999\n");
	assert_int_equal(run(40, 0), 0);
	assert_int_equal(l.fd, -1);
}

/* Without pressure, or where the kernel has it switched off: more threads run than there are CPUs.
 */
TEST_IN(make_proc, remove_proc, of_the_run_queue)
{
	put(pressure, "");
	put_running(2);
	load_open(&l, proc, 2);
	assert_true(l.fd >= 0 && !l.pressure);
	assert_int_equal(run(400, 0), 0);
	put_running(3);
	assert_in_range(run(40, 0), 120, 130);
	assert_in_range(run(1200, 0), 490, 500);
	put_running(1);
	assert_int_equal(run(2000, 0), 0);
}

/* The host is looked at only now and then: that is a system call. */
TEST_IN(make_proc, remove_proc, seldom)
{
	put_waited(0);
	load_open(&l, proc, 2);
	run(1, 0);
	put_waited(10000);
	assert_int_equal(run(39, 0), 0);
	assert_int_equal(run(1, 0), 125);
}
