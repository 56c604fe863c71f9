/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keys, given to a broker by a program that opens or maps an export, or by a peer. The first byte
 * says which, and whether the rest is the key or is to be added to the right one, and whether its
 * sum is made right. The second are the rights that are asked for. Nobody gets in without all bytes
 * of the key, nor with more rights than the export has.
 */
#include "fuzz.h"

#include "worlds/broker_net.h"

#include "broker/conn.h"
#include "broker/link.h"
#include "ipc/key.h"
#include "weir/memory.h"

#include <fcntl.h>

#define BYTES 4096u
#define RIGHTS (WEIR_RIGHT_READ | WEIR_RIGHT_UPDATE | WEIR_RIGHT_MAP)

static struct net net;
static struct fake_session owner, other; /* of node 2 */
static struct weir_key_fields right;

static void
set_up(void)
{
	struct weir_session_msg m = {.type = WEIR_MSG_EXPORT};
	struct fake *f;

	bring_up(&net);
	f = net.f[1];
	fake_program(f, &owner);
	fake_program(f, &other);
	require(!fake_adopt(f, &owner, BYTES, WEIR_ADOPT_EXPOSE));
	m.export.region = 1;
	m.export.length = BYTES;
	m.export.rights = RIGHTS;
	require(fake_ask(f, &owner, &m) == WEIR_MSG_EXPORTED);
	memcpy(&right, owner.reply.exported.key, sizeof(right));
}

static void
end_conn(uint32_t engine, uint32_t vqpn)
{
	struct engine_event closed = {.type = ENGINE_EVENT_CONN_CLOSED, .conn.vqpn = vqpn};

	fake_event(net.f[1], engine, &closed);
}

/* Whether the export is opened, apart. */
static bool
opens(const struct weir_key_fields *k, uint32_t rights)
{
	struct weir_session_msg m = {.type = WEIR_MSG_OPEN, .open.rights = rights};

	memcpy(m.open.key, k, sizeof(m.open.key));
	if (fake_ask(net.f[1], &other, &m) != WEIR_MSG_CONNECTING)
		return false;
	end_conn(other.reply.connecting.engine, other.reply.connecting.vqpn);
	return other.reply.connecting.local;
}

static bool
maps(const struct weir_key_fields *k, uint32_t rights)
{
	struct weir_session_msg m = {.type = WEIR_MSG_MAP, .map.rights = rights};

	memcpy(m.map.key, k, sizeof(m.map.key));
	if (fake_ask(net.f[1], &other, &m) != WEIR_MSG_MAPPED)
		return false;
	require(other.fd_count == 1 && other.reply.mapped.bytes == BYTES &&
		(fcntl(other.fds[0], F_GETFL) & O_ACCMODE) == O_RDONLY);
	close(other.fds[0]);
	return true;
}

/* A peer's engine has no sum. */
static bool
is_accepted(const struct weir_key_fields *k, uint32_t rights)
{
	struct weir_wire_export wanted = weir_key_wanted(k, rights);
	struct engine_event e = {.type = ENGINE_EVENT_CONNECT,
				 .conn = {.link = the_link(&net, 1)->id,
					  .peer_node = 1,
					  .peer_vqpn = 0x100001,
					  .kind = CONN_MEMORY}};
	uint32_t before = net.f[1]->count[ENGINE_CONN_ACCEPT];

	memcpy(e.conn.service, &wanted, sizeof(wanted));
	fake_event(net.f[1], 0, &e);
	if (net.f[1]->count[ENGINE_CONN_ACCEPT] == before)
		return false;
	end_conn(0, LIST_FIRST(&owner.s->conns)->vqpn);
	return true;
}

/* Each byte of a key that is ok makes it another one. */
static void
check_sum(struct weir_key_fields k)
{
	uint8_t *bytes = (uint8_t *)&k;

	if (!weir_key_ok(&k))
		return;
	for (unsigned i = 0; i < sizeof(k); i++) {
		bytes[i] ^= (uint8_t)(1u << i % 8);
		require(!weir_key_ok(&k));
		bytes[i] ^= (uint8_t)(1u << i % 8);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t bytes[sizeof(struct weir_key_fields)] = {0};
	struct weir_key_fields k;
	uint32_t way, rights;
	bool same, allowed;

	if (!net.f[1])
		set_up();
	if (size < 2)
		return 0;
	way = data[0];
	rights = data[1];
	memcpy(bytes, data + 2, size - 2 < sizeof(bytes) ? size - 2 : sizeof(bytes));
	for (unsigned i = 0; way & 4 && i < sizeof(bytes); i++)
		bytes[i] ^= ((const uint8_t *)&right)[i];
	memcpy(&k, bytes, sizeof(k));
	if (way & 8)
		k.sum = weir_key_sum(&k);
	check_sum(k);
	same = k.index == right.index && k.generation == right.generation &&
	       !memcmp(k.secret, right.secret, sizeof(k.secret));
	allowed = rights && !(rights & ~(RIGHTS & WEIR_RIGHTS_KNOWN));
	if (way % 4 == 2) {
		require(is_accepted(&k, rights) == (same && allowed));
		return 0;
	}
	same &= weir_key_ok(&k) && k.incarnation == right.incarnation &&
		(k.node == right.node || k.node == UINT32_MAX);
	require((way % 4 == 1 ? maps(&k, rights) : opens(&k, rights)) == (same && allowed));
	net.f[1]->output_count = 0;
	return 0;
}
