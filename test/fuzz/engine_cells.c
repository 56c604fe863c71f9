/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on remote memory into an engine: slots that a program publishes, apart or for a peer,
 * and lines that a peer writes. Whatever they are, bytes beside the export stay as they were, and
 * another connection to it goes on. The first byte says who writes, which rights there are, and
 * whether to a dynamic export, to which two halves of the same memory are attached.
 */
#include "fuzz.h"

#include "worlds/engine_world.h"

#include "engine/conn.h"
#include "engine/link.h"
#include "weir/memory.h"

#define BYTES 8192u /* of the region */
#define START 1024u /* of the export in it */
#define LENGTH 4096u
#define LINES_MAX 24u
#define MARK 0xaa /* program_adopt() */

static const struct weir_wire_export the_export = {
    .index = 1, .generation = 77, .rights = WEIR_RIGHTS_KNOWN};

static const struct weir_wire_export dynamic_export = {
    .index = 2, .generation = 78, .rights = WEIR_RIGHTS_KNOWN};

/* Slots of c's program. Slots with an odd first byte name c and its next operation. */
static void
publish(struct pconn *c, const uint8_t *data, size_t size)
{
	struct weir_ring *r = &c->p->tx[0];

	for (unsigned n = 0; size >= WEIR_SLOT_SIZE && n < LINES_MAX; n++) {
		struct weir_slot s;

		memcpy(&s, data, sizeof(s));
		if (data[0] & 1) {
			s.vqpn = c->vqpn;
			s.order = (uint16_t)c->sent++;
		}
		weir_ring_refresh(r);
		if (!weir_ring_room(r))
			return;
		ring_put(r, &s);
		data += WEIR_SLOT_SIZE;
		size -= WEIR_SLOT_SIZE;
	}
}

/* The same in a frame of c's node. */
static void
inject(struct pconn *c, const uint8_t *data, size_t size)
{
	struct world *w = c->p->w;
	struct peer_link *l = &w->node[1].engine->links[1];
	struct conn *own = conn_find(w->node[0].engine, c->vqpn);
	struct weir_slot lines[LINES_MAX];
	uint16_t order = 0;
	uint32_t n = 0;

	for (; size >= WEIR_SLOT_SIZE && n < LINES_MAX; n++) {
		memcpy(&lines[n], data, sizeof(lines[n]));
		if (data[0] & 1) {
			lines[n].vqpn = own->peer_vqpn;
			lines[n].order = order++;
		}
		data += WEIR_SLOT_SIZE;
		size -= WEIR_SLOT_SIZE;
	}
	if (n)
		link_inject(l, &w->node[1].qp[0], lines, n, NULL, 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct {
		struct engine_ranges r;
		struct engine_range of[2];
	} ranges = {.r.count = 2};
	struct weir_wire_export x;
	struct pair p;
	struct engine_command k = {.type = ENGINE_EXPORT_ADD};
	struct pconn *c, *honest;
	struct program *apart, *owner;
	uint32_t rights;
	uint64_t word;
	uint8_t how;

	if (size < 1 + WEIR_SLOT_SIZE)
		return 0;
	how = data[0];
	rights = how >> 2 ? (how >> 2) & WEIR_RIGHTS_KNOWN : WEIR_RIGHTS_KNOWN;
	x = how & 0x80 ? dynamic_export : the_export;
	x.rights = rights ? rights : WEIR_RIGHT_READ;
	p = pair_programs(NULL, 1);
	owner = p.pb;
	owner->stopped = true; /* it takes no notices */
	program_adopt(owner, 1, BYTES, WEIR_ADOPT_SEND);
	k.export = (struct engine_export){.session = owner->id,
					  .number = the_export.index,
					  .generation = the_export.generation,
					  .region = 1,
					  .offset = START,
					  .length = LENGTH,
					  .rights = WEIR_RIGHTS_KNOWN};
	require(program_command(owner, &k) == 0);
	for (uint64_t i = 0; i < 2; i++) /* its addresses are offsets in the region */
		ranges.of[i] = (struct engine_range){
		    .address = START + i * LENGTH / 2,
		    .bytes = LENGTH / 2,
		    .base = owner->region[0].base + START + i * LENGTH / 2,
		    .region = 1,
		    .updating = owner->region[0].updating,
		};
	k.export = (struct engine_export){.session = owner->id,
					  .number = dynamic_export.index,
					  .generation = dynamic_export.generation,
					  .length = WEIR_DYNAMIC_BYTES,
					  .ranges = &ranges.r,
					  .rights = WEIR_RIGHTS_KNOWN};
	require(program_command(owner, &k) == 0);
	apart = program_open(p.w, 1, 1);
	honest = pconn_open_apart(apart, owner, &the_export);
	if (how & 1) {
		c = pconn_open_remote(p.pa, &x);
		inject(c, data + 1, size - 1);
	} else if (how & 2) {
		c = pconn_open_apart(program_open(p.w, 1, 1), owner, &x);
		publish(c, data + 1, size - 1);
	} else {
		c = pconn_open_remote(p.pa, &x);
		publish(c, data + 1, size - 1);
	}
	world_run(p.w, 60);
	for (uint32_t i = 0; i < BYTES; i++)
		require(owner->region[0].base[i] == MARK || (i >= START && i < START + LENGTH));
	require(!owner->violated && !apart->violated);
	pconn_put_word(honest, 64, 0x1122334455667788);
	world_run(p.w, 20);
	memcpy(&word, owner->region[0].base + START + 64, sizeof(word));
	require(word == 0x1122334455667788 && pconn_completed(honest) == 1);
	world_end(NULL);
	return 0;
}
