/* SPDX-License-Identifier: BSD-3-Clause */
#include "programs.h"

#include "clock.h"
#include "run.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WATCH_US 10000u /* between two looks at the members */

static size_t
team_bytes(uint32_t count)
{
	return sizeof(struct team) + count * sizeof(struct team_member);
}

/* A member's whole run; its exit code. */
static int
member(struct team *t, struct perf_options *o, uint32_t number, uint32_t test, uint32_t size)
{
	static struct run r;
	struct team_member *m = &t->member[number];
	const char *what = "";
	int rc = run_open(&r, o, t, number, &what);

	if (!rc)
		rc = driver_run(&r.driver, test, size, &m->result, &what);
	if (!rc) {
		m->node = r.node;
		m->peer = r.peer;
		snprintf(m->path, sizeof(m->path), "%s", r.path);
		/* others may still need this one's server */
		rc = team_arrive(t, TEAM_OVER, r.serves ? &r.own_server : NULL);
	}
	m->rc = rc;
	if (rc) {
		run_reason(&r, rc, what, m->reason, sizeof(m->reason));
		atomic_store(&t->failed, true);
	}
	run_close(&r);
	return run_exit_code(rc);
}

int
team_start(struct team_run *t, const struct perf_options *o, uint32_t test, uint32_t size)
{
	uint32_t count = o->alltoall ? o->cluster_count : o->programs;
	struct perf_options mine;
	pid_t parent = getpid();

	memset(t, 0, sizeof(*t));
	t->team = mmap(NULL, team_bytes(count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (t->team == MAP_FAILED) {
		t->team = NULL;
		return -ENOMEM;
	}
	t->team->count = count;
	t->team->group = perf_mix(now_ns() ^ (uint64_t)parent << 40) | 1;
	t->receives = o->both || test == PERF_LAT || test == PERF_READ || test == PERF_REQUESTS;
	fflush(NULL);
	for (uint32_t i = 0; i < count; i++) {
		t->team->member[i].rc = -ECHILD;
		t->pid[i] = fork();
		if (t->pid[i] < 0) {
			atomic_store(&t->team->failed, true);
			break;
		}
		if (t->pid[i]) {
			t->left++;
			continue;
		}
		/* a member ends with its starter */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(EXIT_FAILED);
		mine = *o;
		if (o->alltoall) {
			mine.instance = o->cluster[i];
			mine.rate = o->rate / o->cluster_count;
		} else {
			mine.rate = o->rate / o->programs;
			mine.count = o->count / o->programs + (i < o->count % o->programs);
			mine.large = o->large / o->programs + (i < o->large % o->programs);
		}
		_exit(member(t->team, &mine, i, test, size));
	}
	return 0;
}

bool
team_watch(struct team_run *t)
{
	int status;

	if (!t->team)
		return false;
	if (atomic_load(&perf_stop))
		atomic_store(&t->team->failed, true);
	for (uint32_t i = 0; i < t->team->count; i++) {
		if (t->pid[i] <= 0 || waitpid(t->pid[i], &status, WNOHANG) != t->pid[i])
			continue;
		weir_assert(t->left);
		t->pid[i] = 0;
		t->left--;
		if (WIFSIGNALED(status)) {
			atomic_store(&t->team->failed, true);
			snprintf(t->team->member[i].reason, TEAM_REASON,
				 "program %u was ended by signal %d; see its core dump", i,
				 WTERMSIG(status));
		}
	}
	return t->left;
}

int
team_collect(struct team_run *t, struct perf_info *info, struct perf_result *sum, char *reason,
	     size_t reason_size)
{
	const struct team_member *worst = NULL;
	struct team *team = t->team;
	int rc = 0;

	/* the first failure that is not the consequence of another one */
	for (uint32_t i = 0; i < team->count; i++) {
		const struct team_member *m = &team->member[i];

		if (m->rc && (!worst || (worst->rc == -ECANCELED && m->rc != -ECANCELED)))
			worst = m;
	}
	if (worst) {
		rc = run_exit_code(worst->rc);
		snprintf(reason, reason_size, "%s",
			 worst->reason[0] ? worst->reason
					  : "a program could not be started; lower --programs");
	}
	memset(sum, 0, sizeof(*sum));
	histogram_clear(&sum->latency);
	if (!rc) {
		sum->test = team->member[0].result.test;
		sum->size = team->member[0].result.size;
		info->node = team->member[0].node;
		info->peer = team->member[0].peer;
		snprintf(info->path_text, sizeof(info->path_text), "%s", team->member[0].path);
		info->path = info->path_text;
	}
	for (uint32_t i = 0; i < team->count && !rc; i++)
		perf_result_add(sum, &team->member[i].result);
	munmap(team, team_bytes(team->count));
	t->team = NULL;
	return rc;
}

struct team_sum
team_count(const struct team_run *t)
{
	struct team_sum s = {0};

	for (uint32_t i = 0; t->team && i < t->team->count; i++) {
		struct team_live *l = &t->team->member[i].live;

		s.sent += atomic_load_explicit(&l->sent, memory_order_relaxed);
		s.received += atomic_load_explicit(&l->received, memory_order_relaxed);
		s.errors += atomic_load_explicit(&l->errors, memory_order_relaxed);
		s.connected += atomic_load_explicit(&l->connected, memory_order_relaxed);
	}
	return s;
}

void
team_print_rates(const struct team_run *t, struct team_rates *r, FILE *to)
{
	struct team_sum now = team_count(t);
	uint64_t ns = now_ns();
	double s = (double)(ns - r->last_ns) / 1e9;

	if (r->last_ns && now.sent >= r->last.sent) {
		fprintf(to, "%llu connection%s: sent %.3f M/s, %llu in all",
			(unsigned long long)now.connected, now.connected == 1 ? "" : "s",
			(double)(now.sent - r->last.sent) / s / 1e6, (unsigned long long)now.sent);
		/* one way, the messages arrive at the server, which counts them */
		if (t->receives)
			fprintf(to, "; received %.3f M/s, %llu in all",
				(double)(now.received - r->last.received) / s / 1e6,
				(unsigned long long)now.received);
		fprintf(to, "; %llu errors\n", (unsigned long long)now.errors);
	}
	r->last_ns = ns;
	r->last = now;
}

struct starter {
	const struct perf_options *options;
	struct perf_info *info;
	bool begun; /* the head of the report is printed: it names what the first run found */
};

static int
one_by_team(void *arg, uint32_t test, uint32_t size, struct perf_result *r)
{
	struct starter *s = arg;
	struct team_rates rates = {.last_ns = now_ns()};
	struct team_run t;
	char reason[TEAM_REASON] = "no memory for the programs' results; lower --programs";
	int rc = team_start(&t, s->options, test, size);

	while (!rc && team_watch(&t)) {
		usleep(WATCH_US);
		if (s->options->period_s > 0 &&
		    (double)(now_ns() - rates.last_ns) >= s->options->period_s * 1e9)
			team_print_rates(&t, &rates, stderr);
	}
	rc = rc ? EXIT_RESOURCE : team_collect(&t, s->info, r, reason, sizeof(reason));
	if (rc) {
		fprintf(stderr, "weir-perf: %s\n", reason);
		return rc;
	}
	if (!s->begun)
		perf_report_begin(s->info, stdout);
	s->begun = true;
	return 0;
}

int
team_run_all(const struct perf_options *o, const cpu_set_t *allowed)
{
	struct perf_info info = {.options = o, .node = -1, .peer = -1};
	struct starter s = {.options = o, .info = &info};
	int rc = run_all(&info, allowed, one_by_team, &s);

	if (s.begun)
		perf_report_end(&info, stdout);
	return rc;
}
