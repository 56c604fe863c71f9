/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and gets of many bytes, by WRITEs and READs on the link's second QP. They share it with bulk
 * messages, in the same queue per program (rndv_write.c). A transfer leaves beside the cells before
 * it; cells behind it wait, so what has completed stays one number.
 */
#include "export.h"
#include "link.h"
#include "region.h"
#include "remote.h"
#include "rndv.h"
#include "scheduler.h"
#include "send_queue.h"
#include "state.h"

static struct weir_cell_transfer
cell_of(const struct weir_slot *s)
{
	struct weir_cell_transfer t;

	memcpy(&t, s->data, sizeof(t));
	return t;
}

static bool
is_get(const struct pend *p)
{
	return cell_of(&p->slot).options & WEIR_TRANSFER_GET;
}

/* Whether c may do what a slot says. */
static bool
transfer_ok(const struct conn *c, const struct weir_slot *cell)
{
	struct weir_cell_transfer t = cell_of(cell);
	uint32_t right = t.options & WEIR_TRANSFER_GET ? WEIR_RIGHT_READ : WEIR_RIGHT_WRITE;

	return t.handle == WEIR_HANDLE_FIRST && !cell->flags && cell->length &&
	       cell->length <= WEIR_TRANSFER_MAX &&
	       !(t.options & ~(WEIR_TRANSFER_GET | WEIR_TRANSFER_BEHIND)) &&
	       !(t.reserved[0] | t.reserved[1] | t.reserved[2]) && c->cold->memory.rights & right &&
	       t.offset <= c->cold->memory.length &&
	       cell->length <= c->cold->memory.length - t.offset;
}

enum take
transfer_take(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *cell)
{
	struct weir_cell_transfer t = cell_of(cell);

	if (!c->cold->memory.key.rkey || c->state == CONN_LOCAL)
		return channel_refuse(e, ch, "transfer without a key");
	if (!transfer_ok(c, cell))
		return channel_refuse(e, ch, "operation outside its memory or its rights");
	if (t.options & WEIR_TRANSFER_GET && WEIR_PLACE_REGION(t.place)
		? !region_at(c->session, t.place, cell->length, WEIR_ADOPT_RECV)
		: !session_source(c->session, t.place, cell->length))
		return channel_refuse(e, ch, "transfer outside the send area and adopted memory");
	if (c->state == CONN_PEER_GONE || c->state == CONN_DEAD) {
		channel_taken(e, ch, c, 1, 1, cell->length);
		return TAKEN_DEAR;
	}
	if (!pend_message(e, c, ch, head_load(cell), t.place, cell)) {
		ch->blocked = true;
		return STAYS;
	}
	channel_taken(e, ch, c, 1, 1, cell->length);
	return TAKEN;
}

/* Asks for credit of the cells that have left. */
static void
ask_credit(struct engine *e, struct conn *c)
{
	c->link->prompt = true;
	link_busy(e, c->link);
}

void
transfers_advance(struct engine *e, struct conn *c)
{
	struct pend *p;

	if (!c->pend_first || !c->link || !conn_is_open(c))
		return;
	/* the oldest ones are complete, if the cells before them are */
	while ((p = c->pend_first) && p->state == PEND_WRITTEN) {
		if (c->landed != c->sent) {
			ask_credit(e, c);
			break;
		}
		c->by_read += is_get(p);
		c->by_write += !is_get(p);
		asked_drop_first(c);
		pend_give_first(c->session, c);
		conn_transferred(e, c);
	}
	while (c->asked_count < RTS_MAX) {
		p = c->asked_count ? c->cold->asked[c->asked_count - 1]->next : c->pend_first;
		if (!p || p->state != PEND_TRANSFER)
			return;
		/* nothing but transfers that have begun is before it */
		if (cell_of(&p->slot).options & WEIR_TRANSFER_BEHIND) {
			if (p != c->pend_first)
				return;
			if (c->landed != c->sent) {
				ask_credit(e, c);
				return;
			}
		}
		p->state = PEND_WRITING;
		p->fenced = false;
		p->remote = c->cold->memory.key.address + cell_of(&p->slot).offset;
		c->cold->asked[c->asked_count++] = p;
		queue_join(e, queue_of(c->session, c->link, BULK), &c->cold->writing);
		link_busy(e, c->link);
	}
}

bool
transfer_awaits_cells(const struct conn *c)
{
	return c->pend_first &&
	       (c->pend_first->state == PEND_WRITTEN || c->pend_first->state == PEND_TRANSFER);
}

uint32_t
transfer_fence(const struct conn *c, const struct pend *p)
{
	if (c->kind != CONN_MEMORY || !c->cold->memory.key.fence_rkey || is_get(p))
		return 0;
	return sizeof(uint64_t);
}

void
transfer_fill(const struct conn *c, const struct pend *p, struct nic_send_wr *wr)
{
	wr->opcode = is_get(p) ? NIC_READ : NIC_WRITE;
	wr->rkey = c->cold->memory.key.rkey;
}

uint32_t
transfer_rewind_fence(const struct conn *c, struct pend *p)
{
	if (!transfer_fence(c, p) || !p->fenced)
		return 0;
	p->fenced = false;
	return 1;
}

void
transfer_fill_fence(const struct engine *e, const struct conn *c, struct nic_send_wr *wr)
{
	const uint8_t *to = e->config.recv + (size_t)e->config.srq_depth * ENGINE_RECV_BYTES;

	*wr = (struct nic_send_wr){.opcode = NIC_READ, .sge_count = 1};
	wr->sge[0] = (struct nic_sge){(uintptr_t)to, sizeof(uint64_t), e->config.recv_mr.lkey};
	wr->remote_address = c->cold->memory.key.fence_address;
	wr->rkey = c->cold->memory.key.fence_rkey;
}
