/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tree search by real threads, in one process and in two: what they share of a tree, and what
 * they send each other, is the same as in virtual time.
 */
#include "worlds/hex_world.h"

#include <pthread.h>
#include <time.h>

#define THREADS_MAX 8u

struct mail {
	struct mail *next;
	uint32_t from;
	size_t bytes;
	struct mcts_message m; /* and its state */
};

/* A thread and its box. */
struct worker {
	struct team *team;
	struct mcts_thread *t;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t came;
	struct mail *first, **last;
};

struct side {
	struct mcts_port port;
	struct team *team;
	struct mcts m;
};

struct team {
	struct game game;
	struct side sides[2];
	struct mcts *processes[2];
	struct worker workers[THREADS_MAX];
	uint32_t count;
	atomic_bool ends;
	_Atomic uint64_t seeds, under_way;
};

static _Thread_local uint32_t self;

static void
call(struct mcts_port *p, uint32_t to, const struct mcts_message *m, size_t bytes)
{
	struct team *team = ((struct side *)p)->team;
	struct worker *w = &team->workers[to];
	struct mail *mail = malloc(offsetof(struct mail, m) + bytes);

	assert_non_null(mail);
	mail->next = NULL;
	mail->from = self;
	mail->bytes = bytes;
	memcpy(&mail->m, m, bytes);
	atomic_fetch_add(&team->under_way, 1);
	pthread_mutex_lock(&w->lock);
	*w->last = mail;
	w->last = &mail->next;
	pthread_cond_signal(&w->came);
	pthread_mutex_unlock(&w->lock);
}

static uint64_t
now(struct mcts_port *p)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t
seed(struct mcts_port *p)
{
	return dice_mix(atomic_fetch_add(&((struct side *)p)->team->seeds, 1));
}

/* Receives one message. False: there is none; `waits`: for a moment, then. */
static bool
receive(struct worker *w, bool waits)
{
	struct timespec until;
	struct mail *mail;

	pthread_mutex_lock(&w->lock);
	if (!w->first && waits) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 1000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&w->came, &w->lock, &until);
	}
	mail = w->first;
	if (mail) {
		w->first = mail->next;
		if (!w->first)
			w->last = &w->first;
	}
	pthread_mutex_unlock(&w->lock);
	if (!mail)
		return false;
	mcts_receive(w->t, mail->from, &mail->m, mail->bytes);
	free(mail);
	atomic_fetch_sub(&w->team->under_way, 1);
	return true;
}

static void
work(struct worker *w, bool waits)
{
	bool any = false;

	while (receive(w, false))
		any = true;
	if (!mcts_step(w->t) && !any && waits)
		receive(w, true);
}

static void *
run(void *arg)
{
	struct worker *w = arg;

	self = w->t->id;
	while (!w->team->ends)
		work(w, true);
	return NULL;
}

static void
open_team(struct team *team, const struct game *g, uint32_t processes, uint32_t threads)
{
	struct mcts_options o = {&team->game, processes, threads, .nodes_max = 1u << 20, .seed = 5};

	*team = (struct team){.game = *g, .count = processes * threads};
	assert_true(team->count <= THREADS_MAX);
	for (uint32_t i = 0; i < processes; i++) {
		struct side *s = &team->sides[i];

		s->port = (struct mcts_port){call, now, seed};
		s->team = team;
		o.process = i;
		assert_int_equal(mcts_open(&s->m, &o, &s->port), 0);
		team->processes[i] = &s->m;
	}
	for (uint32_t i = 0; i < team->count; i++) {
		struct worker *w = &team->workers[i];

		w->team = team;
		w->t = &team->processes[i / threads]->threads[i % threads];
		w->last = &w->first;
		pthread_mutex_init(&w->lock, NULL);
		pthread_cond_init(&w->came, NULL);
		if (i)
			assert_int_equal(pthread_create(&w->thread, NULL, run, w), 0);
	}
}

/* Stops all other threads: what they have shared is the test's alone then. */
static void
close_team(struct team *team)
{
	team->ends = true;
	for (uint32_t i = 1; i < team->count; i++)
		pthread_join(team->workers[i].thread, NULL);
}

static void
free_team(struct team *team)
{
	for (uint32_t i = 0; i < team->count; i++) {
		pthread_mutex_destroy(&team->workers[i].lock);
		pthread_cond_destroy(&team->workers[i].came);
	}
	for (uint32_t i = 0; i < 2 && team->processes[i]; i++)
		mcts_close(team->processes[i]);
}

static void
until(struct team *team, const bool *done)
{
	while (!*done)
		work(team->workers, true);
}

/* A game; the tree is checked behind its last search, and given up. */
static void
play_game(uint32_t processes, uint32_t threads, unsigned size, uint64_t rollouts)
{
	struct game g = board_game(size, false);
	static struct team team;
	struct mcts_front *f;
	struct board b;
	bool any = true;

	open_team(&team, &g, processes, threads);
	f = &team.processes[0]->front;
	board_start(&b, size);
	mcts_set_root(team.workers->t, &b);
	until(&team, &f->ready);
	for (;;) {
		mcts_search(team.workers->t, rollouts, UINT64_MAX);
		until(&team, &f->done);
		assert_int_equal(f->visits, rollouts * MCTS_SIMULATIONS);
		if (b.count == 2)
			break;
		assert_int_equal(g.play(&b, (unsigned)f->best), 0);
		f->ready = false;
		mcts_advance(team.workers->t, (unsigned)f->best, &b);
		until(&team, &f->ready);
	}
	/* deletions may still go on */
	while (team.under_way)
		work(team.workers, false);
	close_team(&team);
	while (any) {
		any = false;
		for (uint32_t i = 0; i < team.count; i++)
			for (self = i;
			     receive(&team.workers[i], false) || mcts_step(team.workers[i].t);)
				any = true;
		self = 0;
	}
	assert_int_equal(tree_check(team.processes, f->root), tree_nodes(team.processes));
	free_team(&team);
}

TEST(test_one_process)
{
	play_game(1, 4, 5, 3000);
}

TEST(test_two_processes)
{
	play_game(2, 2, 4, 2000);
	play_game(2, 4, 3, 2000);
}

/* Many threads on a tree of three nodes: they meet at every record, in each round at others. */
TEST(test_crowd)
{
	for (unsigned round = 0; round < 5; round++)
		play_game(1, 8, 2, 4000);
}
