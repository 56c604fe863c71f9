/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers to operations that read remote memory, and the credit of links for them. */
#include "answer.h"
#include "batch.h"
#include "ctrl_line.h"
#include "deliver.h"
#include "link.h"
#include "region.h"
#include "send_queue.h"
#include "slot_head.h"
#include "state.h"

/* ---- the asking end: credit ---- */

static uint32_t
answer_cost(uint32_t answer)
{
	return weir_answer_lines(answer) * WEIR_SLOT_SIZE;
}

static bool
may_pay(const struct peer_link *l, uint32_t cost)
{
	return l->answer_room >= cost && l->awaited_left;
}

/* Credit of an operation, and an entry for it. */
static void
pay(struct peer_link *l, uint32_t cost)
{
	weir_assert(may_pay(l, cost));
	l->answer_room -= cost;
	l->awaited_left--;
}

static void
pay_back(struct peer_link *l, uint32_t cost)
{
	l->answer_room += cost;
	l->awaited_left++;
}

/* The oldest operation of c that is not answered, or NULL. */
static struct awaited *
oldest(const struct conn *c)
{
	uint16_t first = c->kind == CONN_MEMORY ? c->cold->memory.awaited_first : 0;

	return first && c->link ? &c->link->awaited[first - 1] : NULL;
}

/* It is answered, or never will be. */
static void
drop_oldest(struct conn *c)
{
	struct peer_link *l = c->link;
	struct awaited *a = oldest(c);
	uint16_t i = c->cold->memory.awaited_first;

	c->cold->memory.awaited_first = a->next;
	if (!a->next)
		c->cold->memory.awaited_last = 0;
	pay_back(l, answer_cost(a->length));
	a->next = l->awaited_free;
	l->awaited_free = i;
}

bool
answer_pay(struct conn *c, uint32_t answer)
{
	if (!answer)
		return true;
	/* those that wait come first */
	if (!list_empty(&c->link->lack_answers) || !may_pay(c->link, answer_cost(answer)))
		return false;
	pay(c->link, answer_cost(answer));
	return true;
}

void
answer_pay_first(struct engine *e, struct conn *c)
{
	struct pend *p = c->pend_first;

	if (!p->answer || p->paid || list_linked(&c->cold->memory.lacks_answers))
		return;
	p->paid = answer_pay(c, p->answer);
	if (p->paid)
		return;
	count(&e->counters.answer_stalls, 1);
	c->cold->memory.lacked = answer_cost(p->answer);
	list_append(&c->link->lack_answers, &c->cold->memory.lacks_answers);
}

bool
answers_payable(const struct peer_link *l)
{
	const struct conn_cold *cold;

	if (list_empty(&l->lack_answers))
		return false;
	cold = LIST_OWNER(l->lack_answers.next, const struct conn_cold, memory.lacks_answers);
	return may_pay(l, cold->memory.lacked);
}

void
answers_pay(struct engine *e, struct peer_link *l)
{
	while (answers_payable(l)) {
		struct conn *c = conn_of_cold(
		    e, LIST_OWNER(l->lack_answers.next, struct conn_cold, memory.lacks_answers));

		list_remove(&c->cold->memory.lacks_answers);
		weir_assert(c->pend_first && !c->pend_first->paid);
		pay(l, answer_cost(c->pend_first->answer));
		c->pend_first->paid = true;
		conn_advance(e, c);
	}
}

void
answer_await(struct conn *c, uint64_t number, struct weir_slot *to, uint32_t answer)
{
	struct peer_link *l = c->link;
	struct weir_cell_access cell;
	uint16_t i = l->awaited_free ? l->awaited_free : ++l->awaited_fresh;
	struct awaited *a = &l->awaited[i - 1];

	weir_assert(i <= LINK_AWAITED);
	if (l->awaited_free)
		l->awaited_free = a->next;
	memcpy(&cell, to->data, sizeof(cell));
	*a = (struct awaited){
	    .number = (uint32_t)number, .result = cell.result, .length = (uint16_t)answer};
	if (c->cold->memory.awaited_last)
		l->awaited[c->cold->memory.awaited_last - 1].next = i;
	else
		c->cold->memory.awaited_first = i;
	c->cold->memory.awaited_last = i;
	cell.result = 0; /* the peer need not know */
	memcpy(to->data, &cell, sizeof(cell));
}

void
answer_drop_first(struct conn *c)
{
	if (c->kind != CONN_MEMORY)
		return;
	list_remove(&c->cold->memory.lacks_answers);
	if (c->pend_first && c->pend_first->answer && c->pend_first->paid && c->link)
		pay_back(c->link, answer_cost(c->pend_first->answer));
}

void
answers_forget(struct engine *e, struct conn *c)
{
	if (c->kind != CONN_MEMORY)
		return;
	if (c->cold->memory.lock.awaited || oldest(c)) /* it never completes */
		c->sealed = true;
	c->cold->memory.lock.awaited = false;
	if (!c->link) { /* its entries ended with it */
		c->cold->memory.awaited_first = c->cold->memory.awaited_last = 0;
		return;
	}
	while (oldest(c))
		drop_oldest(c);
	link_busy(e, c->link);
}

/* The number of an operation that is not complete. */
static uint64_t
whole(const struct conn *c, uint32_t number)
{
	return c->completed + (uint32_t)(number - (uint32_t)c->completed);
}

uint64_t
answers_before(const struct conn *c)
{
	const struct conn_lock *lock;
	uint64_t before = UINT64_MAX;

	if (c->kind != CONN_MEMORY)
		return before;
	lock = &c->cold->memory.lock;
	if (oldest(c))
		before = whole(c, oldest(c)->number);
	if (lock->awaited && whole(c, lock->number) < before)
		before = whole(c, lock->number);
	return before;
}

bool
answers_last(const struct conn *c)
{
	uint16_t last = c->cold->memory.awaited_last;

	weir_assert(c->kind == CONN_MEMORY);
	return last && c->link && c->link->awaited[last - 1].number == (uint32_t)(c->sent - 1);
}

void
answer_came(struct conn *c, uint32_t number)
{
	uint64_t to = whole(c, number) + 1;

	if (to > c->cold->memory.answered)
		c->cold->memory.answered = to;
}

uint64_t
answers_complete(const struct conn *c)
{
	uint64_t executed = c->landed, before = answers_before(c);

	if (c->cold->memory.answered > executed) /* its credit is on the way */
		executed = c->cold->memory.answered;
	return before < executed ? before : executed;
}

uint64_t
answer_credit_of(const struct conn *c)
{
	const struct awaited *a = c->state == CONN_OPENING ? NULL : oldest(c);
	uint64_t bytes = 0;

	if (c->kind != CONN_MEMORY || c->state == CONN_OPENING)
		return 0;
	for (; a; a = a->next ? &c->link->awaited[a->next - 1] : NULL)
		bytes += answer_cost(a->length);
	if (c->pend_first && c->pend_first->answer && c->pend_first->paid)
		bytes += answer_cost(c->pend_first->answer);
	return bytes;
}

/* ---- the asking end: answers ---- */

/* Copies an answer out of a frame. */
static void
copy_answer(uint8_t *to, const struct peer_link *l, uint64_t pos, uint32_t length)
{
	uint32_t part = length < WEIR_SLOT_HEAD_BYTES ? length : WEIR_SLOT_HEAD_BYTES;

	memcpy(to, l->rx[pos & l->rx_mask].data, part);
	for (to += part, length -= part; length; to += part, length -= part) {
		part = length < WEIR_SLOT_SIZE ? length : WEIR_SLOT_SIZE;
		memcpy(to, &l->rx[++pos & l->rx_mask], part);
	}
}

int
answer_receive(struct engine *e, struct peer_link *l, uint64_t pos, uint64_t end)
{
	struct head h = head_load(&l->rx[pos & l->rx_mask]), first = h;
	uint32_t answers = 0, last = 0, lines = weir_answer_lines(h.length);
	const struct awaited *a;
	uint64_t at = pos;
	struct conn *c;

	if (h.length > WEIR_ANSWER_MAX || lines > end - pos)
		return -1;
	c = conn_find(e, h.vqpn);
	if (!c || c->link != l || c->state == CONN_OPENING)
		return -1;
	while ((a = oldest(c)) && a->length == h.length && h.order == (uint16_t)c->rx_messages) {
		/* of a program that has closed it, the memory may be in use for something else */
		if (!c->user_closed)
			copy_answer(
			    place_memory(c->session, WEIR_PLACE(0, (uint64_t)a->result * 64)), l,
			    at, h.length);
		c->rx_messages++;
		c->bytes += h.length;
		last = a->number;
		drop_oldest(c);
		answers++;
		at += lines;
		if (at == end)
			break;
		h = head_load(&l->rx[at & l->rx_mask]);
		lines = weir_answer_lines(h.length);
		if (h.op != WEIR_WIRE_ANSWER || h.vqpn != first.vqpn ||
		    h.length > WEIR_ANSWER_MAX || lines > end - at)
			break;
	}
	if (!answers) {
		peer_misbehaved(e, c);
		return (int)lines;
	}
	answer_came(c, last);
	count(&e->counters.answers, answers);
	conn_completed(e, c, 0, false);
	if (!list_empty(&l->lack_answers))
		link_busy(e, l);
	return (int)(at - pos);
}

/* ---- the answering end ---- */

static struct weir_slot *
answer_line(const struct peer_link *l, uint32_t at)
{
	return &l->is.answers[at & (l->is.answer_lines - 1)];
}

bool
answer_put(struct engine *e, struct conn *c, const uint8_t *from, uint32_t length)
{
	uint32_t n = weir_answer_lines(length), part, left = length;
	struct peer_link *l = c->link;
	struct weir_slot *s;

	if (l->answers_end - l->answers_first + n > l->is.answer_lines)
		return false;
	s = answer_line(l, l->answers_end++);
	memset(s, 0, sizeof(*s));
	/* until it leaves, its connection here lies in the place of a sequence number */
	head_store(s, c->vqpn,
		   (struct head){.op = WEIR_WIRE_ANSWER,
				 .order = c->cold->memory.answers++,
				 .vqpn = c->peer_vqpn,
				 .length = length});
	part = left < WEIR_SLOT_HEAD_BYTES ? left : WEIR_SLOT_HEAD_BYTES;
	memcpy(s->data, from, part);
	for (from += part, left -= part; left; from += part, left -= part) {
		s = answer_line(l, l->answers_end++);
		part = left < WEIR_SLOT_SIZE ? left : WEIR_SLOT_SIZE;
		if (part < WEIR_SLOT_SIZE)
			memset(s, 0, sizeof(*s));
		memcpy(s, from, part);
	}
	c->cold->memory.answers_waiting++;
	link_busy(e, l);
	answers_send(e, l);
	return true;
}

uint8_t *
answer_put_line(struct engine *e, struct conn *c, uint32_t length)
{
	struct peer_link *l = c->link;
	struct weir_slot *s;
	uint32_t seq = 0;

	if (length > WEIR_SLOT_HEAD_BYTES)
		return NULL;
	if (!answers_waiting(l) && link_room(e, l, 1) == ROOM) {
		s = link_put_line(l);
	} else {
		if (l->answers_end - l->answers_first == l->is.answer_lines)
			return NULL;
		s = answer_line(l, l->answers_end++);
		c->cold->memory.answers_waiting++;
		seq = c->vqpn;
	}
	memset(s, 0, sizeof(*s));
	head_store(s, seq,
		   (struct head){.op = WEIR_WIRE_ANSWER,
				 .order = c->cold->memory.answers++,
				 .vqpn = c->peer_vqpn,
				 .length = length});
	return s->data;
}

void
answers_send(struct engine *e, struct peer_link *l)
{
	while (answers_waiting(l)) {
		struct head h = head_load(answer_line(l, l->answers_first));
		uint32_t n = weir_answer_lines(h.length);
		struct weir_slot *to;
		struct conn *c;

		if (link_room(e, l, n) != ROOM)
			return;
		to = link_put_line(l);
		memcpy(to, answer_line(l, l->answers_first++), WEIR_SLOT_SIZE);
		c = conn_find(e, atomic_load_explicit(&to->seq, memory_order_relaxed));
		atomic_store_explicit(&to->seq, 0, memory_order_relaxed);
		for (uint32_t i = 1; i < n; i++)
			memcpy(link_put_line(l), answer_line(l, l->answers_first++),
			       WEIR_SLOT_SIZE);
		weir_assert(c && c->link == l && c->cold->memory.answers_waiting);
		if (!--c->cold->memory.answers_waiting && c->ctrl_lines)
			ctrl_line_due(e, c, c->ctrl_lines);
	}
	l->answers_first = l->answers_end = 0; /* few lines stay in use, and in the caches */
}

bool
answers_wait(const struct conn *c)
{
	return c->kind == CONN_MEMORY && c->cold->memory.answers_waiting;
}
