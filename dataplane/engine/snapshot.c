/* SPDX-License-Identifier: BSD-3-Clause */
/* Records of connections and links, for weirctl and telemetry. */
#include "command.h"
#include "conn.h"
#include "export.h"
#include "link.h"
#include "state.h"

void
engine_snapshot_fill(struct engine *e, struct engine_snapshot *s)
{
	uint32_t i = s->conn_from;

	s->conn_count = s->link_count = 0;
	for (; i < e->conns_fresh && s->conn_count < s->conn_room; i++) {
		const struct conn *c = &e->conns[i];
		bool opening = c->state == CONN_OPENING; /* the service lies where sends count */
		uint64_t sent = opening ? 0 : c->sent;
		uint64_t all = sent + c->rx_messages;
		const struct export *x = c->kind == CONN_MEMORY ? c->cold->memory.export : NULL;

		if (!c->vqpn)
			continue;
		s->conns[s->conn_count++] = (struct engine_conn_record){
		    .vqpn = c->vqpn,
		    .peer_vqpn = c->peer_vqpn,
		    .session = c->session->shared->id,
		    .state = c->state,
		    .window = c->kind != CONN_STREAM ? 0 : c->peer_window,
		    .peer_node = c->peer_node,
		    .local = c->local,
		    .segment = c->segment,
		    .conn_index = c->conn_index,
		    .kind = c->kind,
		    .dropped = c->kind == CONN_DATAGRAM ? c->cold->dgram.dropped : 0,
		    .outstanding = opening || c->kind != CONN_STREAM ? 0 : c->spent - c->returned,
		    .returned = c->returned,
		    .by_ring =
			c->kind == CONN_DATAGRAM ? 0 : all - c->by_write - c->by_read - c->by_send,
		    .by_send = c->kind == CONN_DATAGRAM ? all : c->by_send,
		    .by_read = c->by_read,
		    .by_write = c->by_write,
		    .bytes = c->bytes,
		    .export_session = x ? x->session : 0,
		    .export_number = x ? x->number : 0,
		};
	}
	s->conn_next = i < e->conns_fresh ? i : UINT32_MAX;
	exports_count(e, s->exports, s->export_count);
	for (i = 0; i < e->config.links && s->link_count < s->link_room; i++) {
		const struct peer_link *l = &e->links[i];

		if (!l->up)
			continue;
		s->links[s->link_count++] = (struct engine_link_record){
		    .link = i,
		    .peer_node = l->is.peer_node,
		    .peer_engine = l->is.peer_engine,
		    .qpn = {l->qpn[0], l->qpn[1]},
		    .state = l->broken || l->bulk_broken || l->hold,
		    .ring_used = l->tx_pos - l->credited,
		    .ring_lines = l->mask + 1,
		    .frames_sent = l->frames_sent,
		    .frames_received = l->frames_received,
		};
	}
}
