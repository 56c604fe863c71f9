/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations: those of remote memory, within an epoch and within a part. */
#include "notice.h"

#include "client/reason.h"
#include "ipc/apply.h"
#include "ipc/layout.h"

#include <errno.h>

/* As window_target_slow(). */
static inline int
target(struct weir_window *win, uint32_t rank, struct window_member **m)
{
	*m = window_member_ready(win, rank);
	return weir_likely(*m) ? 0 : window_target_slow(win, rank, m);
}

static __attribute__((cold, noinline)) int
outside(const struct window_member *m, uint64_t disp, uint64_t length)
{
	return weir_fail(-ERANGE,
			 "%llu bytes at displacement %llu are not within the %llu of member %u",
			 (unsigned long long)length, (unsigned long long)disp,
			 (unsigned long long)m->bytes, m->rank);
}

/* Where it is in the member's memory. 0 or -ERANGE. */
static inline int
place(const struct weir_window *win, const struct window_member *m, uint64_t disp, uint64_t length,
      uint64_t *offset)
{
	uint64_t at;

	if (__builtin_mul_overflow(disp, win->args.disp_unit, &at) || at > m->bytes ||
	    length > m->bytes - at)
		return outside(m, disp, length);
	*offset = m->offset + at;
	return 0;
}

/* The same of a layout there, or of `length` bytes; an invalid layout is refused later. */
static int
place_pieces(const struct weir_window *win, const struct window_member *m, uint64_t disp,
	     uint64_t length, const struct weir_layout *there, uint64_t *offset)
{
	uint64_t bytes = there ? weir_layout_bytes(there) : length;
	int rc = place(win, m, disp, there ? 0 : length, offset);

	if (!rc && there && bytes != UINT64_MAX &&
	    !weir_layout_fits(there, *offset - m->offset, m->bytes))
		return outside(m, disp, bytes);
	return rc;
}

static int
no_window(void)
{
	return weir_fail(-EINVAL, "no window, or nothing to do; see weir/window.h");
}

/* The member of an operation, and where its bytes are; NULL: WEIR_RANK_NULL. 0 or -errno. */
static inline int
reach(struct weir_window *win, uint32_t rank, uint64_t disp, uint64_t length,
      struct window_member **m, uint64_t *offset)
{
	int rc = win ? target(win, rank, m) : no_window();

	return rc || !*m ? rc : place(win, *m, disp, length, offset);
}

/* Out of line, so that the calls below save no registers for it. */
static __attribute__((noinline)) int
put_any(struct weir_window *win, uint32_t rank, uint64_t disp, const void *buf, size_t length,
	unsigned flags)
{
	struct window_member *m = NULL;
	uint64_t offset = 0;
	int rc = reach(win, rank, disp, length, &m, &offset);

	if (rc || !m)
		return rc;
	rc = weir_remote_put(m->memory, offset, buf, length, flags);
	return rc ? window_note(win, rank, rc) : 0;
}

static __attribute__((noinline)) int
get_any(struct weir_window *win, uint32_t rank, uint64_t disp, void *buf, size_t length,
	unsigned flags)
{
	struct window_member *m = NULL;
	uint64_t offset = 0;
	int rc = reach(win, rank, disp, length, &m, &offset);

	if (rc || !m)
		return rc;
	rc = weir_remote_get(m->memory, offset, buf, length, flags);
	return rc ? window_note(win, rank, rc) : 0;
}

/*
 * Where these bytes are, if the caller itself may access `most` of the ready member's part; NULL:
 * not so, or there are none.
 */
static inline uint8_t *
direct(const struct weir_window *win, const struct window_member *m, uint64_t most, uint64_t disp,
       uint64_t length)
{
	uint64_t at = disp * win->args.disp_unit; /* below 2^63 if disp is within the part */

	if (weir_unlikely(disp >= most || at >= most || length - 1 >= most - at ||
			  !weir_direct_open(&m->direct)))
		return NULL;
	return m->direct.at + at;
}

int
weir_window_put(struct weir_window *win, uint32_t rank, uint64_t disp, const void *buf,
		size_t length, unsigned flags)
{
	const struct window_member *m = win ? window_member_ready(win, rank) : NULL;
	uint8_t *at = m ? direct(win, m, m->may_put, disp, length) : NULL;

	if (weir_unlikely(!at || !buf || flags & ~WEIR_NOWAIT))
		return put_any(win, rank, disp, buf, length, flags);
	weir_store_whole(at, buf, length);
	return 0;
}

int
weir_window_get(struct weir_window *win, uint32_t rank, uint64_t disp, void *buf, size_t length,
		unsigned flags)
{
	const struct window_member *m = win ? window_member_ready(win, rank) : NULL;
	const uint8_t *at = m ? direct(win, m, m->may_get, disp, length) : NULL;

	if (weir_unlikely(!at || !buf || flags & ~WEIR_NOWAIT))
		return get_any(win, rank, disp, buf, length, flags);
	weir_load_whole(buf, at, length);
	return 0;
}

/* The caller updates the part in its turn. If the part has ended, the operation says how. */
static inline bool
takes_turn(const struct window_member *m)
{
	return m->turn && weir_direct_open(&m->direct);
}

/* Begins a transfer with a signal, which an engine adds or sets: the turn lasts until it has. */
static int
signal_in_turn(struct weir_window *win, struct window_member *m, const struct weir_transfer *t,
	       int (*begin)(struct weir_remote *r, const struct weir_transfer *t))
{
	int rc = window_turn_take(win, m, 0);

	if (rc)
		return rc;
	rc = begin(m->memory, t);
	if (!rc)
		rc = weir_remote_flush_uninterrupted(m->memory);
	window_turn_leave(win, m);
	return rc;
}

static int
transfer(struct weir_window *win, uint32_t rank, const struct weir_transfer *t,
	 int (*begin)(struct weir_remote *r, const struct weir_transfer *t))
{
	struct weir_transfer placed;
	struct window_member *m;
	bool notice, turn, beside = false;
	int rc;

	if (!win || !t)
		return no_window();
	if (t->op)
		*t->op = (struct weir_op){0};
	rc = target(win, rank, &m);
	if (rc || !m)
		return rc;
	placed = *t;
	placed.source = weir_group_rank(win->g);
	rc = place_pieces(win, m, t->offset, t->length, t->there, &placed.offset);
	if (!rc && t->notify && !(win->args.rights & WEIR_MAY_NOTIFY))
		rc = weir_fail(-EACCES, "the window was made without WEIR_MAY_NOTIFY");
	if (!rc && t->notify & WEIR_WITH_NOTICE && t->tag == WEIR_TAG_ANY)
		rc = weir_fail(-EINVAL, "the tag stands for any; give another one");
	if (!rc && t->notify & (WEIR_WITH_SIGNAL_SET | WEIR_WITH_SIGNAL_ADD))
		rc = win->args.kind == WEIR_WINDOW_SHARED
			 ? weir_fail(-EINVAL, "shared windows have no signals: members load and "
					      "store")
			 : place(win, m, t->signal, sizeof(t->operand), &placed.signal);
	turn = t->notify & (WEIR_WITH_SIGNAL_SET | WEIR_WITH_SIGNAL_ADD) && takes_turn(m);
	/* alone behind operations of several handles, and behind a turn, since it may wait */
	notice = t->notify & WEIR_WITH_NOTICE &&
		 (m->locks != m->memory || m->updates != m->memory || turn);
	/* by the ring, unless the notice must not wait for the bytes */
	if (t->notify & WEIR_WITH_NOTICE && m->ring && !notice) {
		notice = !(t->flags & WEIR_NOWAIT);
		beside = !notice;
	}
	if (notice)
		placed.notify &= ~WEIR_WITH_NOTICE;
	if (!rc && (notice || turn) && t->flags & WEIR_NOWAIT)
		rc = weir_fail(-EMSGSIZE, "here a notice waits for the bytes, and a signal for "
					  "updates; ask without WEIR_NOWAIT");
	if (!rc && beside)
		window_notice_by_engine(m, true);
	if (!rc) {
		rc = turn ? signal_in_turn(win, m, &placed, begin) : begin(m->memory, &placed);
		if (rc && beside)
			window_notice_by_engine(m, false);
	}
	if (!rc && notice)
		rc = window_notice_send(win, m, MATCH_TAG, t->tag,
					t->there ? weir_layout_bytes(t->there) : t->length, 0);
	return rc ? window_note(win, rank, rc) : 0;
}

int
weir_window_put_with(struct weir_window *win, uint32_t rank, const struct weir_transfer *t)
{
	struct window_member *m = win && t ? window_member_ready(win, rank) : NULL;
	uint8_t *at = m ? direct(win, m, m->may_put, t->offset, t->length) : NULL;

	/* bytes in one piece with a notice by the ring */
	if (weir_likely(at && m->ring && m->flush_direct && t->notify == WEIR_WITH_NOTICE &&
			t->tag != WEIR_TAG_ANY && win->args.rights & WEIR_MAY_NOTIFY && t->buf &&
			!t->here && !t->there && !t->op && !t->flags))
		return window_notice_put(win, m, t->tag, at, t->buf, t->length);
	return transfer(win, rank, t, weir_remote_put_with);
}

int
weir_window_get_with(struct weir_window *win, uint32_t rank, const struct weir_transfer *t)
{
	return transfer(win, rank, t, weir_remote_get_with);
}

/* ---- updates ---- */

static int
update_in_turn(struct weir_window *win, struct window_member *m, const struct weir_update *u)
{
	int rc = window_turn_take(win, m, u->flags);

	if (rc)
		return rc;
	rc = weir_remote_update_alone(m->memory, u);
	window_turn_leave(win, m);
	return rc;
}

int
weir_window_update_with(struct weir_window *win, uint32_t rank, const struct weir_update *u)
{
	struct weir_update placed;
	struct window_member *m;
	uint64_t bytes;
	int rc;

	if (!win || !u)
		return no_window();
	if (u->handle)
		*u->handle = (struct weir_op){0};
	rc = target(win, rank, &m);
	if (rc || !m)
		return rc;
	if (__builtin_mul_overflow(u->count, weir_type_size((enum weir_type)u->type), &bytes))
		bytes = UINT64_MAX;
	placed = *u;
	rc = u->there ? place_pieces(win, m, u->offset, bytes, u->there, &placed.offset)
		      : place(win, m, u->offset, bytes, &placed.offset);
	if (!rc && takes_turn(m) && !weir_type_is_wide((enum weir_type)u->type))
		rc = update_in_turn(win, m, &placed);
	else if (!rc)
		rc = weir_remote_update(m->updates, &placed);
	return rc ? window_note(win, rank, rc) : 0;
}

/* Out of line, as put_any(). */
static __attribute__((noinline)) int
update_any(struct weir_window *win, uint32_t rank, uint64_t disp, const void *operand, void *result,
	   uint64_t count, enum weir_type type, enum weir_acc op, unsigned flags)
{
	const struct weir_update u = {.offset = disp,
				      .operand = operand,
				      .result = result,
				      .count = count,
				      .type = type,
				      .op = op,
				      .flags = flags};

	return weir_window_update_with(win, rank, &u);
}

static inline __attribute__((always_inline)) int
update(struct weir_window *win, uint32_t rank, uint64_t disp, const void *operand, void *result,
       uint64_t count, enum weir_type type, enum weir_acc op, unsigned flags)
{
	const struct window_member *m = win ? window_member_ready(win, rank) : NULL;
	uint8_t *at = NULL;

	if (m && (unsigned)type < WEIR_TYPES && !weir_type_is_wide(type) && count <= UINT32_MAX)
		at = direct(win, m, m->may_update, disp, count * weir_type_facts[type].size);
	if (weir_unlikely(!at || (!operand && op != WEIR_ACC_NO_OP) || flags & ~WEIR_NOWAIT ||
			  !weir_applies(type, op, at)))
		return update_any(win, rank, disp, operand, result, count, type, op, flags);
	weir_apply_valid(type, op, at, operand, result, count);
	return 0;
}

/* One 64-bit integer of mapped memory, without what finds elements and operations: 60 instructions
 * less. False: it was not added. */
static inline bool
add64(struct weir_window *win, uint32_t rank, uint64_t disp, const void *operand, void *result,
      enum weir_type type, enum weir_acc op, unsigned flags)
{
	const struct window_member *m;
	uint8_t *at;

	if (op != WEIR_ACC_SUM || (type != WEIR_T_INT64 && type != WEIR_T_UINT64) || !win ||
	    !operand || flags & ~WEIR_NOWAIT)
		return false;
	m = window_member_ready(win, rank);
	at = m ? direct(win, m, m->may_update, disp, sizeof(uint64_t)) : NULL;
	if (!at || (uintptr_t)at % sizeof(uint64_t))
		return false;
	weir_apply_add64(at, operand, result);
	return true;
}

int
weir_window_accumulate(struct weir_window *win, uint32_t rank, uint64_t disp, const void *operand,
		       uint64_t count, enum weir_type type, enum weir_acc op, unsigned flags)
{
	if (weir_likely(count == 1 && add64(win, rank, disp, operand, NULL, type, op, flags)))
		return 0;
	return update(win, rank, disp, operand, NULL, count, type, op, flags);
}

static int
no_result(void)
{
	return weir_fail(-EINVAL, "no memory for the values; see weir/window.h");
}

int
weir_window_get_accumulate(struct weir_window *win, uint32_t rank, uint64_t disp,
			   const void *operand, void *result, uint64_t count, enum weir_type type,
			   enum weir_acc op, unsigned flags)
{
	if (weir_unlikely(!result && count))
		return no_result();
	return update(win, rank, disp, operand, result, count, type, op, flags);
}

/* Out of line, as put_any(), and with the arguments of the call, which jumps to it. */
static __attribute__((noinline)) int
fetch_op_any(struct weir_window *win, uint32_t rank, uint64_t disp, const void *operand,
	     void *result, enum weir_type type, enum weir_acc op, unsigned flags)
{
	if (weir_unlikely(!result))
		return no_result();
	return update(win, rank, disp, operand, result, 1, type, op, flags);
}

int
weir_window_fetch_op(struct weir_window *win, uint32_t rank, uint64_t disp, const void *operand,
		     void *result, enum weir_type type, enum weir_acc op, unsigned flags)
{
	if (weir_likely(result && add64(win, rank, disp, operand, result, type, op, flags)))
		return 0;
	return fetch_op_any(win, rank, disp, operand, result, type, op, flags);
}

static __attribute__((noinline)) int
compare_swap_any(struct weir_window *win, uint32_t rank, uint64_t disp, const void *compare,
		 const void *operand, void *result, enum weir_type type, unsigned flags)
{
	struct window_member *m = NULL;
	uint64_t offset = 0;
	int rc = reach(win, rank, disp, weir_type_size(type), &m, &offset);
	bool turn;

	if (rc || !m)
		return rc;
	turn = takes_turn(m);
	if (turn)
		rc = window_turn_take(win, m, flags);
	if (rc)
		return rc;
	rc = weir_remote_compare_swap(m->updates, offset, compare, operand, result, type, flags);
	if (turn)
		window_turn_leave(win, m);
	return rc ? window_note(win, rank, rc) : 0;
}

int
weir_window_compare_swap(struct weir_window *win, uint32_t rank, uint64_t disp, const void *compare,
			 const void *operand, void *result, enum weir_type type, unsigned flags)
{
	const struct window_member *m = win ? window_member_ready(win, rank) : NULL;
	uint8_t *at = NULL;

	if (m && weir_type_swaps(type))
		at = direct(win, m, m->may_update, disp, weir_type_facts[type].size);
	if (weir_unlikely(!at || !compare || !operand || !result || flags & ~WEIR_NOWAIT ||
			  !weir_applies(type, WEIR_ACC_REPLACE, at)))
		return compare_swap_any(win, rank, disp, compare, operand, result, type, flags);
	return weir_apply_compare_swap(type, at, compare, operand, result);
}
