/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs and peers that break the rules of operations that are answered, and of updates: nothing
 * of what is wrong takes effect, and no neighbour notices.
 */
#include "answers.h"

static void
test_bad_programs(void **state)
{
	const struct weir_cell_access right = {.handle = WEIR_HANDLE_FIRST,
					       .type = WEIR_T_INT64,
					       .acc = WEIR_ACC_SUM,
					       .options = WEIR_ACCESS_RESULT,
					       .offset = 8,
					       .count = 1};

	for (unsigned i = 0; i < 6 * 28; i++) {
		struct pair p = memory_programs(NULL);
		struct program *by = i % 2 ? program_open(p.w, 1, 1) : p.pa;
		uint32_t rights = i / 6 == 22	? ALL & ~WEIR_RIGHT_UPDATE
				  : i / 6 == 23 ? ALL & ~WEIR_RIGHT_READ
						: ALL;
		struct pconn *c = i % 2 ? open_apart(by, p.pb, rights) : open_remote(by, rights);
		uint8_t before[BYTES], payload[948] = {0};
		struct weir_cell_access a = right;
		uint8_t op = WEIR_OP_UPDATE;
		uint32_t length = 8;

		a.result = place(by, 0);
		memcpy(before, p.pb->region[0].base, BYTES);
		switch (i / 6) {
		case 0:
			a.handle++;
			break;
		case 1:
			a.type = 0;
			break;
		case 2:
			a.type = WEIR_T_LONG_DOUBLE;
			a.offset = 8;
			a.count = 1;
			length = 16;
			break;
		case 3:
			a.type = 255;
			break;
		case 4:
			a.acc = 0;
			break;
		case 5:
			a.acc = WEIR_ACC_MINLOC;
			break;
		case 6:
			a.acc = 255;
			break;
		case 7:
			a.options = 2;
			break;
		case 8:
			a.offset = 4;
			break;
		case 9:
			a.offset = LENGTH;
			break;
		case 10:
			a.offset = UINT64_MAX - 7;
			break;
		case 11:
			a.count = 0;
			length = 0;
			break;
		case 12:
			a.count = 2;
			break;
		case 13:
			length = 16;
			break;
		case 14:
			a.count = UINT32_MAX;
			break;
		case 15:
			length = WEIR_ACCESS_MAX + 1;
			break;
		case 16:
			a.result = 0;
			break;
		case 17:
			a.result = place(by, 8192);
			break;
		case 18:
			op = WEIR_OP_GET;
			a = (struct weir_cell_access){
			    .handle = a.handle, .result = a.result, .count = 8193};
			length = 0;
			break;
		case 19:
			op = WEIR_OP_GET;
			a = (struct weir_cell_access){
			    .handle = a.handle, .result = a.result, .count = 0};
			length = 0;
			break;
		case 20:
			op = WEIR_OP_GET;
			a = (struct weir_cell_access){
			    .handle = a.handle, .result = place(by, 8191) + 127, .count = 65};
			length = 0;
			break;
		case 21:
			op = WEIR_OP_GET;
			a = (struct weir_cell_access){.handle = a.handle,
						      .result = a.result,
						      .offset = LENGTH - 7,
						      .count = 8};
			length = 0;
			break;
		case 22:
			break;
		case 23:
			op = WEIR_OP_GET;
			a = (struct weir_cell_access){
			    .handle = a.handle, .result = a.result, .count = 8};
			length = 0;
			break;
		case 24:
			op = WEIR_OP_CAS;
			a.acc = 0;
			a.options = 0;
			length = 8;
			break;
		case 25:
			op = WEIR_OP_CAS;
			a.acc = 0;
			a.options = 0;
			a.type = WEIR_T_DOUBLE;
			length = 16;
			break;
		case 26:
			op = WEIR_OP_CAS;
			a.acc = 0;
			a.options = 0;
			a.count = 2;
			length = 16;
			break;
		default: /* nothing but zeroes */
			memset(&a, 0, sizeof(a));
			length = 0;
		}
		if (i / 2 % 3 == 1 && op == WEIR_OP_UPDATE) { /* behind others, in a run */
			struct weir_cell_access nothing = right;

			nothing.options = 0;
			if (i / 6 != 22) {
				push(c, op, &nothing, payload, 8);
				push(c, op, &nothing, payload, 8);
			}
			if (i / 6 != 16 && i / 6 != 17) /* that is what is wrong with them */
				a.options &= (uint16_t)~WEIR_ACCESS_RESULT;
		} else if (i / 2 % 3 == 2 && i / 6 != 22 && i / 6 != 23) { /* that are answered */
			static const uint8_t zeroes[16];
			struct weir_cell_access nothing = right;

			nothing.result = place(by, 1);
			if (op != WEIR_OP_UPDATE)
				nothing.acc = 0, nothing.options = 0;
			if (op == WEIR_OP_GET)
				nothing.type = 0;
			for (unsigned k = 0; k < 3; k++)
				push(c, op, &nothing, zeroes,
				     op == WEIR_OP_GET	    ? 0
				     : op == WEIR_OP_UPDATE ? 8
							    : 16);
		}
		push(c, op, &a, payload, length);
		world_run(p.w, 50);
		assert_true(by->violated);
		assert_false(p.pb->violated);
		assert_memory_equal(p.pb->region[0].base, before, BYTES);
		world_end(state);
	}
}

/* A peer that asks for more than it was granted loses the link. */
static void
test_greedy_peer(void **state)
{
	struct pair p = memory_programs(NULL);
	struct pconn *c = open_remote(p.pa, ALL);

	link_of(p.w, 1)->is.answer_lines = 1;
	add(c, 8, 1, 0); /* one line */
	flush(c, 100);
	assert_int_equal(p.w->node[1].link_errors, 0);
	get(c, 0, 49, 0);
	world_run(p.w, 20);
	assert_int_equal(p.w->node[1].link_errors, 1);
	assert_int_equal(p.w->node[1].link_error, EPROTO);
}

/* Writes lines into the ring of a node, as its peer would. */
static void
inject(struct world *w, unsigned node, const struct weir_slot *lines, uint32_t n)
{
	struct peer_link *l = link_of(w, node);
	struct weir_frame_head head = {.version = WEIR_WIRE_VERSION,
				       .lines = n + 1,
				       .position = l->rx_pos,
				       .consumed = l->tx_posted,
				       .wrs = l->wrs_used};

	memcpy(&l->ring[l->rx_pos & l->rx_mask], &head, 64);
	for (uint32_t i = 0; i < n; i++)
		memcpy(&l->ring[(l->rx_pos + 1 + i) & l->rx_mask], &lines[i], 64);
	fake_receive(&w->node[node].qp[0], WEIR_IMM(WEIR_IMM_FRAME, n + 1));
}

static void
test_bad_answers(void **state)
{
	for (unsigned i = 0; i < 12; i++) {
		struct pair p = memory_programs(NULL);
		struct pconn *c = open_remote(p.pa, ALL), *good = open_remote(p.pa, ALL);
		struct weir_slot line[3] = {{.op = WEIR_WIRE_ANSWER, .vqpn = c->vqpn, .length = 8}};
		bool second = i >= 10; /* behind an answer that is right */
		uint32_t n = 1;

		add(good, 8, 1, 30);
		flush(good, 100);
		memset(result(p.pa, 0), 0xee, 64);
		memset(result(p.pa, 1), 0xee, 64);
		if (second) {
			add(c, 8, 1, 0);
			add(c, 8, 1, 1);
			for (unsigned k = 0; k < 3; k++)
				world_turn(p.w, 0);
			line[1] = line[0];
			line[1].order = i == 10 ? 1 : 2;
			line[1].length = i == 10 ? 9 : 8;
			n = 2;
		}
		if (i < 5) { /* it is asked for 8 bytes, and has not answered yet */
			add(c, 8, 1, 0);
			for (unsigned k = 0; k < 3; k++)
				world_turn(p.w, 0);
			assert_int_equal(link_of(p.w, 0)->answer_room,
					 link_of(p.w, 0)->is.peer_answers - 64);
		}
		if (i == 0)
			line[0].length = 7;
		else if (i == 1)
			line[0].length = 9;
		else if (i == 2)
			line[0].length = 0;
		else if (i == 3)
			line[0].order = 1;
		else if (i == 4)
			line[0].length = 100, n = 2;
		else if (i == 5) { /* nothing was asked for, after all was answered */
			for (unsigned k = 0; k < 40; k++) {
				add(c, 8, 1, 0);
				flush(c, 100);
			}
			memset(result(p.pa, 0), 0xee, 64);
			line[0].order = 40;
		} else if (i == 6)
			line[0].length = WEIR_ANSWER_MAX + 1;
		else if (i == 7)
			line[0].length = 49;
		else if (i == 8)
			line[0].vqpn = 0x12345;
		else if (i == 9)
			line[0].vqpn = conn_find(p.w->node[1].engine,
						 conn_find(p.w->node[0].engine, c->vqpn)->peer_vqpn)
					   ->vqpn ^
				       (1u << 20);
		inject(p.w, 0, line, n);
		world_turn(p.w, 0);
		for (uint32_t k = 0; k < 64; k++)
			assert_int_equal(result(p.pa, second)[k], 0xee);
		assert_int_equal(result(p.pa, 0)[7], second ? 0 : 0xee);
		assert_false(p.pa->violated);
		if (i < 6 || second) {
			assert_int_equal(pconn_status(c), EPROTO);
			assert_int_equal(pconn_status(good), 0);
			assert_int_equal(p.w->node[0].link_errors, 0);
			assert_int_equal(node_counters(p.w, 0)->bad_frames, 1);
		} else {
			world_run(p.w, 1);
			assert_int_equal(p.w->node[0].link_errors, 1);
			assert_int_equal(p.w->node[0].link_error, EPROTO);
		}
		world_end(state);
	}
}

/* The last line of a peer, whose memory has ended: operations before it are not answered. */
static void
test_unanswered(void **state)
{
	struct pair p = memory_programs(NULL);
	struct pconn *c = open_remote(p.pa, ALL);
	struct weir_slot line = {.op = WEIR_WIRE_FIN_ACK, .vqpn = c->vqpn};

	put(c, 0, 1);
	add(c, 8, 1, 0);
	pconn_close(c);
	for (unsigned k = 0; k < 4; k++)
		world_turn(p.w, 0);
	assert_int_equal(conn_find(p.w->node[0].engine, c->vqpn)->state, CONN_FINISHED);
	inject(p.w, 0, &line, 1);
	world_turn(p.w, 0);
	assert_int_equal(p.w->node[0].link_errors, 0);
	assert_int_equal(pconn_completed(c), 0);
	assert_int_equal(link_of(p.w, 0)->answer_room, link_of(p.w, 0)->is.peer_answers);
	world_end(state);
}

/*
 * A wrong operation of a peer, behind two that are right and of the same kind: those are executed,
 * it is not, and its connection ends. Updates, fetches, gets.
 */
static void
test_bad_updates(void **state)
{
	for (unsigned of = 0; of < 3 * 11; of++) {
		struct pair p = memory_programs(NULL);
		unsigned i = of % 11;
		bool get = of / 11 == 2, answered = of / 11 != 0;
		struct pconn *c = open_remote(
		    p.pa, i == 9 ? ALL & ~(get ? WEIR_RIGHT_READ : WEIR_RIGHT_UPDATE) : ALL);
		struct pconn *good = open_remote(p.pa, ALL);
		struct conn *end = conn_find(p.w->node[1].engine,
					     conn_find(p.w->node[0].engine, c->vqpn)->peer_vqpn);
		uint8_t before[BYTES];
		struct weir_slot line[3];
		unsigned right = i >= 9 ? 0 : 2;
		int64_t one = 1;

		set_word(p.pb, 0, 40);
		set_word(p.pb, LENGTH - 8, 40);
		for (unsigned k = 0; k < 3; k++) {
			struct weir_cell_access a = {.handle = WEIR_HANDLE_FIRST,
						     .type = WEIR_T_INT64,
						     .acc = WEIR_ACC_SUM,
						     .offset = k ? LENGTH - 8 : 0,
						     .count = 1};

			line[k] = (struct weir_slot){.op = get ? WEIR_OP_GET : WEIR_OP_UPDATE,
						     .order = (uint16_t)k,
						     .vqpn = end->vqpn,
						     .length = get ? 0 : 8};
			if (get)
				a.type = a.acc = 0, a.count = 8;
			else if (answered)
				a.options = WEIR_ACCESS_RESULT;
			if (k == 2 && i == 0)
				a.offset = LENGTH - 4;
			else if (k == 2 && i == 1)
				a.offset = LENGTH;
			else if (k == 2 && i == 2)
				a.offset = (uint64_t)-8;
			else if (k == 2 && i == 3)
				a.count *= 2, line[k].length *= 2; /* beyond the export */
			else if (k == 2 && i == 4)
				a.count = 0;
			else if (k == 2 && i == 5)
				a.type = WEIR_T_LONG_DOUBLE;
			else if (k == 2 && i == 6)
				a.acc = WEIR_ACC_MINLOC;
			else if (k == 2 && i == 7)
				a.handle++;
			else if (k == 2 && i == 8)
				line[k].order = 7;
			if (i == 10) { /* nothing but zeroes */
				memset(&a, 0, sizeof(a));
				line[k].length = 0;
			}
			memcpy(line[k].data, &a, WEIR_ACCESS_FIELDS);
			memcpy(line[k].data + WEIR_ACCESS_FIELDS, &one, sizeof(one));
		}
		memcpy(before, p.pb->region[0].base, BYTES);
		inject(p.w, 1, line, 3);
		world_turn(p.w, 1);
		assert_int_equal(word_at(p.pb, 0), right && !get ? 41 : 40);
		assert_int_equal(word_at(p.pb, LENGTH - 8), right && !get ? 41 : 40);
		assert_int_equal(end->cold->memory.answers, answered ? right : 0);
		set_word(p.pb, 0, 40);
		set_word(p.pb, LENGTH - 8, 40);
		assert_memory_equal(p.pb->region[0].base, before, BYTES);
		assert_int_equal(node_counters(p.w, 1)->bad_frames, 1);
		assert_false(p.pb->violated);
		assert_int_equal(p.w->node[1].link_errors, 0);
		assert_int_equal(pconn_status(good), 0);
		world_end(state);
	}
}

ENGINE_TESTS(TEST(test_bad_programs), TEST(test_greedy_peer), TEST(test_bad_answers),
	     TEST(test_unanswered), TEST(test_bad_updates))
