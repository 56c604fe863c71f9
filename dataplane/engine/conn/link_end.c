/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of a link in order: both ends agree that no connection uses it. The lines travel in the
 * ring, so each end has taken all that the other one sent before. A CONNECT that crosses LINK_CLOSE
 * is a connection of its sender, who answers LINK_STAYS. docs/protocol.md 2 has the table.
 */
#include "batch.h"
#include "conn.h"
#include "link.h"
#include "slot_head.h"
#include "state.h"

#include <errno.h>

static void
enter(struct engine *e, struct peer_link *l, enum link_end to)
{
	static const uint8_t legal[] = {
	    [LINK_GOES_ON] = 1u << LINK_ASKED | 1u << LINK_AGREED,
	    [LINK_ASKED] = 1u << LINK_GOES_ON | 1u << LINK_AGREED,
	    [LINK_AGREED] = 1u << LINK_OVER,
	    [LINK_OVER] = 0,
	};

	weir_enter(legal, l->end, to);
	if (!link_lasts(l)) /* rings don't matter any more */
		l->lines_due &= (uint8_t) ~(LINK_LINE_RING | LINK_LINE_LEFT);
	link_watch(e, l);
}

static void
line_due(struct engine *e, struct peer_link *l, uint8_t line)
{
	l->lines_due |= line;
	link_busy(e, l);
	e->ctrl_added = true;
}

int
link_close(struct engine *e, const struct engine_link_command *k)
{
	struct peer_link *l = link_find(e, k->link);

	if (!l)
		return -ENOENT;
	if (l->end != LINK_GOES_ON) /* the peer was first */
		return 0;
	if (!list_empty(&l->conns) || l->broken || l->bulk_broken || l->hold)
		return -EBUSY;
	enter(e, l, LINK_ASKED);
	line_due(e, l, LINK_LINE_CLOSE);
	return 0;
}

void
link_over(struct engine *e, struct peer_link *l)
{
	if (l->end == LINK_OVER)
		return;
	enter(e, l, LINK_OVER);
	l->last_wr = 0;
	l->lines_due = 0;
	l->news |= LINK_NEWS_CLOSED;
	link_tell(e, l);
}

static void
stays(struct engine *e, struct peer_link *l)
{
	enter(e, l, LINK_GOES_ON);
	l->last_wr = 0;
	l->news |= LINK_NEWS_STAYS;
	link_tell(e, l);
}

void
link_lines_send(struct engine *e, struct peer_link *l)
{
	static const struct {
		uint8_t line, op;
	} due[] = {{LINK_LINE_STAYS, WEIR_WIRE_LINK_STAYS}, /* before our own question */
		   {LINK_LINE_CLOSE, WEIR_WIRE_LINK_CLOSE},
		   {LINK_LINE_CLOSED, WEIR_WIRE_LINK_CLOSED}};

	l->frame_max = FRAME_LINES + CONTROL_LINES;
	if (l->lines_due & LINK_LINE_CLOSE && !list_empty(&l->conns)) {
		l->lines_due &= (uint8_t)~LINK_LINE_CLOSE;
		stays(e, l);
	}
	if (l->lines_due & LINK_LINE_RING) /* never after the last line */
		link_ring_put(e, l, LINK_LINE_RING);
	for (unsigned i = 0; i < sizeof(due) / sizeof(due[0]) && l->lines_due; i++) {
		struct weir_slot *s;

		if (!(l->lines_due & due[i].line))
			continue;
		if (link_room(e, l, 1) != ROOM)
			break;
		s = link_put_line(l);
		memset(s, 0, sizeof(*s));
		head_store(s, 0, (struct head){.op = due[i].op});
		l->lines_due &= (uint8_t)~due[i].line;
		if (due[i].line != LINK_LINE_STAYS)
			l->last_wr = PROOF_DUE;
	}
	if (l->lines_due & LINK_LINE_LEFT)
		link_ring_put(e, l, LINK_LINE_LEFT);
	l->frame_max = FRAME_LINES;
}

bool
link_line_receive(struct engine *e, struct peer_link *l, const struct weir_slot *s)
{
	bool asked = l->end == LINK_ASKED && !(l->lines_due & LINK_LINE_CLOSE);

	switch (s->op) {
	case WEIR_WIRE_LINK_RING:
	case WEIR_WIRE_LINK_LEFT:
		return link_ring_receive(e, l, s);
	case WEIR_WIRE_LINK_CLOSE:
		if (l->end >= LINK_AGREED || l->lines_due & LINK_LINE_STAYS)
			return false;
		if (!list_empty(&l->conns)) {
			line_due(e, l, LINK_LINE_STAYS);
		} else if (l->end == LINK_ASKED) { /* both at once: no answer is due */
			enter(e, l, LINK_AGREED);
			/* our LINK_CLOSE may have been acknowledged before the peer's came */
			if (!l->lines_due && l->last_wr != PROOF_DUE &&
			    l->sq_done[RING] >= l->last_wr)
				link_over(e, l);
		} else {
			enter(e, l, LINK_AGREED);
			line_due(e, l, LINK_LINE_CLOSED);
		}
		return true;
	case WEIR_WIRE_LINK_CLOSED:
		if (!asked || !list_empty(&l->conns))
			return false;
		/* it answers our line, which has arrived therefore */
		enter(e, l, LINK_AGREED);
		link_over(e, l);
		return true;
	default:
		weir_assert(s->op == WEIR_WIRE_LINK_STAYS);
		if (!asked)
			return false;
		stays(e, l);
		return true;
	}
}
