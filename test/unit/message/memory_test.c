/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * No allocation per message: rounds of messages that wait, go in fragments, are composed or copied
 * make no call of malloc() once the first rounds have filled the pools. The thread of the data
 * plane, which is in this process, does not count.
 */
#include "worlds/message_world.h"
#include "worlds/test.h"

#include "weir/stream.h"

#define BLOCKS 20
#define ROUNDS 8
#define WHOLE (1u << 20)

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg);

static _Atomic uint64_t allocations;
static pthread_t plane_thread;
static bool starts_plane;

int
__wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
	int rc = __real_pthread_create(t, a, run, arg);

	if (starts_plane)
		plane_thread = *t;
	return rc;
}

static void
count_allocation(void)
{
	if (!pthread_equal(pthread_self(), plane_thread))
		allocations++;
}

void *
__wrap_malloc(size_t bytes)
{
	count_allocation();
	return __real_malloc(bytes);
}

void *
__wrap_calloc(size_t n, size_t bytes)
{
	count_allocation();
	return __real_calloc(n, bytes);
}

void *
__wrap_realloc(void *p, size_t bytes)
{
	count_allocation();
	return __real_realloc(p, bytes);
}

void *
__wrap_aligned_alloc(size_t align, size_t bytes)
{
	count_allocation();
	return __real_aligned_alloc(align, bytes);
}

/*
 * Blocks of rounds until one allocates nothing. A thread that was slow may let more messages wait
 * than ever before, and so fill the pools further; a path that allocates per message always does.
 */
#define rounds(round)                                                                              \
	do {                                                                                       \
		uint64_t rounds_before = 0, rounds_made = 1;                                       \
                                                                                                   \
		for (unsigned block = 0; block < BLOCKS && rounds_made; block++) {                 \
			rounds_before = atomic_load(&allocations);                                 \
			for (unsigned rounds_i = 0; rounds_i < ROUNDS; rounds_i++)                 \
				round;                                                             \
			rounds_made = atomic_load(&allocations) - rounds_before;                   \
		}                                                                                  \
		assert_int_equal(rounds_made, 0);                                                  \
	} while (0)

static uint8_t buf[5u << 20], in[5u << 20];

static const struct plane_options large = {.channels = 12,
					   .nodes = true,
					   .recv_blocks = 2048,
					   .send_blocks = 2048,
					   .ring_slots = 1024,
					   .window = 2u << 20,
					   .first = 64u << 10};

/* The counter counts. */
TEST(test_counted)
{
	uint64_t before = allocations;

	free(__wrap_malloc(100));
	assert_int_equal(allocations, before + 1);
}

static void
run_plane(struct plane *f)
{
	starts_plane = true;
	plane_run(f);
	starts_plane = false;
}

static void
open_counted(struct both *p, const struct plane_options *plane, struct weir_messenger_options *o)
{
	struct weir_messenger_options defaults = WEIR_MESSENGER_OPTIONS_INIT;

	*p = (struct both){.f = plane_create(plane)};
	p->a.w = plane_attach(p->f);
	p->b.w = plane_attach(p->f);
	run_plane(p->f);
	open_side(&p->a, o ? o : &defaults);
	open_side(&p->b, o ? o : &defaults);
}

static void
fragments(struct both *p)
{
	uint32_t before = p->b.notes;

	must(weir_message_send(p->a.m, B, TYPE_MUTE, buf, sizeof(buf), PATIENT));
	must(weir_message_send(p->a.m, B, TYPE_MUTE, buf, WHOLE + 1, PATIENT));
	while (p->b.notes != before + 2)
		nap(1);
	must(weir_message_request(p->a.m, B, TYPE_ECHO, buf, 2 * WHOLE, in, sizeof(in), NULL,
				  PATIENT));
}

TEST(test_fragments)
{
	struct both p;

	open_counted(&p, &large, NULL);
	rounds(fragments(&p));
	close_both(&p);
}

/* Responses that find no room wait in copies. */
static void
responses(struct both *p)
{
	struct weir_request r[4];

	atomic_store(&kept_count, 0);
	for (int i = 0; i < 4; i++)
		must(weir_request_start(p->a.m, &r[i], B, TYPE_KEEP, "x", 1, in + i * WHOLE, WHOLE,
					PATIENT));
	while (kept_count != 4)
		nap(1);
	plane_hold(p->f, true);
	for (int i = 0; i < 4; i++)
		must(weir_message_respond(p->b.m, &kept[i], buf, 900000));
	plane_hold(p->f, false);
	for (int i = 0; i < 4; i++)
		must(weir_request_wait(&r[i], PATIENT));
}

TEST(test_responses)
{
	struct plane_options little = large;
	struct both p;

	little.recv_blocks = little.send_blocks = 200;
	open_counted(&p, &little, NULL);
	register_keep(&p.b);
	rounds(responses(&p));
	close_both(&p);
}

/* Drafts of all kinds, and responses on loan. */
static void
drafts(struct both *p)
{
	static const size_t lengths[] = {10, 500, 8000, 60000, 900000};
	struct weir_request_options o = WEIR_REQUEST_OPTIONS_INIT;
	uint32_t before = p->b.notes;
	struct weir_request r;
	struct weir_draft d;

	o.flags = WEIR_REQUEST_LOAN;
	for (int i = 0; i < 5; i++) {
		must(weir_message_reserve(p->a.m, B, TYPE_MUTE, lengths[i], 0, PATIENT, &d));
		must(weir_message_commit(p->a.m, &d, lengths[i], PATIENT));
		must(weir_message_reserve(p->a.m, B, TYPE_MUTE, lengths[i], WEIR_DRAFT_KEEP,
					  PATIENT, &d));
		must(weir_message_commit(p->a.m, &d, lengths[i], PATIENT));
		must(weir_message_resend(p->a.m, &d, B, PATIENT));
		weir_message_abandon(p->a.m, &d);
		must(weir_request_reserve(p->a.m, B, TYPE_ECHO, lengths[i], PATIENT, &d));
		must(weir_request_commit(p->a.m, &d, lengths[i], &r, &o, PATIENT));
		must(weir_request_wait(&r, PATIENT));
		weir_request_release(&r);
	}
	while (p->b.notes != before + 15)
		nap(1);
}

TEST(test_drafts)
{
	struct both p;

	open_counted(&p, &large, NULL);
	rounds(drafts(&p));
	close_both(&p);
}

/* Responses into a buffer that has grown. */
static void
grown(struct both *p)
{
	static struct weir_request_options o = WEIR_REQUEST_OPTIONS_INIT;
	struct iovec part = {buf, 0};
	struct weir_request r;

	o.flags = WEIR_REQUEST_GROW;
	o.iov = &part;
	o.parts = 1;
	for (size_t length = 100; length < 4 * WHOLE; length *= 30) {
		part.iov_len = length;
		must(weir_request_start_with(p->a.m, &r, B, TYPE_ECHO, &o, PATIENT));
		must(weir_request_wait(&r, PATIENT));
		assert_int_equal(r.length, length);
		o.response = (void *)(uintptr_t)r.data;
		if (length > o.response_size)
			o.response_size = length;
	}
}

TEST(test_grown)
{
	struct both p;

	open_counted(&p, &large, NULL);
	rounds(grown(&p));
	close_both(&p);
}

/* Messages with a cookie, some of which wait. */
static unsigned ended;

static void
sent(struct weir_messenger *m, uint16_t node, uint64_t cookie, int status, void *user)
{
	ended++;
}

static void
notified(struct both *p)
{
	struct iovec part = {buf, 100};

	ended = 0;
	for (uint64_t i = 0; i < 100; i++)
		must(weir_message_send_notify(p->a.m, B, TYPE_MUTE, &part, 1, i, PATIENT));
	while (ended < 100)
		weir_messenger_progress(p->a.m, 0, 1);
}

TEST(test_notified)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct both p;

	o.sent = sent;
	open_counted(&p, &large, &o);
	rounds(notified(&p));
	close_both(&p);
}

/* ---- streams ---- */

struct pair {
	struct plane *f;
	struct weir *a, *b;
	struct weir_conn *out[2], *in[2];
};

static void
open_pair(struct pair *p, const struct plane_options *o, uint32_t node, const char *address)
{
	struct weir_listener *l;
	struct weir_address to;

	p->f = plane_create(o);
	p->a = plane_attach_at(p->f, 0);
	p->b = plane_attach_at(p->f, node);
	run_plane(p->f);
	must(weir_address_parse(address, &to));
	must(weir_listen(p->b, "svc", 0, &l));
	for (int i = 0; i < 2; i++) {
		must(weir_connect(p->a, &to, PATIENT, &p->out[i]));
		must(weir_accept(l, PATIENT, &p->in[i]));
	}
}

static void
close_pair(struct pair *p)
{
	weir_detach(p->a);
	weir_detach(p->b);
	plane_stop(p->f);
	plane_destroy(p->f);
}

/* The second connection's message is asked for first: the first one's wait unread. */
static void
unread(struct pair *p, const size_t *lengths, unsigned n)
{
	size_t got;

	for (unsigned i = 0; i < n; i++)
		must(weir_send(p->out[0], buf, lengths[i], PATIENT));
	must(weir_send(p->out[1], buf, 8, PATIENT));
	must(weir_recv(p->in[1], in, sizeof(in), &got, PATIENT));
	for (unsigned i = 0; i < n; i++) {
		must(weir_recv(p->in[0], in, sizeof(in), &got, PATIENT));
		assert_int_equal(got, lengths[i]);
	}
}

TEST(test_unread)
{
	static const size_t lengths[] = {8, 60, 900, 1000, 5000, 60000, 100, 20000, 8, 300000};
	struct plane_options o = large;
	struct pair p;

	o.nodes = false;
	open_pair(&p, &o, 0, PLANE_LOCAL);
	rounds(unread(&p, lengths, 10));
	close_pair(&p);
	open_pair(&p, &o, 1, PLANE_REMOTE);
	rounds(unread(&p, lengths, 7));
	close_pair(&p);
}

/* A local message larger than the shared area: the part that finds no room is copied. */
static void
send_large(struct pair *p)
{
	size_t got;

	while (weir_send(p->out[0], buf, sizeof(buf), 0) == -EAGAIN)
		nap(1);
	must(weir_recv(p->in[0], in, sizeof(in), &got, PATIENT));
	assert_int_equal(got, sizeof(buf));
}

TEST(test_send_large)
{
	struct plane_options o = large;
	struct pair p;

	o.nodes = false;
	o.watched = true; /* the watcher sends the rest */
	open_pair(&p, &o, 0, PLANE_LOCAL);
	rounds(send_large(&p));
	close_pair(&p);
}
