/* SPDX-License-Identifier: BSD-3-Clause */
/* weir-dataplane: start, the main lcore's loop, stop. */
#define _GNU_SOURCE
#include "base/crash.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/run_dir.h"
#include "eal_setup.h"
#include "machine_limits.h"
#include "plane.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_version.h>

#define STOP_NS 1500000000ull	 /* ns in which programs and peers are told */
#define STOP_LOOK_NS 10000000ull /* ns between two looks whether all are told */
#define FILES_MIN 64u		 /* open files of a data plane without programs */
#define RATE_NS 999999999ull	 /* ns that main sleeps at most, rounded up to 1 s */

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_RESOURCE = 3 };

static int
exit_code(int rc)
{
	switch (rc) {
	case 0:
		return EXIT_OK;
	case -EINVAL:
		return EXIT_USAGE;
	case -ENOMEM:
	case -EACCES:
	case -EPERM:
	case -ENODEV:
	case -ENOSPC:
	case -EMFILE:
	case -EBUSY:
	case -EMSGSIZE:
	case -ENOENT:
	case -ENOTDIR:
	case -EROFS:
		return EXIT_RESOURCE;
	default:
		return EXIT_FAILED;
	}
}

/* --help and --version are ours wherever they stand. */
static bool
asks_before_dashes(int count, char **argv, const char *what)
{
	for (int i = 1; i < count; i++)
		if (strcmp(argv[i], what) == 0)
			return true;
	return false;
}

static int
watch(int epoll_fd, int fd)
{
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

static uint64_t
less(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Runs until a signal, then until programs and peers are told or STOP_NS are over. */
static void
run(struct plane *p, int epoll_fd, int signal_fd)
{
	struct watchdog watchdog;
	uint64_t stop_at = 0;
	char who[64] = "";

	watchdog_open(&watchdog, clock_now(&p->clock));
	for (;;) {
		uint64_t next = less(broker_run(p->broker), RATE_NS), now = clock_now(&p->clock);
		struct signalfd_siginfo info;
		struct epoll_event events[4];
		/* an engine that hangs is worth a restart, as main is */
		uint64_t feed_at =
		    watchdog_feed(&watchdog, now, now < watchdog.due || plane_turning(p));

		next = less(next, feed_at > now ? feed_at - now : 0);
		if (!stop_at && read(signal_fd, &info, sizeof(info)) == sizeof(info)) {
			stop_at = now + STOP_NS;
			notify("STOPPING=1");
			if (info.ssi_pid) /* signals of the kernel have no sender */
				snprintf(who, sizeof(who), " sent by process %u of user %u",
					 info.ssi_pid, info.ssi_uid);
			log_event(LOG_LEVEL_INFO,
				  (struct log_field[]){{"signal", info.ssi_signo, NULL},
						       {"sender_pid", info.ssi_pid, NULL},
						       {"sender_uid", info.ssi_uid, NULL}},
				  3, "stopping on signal %u (%s)%s; programs and peers are told",
				  info.ssi_signo, info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT",
				  who);
		}
		if (stop_at && broker_stop(p->broker)) {
			log_info("stopped: all programs and peers have been told");
			return;
		}
		if (stop_at && now >= stop_at) {
			log_warning(
			    "stopped: some program or peer did not answer in time; it finds "
			    "out by itself");
			return;
		}
		if (stop_at)
			next = less(next, STOP_LOOK_NS);
		plane_rate(p);
		next = less(next, plane_restart_ports(p));
		epoll_wait(epoll_fd, events, 4, next ? (int)(next / 1000000 + 1) : 0);
		plane_collect(p);
	}
}

static int
serve(struct plane *p, int signal_fd, char *error, size_t size)
{
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC), rc = 0;

	if (epoll_fd < 0 || watch(epoll_fd, signal_fd) || watch(epoll_fd, p->bell.fd) ||
	    watch(epoll_fd, broker_fd(p->broker))) {
		rc = -errno;
		snprintf(error, size, "no epoll: %s; raise the limit of open files", strerror(-rc));
		goto out;
	}
	log_timed();
	budget_print(p);
	telemetry_start(p);
	log_info("instance '%s' is up, %u engine%s, %u port%s", p->options->instance, p->engines,
		 p->engines == 1 ? "" : "s", p->ports, p->ports == 1 ? "" : "s");
	plane_crash_watch(p);
	notify("READY=1\nSTATUS=serving");
	run(p, epoll_fd, signal_fd);
	plane_crash_watch(NULL);
	telemetry_stop();
out:
	if (epoll_fd >= 0)
		close(epoll_fd);
	return rc;
}

int
main(int argc, char **argv)
{
	static struct options o;
	static struct plane plane;
	int dashes = 1, ours, rc;
	struct rlimit files;
	struct run_dir dir;
	char error[512];
	sigset_t signals;

	while (dashes < argc && strcmp(argv[dashes], "--"))
		dashes++;
	ours = dashes < argc ? dashes + 1 : argc;
	log_find_format(argc - ours, argv + ours);
	rc = options_parse(&o, argc - ours, argv + ours, error, sizeof(error));
	if ((!rc && o.help) || asks_before_dashes(dashes, argv, "--help") ||
	    asks_before_dashes(dashes, argv, "-h")) {
		option_print_help(&options_table, stdout);
		return EXIT_OK;
	}
	if ((!rc && o.version) || asks_before_dashes(dashes, argv, "--version")) {
		printf("weir-dataplane " WEIR_VERSION " (%s)\n", rte_version());
		return EXIT_OK;
	}
	for (int i = 1; i < dashes && !rc; i++)
		if (options_know(argv[i]))
			rc = snprintf(error, sizeof(error),
				      "%s stands among the EAL options; write weir-dataplane [EAL "
				      "options] -- %s",
				      argv[i], argv[i]);
	log_open(o.instance);
	if (rc) {
		log_error("%s", error);
		return EXIT_USAGE;
	}
	log_set_level(o.log_level);
	log_set_format(o.log_format);
	crash_install(plane_crash_state);
	/* programs take many open files: as many as are allowed */
	if (getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_max = RLIM_INFINITY;
	} else {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (files.rlim_max < FILES_MIN) {
		log_error("%llu open files are allowed, %u are needed at least, and more for "
			  "programs; raise that limit (ulimit -Hn, LimitNOFILE=)",
			  (unsigned long long)files.rlim_max, FILES_MIN);
		return EXIT_RESOURCE;
	}
	limits_derive(&o, machine_memory(""), files.rlim_max);
	/* registered programs then need no fence before they read our sleep flags */
	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
	/* SIGTERM and SIGINT come by an fd, in no thread; doorbells of dead programs raise no
	 * SIGPIPE */
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	rc = run_dir_take(&dir, o.run_dir, o.instance, "dataplane", error, sizeof(error));
	if (rc) {
		log_error("%s", error);
		return exit_code(rc);
	}
	rc = eal_setup(o.instance, dashes, argv, error, sizeof(error));
	if (rc)
		goto out;
	rc = plane_open(&plane, &o, dir.path, error, sizeof(error));
	if (rc == -ENODEV)
		eal_explain(error, sizeof(error));
	if (!rc)
		rc = serve(&plane, signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC), error,
			   sizeof(error));
	plane_close(&plane);
	eal_teardown(o.instance);
out:
	run_dir_release(&dir);
	if (rc)
		log_error("%s", error);
	return exit_code(rc);
}
