/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages in pieces, of senders that don't keep to the rules: what they may cost, and whose memory
 * is where. */
#include "worlds/message_world.h"

#include <stdio.h>

#define MIB (1u << 20)
#define TOTAL (3 * MIB)
#define TYPE_PLACED WEIR_TYPE(6, 0)
#define TYPE_OTHER WEIR_TYPE(6, 1) /* memory from another place() */
#define TYPE_OURS WEIR_TYPE(6, 2)  /* from the library */
#define C PLANE_NODE(2)

/* Memory that place() has given. */
struct ground {
	_Atomic uint32_t asked, back, whole, wrong;
	uint8_t *_Atomic at[64];
};

static void *
ground_place(struct weir_messenger *m, const struct weir_message *header, void *user)
{
	struct ground *g = user;
	uint8_t *data = malloc(header->length);
	uint32_t n = atomic_load(&g->asked);

	memset(data, 0xee, header->length);
	atomic_store(&g->at[n % 64], data);
	atomic_store(&g->asked, n + 1);
	return data;
}

static void
ground_handle(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	struct ground *g = user;

	for (uint32_t i = 0; i < 64; i++) {
		if (atomic_load(&g->at[i]) != message->data)
			continue;
		free(atomic_load(&g->at[i]));
		atomic_store(&g->at[i], NULL);
		atomic_fetch_add(message->flags & WEIR_MESSAGE_BROKEN ? &g->back : &g->whole, 1);
		return;
	}
	atomic_fetch_add(&g->wrong, 1);
}

static void
ours_handle(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	struct side *s = user;

	if (message->flags & WEIR_MESSAGE_BROKEN || message->length <= MIB)
		atomic_fetch_add(&s->wrong, 1);
	atomic_fetch_add(&s->bytes, 1);
}

static struct ground placed, other;

static void
register_all(struct side *s)
{
	struct weir_handler h = {
	    .size = sizeof(h), .handle = ground_handle, .user = &placed, .place = ground_place};

	memset(&placed, 0, sizeof(placed));
	memset(&other, 0, sizeof(other));
	must(weir_message_register(s->m, TYPE_PLACED, &h));
	h.user = &other;
	must(weir_message_register(s->m, TYPE_OTHER, &h));
	h = (struct weir_handler){.size = sizeof(h), .handle = ours_handle, .user = s};
	must(weir_message_register(s->m, TYPE_OURS, &h));
}

static const struct message_header placed_piece = {
    .kind = KIND_FRAGMENT, .flags = KIND_MESSAGE, .type = TYPE_PLACED};
static const struct message_header ours_piece = {
    .kind = KIND_FRAGMENT, .flags = KIND_MESSAGE, .type = TYPE_OURS};

/* A message whole, in pieces of a MiB. */
static void
send_rest(struct weir_conn *c, const struct message_header *h, uint64_t total, uint64_t from)
{
	for (uint64_t n; from < total; from += n) {
		n = total - from < MIB ? total - from : MIB;
		must(raw_piece(c, h, total, from, (uint32_t)n));
	}
}

/* Every piece is of the message that the first one began; else the lane ends, and what place() gave
 * comes back. */
static void
test_other_header(void **state)
{
	static const struct {
		struct message_header h;
		uint64_t total, offset;
	} second[] = {
	    {{.kind = KIND_FRAGMENT, .flags = KIND_MESSAGE, .type = TYPE_OURS}, TOTAL, MIB},
	    {{.kind = KIND_FRAGMENT, .flags = KIND_MESSAGE, .type = TYPE_OTHER}, TOTAL, MIB},
	    {{.kind = KIND_FRAGMENT, .flags = KIND_MESSAGE, .type = TYPE_NOBODY}, TOTAL, MIB},
	    {{.kind = KIND_FRAGMENT, .flags = KIND_REQUEST, .type = TYPE_PLACED}, TOTAL, MIB},
	    {{.kind = KIND_FRAGMENT, .flags = KIND_RESPONSE, .type = TYPE_PLACED}, TOTAL, MIB},
	    {{.kind = KIND_FRAGMENT, .flags = KIND_MESSAGE, .type = TYPE_PLACED, .id = 1},
	     TOTAL,
	     MIB},
	    {{.kind = KIND_FRAGMENT, .flags = KIND_MESSAGE, .type = TYPE_PLACED, .status = 1},
	     TOTAL,
	     MIB},
	    {{.kind = KIND_FRAGMENT, .flags = KIND_MESSAGE, .type = TYPE_PLACED}, TOTAL + 1, MIB},
	    {{.kind = KIND_FRAGMENT, .flags = KIND_MESSAGE, .type = TYPE_PLACED}, TOTAL, MIB + 1},
	    {{.kind = KIND_FRAGMENT, .flags = KIND_MESSAGE, .type = TYPE_PLACED}, TOTAL, TOTAL},
	};
	enum { N = sizeof(second) / sizeof(second[0]) };
	struct weir_conn *c;
	struct both p;

	open_both(&p, NULL, NULL);
	register_all(&p.b);
	for (unsigned i = 0; i < N; i++) {
		c = raw_connect(p.a.w, B, 1, 0);
		must(raw_piece(c, &placed_piece, TOTAL, 0, MIB));
		must(raw_piece(c, &second[i].h, second[i].total, second[i].offset, MIB));
		/* does no more harm */
		raw_piece(c, &second[i].h, second[i].total, 2 * MIB, MIB);
		raw_end(c);
		await(placed.back == i + 1 && stats_of(&p.b).malformed == i + 1);
	}
	/* the other way round: begun in the library's memory */
	c = raw_connect(p.a.w, B, 1, 0);
	must(raw_piece(c, &ours_piece, TOTAL, 0, MIB));
	must(raw_piece(c, &placed_piece, TOTAL, MIB, MIB));
	raw_piece(c, &placed_piece, TOTAL, 2 * MIB, MIB);
	raw_end(c);
	await(stats_of(&p.b).malformed == N + 1);
	assert_int_equal(placed.asked, N);
	assert_int_equal(placed.wrong + other.wrong + p.b.wrong + p.b.bytes, 0);
	assert_int_equal(placed.whole + other.whole, 0);
	/* and as it should be */
	c = raw_connect(p.a.w, B, 1, 0);
	send_rest(c, &placed_piece, TOTAL, 0);
	send_rest(c, &ours_piece, TOTAL, 0);
	await(placed.whole == 1 && p.b.bytes == 1);
	weir_close(c);
	close_both(&p);
	assert_int_equal(placed.wrong + p.b.wrong, 0);
}

/* Nobody is asked for memory of what is no longer than a message that goes whole. */
static void
test_small(void **state)
{
	struct weir_conn *c;
	struct both p;

	open_both(&p, NULL, NULL);
	register_all(&p.b);
	for (unsigned i = 0; i < 2; i++) {
		c = raw_connect(p.a.w, B, 1, 0);
		must(raw_piece(c, &placed_piece, i ? MIB : 2, 0, 1));
		raw_end(c);
	}
	await(stats_of(&p.b).malformed == 2);
	assert_int_equal(placed.asked, 0);
	c = raw_connect(p.a.w, B, 1, 0);
	must(raw_piece(c, &placed_piece, MIB + 1, 0, 1));
	await(placed.asked == 1);
	weir_close(c);
	await(placed.back == 1);
	close_both(&p);
}

/* One message is begun after the other, and none ends: each one's memory has come back before the
 * next one is asked for. */
static void
test_begun_again(void **state)
{
	struct weir_conn *c;
	struct both p;

	open_both(&p, NULL, NULL);
	register_all(&p.b);
	c = raw_connect(p.a.w, B, 1, 0);
	for (unsigned i = 0; i < 40; i++)
		must(raw_piece(c, &placed_piece, TOTAL, 0, 1));
	send_rest(c, &placed_piece, TOTAL, 1);
	await(placed.whole == 1);
	assert_int_equal(placed.asked, 40);
	assert_int_equal(placed.back, 39);
	assert_int_equal(placed.wrong, 0);
	weir_close(c);
	close_both(&p);
}

/* After the type was unregistered its place()'s memory is the program's: nobody writes there, or
 * gives it to the next handler of the type. */
static void
test_unregistered(void **state)
{
	struct weir_handler h = {.size = sizeof(h), .handle = ours_handle};
	struct weir_conn *c;
	uint8_t *data;
	struct both p;

	open_both(&p, NULL, NULL);
	register_all(&p.b);
	h.user = &p.b;
	c = raw_connect(p.a.w, B, 1, 0);
	must(raw_piece(c, &placed_piece, TOTAL, 0, 1));
	await(placed.asked == 1);
	must(weir_message_unregister(p.b.m, TYPE_PLACED, PATIENT));
	must(weir_message_register(p.b.m, TYPE_PLACED, &h));
	data = placed.at[0];
	send_rest(c, &placed_piece, TOTAL, 1);
	await(stats_of(&p.b).unknown == 1);
	send_rest(c, &placed_piece, TOTAL, 0); /* for the new one */
	await(p.b.bytes == 1);
	assert_int_equal(data[1], 0xee);
	assert_int_equal(data[TOTAL - 1], 0xee);
	/* nor does what breaks off come to another handler */
	must(weir_message_unregister(p.b.m, TYPE_OTHER, PATIENT));
	must(weir_message_unregister(p.b.m, TYPE_PLACED, PATIENT));
	weir_close(c);
	await_looks(&p.b);
	close_both(&p);
	assert_int_equal(p.b.wrong + placed.wrong + placed.back, 0);
	free(data);
}

/* A response in pieces has one header, too; who breaks that loses the connection. */
static void
test_response(void **state)
{
	static const struct message_header wrong[] = {
	    {.kind = KIND_FRAGMENT, .flags = KIND_MESSAGE},
	    {.kind = KIND_FRAGMENT, .flags = KIND_RESPONSE, .type = 7},
	    {.kind = KIND_FRAGMENT, .flags = KIND_RESPONSE, .status = 7},
	    {.kind = KIND_MESSAGE},
	};
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_listener *l;
	struct weir_messenger *m;
	uint8_t *in = malloc(TOTAL);
	struct both p;

	open_both(&p, NULL, NULL);
	o.flags = WEIR_MESSENGER_CLIENT;
	o.service = "raw";
	must(weir_messenger_open(p.a.w, &o, &m));
	must(weir_listen(p.b.w, "raw", 0, &l));
	for (unsigned i = 0; i <= sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct message_header h, asked[2] = {0};
		struct weir_request r;
		struct weir_conn *c;
		size_t n;
		int rc;

		must(weir_request_start(m, &r, B, TYPE_ECHO, "x", 1, in, TOTAL, PATIENT));
		must(weir_accept(l, PATIENT, &c));
		while (asked->kind != KIND_REQUEST)
			must(weir_recv(c, asked, sizeof(asked), &n, PATIENT));
		h = (struct message_header){
		    .kind = KIND_FRAGMENT, .flags = KIND_RESPONSE, .id = asked->id};
		must(raw_piece(c, &h, TOTAL, 0, MIB));
		if (i == sizeof(wrong) / sizeof(wrong[0])) {
			send_rest(c, &h, TOTAL, MIB);
			must(weir_request_wait(&r, PATIENT));
			weir_close(c);
			break;
		}
		h = wrong[i];
		h.id = asked->id;
		must(raw_piece(c, &h, TOTAL, MIB, MIB));
		rc = weir_request_wait(&r, PATIENT);
		assert_true(rc == -EPROTO || rc == -EHOSTUNREACH);
		raw_end(c);
	}
	weir_listener_close(l);
	weir_messenger_close(m);
	close_both(&p);
	free(in);
}

/* Bytes of the pieces that the first lane of a messenger has. */
static uint64_t
pieces_got(struct weir_messenger *m)
{
	const struct lane *lane;
	uint64_t bytes;

	pthread_mutex_lock(&m->lock);
	lane = TAILQ_FIRST(&TAILQ_FIRST(&m->open)->lanes);
	weir_lock(lane->worker);
	bytes = lane->in.fragments.got;
	weir_unlock(lane->worker);
	pthread_mutex_unlock(&m->lock);
	return bytes;
}

/*
 * A responder guesses the id of a request on loan and sends the first fragment before the request:
 * the next fragment has no place to go to.
 */
static void
test_response_before_request(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_request_options lent = WEIR_REQUEST_OPTIONS_INIT;
	struct message_header h, asked[2];
	struct weir_request first, r;
	struct weir_listener *l;
	struct weir_messenger *m;
	struct weir_conn *c;
	struct both p;
	uint8_t in;
	size_t n;
	int rc;

	open_both(&p, NULL, NULL);
	o.flags = WEIR_MESSENGER_CLIENT;
	o.service = "raw";
	must(weir_messenger_open(p.a.w, &o, &m));
	must(weir_listen(p.b.w, "raw", 0, &l));
	must(weir_request_start(m, &first, B, TYPE_ECHO, "x", 1, &in, 1, PATIENT));
	must(weir_accept(l, PATIENT, &c));
	do
		must(weir_recv(c, asked, sizeof(asked), &n, PATIENT));
	while (asked->kind != KIND_REQUEST);
	/* the slot's next request has the next generation */
	h = (struct message_header){
	    .kind = KIND_FRAGMENT, .flags = KIND_RESPONSE, .id = asked->id + (1ull << 32)};
	must(raw_piece(c, &h, TOTAL, 0, MIB));
	weir_request_cancel(&first);
	await(weir_messenger_progress(m, 0, 0) || pieces_got(m) == MIB);
	assert_int_equal(pieces_got(m), MIB);
	lent.flags = WEIR_REQUEST_LOAN;
	must(weir_request_start_with(m, &r, B, TYPE_ECHO, &lent, PATIENT));
	must(raw_piece(c, &h, TOTAL, MIB, MIB));
	rc = weir_request_wait(&r, PATIENT);
	assert_true(rc == -EPROTO || rc == -EHOSTUNREACH);
	raw_end(c);
	weir_listener_close(l);
	weir_messenger_close(m);
	close_both(&p);
}

static uint64_t
room_used(const struct side *s)
{
	uint64_t bytes;

	pthread_mutex_lock(&s->m->leaf);
	bytes = s->m->room_used;
	pthread_mutex_unlock(&s->m->leaf);
	return bytes;
}

static bool
some_wait(const struct side *s)
{
	bool wait;

	pthread_mutex_lock(&s->m->leaf);
	wait = !TAILQ_EMPTY(&s->m->room_waiting);
	pthread_mutex_unlock(&s->m->leaf);
	return wait;
}

#ifdef __SANITIZE_ADDRESS__
size_t __sanitizer_get_current_allocated_bytes(void); /* GCC has no header for it */
#endif

/* Bytes of memory that the process may write to; 0 where ThreadSanitizer takes of it as it likes,
 * and where AddressSanitizer does, those that are allocated. */
static uint64_t
committed(void)
{
#ifdef __SANITIZE_THREAD__
	return 0;
#elif defined(__SANITIZE_ADDRESS__)
	return __sanitizer_get_current_allocated_bytes();
#else
	FILE *f = fopen("/proc/self/status", "r");
	unsigned long long kib = 0;
	char line[256];

	while (fgets(line, sizeof(line), f))
		sscanf(line, "VmData: %llu kB", &kib);
	fclose(f);
	return kib << 10;
#endif
}

/* An announced message without bytes costs nothing. */
static void
test_announced(void **state)
{
	enum { N = 6, SENT = 8192 };
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_conn *c[N];
	uint64_t before;
	struct both p;

	o.assembly_max = 16ull << 30;
	open_both(&p, NULL, &o);
	register_all(&p.b);
	for (unsigned i = 0; i < N; i++) {
		c[i] = raw_connect(p.a.w, B, 1, 0);
		send_rest(c[i], &ours_piece, 2 * MIB, 0); /* all is there that lanes need */
	}
	await(p.b.bytes == N);
	before = committed();
	for (unsigned i = 0; i < N; i++)
		must(raw_piece(c[i], &ours_piece, 1u << 30, 0, SENT));
	await(room_used(&p.b) == (uint64_t)N << 30);
	assert_true(committed() - before < 64 * MIB);
	for (unsigned i = 0; i < N; i++)
		weir_close(c[i]);
	await(room_used(&p.b) == 0);
	close_both(&p);
}

/* The lane of `node` on which a message is under way. */
static struct lane *
under_way(struct weir_messenger *m, uint16_t node)
{
	struct lane *lane;

	pthread_mutex_lock(&m->lock);
	pthread_mutex_lock(&m->leaf);
	TAILQ_FOREACH(lane, &m->peers[node / NODE_PAGE][node % NODE_PAGE]->lanes, in_peer)
	if (lane->in.reserved)
		break;
	pthread_mutex_unlock(&m->leaf);
	pthread_mutex_unlock(&m->lock);
	assert_non_null(lane);
	return lane;
}

/* Once nobody has a piece of it in hand. deadline: ns of weir_clock(). */
static void
set_deadline(struct lane *lane, uint64_t deadline)
{
	bool busy = true;

	while (busy) {
		weir_lock(lane->worker);
		busy = lane->running;
		if (!busy)
			lane->in.deadline = deadline;
		weir_unlock(lane->worker);
	}
}

/* Begun messages of one node fill its half; a lane that waits for more delays no other node. */
static void
test_bound(void **state)
{
	static const struct message_header small = {.kind = KIND_MESSAGE, .type = TYPE_MUTE},
					   asking = {.kind = KIND_FRAGMENT,
						     .flags = KIND_REQUEST,
						     .type = TYPE_OURS,
						     .id = 9};
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_conn *one, *two, *third;
	struct message_header answer = {0};
	struct weir *w;
	struct both p;
	size_t n;

	o.assembly_max = 8 * MIB;
	open_both(&p, NULL, &o);
	w = plane_attach(p.f);
	register_all(&p.b);
	one = raw_connect(p.a.w, B, 1, 0);
	two = raw_connect(p.a.w, B, 1, 0);
	third = raw_connect(w, B, 1, 0);
	must(raw_piece(one, &ours_piece, TOTAL, 0, 1));
	await(room_used(&p.b) == TOTAL);
	set_deadline(under_way(p.b.m, A),
		     UINT64_MAX); /* the other waits, however long that takes */
	must(raw_piece(two, &ours_piece, TOTAL, 0, 1));
	must(weir_send(two, &small, HEADER_SHORT, PATIENT)); /* behind what waits */
	await(some_wait(&p.b));
	/* memory of place() is not bounded; nor are others behind who waits for its own share */
	must(weir_send(one, &small, HEADER_SHORT, PATIENT));
	send_rest(third, &placed_piece, 6 * MIB, 0);
	send_rest(third, &ours_piece, 4 * MIB, 0);
	await(p.b.notes == 1 && placed.whole == 1 && p.b.bytes == 1);
	stays(p.b.notes == 1);
	/* more than a share will never fit */
	must(raw_piece(third, &asking, 4 * MIB + 1, 0, 1));
	while (answer.kind != KIND_RESPONSE)
		must(weir_recv(third, &answer, sizeof(answer), &n, PATIENT));
	assert_int_equal(answer.status, EMSGSIZE);
	assert_int_equal(answer.id, 9);
	send_rest(one, &ours_piece, TOTAL, 1);
	await(p.b.bytes == 2 && p.b.notes == 2);
	send_rest(two, &ours_piece, TOTAL, 1);
	await(p.b.bytes == 3 && room_used(&p.b) == 0);
	assert_int_equal(stats_of(&p.b).oversized, 1);
	/* it ends while it waits; and it never gets its turn */
	must(raw_piece(one, &ours_piece, TOTAL, 0, 1));
	await(room_used(&p.b) == TOTAL);
	must(raw_piece(two, &ours_piece, TOTAL, 0, 1));
	await(some_wait(&p.b));
	must(raw_piece(third, &ours_piece, 4 * MIB, 0, 1));
	weir_close(two);
	weir_close(one);
	await(room_used(&p.b) == 4 * MIB);
	one = raw_connect(w, B, 1, 0);
	must(raw_piece(one, &ours_piece, TOTAL, 0, 1));
	await(some_wait(&p.b));
	weir_close(third);
	weir_close(one);
	close_both(&p);
	assert_int_equal(p.b.wrong, 0);
}

/* A message that never ends loses its memory once others wait; one that ends late fails. */
static void
test_stalled(void **state)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_conn *one, *two, *third;
	struct weir *w;
	struct both p;

	o.assembly_max = 8 * MIB;
	open_both(&p, NULL, &o);
	w = plane_attach(p.f);
	register_all(&p.b);
	one = raw_connect(p.a.w, B, 1, 0);
	two = raw_connect(p.a.w, B, 1, 0);
	third = raw_connect(w, B, 1, 0);
	must(raw_piece(one, &ours_piece, TOTAL, 0, MIB));
	must(raw_piece(third, &ours_piece, TOTAL, 0, MIB));
	await(room_used(&p.b) == 2 * TOTAL);
	set_deadline(under_way(p.b.m, A), 0);
	set_deadline(under_way(p.b.m, C), 0);
	await_looks(&p.b);
	assert_int_equal(stats_of(&p.b).stalled, 0); /* nobody waits */
	must(raw_piece(two, &ours_piece, TOTAL, 0, MIB));
	await(stats_of(&p.b).stalled == 1); /* of the node whose share is used up */
	send_rest(two, &ours_piece, TOTAL, MIB);
	await(p.b.bytes == 1);
	send_rest(third, &ours_piece, TOTAL, MIB);
	await(p.b.bytes == 2);
	/* its sender had given up: the lane is as good as any */
	send_rest(one, &ours_piece, TOTAL, 0);
	await(p.b.bytes == 3);
	must(raw_piece(one, &ours_piece, TOTAL, 0, MIB));
	await(room_used(&p.b) == TOTAL);
	set_deadline(under_way(p.b.m, A), 0);
	must(raw_piece(two, &ours_piece, TOTAL, 0, MIB));
	await(stats_of(&p.b).stalled == 2);
	/* its sender had not: it can't go on as if nothing had been lost */
	raw_piece(one, &ours_piece, TOTAL, MIB, MIB);
	raw_end(one);
	send_rest(two, &ours_piece, TOTAL, MIB);
	await(p.b.bytes == 4 && room_used(&p.b) == 0);
	weir_close(two);
	weir_close(third);
	close_both(&p);
	assert_int_equal(p.b.wrong, 0);
}

/* A lane that this end closes doesn't wait until there is room. */
static void
test_ended(void **state)
{
	struct message_header h = {
	    .kind = KIND_HELLO, .type = MESSAGE_VERSION, .status = 1, .id = 1};
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_conn *one, *two, *asks;
	struct weir_listener *l;
	struct weir *w;
	struct both p;
	int rc;

	o.assembly_max = 8 * MIB;
	open_both(&p, NULL, &o);
	w = plane_attach(p.f);
	register_all(&p.b);
	must(weir_listen(w, "weir.message", 0, &l));
	one = raw_connect(w, B, 1, 1);
	must(raw_piece(one, &ours_piece, TOTAL, 0, 1));
	await(room_used(&p.b) == TOTAL);
	two = raw_connect(w, B, 2, 1);
	must(raw_piece(two, &ours_piece, TOTAL, 0, 1));
	await(some_wait(&p.b));
	must(weir_accept(l, PATIENT, &asks)); /* which of them is the node's messenger? */
	must(weir_send(asks, &h, HEADER_LONG, PATIENT));
	rc = raw_end(two);
	assert_true(rc != -EAGAIN);
	assert_int_equal(room_used(&p.b), TOTAL);
	raw_end(asks);
	weir_close(one);
	weir_listener_close(l);
	close_both(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_other_header), cmocka_unit_test(test_small),
	    cmocka_unit_test(test_begun_again),	 cmocka_unit_test(test_unregistered),
	    cmocka_unit_test(test_response),	 cmocka_unit_test(test_response_before_request),
	    cmocka_unit_test(test_announced),	 cmocka_unit_test(test_bound),
	    cmocka_unit_test(test_stalled),	 cmocka_unit_test(test_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
