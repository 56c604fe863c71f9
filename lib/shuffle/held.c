/* SPDX-License-Identifier: BSD-3-Clause */
#include "held.h"

#include "format/block.h"

/* Whether the head is of this shuffle, and of the thread that has sent it. */
static int
check(const struct shuffle_thread *t, const struct weir_incoming *c, const struct block_head *h,
      const void *stored, size_t length)
{
	const struct weir_shuffle *s = t->s;
	bool stage = s->o.kind == WEIR_SHUFFLE_STAGE;

	if (h->shuffle != s->word || h->producer != producer_word(weir_incoming_from(c)) ||
	    (stage ? h->map >= s->o.maps || h->attempt >= WEIR_SHUFFLE_ATTEMPTS_MAX
		   : h->map || h->attempt || h->epoch))
		return -EBADMSG;
	/* nobody hears of an epoch before process 0 */
	if (!s->self && h->epoch > atomic_load_explicit(&s->epoch, memory_order_relaxed))
		return -EBADMSG;
	return block_check(h, stored, length);
}

/* The bytes behind the head, in memory of the account. */
static int
copy(struct held *b, const uint8_t *stored)
{
	b->bytes = memory_round(b->head.raw);
	b->charged = b->bytes;
	b->memory = memory_buffer(b->t->s, b->bytes);
	if (!b->memory)
		return -ENOMEM;
	memory_force(b->t, b->charged);
	b->raw = b->memory;
	if (b->head.codec)
		return codec_unpack(&b->t->codec, b->head.codec, stored, b->head.stored, b->memory,
				    b->head.raw);
	memcpy(b->memory, stored, b->head.raw);
	return 0;
}

/* Whether a block stays where it arrived: that is memory of the session, which others need, too. A
 * block that is larger than others would break the bound as a copy. */
static bool
stays(const struct shuffle_thread *t, size_t length)
{
	uint64_t lent = atomic_load_explicit(&t->lent, memory_order_relaxed);

	return t->s->o.kind == WEIR_SHUFFLE_STREAM && length > WEIR_BATCH_MAX &&
	       (length > t->s->o.block || lent + length <= t->s->memory.lent_max);
}

struct held *
held_take(struct shuffle_thread *t, struct weir_incoming *c, uint32_t local)
{
	size_t length;
	const uint8_t *payload = weir_incoming_payload(c, &length);
	struct held *b = calloc(1, sizeof(*b));
	int rc = b ? -EBADMSG : -ENOMEM;

	if (!b || !payload || length <= sizeof(b->head))
		goto refuse;
	b->t = t;
	b->side = MEMORY_RX;
	atomic_init(&b->refs, 1);
	memcpy(&b->head, payload, sizeof(b->head));
	rc = check(t, c, &b->head, payload + sizeof(b->head), length - sizeof(b->head));
	if (rc) {
		shuffle_count(&t->n.corrupt, 1);
		goto refuse;
	}
	b->memory = local && !b->head.codec
			? envelope_take(t, local, payload, &b->bytes, &b->charged)
			: NULL;
	if (b->memory) {
		b->raw = b->memory + sizeof(b->head);
		shuffle_count(&t->n.placed, 1);
	} else if (!b->head.codec && stays(t, length) && !weir_incoming_keep(c, &b->kept)) {
		b->raw = (const uint8_t *)b->kept.data + sizeof(b->head);
		b->charged = length;
		atomic_fetch_add_explicit(&t->lent, length, memory_order_relaxed);
		shuffle_count(&t->n.placed, 1);
	} else {
		rc = copy(b, payload + sizeof(b->head));
		if (rc)
			goto refuse;
	}
	shuffle_count(&t->n.received, 1);
	shuffle_count(&t->n.received_bytes, length);
	return b;
refuse:
	shuffle_count(&t->n.malformed, rc == -EBADMSG);
	weir_incoming_refuse(c, -rc);
	if (b && b->memory)
		held_unref(b);
	else
		free(b);
	return NULL;
}

void
held_ref(struct held *b)
{
	atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
}

void
held_unref(struct held *b)
{
	/* the last one sees what all others have read as read */
	if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) > 1)
		return;
	if (b->memory) {
		memory_give(b->t, b->side, b->charged);
	} else {
		atomic_fetch_sub_explicit(&b->t->lent, b->charged, memory_order_relaxed);
		weir_kept_release(b->t->s->v, &b->kept);
	}
	memory_buffer_free(b->t->s, b->memory, b->bytes);
	free(b);
}

void
held_drop(struct shuffle_thread *t, struct held *b)
{
	shuffle_count(&t->n.dropped, 1);
	held_unref(b);
}
