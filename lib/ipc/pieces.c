/* SPDX-License-Identifier: BSD-3-Clause */
#include "pieces.h"

static_assert(sizeof(((struct weir_layout *)0)->dim[0]) == sizeof(struct weir_piece),
	      "either follows the head of a description");

uint32_t
weir_pieces_put(uint8_t *payload, const struct weir_layout *l, uint64_t first)
{
	struct weir_cell_layout head = {.first = first, .block = (uint32_t)l->block, .n = l->dims};

	memcpy(payload, &head, sizeof(head));
	memcpy(payload + sizeof(head), l->dim, l->dims * sizeof(l->dim[0]));
	return weir_described(l->dims);
}

uint32_t
weir_list_put(uint8_t *payload, uint32_t n)
{
	struct weir_cell_layout head = {.n = n};

	memcpy(payload, &head, sizeof(head));
	return weir_described(n);
}

uint32_t
weir_pieces_get(struct weir_pieces *p, const uint8_t *payload, uint32_t length)
{
	struct weir_cell_layout head;

	if (length < sizeof(head))
		return 0;
	memcpy(&head, payload, sizeof(head));
	if (head.n > (length - sizeof(head)) / sizeof(struct weir_piece) ||
	    (head.block ? head.n > WEIR_LAYOUT_DIMS
			: !head.n || head.n > WEIR_CELL_LIST_MAX || head.first))
		return 0;
	p->l = (struct weir_layout){.block = head.block};
	p->first = head.first;
	if (head.block) {
		p->l.dims = head.n;
		memcpy(p->l.dim, payload + sizeof(head), head.n * sizeof(p->l.dim[0]));
	} else {
		memcpy(p->list, payload + sizeof(head), head.n * sizeof(p->list[0]));
		p->l.list = p->list;
		p->l.count = head.n;
	}
	return weir_described(head.n);
}

bool
weir_pieces_fit(const struct weir_pieces *p, uint64_t bytes, uint64_t offset, uint64_t whole)
{
	uint64_t all = weir_layout_bytes(&p->l), n;

	if (!bytes || !weir_layout_fits(&p->l, offset, whole))
		return false;
	if (!p->l.block)
		return bytes == all;
	n = bytes / p->l.block;
	return bytes % p->l.block == 0 && n <= WEIR_CELL_PIECES_MAX && n <= all / p->l.block &&
	       p->first <= all / p->l.block - n;
}

bool
weir_pieces_aligned(const struct weir_layout *l, size_t size, size_t align)
{
	bool aligned = l->block % size == 0;

	for (uint32_t i = 0; l->block && i < l->dims; i++)
		aligned &= l->dim[i].stride % (int64_t)align == 0;
	for (size_t i = 0; !l->block && i < l->count; i++)
		aligned &= l->list[i].offset % (int64_t)align == 0 && l->list[i].length % size == 0;
	return aligned;
}

void
weir_pieces_start(const struct weir_pieces *p, struct weir_layout_walk *w)
{
	if (p->l.block)
		weir_layout_start_at(w, &p->l, p->first);
	else
		weir_layout_start(w, &p->l);
}
