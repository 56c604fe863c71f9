/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets of a program on session.sock, one behind the other: to the decoder, and to a broker whose
 * engines and NIC keep books. The program has a channel per engine and a region; another one
 * listens and has an export. A key is what is to be changed in that export's: zeroes stand for the
 * right one, and a sum that does not change is made right. A generation of 0 is that of the
 * program's last export. Whatever it asks for, nobody else notices, and everything comes back at
 * its end.
 */
#include "fuzz.h"

#include "worlds/broker_fake.h"

#include "broker/region.h"
#include "ipc/key.h"
#include "weir/memory.h"

#define BYTES 65536u
#define RIGHTS (WEIR_RIGHT_READ | WEIR_RIGHT_UPDATE | WEIR_RIGHT_MAP)
#define PACKETS_MAX 32u

static struct weir_key_fields
make_export(struct fake *f, struct fake_session *s)
{
	struct weir_session_msg m = {.type = WEIR_MSG_EXPORT};
	struct weir_key_fields k;

	require(!fake_adopt(f, s, BYTES, WEIR_ADOPT_EXPOSE));
	m.export.region = 1;
	m.export.length = BYTES;
	m.export.rights = RIGHTS;
	require(fake_ask(f, s, &m) == WEIR_MSG_EXPORTED);
	memcpy(&k, s->reply.exported.key, sizeof(k));
	return k;
}

static void
complete_key(uint8_t bytes[WEIR_KEY_BYTES], const struct weir_key_fields *right)
{
	struct weir_key_fields k;

	for (unsigned i = 0; i < WEIR_KEY_BYTES; i++)
		bytes[i] ^= ((const uint8_t *)right)[i];
	memcpy(&k, bytes, sizeof(k));
	if (k.sum == right->sum)
		k.sum = weir_key_sum(&k);
	memcpy(bytes, &k, sizeof(k));
}

/* Puts what no input can know in the place of what stands for it. */
static void
complete(struct weir_session_msg *m, const struct weir_key_fields *right, uint32_t generation)
{
	switch (m->type) {
	case WEIR_MSG_OPEN:
		complete_key(m->open.key, right);
		break;
	case WEIR_MSG_MAP:
		complete_key(m->map.key, right);
		break;
	case WEIR_MSG_REVOKE:
		if (!m->exported.generation)
			m->exported.generation = generation;
		break;
	case WEIR_MSG_ATTACH:
	case WEIR_MSG_DETACH:
		if (!m->range.generation)
			m->range.generation = generation;
		break;
	}
}

static bool
may(const uint8_t key[WEIR_KEY_BYTES], const struct weir_key_fields *right, uint32_t rights)
{
	struct weir_key_fields k;

	memcpy(&k, key, sizeof(k));
	return weir_key_ok(&k) && k.index == right->index && k.generation == right->generation &&
	       !memcmp(k.secret, right->secret, sizeof(k.secret)) && rights && !(rights & ~RIGHTS);
}

/* The answer gives the program no more than it may have. */
static void
check(struct fake *f, const struct fake_session *s, const struct weir_session_msg *m,
      const struct weir_key_fields *right)
{
	const struct engine_export *x = &f->last[ENGINE_EXPORT_ADD].export;

	if (m->type == WEIR_MSG_OPEN && s->reply.type == WEIR_MSG_CONNECTING &&
	    s->reply.connecting.local)
		require(may(m->open.key, right, m->open.rights));
	if (m->type == WEIR_MSG_MAP && s->reply.type == WEIR_MSG_MAPPED) {
		require(may(m->map.key, right, m->map.rights) && s->fd_count == 1);
		close(s->fds[0]);
	}
	if (m->type == WEIR_MSG_EXPORT && s->reply.type == WEIR_MSG_EXPORTED && m->export.region) {
		const struct broker_region *r = &s->s->region[m->export.region - 1];

		require(x->offset == m->export.offset && x->length == m->export.length &&
			x->length && x->length <= r->bytes && x->offset <= r->bytes - x->length);
	}
}

/* False: the session is to end. */
static bool
packet(struct fake *f, struct fake_session *s, struct weir_session_msg *m, size_t length,
       const struct weir_key_fields *right, uint32_t *generation)
{
	uint32_t replies = s->replies;
	int rc;

	rc = weir_session_check(m, length);
	require(rc || (m->length == length && weir_session_length(m->type) == length &&
		       weir_session_type_name(m->type)));
	if (!rc)
		complete(m, right, *generation);
	if (broker_session_request(s->s, m, length)) {
		require(s->replies == replies);
		return false;
	}
	require(!rc);
	fake_run(f);
	if (s->ended || s->replies == replies)
		return false;
	require(s->replies == replies + 1);
	check(f, s, m, right);
	if (s->reply.type == WEIR_MSG_EXPORTED)
		*generation = s->reply.exported.generation;
	f->output_count = 0; /* to control */
	return true;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct weir_session_msg again = {.type = WEIR_MSG_OPEN, .open.rights = WEIR_RIGHT_READ};
	struct fake *f = fake_open(&two_engines);
	struct fake_session owner, s;
	struct weir_key_fields right;
	uint32_t generation = 0;
	bool more = true;

	fake_node(f, 2, WEIR_NODE_UP, 200, 2);
	fake_program(f, &owner);
	require(fake_listen(f, &owner, "echo", 8) == WEIR_MSG_LISTENING);
	right = make_export(f, &owner);
	fake_program(f, &s);
	require(!fake_adopt(f, &s, BYTES, WEIR_ADOPT_EXPOSE));
	f->output_count = 0;
	for (unsigned i = 0; more && i < PACKETS_MAX && size; i++) {
		uint32_t length = (uint32_t)size;
		struct weir_session_msg *m;

		if (size >= 8)
			memcpy(&length, data + 4, sizeof(length));
		if (length < 8 || length > size)
			length = (uint32_t)size;
		/* exactly as long as the packet, so that a read beyond it is seen */
		m = malloc(length);
		require(m);
		memcpy(m, data, length);
		more = packet(f, &s, m, length, &right, &generation);
		free(m);
		data += length;
		size -= length;
	}
	if (!s.ended)
		fake_leave(f, &s);
	memcpy(again.open.key, &right, sizeof(right));
	require(fake_ask(f, &owner, &again) == WEIR_MSG_CONNECTING);
	require(f->b->session_count == 1);
	fake_close(f);
	return 0;
}
