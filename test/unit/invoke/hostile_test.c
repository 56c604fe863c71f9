/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A member that lies: it knows the group's word, so it says HELLO and then what it likes, on
 * connections of its own to all receivers of the others. Each lie ends its connection, and is
 * counted. The threads of the others, and the other thread of the liar's process, call each other
 * meanwhile: nothing of theirs is lost.
 */
#include "crew.h"

#include "invoke/batch.h"
#include "invoke/invoker.h"
#include "message/header.h"
#include "message/messenger.h"
#include "message/model.h"

#include "ipc/text.h"

#define SIZE 3u /* processes; 0 and 2 of them on one node */
#define ROUNDS 60u
#define SEEDS 1u

enum { ADD, NOTE, LONG, HOSTILE_FUNCTIONS };

static uint64_t random_state;
static uint32_t liar; /* its index in the team */
static _Atomic bool over;
static _Atomic uint64_t lies[SIZE]; /* by rank: connections that it had to end */

static uint64_t
any(void)
{
	random_state += 0x9e3779b97f4a7c15ull;
	uint64_t x = random_state;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static uint32_t
below(uint32_t n)
{
	return (uint32_t)(any() % n);
}

/* ---- functions ---- */

static void
run_add(struct weir_incoming *c, const void *args, size_t length)
{
	uint64_t n;

	memcpy(&n, args, sizeof(n));
	n++;
	/* the liar may expect none */
	weir_incoming_result(c, &n, sizeof(n));
}

static void
run_note(struct weir_incoming *c, const void *args, size_t length, size_t stride, size_t count)
{
	if (length < 8 || length > 64 || stride < length || !count)
		abort();
}

static void
run_long(struct weir_incoming *c, const void *args, size_t length)
{
	static const uint8_t result[WEIR_ARGS_MAX];

	weir_incoming_result(c, result, sizeof(result));
}

static const struct weir_function hostile_table[HOSTILE_FUNCTIONS] = {
    [ADD] = {.name = "add", .min_length = 8, .max_length = 8, .run = run_add},
    [NOTE] = {.name = "note", .min_length = 8, .max_length = 64, .run_many = run_note},
    [LONG] = {.name = "long", .run = run_long},
};

/* ---- what the liar says ---- */

/* Everything of a HELLO. */
struct raw_hello {
	struct message_header h;
	struct message_hello hello;
	struct message_hello_process process;
	uint64_t word;
	uint32_t version, zero;
	uint8_t more[8];
} __attribute__((packed));
#define RAW_HELLO (sizeof(struct raw_hello) - 8)

/* A message with calls. */
struct raw {
	struct message_tag tag;
	_Alignas(8) uint8_t bytes[2 * WEIR_BATCH_MAX];
	uint32_t length; /* of bytes */
};

struct target {
	uint32_t process, receiver;
	struct weir_conn *c;
};

static struct raw_hello
hello_of(const struct weir_invoker *v, uint32_t receiver)
{
	return (struct raw_hello){.h = {.kind = KIND_HELLO,
					.type = MESSAGE_VERSION,
					.status = MESSAGE_HELLO_STATUS(1, MESSAGE_VERSION),
					.id = v->m->incarnation},
				  .hello = {.key = 5},
				  .process = {v->self, receiver},
				  .word = v->word,
				  .version = 1};
}

static int
reach(struct team *t, const struct weir_invoker *v, struct target *to)
{
	struct weir_address a = {.kind = WEIR_ADDRESS_NODE,
				 .id = messenger_node(v->m, (uint16_t)to->process)};

	messenger_name(v->m, (uint16_t)to->process, to->receiver, 0, a.service);
	return weir_connect(t->w[liar], &a, PATIENT, &to->c) ? __LINE__ : 0;
}

static int
send_raw(const struct target *to, const struct raw *m)
{
	const struct iovec parts[] = {{(void *)(uintptr_t)&m->tag, HEADER_SHORT},
				      {(void *)(uintptr_t)m->bytes, m->length}};

	return weir_sendv(to->c, parts, 2, 0, 0, PATIENT);
}

/* Until the other end has closed it. */
static int
await_end(struct target *to)
{
	uint8_t in[256];
	size_t n;
	int rc;

	do
		rc = weir_recv(to->c, in, sizeof(in), &n, PATIENT);
	while (!rc);
	weir_close(to->c);
	return rc == -EAGAIN ? __LINE__ : 0;
}

static void
put_run(struct raw *m, uint32_t function, uint32_t flags, uint32_t length, uint32_t count)
{
	uint64_t head = run_head_word(function, flags, length, count);
	uint32_t bytes = RUN_HEAD + count * run_stride(length, flags);

	memcpy(m->bytes + m->length, &head, RUN_HEAD);
	for (uint32_t i = RUN_HEAD; i < bytes; i++)
		m->bytes[m->length + i] = (uint8_t)any();
	m->length += bytes;
}

/* Calls as they may be. */
static void
put_good(struct raw *m)
{
	if (below(2))
		put_run(m, ADD, below(2), 8, 1 + below(20));
	else
		put_run(m, NOTE, 0, 8 + below(57), 1 + below(20));
}

static void
put_library(struct raw *m, uint32_t function, uint32_t flags, const void *args, uint32_t length)
{
	put_run(m, function, flags, length, 1);
	memcpy(m->bytes + m->length - run_stride(length, flags) + (flags ? 8 : 0), args, length);
}

/* A call of all threads that cannot be. The liar is the root, and each of the others a branch. */
static void
put_tree(struct raw *m, const struct weir_invoker *v, const struct target *to)
{
	struct {
		struct tree_args head;
		uint64_t args;
	} a = {.head = {.process = v->self, .function = ADD, .arity = 2}};
	uint32_t length = sizeof(a);

	switch (below(to->receiver ? 12 : 11)) {
	case 0:
		a.head.process = SIZE + below(2) * below(UINT32_MAX - SIZE);
		break;
	case 1: /* itself */
		a.head.process = to->process;
		break;
	case 2:
		a.head.thread = 1 + below(2) * below(UINT32_MAX);
		break;
	case 3:
		a.head.function = (uint16_t)(HOSTILE_FUNCTIONS + below(60000));
		break;
	case 4:
		a.head.arity = (uint8_t)below(2);
		break;
	case 5:
		a.head.arity = (uint8_t)(WEIR_ARITY_MAX + 1 + below(200));
		break;
	case 6:
		a.head.flags = (uint8_t)(4u << below(6));
		break;
	case 7: /* from afar */
		a.head.flags = (uint8_t)(TREE_LEAF | below(2) * TREE_PROCESS);
		break;
	case 8:
		a.head.zero = 1u << below(32);
		break;
	case 9:
		length = below(sizeof(a.head));
		break;
	case 10:
		length = sizeof(a.head) + 1 + below(7);
		break;
	default: /* thread 1 passes nothing on */
		break;
	}
	put_library(m, FUNCTION_TREE, below(2), &a, length);
}

static void
put_lie(struct raw *m, const struct weir_invoker *v, const struct target *to)
{
	struct result_args result = {.id = any() | 1u << 23};
	const uint64_t name[3] = {any(), 1, 0};
	struct done_args done = {.ask = 1 + below(0x7fff)};
	struct run_head h = {.function = NOTE, .length = 8, .count = 1};
	uint32_t at = m->length;

	switch (below(18)) {
	case 0: /* a head that is cut */
		put_run(m, ADD, 0, 8, 1);
		m->length = at + 1 + below(RUN_HEAD - 1);
		return;
	case 1: /* calls that are cut */
		put_run(m, NOTE, 0, 64, 4);
		m->length -= 8 + below(200);
		return;
	case 2:
		h.count = 0;
		break;
	case 3:
		h.count = (uint16_t)(2 + below(UINT16_MAX - 1));
		break;
	case 4:
		h.length = (uint16_t)(65 + below(UINT16_MAX - 64));
		h.count = (uint16_t)(1 + below(UINT16_MAX));
		break;
	case 5:
		h.function = (uint16_t)(HOSTILE_FUNCTIONS + below(FUNCTION_DONE - 3));
		break;
	case 6:
		h.function = (uint16_t)(FUNCTION_TREE + 1 + below(12));
		break;
	case 7:
		h.length = (uint16_t)below(8);
		break;
	case 8:
		h.flags = (uint8_t)(2u << below(7));
		break;
	case 9:
		h.zero = (uint8_t)(1 + below(255));
		break;
	case 10: /* of nothing that was sent */
		put_library(m, FUNCTION_DONE, 0, &done, sizeof(done));
		return;
	case 11:
		done.ask |= 1u << (16 + below(16));
		put_library(m, FUNCTION_DONE, 0, &done, sizeof(done));
		return;
	case 12:
		put_library(m, FUNCTION_DONE, below(2), name, below(2) ? 4 : 16);
		return;
	case 13: /* nobody waits for it */
		put_library(m, FUNCTION_RESULT, 0, &result, sizeof(result));
		return;
	case 14:
		result.status = below(2) ? 1 + (int32_t)below(INT32_MAX) : INT32_MIN;
		put_library(m, FUNCTION_RESULT, 0, &result, sizeof(result));
		return;
	case 15:
		put_library(m, FUNCTION_RESULT, below(2), &result, 1 + below(15));
		return;
	case 16:
		put_library(m, FUNCTION_SIGNAL, 0, name, below(2) ? 8 : 24);
		return;
	default:
		put_tree(m, v, to);
		return;
	}
	put_run(m, NOTE, 0, 8, 1);
	memcpy(m->bytes + at, &h, sizeof(h));
}

/* A HELLO that is wrong, or one too many. */
static int
say_wrong_hello(const struct target *to, struct raw_hello h)
{
	size_t length = RAW_HELLO;

	switch (below(8)) {
	case 0:
		h.word ^= 1ull << below(64);
		break;
	case 1:
		h.version += 1 + below(100);
		break;
	case 2:
		h.zero = 1u << below(32);
		break;
	case 3:
		length -= 1 + below(16);
		break;
	case 4:
		length += 1 + below(8);
		break;
	case 5:
		h.process.process = SIZE + below(2) * below(UINT32_MAX - SIZE);
		break;
	case 6:
		h.process.receiver = 2 + below(1000);
		break;
	default:
		if (weir_send(to->c, &h, length, PATIENT))
			return __LINE__;
	}
	return weir_send(to->c, &h, length, PATIENT) ? __LINE__ : 0;
}

/* The head of a message that no thread sends. */
static void
wrong_tag(struct raw *m)
{
	switch (below(5)) {
	case 0:
		m->tag.kind = (uint8_t)(KIND_CALLS + 1 + below(239));
		break;
	case 1:
		m->tag.kind = KIND_RESPONSE;
		break;
	case 2:
		m->tag.flags = (uint8_t)(2u << below(7));
		break;
	case 3: /* not asking, and a number */
		m->tag.type = (uint16_t)(1 + below(UINT16_MAX));
		break;
	default:
		m->tag.value = 2 + below(2) * below(UINT32_MAX - 2);
	}
}

static int
lie(struct team *t, const struct weir_invoker *v, struct target *to)
{
	struct raw_hello h = hello_of(v, to->receiver);
	static struct raw m;
	uint32_t n = below(4);
	int rc = reach(t, v, to);

	if (rc)
		return rc;
	if (!below(5)) {
		rc = say_wrong_hello(to, h);
	} else {
		/* of the other program of this node, as if they were its own */
		bool impersonates = below(4) == 0 &&
				    messenger_node(v->m, (uint16_t)to->process) ==
					messenger_node(v->m, (uint16_t)v->self) &&
				    to->receiver != MESSAGE_HANDLERS;

		if (impersonates)
			h.process.process = to->process;
		if (weir_send(to->c, &h, RAW_HELLO, PATIENT))
			return __LINE__;
		for (uint32_t i = 0; i < n && !impersonates; i++) {
			m = (struct raw){.tag = {.kind = KIND_CALLS}};
			put_good(&m);
			if (below(2)) {
				m.tag.flags = TAG_ASKS;
				m.tag.type = (uint16_t)any();
			}
			if (send_raw(to, &m))
				return __LINE__;
		}
		m = (struct raw){.tag = {.kind = KIND_CALLS}};
		for (uint32_t i = below(3); i; i--)
			put_good(&m);
		switch (below(8)) {
		case 0:
			put_good(&m);
			if (!impersonates)
				wrong_tag(&m);
			break;
		case 1: /* no call at all */
			m.length = 0;
			break;
		default:
			put_lie(&m, v, to);
		}
		if (send_raw(to, &m))
			return __LINE__;
	}
	if (rc)
		return rc;
	atomic_fetch_add(&lies[to->process], 1);
	return await_end(to);
}

/* ---- the threads ---- */

static struct team *team;

static int
be_liar(struct hand *h)
{
	struct weir_invoker *v = h->c.v;
	struct target to;
	int rc = 0;

	for (uint32_t i = 0; i < ROUNDS && !rc; i++) {
		to = (struct target){.process = (v->self + 1 + below(SIZE - 1)) % SIZE,
				     .receiver = below(3)};
		if (to.receiver == 2)
			to.receiver = MESSAGE_HANDLERS;
		rc = lie(team, v, &to);
		if (rc)
			fprintf(stderr, "round %u, to receiver %d of process %u\n", i,
				(int)to.receiver, to.process);
		/* results for calls that it has not made: its own lines may end */
		if (!rc && weir_invoker_progress(v, 0, 0) < 0)
			rc = __LINE__;
	}
	return rc;
}

/* Calls all threads but the liar, and looks at what comes back. */
static int
be_honest(struct hand *h, uint32_t liar_rank, uint64_t *calls)
{
	struct weir_call_options with = {.timeout_ms = -1};
	uint64_t args[8] = {h->number}, result = 0;
	struct weir_invoker *v = h->c.v;
	struct weir_future f;
	struct weir_to to;
	struct weir_sync s;

	with.sync = &s;
	for (uint64_t i = 0; !atomic_load(&over); i++) {
		to = (struct weir_to){(uint32_t)(i % SIZE), (uint32_t)(i / SIZE % 3)};
		if (to.process == liar_rank && !to.thread)
			continue;
		if (to.thread == 2)
			to.thread = WEIR_THREAD_ANY;
		f = (struct weir_future){0};
		args[0] = i << 8 | h->number;
		CHECK(!weir_call_return(v, to, ADD, args, 8, &f, &result, sizeof(result), NULL));
		CHECK(!weir_future_wait(v, &f, PATIENT));
		CHECK(f.length == sizeof(result) && result == args[0] + 1);
		weir_sync_init(&s, 20, NULL, NULL);
		for (uint32_t k = 0; k < 20; k++)
			CHECK(!weir_call(v, to, NOTE, args, 8 * (1 + k % 8), &with));
		CHECK(!weir_sync_wait(v, &s, PATIENT));
		*calls += 21;
	}
	return 0;
}

static int
run_hostile(struct hand *h)
{
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	uint32_t liar_rank = weir_group_rank(team->g[liar]);
	struct weir_invoker *v = h->c.v;
	uint64_t calls = 0;
	int rc;

	CHECK(!weir_invoker_barrier(v, PATIENT));
	if (h->c.process == liar_rank && !h->c.thread) {
		rc = be_liar(h);
		atomic_store(&over, true);
		CHECK(!rc);
	} else {
		rc = be_honest(h, liar_rank, &calls);
		if (rc) /* the others wait for this one */
			fprintf(stderr, "process %u thread %u: line %d: %s\n", h->c.process,
				h->c.thread, rc, weir_reason());
		CHECK(!rc && calls);
	}
	CHECK(!weir_invoker_barrier(v, PATIENT));
	if (h->c.process != liar_rank) {
		CHECK(!weir_invoker_stats(v, &stats));
		CHECK(stats.malformed == atomic_load(&lies[h->c.process]));
	}
	CHECK(!weir_invoker_barrier(v, PATIENT));
	return weir_invoker_leave(v) ? __LINE__ : 0;
}

static void
hostile(uint32_t index)
{
	struct team t;

	for (uint32_t i = 0; i < SEEDS; i++) {
		uint64_t seed =
		    getenv("WEIR_SEED") ? strtoull(getenv("WEIR_SEED"), NULL, 0) : 1000 * index + i;

		print_message("liar %u, WEIR_SEED=%llu\n", index, (unsigned long long)seed);
		random_state = seed;
		liar = index;
		over = false;
		team = &t;
		for (uint32_t k = 0; k < SIZE; k++)
			lies[k] = 0;
		crew_init();
		crew.o.threads = 2;
		crew.o.pool_threads = 1;
		crew.o.arity = 2;
		crew.o.functions = hostile_table;
		crew.o.function_count = HOSTILE_FUNCTIONS;
		crew.run = run_hostile;
		team_open(&t, SIZE, false);
		team_join(&t);
		t.succeeds = true;
		team_run(&t, be_process);
		team_close(&t);
	}
}

/* From a node of its own, or a program of the same host as another member. */
TEST(test_lines)
{
	hostile(1);
	hostile(0);
}

/* ---- what it says of itself when invokers open ---- */

/* As it travels. */
struct card {
	uint64_t word, functions;
	uint32_t version, function_count, threads, pool_threads;
};

static const struct card_lie {
	struct card card;
	int result; /* of the others' weir_invoker_open() */
} card_lies[] = {
    {{.version = 2}, -EPROTO},
    {{.version = 1, .threads = WEIR_INVOKE_THREADS_MAX + 1}, -EPROTO},
    {{.version = 1, .threads = UINT32_MAX}, -EPROTO},
    {{.version = 1, .pool_threads = WEIR_INVOKE_POOL_MAX + 1}, -EPROTO},
    {{.version = 1, .functions = 1, .function_count = WEIR_FUNCTIONS_MAX + 1}, -EPROTO},
    {{.version = 1, .functions = 1, .function_count = UINT32_MAX}, -EPROTO},
    {{.version = 1, .functions = 1, .function_count = 7}, -EPROTO}, /* another hash */
    {{.version = 1, .function_count = WEIR_FUNCTIONS_MAX, .threads = 64, .pool_threads = 32}, 0},
};
static const struct card_lie *card_lie;

/* Functions of the others, but of lengths that cannot be, or of all lengths; many times. */
static void
fill(struct function_entry *e, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const char *name = hostile_table[i % HOSTILE_FUNCTIONS].name;

		e[i] = (struct function_entry){.name = weir_hash(WEIR_HASH, name, strlen(name)),
					       .min_length = i == ADD ? 60000 : 0,
					       .max_length = i == ADD ? 8 : UINT16_MAX};
	}
}

static int
lie_of_itself(struct weir_group *g)
{
	static struct function_entry table[WEIR_FUNCTIONS_MAX], theirs[HOSTILE_FUNCTIONS];
	uint32_t self = weir_group_rank(g), first = self ? 0 : 1;
	struct card cards[SIZE], card = card_lie->card;

	fill(table, WEIR_FUNCTIONS_MAX);
	if (!card.functions)
		card.functions = function_table_hash(table, card.function_count);
	CHECK(!weir_group_allgather(g, &card, sizeof(card), cards, PATIENT));
	for (uint32_t i = 0; i < SIZE; i++) {
		/* what they do not take part in */
		if (card.version != 1 || card.threads > 64 || card.pool_threads > 32 ||
		    (i > self && card_lie->result))
			return 0;
		if (i == self && card.function_count <= WEIR_FUNCTIONS_MAX)
			CHECK(!weir_group_broadcast(g, self, table,
						    card.function_count * sizeof(*table), PATIENT));
		if (i == first)
			CHECK(!weir_group_broadcast(g, i, theirs, sizeof(theirs), PATIENT));
	}
	return !card_lie->result && weir_group_barrier(g, PATIENT) ? __LINE__ : 0;
}

static int
open_beside_it(struct team *t, uint32_t index)
{
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;
	struct weir_group *g = t->g[index];
	uint32_t lies_rank = weir_group_rank(t->g[liar]), other;
	uint64_t args = 0, result = 0;
	struct weir_future f = {0};
	struct weir_invoker *v;
	int rc;

	if (index == liar)
		return lie_of_itself(g) || weir_group_barrier(g, PATIENT) ? __LINE__ : 0;
	o.functions = hostile_table;
	o.function_count = HOSTILE_FUNCTIONS;
	rc = weir_invoker_open(t->w[index], g, &o, &v);
	CHECK(rc == card_lie->result);
	if (rc) /* they have all failed by now */
		return weir_group_barrier(g, PATIENT) ? __LINE__ : 0;
	CHECK(!weir_invoker_enter(v, 0));
	weir_group_idle(g, serve, v);
	CHECK(weir_call(v, (struct weir_to){lies_rank, 0}, ADD, &args, 8, NULL) == -EMSGSIZE);
	/* nobody listens there */
	for (uint32_t i = 0; i < 64; i += 63)
		CHECK(weir_call(v, (struct weir_to){lies_rank, i}, LONG, NULL, 0, NULL) < 0);
	CHECK(weir_call(v, (struct weir_to){lies_rank, WEIR_THREAD_ANY}, LONG, NULL, 0, NULL) < 0);
	CHECK(weir_call(v, (struct weir_to){lies_rank, 64}, LONG, NULL, 0, NULL) == -ENOENT);
	other = SIZE - lies_rank - weir_group_rank(g);
	do
		rc = weir_call_return(v, (struct weir_to){other, 0}, ADD, &args, 8, &f, &result,
				      sizeof(result), NULL);
	while (rc == -ECONNREFUSED); /* it has not entered */
	CHECK(!rc && !weir_future_wait(v, &f, PATIENT) && result == 1);
	CHECK(!weir_group_barrier(g, PATIENT));
	weir_group_idle(g, NULL, NULL);
	return weir_invoker_leave(v) || weir_invoker_close(v) ? __LINE__ : 0;
}

TEST(test_cards)
{
	for (uint32_t i = 0; i < sizeof(card_lies) / sizeof(card_lies[0]); i++) {
		struct team t;

		liar = i % SIZE;
		card_lie = &card_lies[i];
		team_open(&t, SIZE, false);
		team_join(&t);
		t.succeeds = true;
		team_run(&t, open_beside_it);
		team_close(&t);
	}
}
