/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers to operations that read remote memory. The engine that asks takes the answer's lines out
 * of the link's credit before the operation leaves; the engine that answers has room for as many.
 * So every operation that arrives is taken out of the ring at once, and no connection waits for
 * another. Credit returns with the answer, and with the peer's last line of the connection: behind
 * that no answer comes.
 */
#ifndef WEIR_ENGINE_ANSWER_H
#define WEIR_ENGINE_ANSWER_H

#include "conn.h"
#include "link.h"

/* ---- the asking end ---- */

/* Whether an operation of c with this answer, 0: none, may leave; if so, its credit is taken. */
bool answer_pay(struct conn *c, uint32_t answer);
/* Takes the credit for the first operation of c that waits, or has c wait for some. */
void answer_pay_first(struct engine *e, struct conn *c);
/* The same for connections that waited: credit has come back. Once per turn of the link. */
void answers_pay(struct engine *e, struct peer_link *l);
/* Whether answers_pay() has something to do. */
bool answers_payable(const struct peer_link *l);
/* The operation of c with this number, which is paid, is put into the frame; `to`: its head. */
void answer_await(struct conn *c, uint64_t number, struct weir_slot *to, uint32_t answer);
/* Operations of c that wait are dropped: they need no credit. */
void answer_drop_first(struct conn *c);
/* No more answers of the peer come on c: its last line has come, or the link has failed. */
void answers_forget(struct engine *e, struct conn *c);
/* Operations of c before this number are executed, and what they read is there. */
uint64_t answers_complete(const struct conn *c);
/* Whether the last operation of c that has left is answered: that completes it, without credit. */
bool answers_last(const struct conn *c);
/* The number of the first operation of c that is not answered; UINT64_MAX: none. */
uint64_t answers_before(const struct conn *c);
/* The answer to our operation with this number, low bits, has come. */
void answer_came(struct conn *c, uint32_t number);
/*
 * Takes the answers at `pos` that are for one connection, in a frame that ends at `end`. Returns
 * their lines, or -1: the frame is malformed.
 */
int answer_receive(struct engine *e, struct peer_link *l, uint64_t pos, uint64_t end);

/* ---- the answering end ---- */

/* Queues the answer to an operation. False: the peer has asked for more than it was granted. */
bool answer_put(struct engine *e, struct conn *c, const uint8_t *from, uint32_t length);
/* The same of a run of operations: where the next answer, of at most a line, is to be written; the
 * link is busy then. NULL: it has no room, or is longer. */
uint8_t *answer_put_line(struct engine *e, struct conn *c, uint32_t length);
/* Puts answers that wait into the open frame, as far as it has room. */
void answers_send(struct engine *e, struct peer_link *l);
/* Whether the last line of c must wait: answers of it are before. */
bool answers_wait(const struct conn *c);

static inline bool
answers_waiting(const struct peer_link *l)
{
	return l->answers_first != l->answers_end;
}

/* For tests: bytes of credit that c has taken. */
uint64_t answer_credit_of(const struct conn *c);

#endif
