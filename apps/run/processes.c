/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "starter.h"

#include "ipc/invariant.h"
#include "ipc/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

/* as shells and env(1) have them */
#define EXIT_NOT_EXECUTED 126
#define EXIT_NOT_FOUND 127
#define EXIT_SIGNAL 128

static const struct timeval grace = {5, 0}; /* from SIGTERM to SIGKILL */

/* ---- start ---- */

/* Of a process that starts: its descriptors, and the end of each that stays here. */
enum { IN, OUT, ERR, REPORT, PIPES };
struct pipes {
	int theirs[PIPES], ours[PIPES];
};

static int
failed(const char *what, int error, const char *remedy)
{
	fprintf(stderr, "weir-run: %s: %s; %s\n", what, strerror(error), remedy);
	return EXIT_FAILED;
}

static void
close_all(const int *fds)
{
	for (int i = 0; i < PIPES; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* 0 or -errno. */
static int
make_pipes(struct pipes *p)
{
	memset(p, 0xff, sizeof(*p));
	for (int i = 0; i < PIPES; i++) {
		int ends[2], error;

		if (pipe2(ends, O_CLOEXEC)) {
			error = errno;
			close_all(p->theirs);
			close_all(p->ours);
			return -error;
		}
		p->theirs[i] = ends[i == IN ? 0 : 1];
		p->ours[i] = ends[i == IN ? 1 : 0];
	}
	return 0;
}

/* The new process becomes the program. It reports why it cannot. */
static void __attribute__((noreturn))
become(const struct starter *s, uint32_t rank, const struct pipes *p, pid_t parent)
{
	struct cpus_part part =
	    cpus_part(s->cpus.count, s->options->processes, s->options->threads, rank);
	char text[16];
	int error;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_FAILED);
	setpgid(0, 0);
	/* shells have background programs ignore what only a terminal sends them */
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	snprintf(text, sizeof(text), "%u", rank);
	if (setenv(LAUNCH_RANK, text, 1) ||
	    setenv(LAUNCH_INSTANCE, run_instance(s->options, rank), 1) ||
	    dup2(p->theirs[IN], STDIN_FILENO) < 0 || dup2(p->theirs[OUT], STDOUT_FILENO) < 0 ||
	    dup2(p->theirs[ERR], STDERR_FILENO) < 0) {
		error = errno;
	} else {
		error = -cpus_pin(&s->cpus, part);
		if (!error) {
			execvp(s->command[0], s->command);
			error = errno;
		}
	}
	if (write(p->theirs[REPORT], &error, sizeof(error)) < 0)
		_exit(EXIT_NOT_FOUND);
	_exit(EXIT_NOT_EXECUTED);
}

/* 0, or the exit code; the reason is printed. */
static int
start(struct starter *s, uint32_t rank)
{
	pid_t parent = getpid(), pid;
	char what[256];
	struct pipes p;
	int rc, error;
	ssize_t n;

	rc = make_pipes(&p);
	if (rc)
		return failed("cannot make pipes", -rc,
			      "raise the limit of open files (ulimit -n)");
	pid = fork();
	error = errno;
	if (!pid)
		become(s, rank, &p, parent);
	close_all(p.theirs);
	if (pid < 0) {
		close_all(p.ours);
		return failed("cannot fork", error, "raise the limit of processes (ulimit -u)");
	}
	s->process[rank].pid = pid;
	s->left++;
	do /* until it has become the program */
		n = read(p.ours[REPORT], &error, sizeof(error));
	while (n < 0 && errno == EINTR);
	close(p.ours[REPORT]);
	if (rank) {
		close(p.ours[IN]);
		p.ours[IN] = -1;
	}
	if (streams_add(s, rank, p.ours[IN], p.ours[OUT], p.ours[ERR]))
		return failed("cannot start", ENOMEM, "free some");
	if (n <= 0)
		return 0;
	snprintf(what, sizeof(what), "cannot start '%s'", s->command[0]);
	failed(what, error, "give a program of $PATH, or the path of one");
	return error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTED;
}

/* Sets the variables that are equal for all processes. 0 or -errno. */
static int
set_environment(const struct run_options *o)
{
	char name[32], secret[40], size[16], threads[16];
	uint64_t word[3];

	if (getrandom(word, sizeof(word), 0) != sizeof(word))
		return -EAGAIN;
	snprintf(name, sizeof(name), "run-%016llx", (unsigned long long)word[0]);
	snprintf(secret, sizeof(secret), "%016llx%016llx", (unsigned long long)word[1],
		 (unsigned long long)word[2]);
	snprintf(size, sizeof(size), "%u", o->processes);
	snprintf(threads, sizeof(threads), "%u", o->threads);
	if (setenv(LAUNCH_GROUP, name, 1) || setenv(LAUNCH_SECRET, secret, 1) ||
	    setenv(LAUNCH_SIZE, size, 1) || (o->threads && setenv(LAUNCH_THREADS, threads, 1)))
		return -errno;
	return 0;
}

/* ---- end ---- */

static void
signal_all(const struct starter *s, int number)
{
	for (uint32_t i = 0; i < s->options->processes; i++) {
		pid_t pid = s->process[i].pid;

		/* unless it has left its group */
		if (pid && kill(-pid, number))
			kill(pid, number);
	}
}

void
starter_end_all(struct starter *s)
{
	if (s->ending)
		return;
	s->ending = true;
	signal_all(s, SIGTERM);
	event_add(s->grace, &grace);
}

void
starter_settle(struct starter *s)
{
	if (!s->left && streams_done(s))
		event_base_loopbreak(s->base);
}

static void
on_grace(evutil_socket_t fd, short what, void *user)
{
	signal_all(user, SIGKILL);
}

static void
on_signal(evutil_socket_t number, short what, void *user)
{
	struct starter *s = user;

	if (!s->left) /* nobody reads the rest of the output */
		event_base_loopbreak(s->base);
	else if (number == SIGTERM || number == SIGHUP)
		starter_end_all(s);
	else
		signal_all(s, (int)number);
}

static void
on_end(struct starter *s, uint32_t rank, const siginfo_t *end)
{
	bool exited = end->si_code == CLD_EXITED;
	int code = exited ? end->si_status : EXIT_SIGNAL + end->si_status;
	pid_t pid = s->process[rank].pid;

	if (code && !s->ending) {
		if (exited)
			streams_say(s, "process %u ended with exit code %d; the others are ended",
				    rank, code);
		else
			streams_say(s,
				    "process %u was ended by signal %d (%s); the others are ended",
				    rank, end->si_status, strsignal(end->si_status));
	}
	if (code && !s->code)
		s->code = code;
	if (code)
		starter_end_all(s);
	if (s->ending) /* its own children; nobody else has its number before waitpid() */
		kill(-pid, SIGKILL);
	waitpid(pid, NULL, 0);
	s->process[rank].pid = 0;
	weir_assert(s->left);
	s->left--;
}

static void
on_child(evutil_socket_t number, short what, void *user)
{
	struct starter *s = user;

	for (uint32_t i = 0; i < s->options->processes; i++) {
		siginfo_t end = {0};

		if (s->process[i].pid &&
		    !waitid(P_PID, (id_t)s->process[i].pid, &end, WEXITED | WNOHANG | WNOWAIT) &&
		    end.si_pid)
			on_end(s, i, &end);
	}
	if (s->left)
		return;
	streams_drain(s);
	starter_settle(s);
}

/* Some have not started. */
static void
give_up(struct starter *s)
{
	signal_all(s, SIGKILL);
	for (uint32_t i = 0; i < s->options->processes; i++)
		if (s->process[i].pid)
			waitpid(s->process[i].pid, NULL, 0);
}

/* ---- all ---- */

/* 0 or -ENOMEM. */
static int
open_loop(struct starter *s)
{
	struct event_config *c = event_config_new();

	/* files, too: not every backend waits for them */
	if (c && !event_config_require_features(c, EV_FEATURE_FDS))
		s->base = event_base_new_with_config(c);
	if (c)
		event_config_free(c);
	if (!s->base)
		return -ENOMEM;
	s->grace = evtimer_new(s->base, on_grace, s);
	return s->grace ? streams_open(s) : -ENOMEM;
}

static int
add_signal(struct starter *s, unsigned i, int number, event_callback_fn f)
{
	s->signals[i] = evsignal_new(s->base, number, f, s);
	return s->signals[i] && !event_add(s->signals[i], NULL) ? 0 : -ENOMEM;
}

/* As nohup(1) has it. */
static bool
is_ignored(int number)
{
	struct sigaction now;

	return !sigaction(number, NULL, &now) && now.sa_handler == SIG_IGN;
}

/* The exit code. */
static int
run(struct starter *s)
{
	int rc = 0;

	if (open_loop(s))
		return failed("cannot start", ENOMEM, "free some");
	for (uint32_t i = 0; !rc && i < s->options->processes; i++)
		rc = start(s, i);
	/* not before: a process would inherit these */
	if (!rc && (add_signal(s, 0, SIGINT, on_signal) || add_signal(s, 1, SIGTERM, on_signal) ||
		    add_signal(s, 2, SIGCHLD, on_child) || add_signal(s, 3, SIGQUIT, on_signal) ||
		    (!is_ignored(SIGHUP) && add_signal(s, 4, SIGHUP, on_signal))))
		rc = failed("cannot start", ENOMEM, "free some");
	if (rc) {
		give_up(s);
		return rc;
	}
	signal(SIGPIPE, SIG_IGN);
	signal(SIGTTIN, SIG_IGN); /* on_input() */
	on_child(SIGCHLD, 0, s);  /* those that have ended before the signal was awaited */
	if (s->left || !streams_done(s))
		event_base_dispatch(s->base);
	return s->code;
}

static void
close_loop(struct starter *s)
{
	streams_close(s);
	for (unsigned i = 0; i < sizeof(s->signals) / sizeof(s->signals[0]); i++)
		if (s->signals[i])
			event_free(s->signals[i]);
	if (s->grace)
		event_free(s->grace);
	if (s->base)
		event_base_free(s->base);
}

int
starter_run(const struct run_options *o, char **command)
{
	static struct starter s;
	int rc, fd;

	/* a standard descriptor that is closed would be that of a pipe */
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	close(fd);
	s.options = o;
	s.command = command;
	rc = cpus_allowed(&s.cpus);
	if (!rc)
		rc = set_environment(o);
	if (rc)
		return failed("cannot start", -rc, "look at the limits of this user");
	s.process = calloc(o->processes, sizeof(*s.process));
	if (!s.process)
		return failed("cannot start", ENOMEM, "free some");
	rc = run(&s);
	close_loop(&s);
	free(s.process);
	return rc;
}
