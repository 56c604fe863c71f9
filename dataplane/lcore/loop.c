/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "loop.h"

#include "base/crash.h"
#include "doorbell.h"
#include "nap.h"
#include "timeslice.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_pause.h>

#define HOUSEKEEPING 1024u	   /* turns, a power of two */
#define USAGE_NS 40000000u	   /* looks for others on the CPU so often */
#define USAGE_SWITCHES 4u	   /* so many switches in that time: there are others */
#define SHARED_NS 500000000u	   /* believed for so long after the last sign */
#define EMPTY_TURNS 20u		   /* at least, before a sleep */
#define EXPECT_NS 16000u	   /* after work, what follows is waited for so long ... */
#define ALONE_NS 1000u		   /* a yield that finds nobody takes less than half of this */
#define LONELY 8u		   /* so many of them in a row: nobody is there ... */
#define LONELY_TURNS 16u	   /* ... and is looked for in so many turns */
#define OTHERS_NS 5000u		   /* ... if others gave the CPU back sooner than this */
#define TURN_NS 30000u		   /* a stream lets others on the CPU run so often ... */
#define TURN_MOST_NS 300000u	   /* ... or, where they take long, up to this, ... */
#define TURN_PART 4u		   /* ... but for such a part of the time that they took */
#define CROWD_NS 200000u	   /* they are many if they take this long */
#define FEW_TURNS 4u		   /* with work since others had the CPU: no stream */
#define FEW_WORK 4u		   /* in a turn: programs go on before we look again */
#define CROWD 6u		   /* more channels than this after a yield: yield twice as often */
#define PAIR 2u			   /* fewer: half as often */
#define SLICE_SHIFT 3u		   /* at most 8 times as often */
#define SLICE_NS 2000000u	   /* looked at so often */
#define LOAD_NS 1000000u	   /* the load is measured so often ... */
#define LOAD_SPAN_NS 8000000u	   /* ... and says what was in so long */
#define SLEEP_ANY_NS 1000000000ull /* longest of all sleeps */
#define EVENTS 32

void
main_bell_ring(struct main_bell *bell)
{
	uint64_t one = 1;

	/* pairs with the exchange in main_bell_clear() */
	if (atomic_exchange(&bell->rung, 1) == 0 && write(bell->fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: main is awake */
}

void
main_bell_clear(struct main_bell *bell)
{
	uint64_t count;

	if (read(bell->fd, &count, sizeof(count)) < 0)
		return;
	/* pairs with the exchange in main_bell_ring() */
	atomic_exchange(&bell->rung, 0);
}

bool
loop_emit(void *loop, const struct engine_event *event)
{
	struct loop *l = loop;

	if (!mailbox_raise(&l->mailbox, event))
		return false;
	l->told_main = true;
	return true;
}

void
loop_wake(struct loop *l)
{
	uint64_t one = 1;

	/* what the engine is to find is published: pairs with the fence in doze() */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&l->sleeping, memory_order_relaxed) &&
	    atomic_exchange_explicit(&l->sleeping, 0, memory_order_relaxed) &&
	    write(l->wake_fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: it wakes anyway */
}

/* ---- the engine's side ---- */

static void
add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static void
give_back(struct loop *l, const struct mail *mail)
{
	mailbox_give_back(&l->mailbox, mail);
	l->told_main = true;
}

/* For who asks after a crash. */
static void
note_command(struct loop *l, const struct engine_command *command)
{
	atomic_store_explicit(&l->stats.last_command, command->type, memory_order_relaxed);
	add(&l->stats.commands, 1);
}

static unsigned
take_mails(struct loop *l)
{
	struct mail mail;
	unsigned n = 0;

	for (; mailbox_take(&l->mailbox, &mail); n++) {
		if (mail.kind != MAIL_COMMAND) {
			doorbell_mail(l, &mail);
			give_back(l, &mail);
			continue;
		}
		note_command(l, mail.about);
		if (engine_execute(l->engine, mail.about))
			give_back(l, &mail);
	}
	return n;
}

static unsigned
give_back_done(struct loop *l)
{
	struct engine_command *command;
	unsigned n = 0;

	for (; (command = engine_done(l->engine)); n++)
		give_back(l, &(struct mail){MAIL_COMMAND, command});
	if (l->told_main) {
		l->told_main = false;
		main_bell_ring(l->config.bell);
	}
	return n;
}

/* Cycles since the last turn began go to what it was. */
static void
account(struct loop *l, uint64_t tsc)
{
	add(l->empty_turns ? &l->stats.idle_cycles : &l->stats.busy_cycles, tsc - l->turn_tsc);
	l->turn_tsc = tsc;
}

/* What peers are told, 1/1000: the share of busy cycles, of late. */
static void
measure_load(struct loop *l, uint64_t now)
{
	uint64_t busy = atomic_load_explicit(&l->stats.busy_cycles, memory_order_relaxed);
	uint64_t idle = atomic_load_explicit(&l->stats.idle_cycles, memory_order_relaxed);
	uint64_t some = busy - l->load_busy, all = some + idle - l->load_idle;
	uint64_t span = RTE_MIN(now - l->load_at, LOAD_SPAN_NS);

	if (all)
		l->load = (uint32_t)((l->load * (LOAD_SPAN_NS - span) + some * 1000 / all * span) /
				     LOAD_SPAN_NS);
	l->load_busy = busy;
	l->load_idle = idle;
	l->load_at = now;
	engine_set_load(l->engine, l->load);
}

/*
 * Whether others want this CPU: then the thread is switched away from, and it may not spin between.
 * A sched_yield() that found nobody does not count as a switch, so alone we soon notice.
 */
static void
notice_sharing(struct loop *l, uint64_t now)
{
	struct rusage usage;

	if (now - l->usage_checked < USAGE_NS || getrusage(RUSAGE_THREAD, &usage))
		return;
	if ((uint64_t)usage.ru_nivcsw - l->switches >= USAGE_SWITCHES)
		l->shared_until = now + SHARED_NS;
	l->switches = (uint64_t)usage.ru_nivcsw;
	l->usage_checked = now;
	l->shared = l->config.cpu_shared || now < l->shared_until;
	atomic_store_explicit(&l->stats.cpu_shared, l->shared, memory_order_relaxed);
}

static void
housekeeping(struct loop *l, uint64_t now)
{
	notice_sharing(l, now);
	atomic_store_explicit(&l->stats.turns, l->turns, memory_order_relaxed);
}

/*
 * With many others on the CPU the caches are theirs when we come back: what is worth a turn is
 * more, and credit waits for a frame that may carry it.
 */
static void
set_away(struct loop *l, uint64_t ns)
{
	l->away = ns;
	engine_set_away(l->engine, ns >= CROWD_NS ? ns : 0);
}

static uint64_t
turn_ns(const struct loop *l)
{
	return RTE_MIN(RTE_MAX(l->away / TURN_PART, TURN_NS), TURN_MOST_NS);
}

static void
yield(struct loop *l)
{
	uint64_t before = clock_now(l->config.clock), took;

	sched_yield();
	l->yield_end = clock_now(l->config.clock);
	took = l->yield_end - before;
	set_away(l, took);
	l->others_idle = took < OTHERS_NS;
	l->lonely = took < ALONE_NS ? RTE_MIN(l->lonely + 1, LONELY) : 0;
	l->yielded = true;
	l->busy_turns = 0;
	add(&l->stats.yields, 1);
}

/* Everyone who publishes for us either sees `sleeping`, or we see what was published. */
static void
fence(void)
{
	/* registered producers have no fence of their own: this one is on their CPUs too */
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0))
		atomic_thread_fence(memory_order_seq_cst);
}

/* The nic's event fd is in the epoll set as long as it is the same. */
static void
watch_nic(struct loop *l, int fd)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = &l->nic_fd};

	if (fd == l->nic_fd)
		return;
	if (l->nic_fd >= 0)
		epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, l->nic_fd, NULL);
	if (fd >= 0 && epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &e))
		fd = -1;
	l->nic_fd = fd;
}

/*
 * From now on whoever has something for us rings: sets the flags, and says whether there is work
 * after all. They stay set over sleeps without work, so only the first one costs the fence.
 */
static bool
doze(struct loop *l, uint64_t now)
{
	atomic_store_explicit(&l->sleeping, 1, memory_order_relaxed);
	l->timer = engine_sleep_prepare(l->engine, now);
	fence(); /* pairs with that in loop_wake(), and with a program's after publishing */
	l->dozing = true;
	return !engine_sleep_check(l->engine) && spsc_empty(&l->mailbox.down) &&
	       !atomic_load_explicit(&l->stop, memory_order_relaxed);
}

static void
awake(struct loop *l)
{
	l->dozing = false;
	atomic_store_explicit(&l->sleeping, 0, memory_order_relaxed);
	engine_sleep_cancel(l->engine);
}

/* Until when to sleep; `now` or earlier: not at all. */
static uint64_t
sleep_end(struct loop *l, uint64_t now)
{
	uint64_t end = RTE_MIN(l->timer, now + SLEEP_ANY_NS), next;
	int fd = -1;

	end = RTE_MIN(end, doorbell_unmute(l, now));
	if (!l->nic)
		return end;
	next = NIC_OPS(l->nic)->arm(l->nic, now, &fd);
	watch_nic(l, fd);
	if (l->nic_fd < 0)
		end = RTE_MIN(end, now + nap_ns(now - l->last_work, l->config.sleep_max_ns));
	return RTE_MIN(end, next);
}

static void
wait_for_events(struct loop *l, uint64_t ns)
{
	struct timespec timeout = {.tv_sec = (time_t)(ns / 1000000000u),
				   .tv_nsec = (long)(ns % 1000000000u)};
	struct epoll_event events[EVENTS];
	uint64_t count;
	int n;

	rte_rcu_qsbr_thread_offline(l->config.quiet, l->config.id);
	n = epoll_pwait2(l->epoll_fd, events, EVENTS, &timeout, NULL);
	if (n < 0 && errno == ENOSYS)
		n = epoll_wait(l->epoll_fd, events, EVENTS, (int)(ns / 1000000u) + 1);
	rte_rcu_qsbr_thread_online(l->config.quiet, l->config.id);
	for (int i = 0; i < n; i++) {
		if (!events[i].data.ptr)
			while (read(l->wake_fd, &count, sizeof(count)) > 0)
				;
		else if (events[i].data.ptr != &l->nic_fd)
			doorbell_rang(l, events[i].data.ptr, clock_now(l->config.clock));
	}
}

static void
sleep_until_event(struct loop *l, uint64_t now)
{
	uint64_t end;

	set_away(l, 0);
	if (!l->dozing && !doze(l, now)) {
		awake(l);
		l->empty_turns = 1; /* the fence is dear: not in every turn */
		return;
	}
	end = sleep_end(l, now);
	if (end > now) {
		wait_for_events(l, end - now);
		add(&l->stats.sleeps, 1);
	}
	/* a wake or a timer: the flags are set anew before the next sleep */
	if (!atomic_load_explicit(&l->sleeping, memory_order_relaxed) ||
	    clock_now(l->config.clock) >= l->timer)
		awake(l);
	notice_sharing(l, now);
	atomic_store_explicit(&l->stats.turns, l->turns, memory_order_relaxed);
}

/*
 * Programs on this CPU have seen what came of the last work, and had nothing to do: what they wait
 * for comes from the wire, soon. A frame that finds the engine switched away waits for two
 * switches.
 */
static bool
expecting(const struct loop *l, uint64_t since)
{
	return l->yielded && l->others_idle && l->busy_turns < FEW_TURNS && since < EXPECT_NS;
}

/* The last yields found nobody: one now and then is enough. */
static bool
alone(const struct loop *l)
{
	return l->lonely == LONELY && l->empty_turns % LONELY_TURNS;
}

/* After a turn without work. */
static void
idle(struct loop *l, uint64_t now)
{
	uint64_t since = now - l->last_work;

	if (l->config.idle == IDLE_ADAPTIVE && since >= l->config.spin_ns &&
	    l->empty_turns >= EMPTY_TURNS)
		sleep_until_event(l, now);
	else if (l->shared ? !expecting(l, since) && !alone(l)
			   : l->config.idle == IDLE_ADAPTIVE && since >= l->config.spin_ns / 2)
		yield(l);
	else
		rte_pause();
}

/*
 * Many program threads on this CPU that wait by yields: each of them is run before the engine is
 * run again, and what they have given it in one round leaves in the next, and is answered in the
 * one after, so that each of them looks in vain every other time. Run more often than they are, the
 * engine hands on what some have given while others still work.
 */
static void
notice_programs(struct loop *l, uint64_t now)
{
	uint32_t n = engine_gave(l->engine);

	if (!n || !l->slice_ns)
		return;
	l->programs = (15 * l->programs + 256 * n) / 16;
	if (now - l->slice_at < SLICE_NS)
		return;
	l->slice_at = now;
	if (l->programs > 256 * CROWD && l->slice_shift < SLICE_SHIFT)
		slice_set(l->slice_ns >> ++l->slice_shift);
	else if (l->programs < 256 * PAIR && l->slice_shift)
		slice_set(l->slice_ns >> --l->slice_shift);
}

int
loop_run(void *loop)
{
	struct loop *l = loop;

	crash_thread();
	rte_rcu_qsbr_thread_online(l->config.quiet, l->config.id);
	l->slice_ns = slice_now();
	l->turn_tsc = rte_rdtsc();
	l->last_work = clock_ns(l->config.clock, l->turn_tsc);
	while (!atomic_load_explicit(&l->stop, memory_order_relaxed)) {
		uint64_t tsc = rte_rdtsc(), now = clock_ns(l->config.clock, tsc);
		unsigned work = take_mails(l);

		account(l, tsc);
		if (now - l->load_at >= LOAD_NS)
			measure_load(l, now);
		work += engine_turn(l->engine, now);
		work += give_back_done(l);
		if (work) {
			if (l->dozing)
				awake(l);
			l->last_work = now;
			l->empty_turns = 0;
			if (!l->busy_turns++ && l->shared)
				notice_programs(l, now);
			if (engine_served(l->engine))
				l->yielded = false;
			if (l->shared && (now - l->yield_end >= turn_ns(l) ||
					  (l->lonely < LONELY && work <= FEW_WORK &&
					   engine_delivered(l->engine))))
				yield(l);
		} else {
			l->empty_turns++;
			idle(l, now);
		}
		if (++l->turns % HOUSEKEEPING == 0)
			housekeeping(l, now);
		rte_rcu_qsbr_quiescent(l->config.quiet, l->config.id);
	}
	if (l->dozing)
		awake(l);
	rte_rcu_qsbr_thread_offline(l->config.quiet, l->config.id);
	return 0;
}

/* ---- main's side ---- */

static int
open_events(struct loop *l)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};

	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->epoll_fd < 0 || l->wake_fd < 0 ||
	    epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, l->wake_fd, &e))
		return -errno;
	return 0;
}

struct loop *
loop_create(const struct loop_config *config)
{
	int socket = (int)rte_lcore_to_socket_id(config->lcore);
	struct loop *l = rte_zmalloc_socket("loop", sizeof(*l), 64, socket);
	int rc;

	if (!l) {
		errno = ENOMEM;
		return NULL;
	}
	l->config = *config;
	l->epoll_fd = l->wake_fd = l->nic_fd = -1;
	l->shared = config->cpu_shared;
	mailbox_init(&l->mailbox);
	rc = open_events(l);
	if (rc)
		goto err_destroy;
	rc = -ENOMEM;
	l->doorbell = calloc(config->doorbells, sizeof(*l->doorbell));
	l->known = calloc(config->doorbells, sizeof(*l->known));
	if (!l->doorbell || !l->known)
		goto err_destroy;
	rc = -rte_rcu_qsbr_thread_register(config->quiet, config->id);
	if (!rc)
		return l;

err_destroy:
	loop_destroy(l);
	errno = -rc;
	return NULL;
}

void
loop_destroy(struct loop *l)
{
	if (!l)
		return;
	rte_rcu_qsbr_thread_unregister(l->config.quiet, l->config.id);
	if (l->known)
		doorbell_close_all(l);
	free(l->doorbell);
	free(l->known);
	if (l->wake_fd >= 0)
		close(l->wake_fd);
	if (l->epoll_fd >= 0)
		close(l->epoll_fd);
	rte_free(l);
}

void
loop_stop(struct loop *l)
{
	atomic_store_explicit(&l->stop, 1, memory_order_relaxed);
	loop_wake(l);
}

int
loop_command(struct loop *l, struct engine_command *command)
{
	return mailbox_post(&l->mailbox, &(struct mail){MAIL_COMMAND, command}) ? 0 : -EAGAIN;
}

struct engine_command *
loop_collect(struct loop *l)
{
	struct mail mail;

	while (mailbox_collect(&l->mailbox, &mail)) {
		doorbell_post_leaving(l);
		if (mail.kind == MAIL_COMMAND)
			return mail.about;
		if (mail.kind == MAIL_DOORBELL_REMOVE)
			doorbell_forget(mail.about);
	}
	return NULL;
}
