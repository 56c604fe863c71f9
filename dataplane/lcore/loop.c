/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "loop.h"

#include "base/crash.h"
#include "doorbell.h"
#include "nap.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_pause.h>

enum {
	HOUSEKEEPING = 1024,   /* turns between two housekeepings, a power of two */
	SLEEP_NS = 1000000000, /* ns; longest sleep */
	EVENTS = 32,	       /* taken from the epoll set at a time */
};

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
	l->ring_main = true;
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
	bool given = mailbox_give_back(&l->mailbox, mail);

	weir_assert(given); /* main reserved the place */
	(void)given;
	l->ring_main = true;
}

/*
 * Sets the sleep flags: from now on programs and main ring. Returns false if there is work after
 * all. The flags stay set over sleeps without work, so only the first one costs the fence.
 */
static bool
doze(struct loop *l, uint64_t now)
{
	weir_assert(!l->dozing);
	atomic_store_explicit(&l->sleeping, 1, memory_order_relaxed);
	l->timer = engine_sleep_prepare(l->engine, now);
	/*
	 * Each producer either sees the flags, or this engine sees what it published: pairs with
	 * the fence in loop_wake(), and with a program's after publishing. Registered producers
	 * have no fence of their own: this one is on their CPUs too.
	 */
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0))
		atomic_thread_fence(memory_order_seq_cst);
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

static void
sleep_until_event(struct loop *l, uint64_t now)
{
	struct epoll_event events[EVENTS];
	uint64_t end, count;
	int n;

	idle_sleeps(&l->idle, l->engine);
	if (!l->dozing && !doze(l, now)) {
		awake(l);
		l->idle.empty_turns = 1; /* the fence is expensive: not in every turn */
		return;
	}
	end = RTE_MIN(RTE_MIN(l->timer, now + SLEEP_NS), doorbell_unmute(l, now));
	if (l->nic) {
		struct epoll_event e = {.events = EPOLLIN, .data.ptr = &l->nic_fd};
		int fd = -1;
		uint64_t next = NIC_OPS(l->nic)->arm(l->nic, now, &fd);

		/* the port's event fd is in the epoll set as long as it is the same */
		if (fd != l->nic_fd) {
			if (l->nic_fd >= 0)
				epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, l->nic_fd, NULL);
			if (fd >= 0 && epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &e))
				fd = -1;
			l->nic_fd = fd;
		}
		if (l->nic_fd < 0)
			end = RTE_MIN(
			    end, now + nap_ns(now - l->idle.last_work, l->config.sleep_max_ns));
		end = RTE_MIN(end, next);
	}
	if (end > now) {
		struct timespec timeout = {.tv_sec = (time_t)((end - now) / 1000000000u),
					   .tv_nsec = (long)((end - now) % 1000000000u)};

		rte_rcu_qsbr_thread_offline(l->config.quiet, l->config.id);
		n = epoll_pwait2(l->epoll_fd, events, EVENTS, &timeout, NULL);
		if (n < 0 && errno == ENOSYS)
			n = epoll_wait(l->epoll_fd, events, EVENTS,
				       (int)((end - now) / 1000000u) + 1);
		rte_rcu_qsbr_thread_online(l->config.quiet, l->config.id);
		for (int i = 0; i < n; i++) {
			if (!events[i].data.ptr)
				while (read(l->wake_fd, &count, sizeof(count)) > 0)
					;
			else if (events[i].data.ptr != &l->nic_fd)
				doorbell_rang(l, events[i].data.ptr, clock_now(l->config.clock));
		}
		add(&l->stats.sleeps, 1);
	}
	/* a wake or a timer: the flags are set anew before the next sleep */
	if (!atomic_load_explicit(&l->sleeping, memory_order_relaxed) ||
	    clock_now(l->config.clock) >= l->timer)
		awake(l);
}

static void
housekeeping(struct loop *l, uint64_t now)
{
	atomic_store_explicit(&l->stats.cpu_shared, idle_detect_sharing(&l->idle, now),
			      memory_order_relaxed);
	atomic_store_explicit(&l->stats.turns, l->turns, memory_order_relaxed);
}

int
loop_run(void *loop)
{
	struct loop *l = loop;

	crash_thread();
	rte_rcu_qsbr_thread_online(l->config.quiet, l->config.id);
	l->turn_tsc = rte_rdtsc();
	idle_start(&l->idle, clock_ns(l->config.clock, l->turn_tsc));
	while (!atomic_load_explicit(&l->stop, memory_order_relaxed)) {
		uint64_t tsc = rte_rdtsc(), now = clock_ns(l->config.clock, tsc), busy, idle;
		struct engine_command *command;
		struct mail mail;
		unsigned work = 0;

		for (; mailbox_take(&l->mailbox, &mail); work++) {
			if (mail.kind != MAIL_COMMAND) {
				doorbell_mail(l, &mail);
				give_back(l, &mail);
				continue;
			}
			command = mail.about;
			/* for the report of a crash */
			atomic_store_explicit(&l->stats.last_command, command->type,
					      memory_order_relaxed);
			add(&l->stats.commands, 1);
			if (engine_execute(l->engine, command))
				give_back(l, &mail);
		}

		/* cycles since the last turn began: of work or not, as that turn was */
		add(l->idle.empty_turns ? &l->stats.idle_cycles : &l->stats.busy_cycles,
		    tsc - l->turn_tsc);
		l->turn_tsc = tsc;
		if (now - l->load.at >= LOAD_NS) {
			busy = atomic_load_explicit(&l->stats.busy_cycles, memory_order_relaxed);
			idle = atomic_load_explicit(&l->stats.idle_cycles, memory_order_relaxed);
			engine_set_load(l->engine, load_measure(&l->load, now, busy, idle));
		}

		work += engine_turn(l->engine, now);

		for (; (command = engine_done(l->engine)); work++)
			give_back(l, &(struct mail){MAIL_COMMAND, command});
		if (l->ring_main) {
			l->ring_main = false;
			main_bell_ring(l->config.bell);
		}
		if (work && l->dozing)
			awake(l);

		switch (idle_next(&l->idle, l->engine, work, now)) {
		case IDLE_RUN:
			break;
		case IDLE_PAUSE:
			rte_pause();
			break;
		case IDLE_YIELD:
			idle_yield(&l->idle, l->engine, l->config.clock);
			add(&l->stats.yields, 1);
			break;
		case IDLE_SLEEP:
			sleep_until_event(l, now);
			housekeeping(l, now);
			break;
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

struct loop *
loop_create(const struct loop_config *config)
{
	struct epoll_event wake = {.events = EPOLLIN, .data.ptr = NULL};
	int socket = (int)rte_lcore_to_socket_id(config->lcore);
	struct loop *l = rte_zmalloc_socket("loop", sizeof(*l), 64, socket);
	int rc;

	if (!l) {
		errno = ENOMEM;
		return NULL;
	}
	l->config = *config;
	l->epoll_fd = l->wake_fd = l->nic_fd = -1;
	load_open(&l->load, "/proc", (unsigned)sysconf(_SC_NPROCESSORS_ONLN));
	idle_init(&l->idle, config->idle, config->spin_ns, config->cpu_shared);
	mailbox_init(&l->mailbox);
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->epoll_fd < 0 || l->wake_fd < 0 ||
	    epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, l->wake_fd, &wake)) {
		rc = -errno;
		goto err_destroy;
	}
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
	load_close(&l->load);
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
