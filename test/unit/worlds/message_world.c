/* SPDX-License-Identifier: BSD-3-Clause */
#include "message_world.h"

#include <stdio.h>
#include <time.h>

struct weir_reply kept[8];
_Atomic uint32_t kept_count, go, blocked_now;

const struct plane_options message_plane = {
    .channels = 12, .nodes = true, .recv_blocks = 512, .send_blocks = 512, .ring_slots = 1024};

void
fatal(const char *what, int rc)
{
	fprintf(stderr, "%s: %d: %s\n", what, rc, weir_reason());
	abort();
}

void
nap(unsigned ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&ts, NULL);
}

static void
on_link(uint16_t node, enum weir_link_event event, int status, void *user)
{
	struct side *s = user;

	if (event == WEIR_LINK_LOST)
		atomic_store(&s->status, status);
	atomic_fetch_add(event == WEIR_LINK_CREATED ? &s->created : &s->lost, 1);
}

void
fill(uint32_t *buf, uint32_t thread, uint32_t number, size_t length)
{
	buf[0] = thread;
	buf[1] = number;
	for (size_t i = 8; i < length; i++)
		((uint8_t *)buf)[i] = (uint8_t)(number * 7 + i);
}

static bool
is_filled(const uint8_t *data, uint32_t number, size_t length)
{
	for (size_t i = 8; i < length; i++)
		if (data[i] != (uint8_t)(number * 7 + i))
			return false;
	return true;
}

static void
note(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	const uint32_t *v = message->data;
	struct side *s = user;

	if (message->length < 8 || v[0] >= 16 || v[1] != s->next[v[0]]++ ||
	    !is_filled(message->data, v[1], message->length))
		atomic_fetch_add(&s->wrong, 1);
	atomic_fetch_add(&s->notes, 1);
}

static void
echo(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	must(weir_message_respond(m, &message->reply, message->data, message->length));
}

void
mute(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	struct side *s = user;

	(void)m, (void)message;
	atomic_fetch_add(&s->notes, 1);
}

static void
keep(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	(void)m, (void)user;
	kept[atomic_load(&kept_count) % 8] = message->reply;
	atomic_fetch_add(&kept_count, 1);
}

static void
block(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	(void)m, (void)message, (void)user;
	atomic_fetch_add(&blocked_now, 1);
	while (!atomic_load(&go))
		nap(1);
}

void
open_side(struct side *s, struct weir_messenger_options *o)
{
	struct weir_handler notes = {.size = sizeof(notes), .handle = note, .user = s},
			    echoes = {.size = sizeof(echoes), .handle = echo},
			    mutes = {.size = sizeof(mutes), .handle = mute, .user = s};

	o->link = on_link;
	o->user = s;
	must(weir_messenger_open(s->w, o, &s->m));
	must(weir_message_register(s->m, TYPE_NOTE, &notes));
	must(weir_message_register(s->m, TYPE_ECHO, &echoes));
	must(weir_message_register(s->m, TYPE_MUTE, &mutes));
}

void
open_both(struct both *p, const struct plane_options *plane,
	  const struct weir_messenger_options *options)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;

	if (options)
		o = *options;
	*p = (struct both){.f = plane_create(plane ? plane : &message_plane)};
	p->a.w = plane_attach(p->f);
	p->b.w = plane_attach(p->f);
	plane_run(p->f);
	open_side(&p->a, &o);
	open_side(&p->b, &o);
}

static void *
close_messenger(void *m)
{
	weir_messenger_close(m);
	return NULL;
}

pthread_t
close_beside(struct weir_messenger *m)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, close_messenger, m), 0);
	return t;
}

void
close_world(struct plane *f, struct weir *a, struct weir_messenger *am, struct weir *b,
	    struct weir_messenger *bm)
{
	pthread_t t = close_beside(bm);

	weir_messenger_close(am);
	pthread_join(t, NULL);
	weir_detach(a);
	weir_detach(b);
	plane_stop(f);
	plane_destroy(f);
}

void
close_both(struct both *p)
{
	close_world(p->f, p->a.w, p->a.m, p->b.w, p->b.m);
}

void
register_keep(struct side *s)
{
	struct weir_handler h = {.size = sizeof(h), .handle = keep};

	atomic_store(&kept_count, 0);
	must(weir_message_register(s->m, TYPE_KEEP, &h));
}

void
register_block(struct side *s, uint32_t flags)
{
	struct weir_handler h = {.size = sizeof(h), .handle = block, .flags = flags};

	atomic_store(&go, 0);
	atomic_store(&blocked_now, 0);
	must(weir_message_register(s->m, TYPE_BLOCK, &h));
}

struct weir_messenger_stats
stats_of(const struct side *s)
{
	struct weir_messenger_stats stats = WEIR_MESSENGER_STATS_INIT;

	weir_messenger_stats(s->m, &stats);
	return stats;
}

void
raw_hello_of(struct weir_conn *c, struct weir_versions v)
{
	struct {
		struct message_header h;
		struct message_hello hello;
	} m = {{.kind = KIND_HELLO,
		.type = (uint16_t)v.lowest,
		.status = MESSAGE_HELLO_STATUS(1, v.highest),
		.id = 99},
	       {.key = 5}};

	must(weir_send(c, &m, sizeof(m), PATIENT));
}

void
raw_hello(struct weir_conn *c, uint64_t incarnation, uint32_t receivers)
{
	struct {
		struct message_header h;
		struct message_hello hello;
	} m = {
	    {.kind = KIND_HELLO, .type = MESSAGE_VERSION, .status = receivers, .id = incarnation},
	    {.key = ~incarnation}};

	must(weir_send(c, &m, sizeof(m), PATIENT));
}

struct weir_conn *
raw_connect(struct weir *w, uint16_t node, uint64_t incarnation, uint32_t receivers)
{
	struct weir_address a = {.kind = WEIR_ADDRESS_NODE, .id = node, .service = "weir.message"};
	struct weir_conn *c;

	must(weir_connect(w, &a, PATIENT, &c));
	raw_hello(c, incarnation, receivers);
	return c;
}

int
raw_piece(struct weir_conn *c, const struct message_header *h, uint64_t total, uint64_t offset,
	  uint32_t bytes)
{
	struct message_fragment piece = {.total = total, .offset = offset};
	uint8_t *m = calloc(1, HEADER_LONG + sizeof(piece) + bytes);
	int rc;

	memcpy(m, h, HEADER_LONG);
	memcpy(m + HEADER_LONG, &piece, sizeof(piece));
	rc = weir_send(c, m, HEADER_LONG + sizeof(piece) + bytes, PATIENT);
	free(m);
	return rc;
}

int
raw_end(struct weir_conn *c)
{
	uint8_t in[64];
	size_t n;
	int rc;

	do {
		rc = weir_recv(c, in, sizeof(in), &n, PATIENT);
	} while (!rc);
	weir_close(c);
	return rc;
}

bool
raw_lives(struct weir_conn *c)
{
	uint8_t in[64];
	size_t n;
	int rc;

	do {
		rc = weir_recv(c, in, sizeof(in), &n, 0);
	} while (!rc);
	return rc == -EAGAIN;
}

void
await_looks(const struct side *s)
{
	uint32_t epoch = atomic_load(&s->m->epoch);

	/* the one under way may have passed by already */
	await(atomic_load(&s->m->epoch) - epoch >= 2);
}
