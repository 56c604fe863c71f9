/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers between layouts. They are cut into contiguous pieces, which are operations like any
 * other, and into cells that describe many small pieces of the export (ipc/pieces.h). Layouts are
 * walked in place; small pieces of the program's memory are gathered into cells, and answers are
 * scattered when they are taken (result.c). A notice comes last.
 */
#include "operation.h"

#include "client/reason.h"
#include "ipc/apply.h"

/* A transfer, and its piece at hand. */
struct steps {
	struct todo d;
	uint64_t left;	 /* bytes behind that piece */
	uint64_t offset; /* of the transfer in the export */
	uint32_t most;	 /* bytes of a cell without a layout */
	uint32_t packed; /* bytes of payload per unit */
	bool notify;	 /* `notice` is to be sent */
	uint8_t *mapped; /* the export, here; NULL: it is not mapped */
	/* memory of the program, which `here` is relative to: what is put, operands; what is got,
	 * results; NULL: none */
	const uint8_t *from;
	uint8_t *to;
	struct weir_layout_walk here, there;
	struct weir_layout_walk scatter; /* `here`, where the piece at hand begins */
	struct weir_cell_notice notice;
	uint8_t payload[WEIR_PUT_MAX];
};

static bool
is_contiguous(const struct weir_layout_walk *w)
{
	return w->l.block && !w->l.dims;
}

/* ---- mapped ---- */

static void
copy_mapped(struct steps *s)
{
	uint64_t n;

	if (!is_contiguous(&s->here) && !is_contiguous(&s->there)) {
		for (; s->left; s->left -= n) {
			int64_t here, there;

			n = weir_layout_rest(&s->here, &here);
			n = weir_layout_next(&s->there, n, &there);
			s->here.taken += n;
			there += (int64_t)s->offset;
			if (s->from)
				weir_store_whole(s->mapped + there, s->from + here, n);
			else
				weir_load_whole(s->to + here, s->mapped + there, n);
		}
	} else if (s->from && is_contiguous(&s->here)) {
		weir_layout_store(&s->there, s->mapped, s->offset, s->from, s->left);
	} else if (s->from) {
		weir_layout_load(&s->here, s->from, 0, s->mapped + s->offset, s->left);
	} else if (is_contiguous(&s->here)) {
		weir_layout_load(&s->there, s->mapped, s->offset, s->to, s->left);
	} else {
		weir_layout_store(&s->here, s->to, 0, s->mapped + s->offset, s->left);
	}
	s->left = 0;
}

static void
update_mapped(struct steps *s)
{
	const struct weir_cell_access *a = &s->d.cell;
	uint64_t done = 0, n;
	int64_t at;
	int rc;

	for (; done < s->left; done += n) {
		n = weir_layout_next(&s->there, UINT64_MAX, &at);
		at += (int64_t)s->offset;
		rc = weir_apply((enum weir_type)a->type, (enum weir_acc)a->acc, s->mapped + at,
				s->from ? s->from + done : NULL, s->to ? s->to + done : NULL,
				n / s->d.unit);
		weir_assert(!rc && n);
	}
}

/* ---- cells ---- */

/* Bytes of an answer whose pieces can be noted. */
static uint64_t
scatter_most(const struct steps *s)
{
	const struct weir_layout_walk *w = &s->here;
	uint64_t n = 0;

	if (!s->to || w->l.block)
		return UINT64_MAX;
	for (size_t i = w->piece; i < w->l.count && i < w->piece + WEIR_SCATTER_LIST; i++)
		n += w->l.list[i].length;
	return n - w->taken;
}

/* Takes n bytes of the program's memory; `copy`: gets those that are sent; NULL: they are one
 * piece. */
static void
take_here(struct steps *s, uint64_t n, uint8_t *copy)
{
	int64_t at;
	bool whole = weir_layout_rest(&s->here, &at) >= n;

	if (s->to)
		s->d.to = whole ? s->to + at : s->to;
	if (s->to && !whole) {
		s->scatter = s->here;
		s->d.scatter = &s->scatter;
	}
	if (s->from && copy) {
		weir_layout_load(&s->here, s->from, 0, copy, n);
		return;
	}
	if (s->from)
		s->d.from = s->from + at;
	weir_layout_skip(&s->here, n);
}

/* Bytes of the next pieces, by their block, at most `room` with their layout and what is sent. */
static uint64_t
describe_block(struct steps *s, uint64_t most, uint32_t room)
{
	const struct weir_layout *l = &s->there.l;
	uint64_t n;

	room -= weir_described(l->dims);
	if (s->packed && room < most)
		most = room;
	n = (most < s->left ? most : s->left) / l->block;
	if (n > WEIR_CELL_PIECES_MAX)
		n = WEIR_CELL_PIECES_MAX;
	if (s->there.taken || !n)
		return 0;
	s->d.described = weir_pieces_put(s->payload, l, weir_layout_before(&s->there));
	weir_layout_skip(&s->there, n * l->block);
	return n * l->block;
}

/* The same, by a list. */
static uint64_t
describe_list(struct steps *s, uint64_t most, uint32_t room)
{
	uint64_t n = 0, rest;
	struct weir_piece p;
	uint32_t pieces = 0;

	while (pieces < WEIR_CELL_LIST_MAX) {
		rest = weir_layout_rest(&s->there, &p.offset);
		if (!rest || n + rest > most ||
		    weir_described(pieces + 1) + (s->packed ? n + rest : 0) > room)
			break;
		p.length = rest;
		memcpy(s->payload + weir_described(pieces++), &p, sizeof(p));
		s->there.taken += rest;
		n += rest;
	}
	if (pieces)
		s->d.described = weir_list_put(s->payload, pieces);
	return n;
}

/* A cell that describes many pieces. False: contiguous bytes come next. */
static bool
next_described(struct steps *s, uint64_t rest)
{
	uint32_t room = s->d.op == WEIR_OP_PUT ? WEIR_PUT_MAX : WEIR_ACCESS_MAX;
	uint64_t most = scatter_most(s), n;

	if (is_contiguous(&s->there) || rest == s->left || 2 * rest > s->most)
		return false;
	if (most > s->most)
		most = s->most;
	n = s->there.l.block ? describe_block(s, most, room) : describe_list(s, most, room);
	if (!n)
		return false;
	s->d.cell.offset = s->offset;
	s->d.cell.options |= WEIR_ACCESS_LAYOUT;
	take_here(s, n, s->payload + s->d.described);
	s->d.from = s->payload;
	s->d.left = n / s->d.unit;
	s->d.most = (uint32_t)s->d.left;
	return true;
}

static void
next_contiguous(struct steps *s, uint64_t rest, int64_t at)
{
	int64_t unused;
	uint64_t here = weir_layout_rest(&s->here, &unused), n = rest, most;
	bool gather = here < n && 2 * here <= s->most;

	if (!gather && here < n)
		n = here;
	if (gather) {
		most = scatter_most(s);
		most = most < s->most ? most : s->most;
		n = n < most ? n : most;
	}
	s->d.cell.offset = s->offset + (uint64_t)at;
	take_here(s, n, gather ? s->payload : NULL);
	if (gather && s->from)
		s->d.from = s->payload;
	s->there.taken += n;
	s->d.left = n / s->d.unit;
}

static bool
next(struct todo *d)
{
	struct steps *s = (struct steps *)(void *)d; /* its first member */
	uint64_t rest;
	int64_t at;

	if (s->mapped && s->left)
		copy_mapped(s);
	if (!s->left && !s->notify)
		return false;
	if (!s->left) {
		s->notify = false;
		*d = (struct todo){.op = WEIR_OP_NOTICE,
				   .notice = &s->notice,
				   .left = 1,
				   .unit = 1,
				   .most = 1,
				   .flags = d->flags,
				   .next = d->next};
		return true;
	}
	d->scatter = NULL;
	d->from = NULL;
	d->described = 0;
	d->cell.options &= (uint16_t)~WEIR_ACCESS_LAYOUT;
	d->packed = s->packed;
	d->most = s->most / d->unit;
	rest = weir_layout_rest(&s->there, &at);
	if (!next_described(s, rest))
		next_contiguous(s, rest, at);
	s->left -= d->left * d->unit;
	return true;
}

uint64_t
weir_transfer_slots(const struct todo *d, uint64_t most, uint64_t *answers)
{
	struct steps s = *(const struct steps *)(const void *)d;
	uint64_t slots = 0;

	*answers = 0;
	if (s.mapped)
		s.left = 0;
	while (slots <= most && next(&s.d)) {
		slots += weir_todo_slots(&s.d);
		*answers += s.d.to ? (s.d.left + s.d.most - 1) / s.d.most : 0;
	}
	return slots;
}

bool
weir_transfer_delivers(const struct todo *d)
{
	const struct steps *s = (const struct steps *)(const void *)d;

	return s->notify && s->notice.options & WEIR_NOTICE_DELIVER;
}

/* ---- calls ---- */

/* The layout of an end, or that of contiguous bytes. -EINVAL: it is invalid. */
static int
end_of(const struct weir_layout *given, uint64_t length, struct weir_layout *l, uint64_t *bytes)
{
	*l = given ? *given : (struct weir_layout){.block = length};
	*bytes = given ? weir_layout_bytes(given) : length;
	if (*bytes == UINT64_MAX || *bytes > INT64_MAX)
		return weir_fail(-EINVAL, "an invalid layout; see struct weir_layout in "
					  "weir/type.h");
	return 0;
}

/* Whether pieces around `buf` are memory at all. */
static bool
is_memory(const void *buf, const struct weir_layout *l)
{
	uint64_t at = (uintptr_t)buf;
	int64_t first, end;

	weir_layout_bounds(l, &first, &end);
	if (first < 0 && at < 0 - (uint64_t)first)
		return false;
	return buf && (end <= 0 || (uint64_t)end <= UINTPTR_MAX - at);
}

static int
check_within(const struct weir_layout *there, uint64_t offset, uint64_t bytes, uint64_t whole)
{
	if (weir_likely(bytes ? weir_layout_fits(there, offset, whole) : offset <= whole))
		return 0;
	return weir_fail(
	    -ERANGE, "%llu bytes with a layout at %llu are not within the export of %llu",
	    (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)whole);
}

static int
check_notice(const struct weir_transfer *t)
{
	if (t->notify & ~(WEIR_WITH_NOTICE | WEIR_WITH_SIGNAL_SET | WEIR_WITH_SIGNAL_ADD) ||
	    (t->notify & WEIR_WITH_SIGNAL_SET && t->notify & WEIR_WITH_SIGNAL_ADD))
		return weir_fail(-EINVAL, "unknown `notify` 0x%x; see WEIR_WITH_* in weir/remote.h",
				 t->notify);
	if (t->notify & WEIR_NOTICE_SIGNALS && t->signal % sizeof(uint64_t))
		return weir_fail(-EINVAL, "invalid signal offset %llu (expected a multiple of 8)",
				 (unsigned long long)t->signal);
	return 0;
}

static struct weir_cell_notice
notice_of(const struct weir_transfer *t, uint64_t bytes)
{
	struct weir_cell_notice n = {.handle = WEIR_HANDLE_FIRST, .options = t->notify};

	static_assert(WEIR_WITH_NOTICE == WEIR_NOTICE_DELIVER &&
			  WEIR_WITH_SIGNAL_SET == WEIR_NOTICE_SET &&
			  WEIR_WITH_SIGNAL_ADD == WEIR_NOTICE_ADD,
		      "options of the cell");
	if (t->notify & WEIR_WITH_NOTICE) {
		n.tag = t->tag;
		n.source = t->source;
		n.bytes = bytes;
	}
	if (t->notify & WEIR_NOTICE_SIGNALS) {
		n.signal = t->signal;
		n.operand = t->operand;
	}
	return n;
}

/* Where the transfer goes: mapped memory, a connection, or with a notice both. */
static int
reach(struct weir_remote *r, struct steps *s, unsigned flags, struct weir_conn **c, uint64_t *whole)
{
	bool direct = r->direct.at && !weir_todo_is_wide(&s->d);
	int rc = 0;

	*c = NULL;
	if (direct) {
		s->mapped = weir_mapped_at(r, 0, 0);
		rc = s->mapped ? 0 : weir_mapped_refused(r, 0, 0);
		*whole = r->direct.bytes;
	}
	if (!rc && (!direct || s->notify))
		rc = weir_operation_conn(r, flags, c, whole);
	return rc;
}

/* A put or get, as s says. */
static int
transfer(struct weir_remote *r, const struct weir_transfer *t, struct steps *s)
{
	bool put = s->d.op == WEIR_OP_PUT;
	uint32_t rights = put ? WEIR_MAY_WRITE : WEIR_MAY_READ;
	struct weir_layout here, there;
	uint64_t bytes, others, whole = 0;
	struct weir_conn *c;
	int rc;

	if (t->op)
		*t->op = (struct weir_op){0};
	rc = weir_operation_check(r, rights | (t->notify ? WEIR_MAY_NOTIFY : 0), t->flags);
	if (!rc)
		rc = check_notice(t);
	if (!rc)
		rc = end_of(t->here, t->length, &here, &bytes);
	if (!rc)
		rc = end_of(t->there, t->length, &there, &others);
	if (rc)
		return rc;
	if (bytes != others || (t->length && t->length != bytes))
		return weir_fail(-EINVAL,
				 "%llu bytes here, %llu there; let both ends be as long, or leave "
				 "`length` out",
				 (unsigned long long)bytes, (unsigned long long)others);
	if (bytes && !is_memory(t->buf, &here))
		return weir_fail(-EINVAL, "no memory for the bytes; see weir/remote.h");
	s->offset = t->offset;
	s->left = bytes;
	s->notify = t->notify;
	s->notice = notice_of(t, bytes);
	rc = reach(r, s, t->flags, &c, &whole);
	if (!rc)
		rc = check_within(&there, t->offset, bytes, whole);
	if (!rc && t->notify & WEIR_NOTICE_SIGNALS)
		rc = weir_remote_range(whole, t->signal, sizeof(uint64_t));
	if (rc)
		return rc;
	weir_layout_start(&s->here, &here);
	weir_layout_start(&s->there, &there);
	if (c)
		rc = weir_operation_run(c, &s->d, t->flags);
	else if (bytes)
		copy_mapped(s);
	/* bytes that were copied here have ended, except for their notice */
	if (!rc)
		weir_op_begun(t->op, t->flags & (WEIR_AT_TARGET | WEIR_KEEP) || (!put && !s->mapped)
					 ? c
					 : NULL);
	return rc;
}

int
weir_remote_put_with(struct weir_remote *r, const struct weir_transfer *t)
{
	struct steps s = {
	    .d = {.op = WEIR_OP_PUT, .unit = 1, .next = next}, .most = WEIR_PUT_MAX, .packed = 1};

	if (!t)
		return weir_fail(-EINVAL, "no transfer; see weir/remote.h");
	s.from = t->buf;
	return transfer(r, t, &s);
}

int
weir_remote_get_with(struct weir_remote *r, const struct weir_transfer *t)
{
	struct steps s = {.d = {.op = WEIR_OP_GET,
				.cell = {.handle = WEIR_HANDLE_FIRST},
				.unit = 1,
				.next = next},
			  .most = WEIR_ANSWER_MAX};

	if (!t)
		return weir_fail(-EINVAL, "no transfer; see weir/remote.h");
	s.to = t->buf;
	return transfer(r, t, &s);
}

int
weir_update_pieces(struct weir_remote *r, const struct weir_update *u, const struct todo *d)
{
	struct steps s = {.d = *d,
			  .offset = u->offset,
			  .most = d->most * d->unit,
			  .packed = d->packed,
			  .from = d->from,
			  .to = d->to};
	struct weir_layout here, there;
	uint64_t bytes, whole = 0;
	struct weir_conn *c;
	int rc = end_of(u->there, 0, &there, &bytes);

	if (rc)
		return rc;
	if (bytes % d->unit || bytes / d->unit != u->count ||
	    !weir_pieces_aligned(&there, d->unit, weir_type_align((enum weir_type)u->type)))
		return weir_fail(
		    -EINVAL, "%llu bytes there are not %llu aligned elements; correct the layout",
		    (unsigned long long)bytes, (unsigned long long)u->count);
	rc = reach(r, &s, u->flags, &c, &whole);
	if (!rc)
		rc = check_within(&there, u->offset, bytes, whole);
	if (rc || !bytes)
		return rc;
	s.left = bytes;
	s.d.left = 0;
	s.d.next = next;
	here = (struct weir_layout){.block = bytes};
	weir_layout_start(&s.here, &here);
	weir_layout_start(&s.there, &there);
	if (c)
		rc = weir_operation_run(c, &s.d, u->flags);
	else
		update_mapped(&s);
	if (!rc && c && r->direct.at)
		rc = weir_operation_await(c, c->sent, -1);
	if (!rc)
		weir_op_begun(u->handle,
			      u->flags & (WEIR_AT_TARGET | WEIR_KEEP) || u->result ? c : NULL);
	return rc;
}
