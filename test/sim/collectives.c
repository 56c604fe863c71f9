/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test-collectives: the collective calls of groups, lib/group/exchange.c and step.c alone, on a
 * virtual network, up to 1,024 members. Members think, pause within calls (as after a timeout),
 * die, and make calls that differ. It checks: results, the same bits at all members; the number of
 * messages; each member that waits hears of a death within a second of its detection, and of a
 * differing call; nothing hangs. With --figures it measures barriers, by which fences meet between
 * hosts: each message takes the same time, and all members come at once.
 */
#include "worlds/event_queue.h"
#include "seeds.h"

#include "group/exchange.h"
#include "ipc/apply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS 12u
#define WINDOW 100000u		/* bytes under way per connection and direction */
#define DETECT_NS 100000000u	/* ns, at most, until the neighbours of a dead member know */
#define ANNOUNCE_NS 1000000000u /* ns in a call until neighbours are told which one it is */
#define HEARD_NS 1000000000u	/* ns, at most, until all that wait know */
#define END_NS 600000000000ull	/* ns; a scenario ends before */
#define TAKEN_NS 1000u		/* ns until a member that has a message looks */
#define SIGNAL_NS 20000u	/* ns: a message of figures, until its receiver acts */

struct message {
	struct message *next;
	size_t length;
	uint8_t bytes[];
};

/* From one neighbour to another, in order. */
struct line {
	struct message *first, **last;
	size_t under_way; /* bytes */
	uint64_t latest;  /* ns: the last message arrives */
	uint32_t arrived; /* messages that the receiver may take */
	int end;	  /* of the sender, once all has been taken; 1: lives */
};

struct member {
	struct world *world;
	struct exchange x;
	struct line line[64]; /* towards this member, by its neighbour */
	uint32_t call;	      /* number of the call that it makes, or makes next */
	bool in_call, dead, done, woken;
	uint64_t begun, resume_at; /* ns; it pauses until then */
	int result;
	uint8_t *mine, *all;
	size_t mine_bytes, all_bytes;
	uint32_t messages; /* sent in this call */
};

struct world {
	struct event_queue queue; /* ns */
	struct rng rng;
	uint64_t seed;
	uint32_t size;
	struct member *member;
	struct collective_call call[CALLS]; /* without buffers */
	uint32_t calls;
	uint32_t victims, odd; /* members that die; that makes another call, NOBODY: none */
	uint64_t died_at;      /* ns: the last death; 0: none */
	uint64_t delay;	       /* ns, of messages, at most */
	bool exact;	       /* figures: messages take SIGNAL_NS, and members do not pause */
	uint64_t ended_at;     /* ns: the last call */
	uint32_t messages;     /* of a member in one call, at most */
};

enum what { ARRIVES, WAKES, DIES, ENDS, ANNOUNCES };
struct event {
	enum what what;
	struct member *member;
	uint32_t neighbour; /* ANNOUNCES: number of the call */
};

static bool failed;
static struct {
	uint64_t calls[COLLECTIVE_ALLTOALL + 1], deaths, differ, early, blocked, pauses, left_out;
} count;

static void
complain(const struct world *w, const char *why, uint32_t rank)
{
	printf("FAIL: seed %llu, %u members, at %llu us: member %u: %s\n",
	       (unsigned long long)w->seed, w->size, (unsigned long long)w->queue.now / 1000, rank,
	       why);
	failed = true;
}

static uint64_t
chance(struct world *w, uint64_t below)
{
	return rng_next(&w->rng) % below;
}

static void
schedule(struct world *w, uint64_t in, enum what what, struct member *m, uint32_t neighbour)
{
	struct event *e = malloc(sizeof(*e));

	*e = (struct event){what, m, neighbour};
	queue_push(&w->queue, (struct queued){
				  .at = w->queue.now + in, .order = w->queue.pushed, .subject = e});
}

static void
wake(struct member *m, uint64_t in)
{
	if (!m->woken && !m->dead)
		schedule(m->world, in, WAKES, m, 0);
	m->woken = true;
}

/* ---- the network ---- */

static struct member *
peer_of(const struct member *m, uint32_t neighbour, uint32_t *back)
{
	struct member *peer = &m->world->member[m->x.neighbour[neighbour].rank];

	for (*back = 0; peer->x.neighbour[*back].rank != m->x.rank;)
		(*back)++;
	return peer;
}

static int
send_message(void *user, uint32_t neighbour, const struct iovec *parts, unsigned n, size_t length)
{
	struct member *m = user, *peer;
	struct world *w = m->world;
	struct message *message;
	struct line *line;
	uint64_t at;
	uint32_t back;
	size_t put = 0;

	peer = peer_of(m, neighbour, &back);
	line = &peer->line[back];
	if (line->under_way && line->under_way + length > WINDOW) {
		count.blocked++;
		return -EAGAIN;
	}
	message = malloc(sizeof(*message) + length);
	message->next = NULL;
	message->length = length;
	for (unsigned i = 0; i < n; i++) {
		memcpy(message->bytes + put, parts[i].iov_base, parts[i].iov_len);
		put += parts[i].iov_len;
	}
	if (put != length)
		complain(w, "a message with another length", m->x.rank);
	*line->last = message;
	line->last = &message->next;
	line->under_way += length;
	m->messages++;
	at = w->queue.now + (w->exact ? SIGNAL_NS - TAKEN_NS : 1000 + chance(w, w->delay));
	at = at > line->latest ? at : line->latest;
	line->latest = at;
	schedule(w, at - w->queue.now, ARRIVES, peer, back);
	return 0;
}

static void
take_all(struct member *m)
{
	for (uint32_t i = 0; i < m->x.neighbours; i++) {
		struct line *line = &m->line[i];
		uint32_t back;

		while (line->arrived && exchange_wants(&m->x, i)) {
			struct message *message = line->first;
			size_t early = m->x.neighbour[i].early;

			line->first = message->next;
			if (!line->first)
				line->last = &line->first;
			line->arrived--;
			line->under_way -= message->length;
			exchange_input(&m->x, i, message->bytes, message->length);
			count.early += m->x.neighbour[i].early > early;
			free(message);
			wake(peer_of(m, i, &back), 1000); /* it may wait for room */
		}
		if (!line->first && line->end <= 0 && !m->x.neighbour[i].ended)
			exchange_ended(&m->x, i, line->end);
	}
}

static void
line_clear(struct line *line)
{
	for (struct message *next, *m = line->first; m; m = next) {
		next = m->next;
		free(m);
	}
	line->first = NULL;
	line->last = &line->first;
	line->arrived = 0;
}

/* ---- calls ---- */

static size_t
element(const struct collective_call *c)
{
	return c->kind == COLLECTIVE_ALLREDUCE ? weir_type_size(c->type) : 1;
}

/* The bytes that a member gives. */
static void
fill(const struct world *w, const struct collective_call *c, uint32_t call, uint32_t rank,
     uint8_t *to, size_t bytes)
{
	struct rng r = {w->seed * 1000003 + call * 65537 + rank};
	size_t size = element(c);

	for (size_t i = 0; i < bytes; i += size) {
		uint64_t v = rng_next(&r);

		memset(to + i, 0, size);
		switch (c->kind == COLLECTIVE_ALLREDUCE ? (int)c->type : 0) {
		case WEIR_T_FLOAT:
			memcpy(to + i, &(float){(float)(v % 1000003) / 97}, size);
			break;
		case WEIR_T_DOUBLE:
			memcpy(to + i, &(double){(double)(v % 1000003) / 97}, size);
			break;
		case WEIR_T_DOUBLE_COMPLEX:
			memcpy(to + i, &(double){(double)(v % 1003) / 97}, sizeof(double));
			break;
		case WEIR_T_INT32_AT:
			memcpy(to + i,
			       &(struct weir_int32_at){(int32_t)(v % 5), (int32_t)(v >> 40)}, size);
			break;
		case WEIR_T_BOOL:
			to[i] = v & 1;
			break;
		default:
			memcpy(to + i, &v, size < sizeof(v) ? size : sizeof(v));
		}
	}
}

/* Ranks [rank, rank + below) in the brackets that the contract names. */
static void
combine(const struct world *w, uint32_t call, uint32_t rank, uint32_t below, uint8_t *to)
{
	const struct collective_call *c = &w->call[call];
	uint8_t *other = malloc(c->length + 1);

	fill(w, c, call, rank, to, c->length);
	for (uint32_t d = 1; d < below && rank + d < w->size; d *= 2) {
		combine(w, call, rank + d, d, other);
		weir_apply(c->type, c->op, to, other, NULL, c->length / element(c));
	}
	free(other);
}

static size_t
mine_bytes(const struct world *w, const struct collective_call *c)
{
	return c->kind == COLLECTIVE_ALLTOALL ? w->size * c->length : c->length;
}

static size_t
all_bytes(const struct world *w, const struct collective_call *c)
{
	return c->kind == COLLECTIVE_ALLTOALL || c->kind == COLLECTIVE_ALLGATHER
		   ? w->size * c->length
		   : c->length;
}

static void
check_result(const struct member *m)
{
	const struct world *w = m->world;
	const struct collective_call *c = &w->call[m->call];
	uint8_t *due = calloc(1, m->all_bytes + mine_bytes(w, c) + 1), *other;
	uint32_t rounds = collective_rounds(w->size);

	if (c->kind == COLLECTIVE_BARRIER && m->messages != rounds)
		complain(w, "a barrier with another number of messages", m->x.rank);
	if (m->messages > 2 * rounds + rounds * (w->size * c->length / EXCHANGE_FRAGMENT))
		complain(w, "too many messages", m->x.rank);
	if (c->kind == COLLECTIVE_BROADCAST)
		fill(w, c, m->call, c->root, due, c->length);
	else if (c->kind == COLLECTIVE_ALLREDUCE)
		combine(w, m->call, 0, w->size, due);
	for (uint32_t i = 0; i < w->size && c->kind == COLLECTIVE_ALLGATHER; i++)
		fill(w, c, m->call, i, due + i * c->length, c->length);
	other = due + m->all_bytes;
	for (uint32_t i = 0; i < w->size && c->kind == COLLECTIVE_ALLTOALL; i++) {
		fill(w, c, m->call, i, other, mine_bytes(w, c));
		memcpy(due + i * c->length, other + m->x.rank * c->length, c->length);
	}
	/* of many members, some; all bits of a reduction are compared */
	if (m->all_bytes && memcmp(m->all, due, m->all_bytes) != 0)
		complain(w, "another result", m->x.rank);
	free(due);
}

static void
begin_call(struct member *m)
{
	struct world *w = m->world;
	struct collective_call c = w->call[m->call];

	if (m->x.rank == w->odd && m->call == w->calls / 2) {
		c.kind = 1 + (uint32_t)chance(w, COLLECTIVE_ALLTOALL);
		c.type = WEIR_T_UINT8;
		c.op = WEIR_ACC_SUM;
		c.length += 1;
	}
	m->mine_bytes = mine_bytes(w, &c);
	m->all_bytes = all_bytes(w, &c);
	m->mine = malloc(m->mine_bytes + 1);
	m->all = aligned_alloc(64, (m->all_bytes + 64) / 64 * 64);
	memset(m->all, 0xee, m->all_bytes);
	fill(w, &c, m->call, m->x.rank, m->mine, m->mine_bytes);
	if (c.kind == COLLECTIVE_BROADCAST && c.root == m->x.rank)
		memcpy(m->all, m->mine, m->all_bytes);
	c.mine = m->mine;
	c.all = m->all;
	m->messages = 0;
	m->begun = w->queue.now;
	m->in_call = true;
	schedule(w, ANNOUNCE_NS, ANNOUNCES, m, m->call);
	if (exchange_begin(&m->x, &c))
		complain(w, "no memory", m->x.rank);
}

static void
end_call(struct member *m, int rc)
{
	struct world *w = m->world;

	m->in_call = false;
	w->ended_at = w->queue.now;
	w->messages = m->messages > w->messages ? m->messages : w->messages;
	if (!rc && w->odd == NOBODY && (w->size < 100 || m->x.rank % (w->size / 16) == m->call % 7))
		check_result(m);
	free(m->mine);
	free(m->all);
	m->mine = m->all = NULL;
	m->call++;
	if (!rc && m->call < w->calls)
		return;
	m->done = true;
	m->result = rc;
	if (rc && w->victims && w->queue.now > w->died_at + DETECT_NS + HEARD_NS &&
	    w->queue.now > m->begun + HEARD_NS)
		complain(w, "heard of a death too late", m->x.rank);
}

static void
run(struct member *m)
{
	struct world *w = m->world;

	m->woken = false;
	if (m->dead)
		return;
	if (m->done) { /* out of calls; a program that ends now and then looks at the group */
		take_all(m);
		exchange_tell(&m->x);
		return;
	}
	if (w->queue.now < m->resume_at) {
		wake(m, m->resume_at - w->queue.now);
		return;
	}
	if (!m->in_call)
		begin_call(m);
	while (!m->done) {
		int rc;

		take_all(m);
		rc = exchange_step(&m->x);
		if (rc == -EAGAIN) {
			if (w->exact || chance(w, 50))
				return;
			/* its time is over: it does something else, then repeats the call */
			count.pauses++;
			m->resume_at = w->queue.now + chance(w, 3000000);
			wake(m, m->resume_at - w->queue.now);
			return;
		}
		end_call(m, rc);
		if (!rc && !m->done && !chance(w, 3)) {
			m->resume_at = w->queue.now + chance(w, 2000000);
			wake(m, m->resume_at - w->queue.now);
			return;
		}
		if (!m->done)
			begin_call(m);
	}
}

/* ---- worlds ---- */

static void
die(struct member *m)
{
	struct world *w = m->world;
	uint32_t back;

	if (m->dead)
		return;
	if (m->done) { /* not in the middle of anything: it would be no test */
		count.left_out++;
		return;
	}
	m->dead = true;
	count.deaths++;
	w->died_at = w->queue.now;
	for (uint32_t i = 0; i < m->x.neighbours; i++) {
		struct member *peer = peer_of(m, i, &back);
		uint64_t at = w->queue.now + chance(w, DETECT_NS);

		at = at > peer->line[back].latest ? at : peer->line[back].latest;
		peer->line[back].latest = at;
		schedule(w, at - w->queue.now, ENDS, peer, back);
	}
}

static void
handle(struct world *w, const struct event *e)
{
	struct line *line = &e->member->line[e->neighbour % 64];

	switch (e->what) {
	case ARRIVES:
		line->arrived++;
		wake(e->member, TAKEN_NS);
		break;
	case ENDS:
		line->end = e->member->x.rank % 3 ? -ECONNRESET : -EHOSTDOWN;
		wake(e->member, 1000);
		break;
	case WAKES:
		run(e->member);
		break;
	case ANNOUNCES:
		if (e->member->in_call && e->member->call == e->neighbour && !e->member->dead) {
			if (exchange_announce(&e->member->x))
				schedule(w, ANNOUNCE_NS, ANNOUNCES, e->member, e->neighbour);
			wake(e->member, 1000);
		}
		break;
	case DIES:
		die(e->member);
		break;
	}
}

static void
choose_call(struct world *w, struct collective_call *c)
{
	static const uint32_t types[] = {WEIR_T_BYTE,		WEIR_T_BOOL,	WEIR_T_INT16,
					 WEIR_T_UINT64,		WEIR_T_FLOAT,	WEIR_T_DOUBLE,
					 WEIR_T_DOUBLE_COMPLEX, WEIR_T_INT32_AT};
	bool large = w->size <= 16 && !chance(w, 6);
	size_t length = chance(w, 4) ? chance(w, 40) : chance(w, 3000);

	if (large)
		length = 60000 + chance(w, 200000);
	if (w->size > 100)
		length = chance(w, 9);
	*c = (struct collective_call){.kind = 1 + (uint32_t)chance(w, COLLECTIVE_ALLTOALL),
				      .length = length};
	if (c->kind == COLLECTIVE_BARRIER)
		c->length = 0;
	if (c->kind == COLLECTIVE_BROADCAST)
		c->root = (uint32_t)chance(w, w->size);
	if (c->kind == COLLECTIVE_ALLREDUCE) {
		c->type = types[chance(w, sizeof(types) / sizeof(types[0]))];
		do
			c->op = 1 + (uint32_t)chance(w, WEIR_ACC_NO_OP);
		while (!weir_acc_valid(c->type, c->op));
		c->length -= c->length % weir_type_size(c->type);
	}
	count.calls[c->kind]++;
}

static void
check_end(struct world *w)
{
	uint32_t fine = 0;

	for (uint32_t i = 0; i < w->size; i++) {
		const struct member *m = &w->member[i];

		if (m->dead)
			continue;
		if (!m->done)
			complain(w, "waits for ever", i);
		else if (w->odd != NOBODY && m->result != -EINVAL)
			complain(w, "did not hear that calls differ", i);
		else if (w->odd == NOBODY && m->result && !w->died_at)
			complain(w, "an error without a cause", i);
		else if (w->odd == NOBODY && m->result && m->result != -ECONNRESET &&
			 m->result != -EHOSTDOWN)
			complain(w, "another error", i);
		if (w->odd == NOBODY && exchange_deaths(&m->x) != m->x.failures)
			complain(w, "heard that calls differ", i);
		for (uint32_t k = 0; k < m->x.failures; k++)
			if (m->x.failure[k].rank < w->size && !w->member[m->x.failure[k].rank].dead)
				complain(w, "takes a living member for dead", i);
		fine += !m->result;
	}
	if (w->victims > 0 && w->died_at && fine)
		for (uint32_t i = 0; i < w->size; i++)
			if (w->member[i].dead && w->member[i].call + 1 < w->calls)
				complain(w, "others went on without a member that died", i);
}

static void
world_open(struct world *w)
{
	w->member = calloc(w->size, sizeof(*w->member));
	for (uint32_t i = 0; i < w->size; i++) {
		struct member *m = &w->member[i];

		m->world = w;
		if (exchange_init(&m->x, i, w->size))
			complain(w, "no memory", i);
		m->x.send = send_message;
		m->x.user = m;
		for (uint32_t k = 0; k < 64; k++) {
			m->line[k].last = &m->line[k].first;
			m->line[k].end = 1;
		}
		wake(m, w->exact ? 0 : chance(w, 1000000));
	}
}

static void
world_run(struct world *w)
{
	struct queued q;

	while (queue_pop(&w->queue, END_NS, &q)) {
		handle(w, q.subject);
		free(q.subject);
	}
	check_end(w);
}

static void
world_close(struct world *w)
{
	for (uint32_t i = 0; i < w->size; i++) {
		free(w->member[i].mine);
		free(w->member[i].all);
		for (uint32_t k = 0; k < 64; k++)
			line_clear(&w->member[i].line[k]);
		exchange_free(&w->member[i].x);
	}
	free(w->member);
	queue_free(&w->queue);
}

static void
scenario(uint64_t seed, uint32_t members)
{
	struct world w = {.seed = seed, .rng = {seed}};

	w.size = members	   ? members
		 : seed % 50 == 49 ? 200 + (uint32_t)chance(&w, 825)
				   : 1 + (uint32_t)chance(&w, 40);
	w.calls = w.size > 100 ? 4 : CALLS;
	w.delay = chance(&w, 2) ? 20000 : 2000000;
	w.odd = seed % 7 == 6 && w.size > 1 ? (uint32_t)chance(&w, w.size) : NOBODY;
	w.victims = seed % 3 == 2 && w.odd == NOBODY ? 1 + (uint32_t)chance(&w, 3) : 0;
	for (uint32_t i = 0; i < w.calls; i++)
		choose_call(&w, &w.call[i]);
	w.call[w.calls - 1] = (struct collective_call){.kind = COLLECTIVE_BARRIER};
	world_open(&w);
	for (uint32_t i = 0; i < w.victims && w.size > 1; i++)
		schedule(&w, chance(&w, w.calls * w.delay), DIES, &w.member[chance(&w, w.size)], 0);
	world_run(&w);
	count.differ += w.odd != NOBODY;
	world_close(&w);
}

/* ---- figures ---- */

static void
measure(uint32_t members)
{
	struct world w = {.rng = {1}, .size = members, .calls = 1, .odd = NOBODY, .exact = true};

	w.call[0] = (struct collective_call){.kind = COLLECTIVE_BARRIER};
	world_open(&w);
	world_run(&w);
	printf("%u %u %.3f\n", members, w.messages, (double)w.ended_at / SIGNAL_NS);
	world_close(&w);
}

static void
figures(void)
{
	puts("# members, messages that a member sends in a barrier, barrier in times of a message");
	for (uint32_t members = 2; members < 32; members++)
		measure(members);
	for (uint32_t members = 32; members <= 1024; members *= 2)
		measure(members);
}

/* ---- command line ---- */

struct arguments {
	uint64_t from, to, members;
	bool figures, help;
};

#define AT(field) OPTION_FIELD(struct arguments, field)
static const struct option_spec specs[] = {
    {"figures", 0, OPTION_FLAG, AT(figures), NULL, NULL, "measure instead of running seeds"},
    SEED_FROM(struct arguments, UINT32_MAX),
    SEED_HELP(struct arguments),
    {"members", 0, OPTION_UNSIGNED, AT(members), "N", NULL, "of each seed; default: the seed says",
     .max = 65536},
    SEED_TO(struct arguments, UINT32_MAX),
};

static const struct option_table table = {
    OPTION_SPECS(specs, struct arguments),
    .head = "usage: test-collectives [--from SEED] [--to SEED] [--members N]\n"
	    "       test-collectives --figures\n",
};

/* A range of seeds that meets nothing tests nothing. */
static void
check_counts(void)
{
	bool all = count.deaths && count.differ && count.early && count.blocked && count.pauses;

	for (uint32_t i = 1; i <= COLLECTIVE_ALLTOALL; i++)
		all = all && count.calls[i];
	if (all)
		return;
	printf("FAIL: %llu deaths, %llu differing calls, %llu early messages, %llu without room, "
	       "%llu pauses\n",
	       (unsigned long long)count.deaths, (unsigned long long)count.differ,
	       (unsigned long long)count.early, (unsigned long long)count.blocked,
	       (unsigned long long)count.pauses);
	failed = true;
}

int
main(int argc, char **argv)
{
	struct arguments a = {0};
	uint64_t to;

	seeds_parse(&table, &a, &a.help, argc, argv);
	if (a.figures) {
		figures();
		return failed;
	}
	to = a.to ? a.to : a.from;
	for (uint64_t seed = a.from; seed <= to; seed++)
		scenario(seed, (uint32_t)a.members);
	if (to - a.from >= 40)
		check_counts();
	printf("%s\n", failed ? "failed" : "all seeds pass");
	return failed;
}
