/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tree search message by message: a process of one thread, and another one that is the test. In
 * most of these cases the published code of the paper goes wrong.
 */
#include "worlds/hex_world.h"

#define MESSAGES 4096u

static struct mail {
	uint32_t to;
	size_t bytes;
	uint64_t words[64];
} mails[MESSAGES];
static unsigned mail_count;
static struct {
	uint64_t node, visits;
	uint32_t index;
} reports[MESSAGES]; /* see reported() */
static struct mcts m;
static uint64_t clock_ns;

static void
call(struct mcts_port *p, uint32_t to, const struct mcts_message *message, size_t bytes)
{
	assert_true(to < 2);
	assert_true(mail_count < MESSAGES && bytes <= sizeof(mails[0].words));
	mails[mail_count] = (struct mail){.to = to, .bytes = bytes};
	memcpy(mails[mail_count++].words, message, bytes);
}

static uint64_t
now(struct mcts_port *p)
{
	return clock_ns++;
}

static uint64_t
numbers(struct mcts_port *p)
{
	return 1;
}

static struct mcts_port port = {call, now, numbers};
static struct game game;

static const struct mcts_message *
message_of(const struct mail *mail)
{
	return (const struct mcts_message *)mail->words;
}

/* Thread 0 begins to search an empty board. Thread 1 is the test. */
static struct mcts_thread *
begin(unsigned size, uint64_t rollouts)
{
	struct mcts_options o = {&game, 2, 1, .nodes_max = 1000, .seed = 3};
	struct board b;

	game = board_game(size, false);
	mail_count = 0;
	memset(reports, 0, sizeof(reports));
	assert_int_equal(mcts_open(&m, &o, &port), 0);
	board_start(&b, size);
	memcpy(m.threads->position, &b, sizeof(b));
	m.front.root = node_new(m.threads, 0, 0)->name;
	mcts_search(m.threads, rollouts, UINT64_MAX);
	return m.threads;
}

/* Delivers what is for thread 0 and lets it work, until it has to wait. */
static void
work(void)
{
	bool any = true;

	while (any) {
		any = false;
		for (unsigned i = 0; i < mail_count; i++)
			if (mails[i].to == 0 && mails[i].bytes) {
				struct mail mail = mails[i];

				mails[i].bytes = 0;
				mcts_receive(m.threads, 0, message_of(&mail), mail.bytes);
				any = true;
			}
		while (mcts_step(m.threads))
			any = true;
	}
}

static void
send_it(const struct mcts_message *message)
{
	mcts_receive(m.threads, 1, message, sizeof(*message));
	work();
}
#define send(...) send_it(&__VA_ARGS__)

/* The last message of a kind to the other process; NULL: none. */
static const struct mcts_message *
got(unsigned kind)
{
	for (unsigned i = mail_count; i-- > 0;)
		if (mails[i].to == 1 && message_of(&mails[i])->kind == kind)
			return message_of(&mails[i]);
	return NULL;
}

static struct node *
root(void)
{
	return node_of(&m, m.front.root);
}

/* A name of thread 1. */
static uint64_t
stranger(uint32_t i)
{
	return UINT64_C(2) << NAME_THREAD | UINT64_C(1) << 32 | i;
}

/* Visits of a child of the other thread that it has reported. */
static uint64_t *
reported(uint64_t node, uint32_t index)
{
	unsigned i = 0;

	while (reports[i].node && (reports[i].node != node || reports[i].index != index))
		i++;
	assert_true(i < MESSAGES - 1);
	reports[i].node = node;
	reports[i].index = index;
	return &reports[i].visits;
}

/* Ends all rollouts that wait for the other thread, but for one child of the root. */
static void
return_all(uint64_t node, uint32_t but)
{
	struct children *c = node_of(&m, node)->children;

	for (uint32_t i = 0; c && i < c->count; i++) {
		uint64_t link = c->of[i].link, *before = reported(node, i);
		uint64_t visits = c->of[i].visits - *before;

		if (node_of(&m, link))
			return_all(link, UINT32_MAX);
		else if (visits && i != but) {
			*before += visits;
			send((struct mcts_message){REPORT, .node = node, .index = i,
						   .count = visits});
		}
	}
}

/* Until the search is over. */
static void
finish(void)
{
	work();
	while (!m.front.done)
		return_all(m.front.root, UINT32_MAX);
}

/* Nobody has moved at the beginning, so the last player is -1, and +1 has the wins of the moves:
 * else all signs are inverted. */
TEST(test_root_turn)
{
	begin(4, 16);
	finish();
	assert_int_equal(root()->turn, -1);
	for (uint32_t i = 0; i < 16; i++) {
		uint64_t before = root()->children->of[i].wins;

		send((struct mcts_message){REPORT, .node = m.front.root, .index = i, .count = 48,
					   .wins = 40});
		assert_int_equal(root()->children->of[i].wins, before + 40);
	}
	mcts_close(&m);
}

/* Reports are combined; no sum has a meaning of its own. */
TEST(test_255_wins)
{
	uint64_t before;

	begin(4, 16);
	finish();
	before = root()->children->of[5].wins;
	for (unsigned i = 0; i < 2; i++) {
		struct mcts_message report = {REPORT, .node = m.front.root, .index = 5,
					      .count = 256, .wins = 127 + i};

		mcts_receive(m.threads, 1, &report, sizeof(report));
		assert_int_equal(root()->children->of[5].wins, before);
	}
	work();
	assert_int_equal(root()->children->of[5].wins, before + 255);
	mcts_close(&m);
}

/* A selection that waits for a child's name counts at once: the next ones choose other children. */
TEST(test_waiting_counts)
{
	uint64_t most = 0, least = UINT64_MAX, visits = 0, waiting = 0;
	struct children *c;

	begin(4, 1u << 20);
	work();
	c = root()->children;
	for (uint32_t i = 0; i < c->count; i++) {
		uint64_t link = c->of[i].link;

		visits += c->of[i].visits;
		if (link >= NAME_LEAST)
			continue;
		assert_int_equal(c->of[i].visits, (link + 1) * MCTS_SIMULATIONS);
		most = link > most ? link : most;
		least = link < least ? link : least;
		waiting += link;
	}
	assert_int_equal(visits, m.launched);
	assert_int_equal(root()->visits, visits);
	assert_true(waiting > 5);
	assert_true(most - least <= 1);
	assert_false(m.front.done);
	/* the name comes: all that have waited go on, once */
	for (uint32_t i = 0; i < c->count; i++) {
		uint64_t link = c->of[i].link;

		if (link >= NAME_LEAST)
			continue;
		send((struct mcts_message){ADDRESS, .node = m.front.root, .index = i,
					   .other = stranger(i)});
		assert_int_equal(got(SELECT)->node, stranger(i));
		assert_int_equal(got(SELECT)->count, link);
		assert_int_equal(c->of[i].link, stranger(i));
		assert_int_equal(c->of[i].visits, (link + 1) * MCTS_SIMULATIONS);
	}
	mcts_close(&m);
}

/* A phase ends when the last rollout has returned, and not before. */
TEST(test_phase_ends)
{
	uint64_t launched = 0;
	struct children *c;
	uint32_t last = 0;

	begin(4, 64);
	work();
	c = root()->children;
	while (!c->of[last].visits || c->of[last].link >= NAME_LEAST)
		last++;
	while (launched != m.launched) {
		launched = m.launched;
		return_all(m.front.root, last);
	}
	assert_int_equal(launched, 64 * MCTS_SIMULATIONS);
	assert_false(m.front.done);
	send((struct mcts_message){REPORT, .node = m.front.root, .index = last,
				   .count = c->of[last].visits - 1});
	assert_false(m.front.done);
	send((struct mcts_message){REPORT, .node = m.front.root, .index = last, .count = 1});
	assert_true(m.front.done);
	assert_int_equal(m.front.visits, 64 * MCTS_SIMULATIONS);
	mcts_close(&m);
}

/* Stopped early, it ends with what was launched. */
TEST(test_phase_ends_early)
{
	begin(4, 1u << 20);
	for (unsigned i = 0; i < mail_count; i++) { /* SEARCH, then LAUNCH, and a batch */
		mcts_receive(m.threads, 0, message_of(&mails[i]), mails[i].bytes);
		mails[i].bytes = 0;
	}
	for (unsigned i = 0; i < 10; i++)
		assert_true(mcts_step(m.threads));
	mcts_stop(m.threads);
	work();
	assert_false(m.front.done);
	return_all(m.front.root, UINT32_MAX);
	assert_true(m.front.done);
	assert_true(m.front.visits < (1u << 20) * MCTS_SIMULATIONS);
	assert_int_equal(root()->visits, m.front.visits);
	mcts_close(&m);
}

/* The best child may have no name yet. The game goes on from its position, and a name that comes
 * afterwards is that of a node to be deleted. */
TEST(test_choice_without_name)
{
	uint64_t old;
	struct board b;
	uint32_t index = 0;

	begin(4, 32);
	work();
	while (m.launched < 32 * MCTS_SIMULATIONS)
		return_all(m.front.root, UINT32_MAX);
	/* so that one of those is the best */
	for (uint32_t i = 0; i < 16; i++)
		if (root()->children->of[i].link < NAME_LEAST) {
			root()->children->of[i].visits += 64 * MCTS_SIMULATIONS;
			*reported(m.front.root, i) += 64 * MCTS_SIMULATIONS;
		}
	return_all(m.front.root, UINT32_MAX);
	assert_true(m.front.done);
	for (uint32_t i = 0; i < 16; i++)
		if (node_moves(root()->children)[i] == m.front.best)
			index = i;
	assert_true(root()->children->of[index].link < NAME_LEAST);
	old = m.front.root;
	board_start(&b, 4);
	board_put(&b, (unsigned)m.front.best, 1);
	mcts_advance(m.threads, (unsigned)m.front.best, &b);
	work();
	if (got(START)) { /* the other one makes the root */
		assert_false(m.front.ready);
		send((struct mcts_message){ROOT, .other = stranger(7), .count = 1});
	}
	assert_true(m.front.ready);
	assert_true(m.front.root != old);
	assert_null(node_of(&m, old));
	assert_null(got(DELETE));
	send((struct mcts_message){ADDRESS, .node = old, .index = index, .other = stranger(9)});
	assert_int_equal(got(DELETE)->node, stranger(9));
	mcts_close(&m);
}

/* No rollout at all: any move. */
TEST(test_choice_of_nothing)
{
	begin(4, 1);
	mcts_stop(m.threads);
	/* the order to stop comes before the first batch */
	for (unsigned i = 0; i < mail_count; i++) {
		mcts_receive(m.threads, 0, message_of(&mails[i]), mails[i].bytes);
		mails[i].bytes = 0;
	}
	work();
	assert_true(m.front.done);
	assert_true(m.front.best >= 0 && m.front.best < 16);
	assert_int_equal(m.front.visits, 0);
	mcts_close(&m);
}

/* A name is of one node, and of none after its end. */
TEST(test_names)
{
	struct mcts_thread *t = begin(4, 1u << 20);
	uint64_t names[100];

	for (unsigned i = 0; i < 100; i++) {
		struct node *n = node_new(t, 0, 0);

		assert_non_null(n);
		names[i] = n->name;
		assert_ptr_equal(node_of(&m, names[i]), n);
		for (unsigned k = 0; k < i; k++) {
			assert_true(names[k] != names[i]);
			assert_null(node_of(&m, names[k]));
		}
		node_free(t, n); /* the next one takes its place */
	}
	assert_null(node_of(&m, 0));
	assert_null(node_of(&m, NAME_NO_ROOM));
	assert_null(node_of(&m, m.front.root + NAME_LEAST));
	assert_null(node_of(&m, m.front.root + 1000000));
	mcts_close(&m);
}

/* A leaf has the bytes of its position; records of children come with the first selection. */
TEST(test_leaf_is_small)
{
	unsigned leaves = 0;

	begin(4, 16);
	finish();
	for (uint32_t i = 0; i < 16; i++) {
		struct node *n = node_of(&m, root()->children->of[i].link);

		if (!n)
			continue;
		assert_null(n->children);
		leaves++;
	}
	assert_true(leaves > 2);
	assert_true(offsetof(struct node, state) + game.state_max < 128);
	mcts_close(&m);
}

/* Sends bytes that no correct thread sends. */
static void
refused_from(uint32_t from, const void *message, size_t bytes)
{
	uint64_t before = m.threads->counts.refused;

	mcts_receive(m.threads, from, message, bytes);
	work();
	assert_true(m.threads->counts.refused > before);
}

static void
refused(const void *message, size_t bytes)
{
	refused_from(1, message, bytes);
}

TEST(test_lies)
{
	union {
		struct mcts_message m;
		uint8_t bytes[MCTS_MESSAGE_MAX];
	} u;
	uint64_t none = UINT64_C(78) << NAME_THREAD | 5, name;
	uint32_t waits = 0, named = 0;
	struct children *c;

	begin(4, 1u << 20);
	work();
	c = root()->children;
	while (c->of[waits].link >= NAME_LEAST)
		waits++;
	while (!node_of(&m, c->of[named].link))
		named++;
	name = c->of[named].link;
	/* a child of a leaf, and of no node; its position is right */
	u.m = (struct mcts_message){CREATE, .node = name, .index = 3, .move = 5};
	free(node_of(&m, name)->children);
	node_of(&m, name)->children = NULL;
	u.m.state[0] = 0;
	refused(&u, sizeof(u.m) + 1);
	assert_null(node_of(&m, name)->children);
	u.m.node = m.front.root;
	u.m.index = c->count;
	refused(&u, sizeof(u.m) + 1);
	u.m.node = 0;
	refused(&u, sizeof(u.m) + 1);
	u.m.node = none;
	refused(&u, sizeof(u.m) + 1);
	/* a second name, or one of no thread */
	u.m = (struct mcts_message){ADDRESS, .node = m.front.root, .index = named,
				    .other = stranger(5)};
	refused(&u, sizeof(u.m));
	assert_int_equal(c->of[named].link, name);
	u.m.index = waits;
	u.m.other = none;
	refused(&u, sizeof(u.m));
	/* results of no thread, and more selections than there are */
	u.m = (struct mcts_message){REPORT, .node = none, .count = 16};
	refused(&u, sizeof(u.m));
	u.m = (struct mcts_message){SELECT, .node = m.front.root, .count = UINT64_MAX};
	refused(&u, sizeof(u.m));
	assert_int_equal(root()->pending, 0);
	/* figures that leave no room for another move */
	u.m = (struct mcts_message){STATS, .node = m.front.root, .index = 408};
	refused(&u, sizeof(u));
	u.m.index = MCTS_MOVES_MAX;
	refused(&u, sizeof(u) - 1);
	u.m.index = 1;
	refused(&u, sizeof(u.m) + sizeof(struct mcts_stat) - 2);
	mcts_close(&m);
}

/* A name of this process, made by a message: it is that of the child or none. */
TEST(test_circles)
{
	struct {
		struct mcts_message m;
		uint8_t state[8];
	} u = {{.kind = CREATE}, {0}};
	struct mcts_thread *t = begin(4, 1u << 20);
	uint64_t nodes, next, child;
	uint32_t open = 0, named = 0;
	struct children *c;

	work();
	c = root()->children;
	while (c->of[open].link >= NAME_LEAST)
		open++;
	while (!node_of(&m, c->of[named].link))
		named++;
	child = c->of[named].link;
	for (unsigned i = 0; i < 3; i++) { /* the parent, a sibling, the child of another record */
		uint64_t names[] = {m.front.root, child, m.front.root + 500};

		u.m = (struct mcts_message){ADDRESS, .node = m.front.root, .index = open,
					    .other = names[i]};
		refused(&u, sizeof(u.m));
		assert_true(c->of[open].link < NAME_LEAST);
		/* nor is any node deleted for a parent that is not there */
		u.m.node = m.front.root + 1000;
		refused(&u, sizeof(u.m));
		assert_non_null(node_of(&m, child));
	}
	/* its own parent, since the next name can be guessed */
	next = UINT64_C(1) << NAME_THREAD | UINT64_C(1) << 32 | t->nodes;
	nodes = t->counts.nodes;
	u.m = (struct mcts_message){CREATE, .node = next};
	refused(&u, sizeof(u.m) + 1);
	assert_int_equal(t->counts.nodes, nodes);
	/* even a circle would end: its nodes are deleted once */
	free(node_of(&m, child)->children);
	node_of(&m, child)->children = calloc(1, sizeof(struct children) + sizeof(struct child));
	node_of(&m, child)->children->count = 1;
	node_of(&m, child)->children->of[0].link = m.front.root;
	c->of[open].link = child;
	c->of[named].link = m.front.root;
	mcts_drop(t);
	work();
	assert_null(node_of(&m, child));
	assert_true(t->counts.nodes < nodes - 1);
	for (struct node *n = t->free; n; n = n->next)
		nodes--;
	assert_int_equal(nodes, t->counts.nodes);
	mcts_close(&m);
}

/* A search that could not end, as its last part is never launched. */
TEST(test_part_of_a_rollout)
{
	struct mcts_message search = {SEARCH, .wins = UINT64_MAX, .other = 2};

	begin(4, 16);
	finish();
	search.node = m.front.root;
	for (uint64_t count = 1; count < 40; count++) {
		search.count = count;
		if (count % MCTS_SIMULATIONS)
			refused_from(0, &search, sizeof(search));
		assert_false(m.searching);
	}
	mcts_close(&m);
}

/* Orders of a thread that may not give them. */
TEST(test_orders)
{
	static const uint16_t kinds[] = {START, ADVANCE, ADOPT, SEARCH, LAUNCH, STOP, DELETE};
	struct mcts_thread *t = begin(4, 1u << 20);
	uint64_t nodes, launched;
	struct {
		struct mcts_message m;
		uint8_t state[8];
	} u;

	work();
	nodes = t->counts.nodes;
	launched = m.launched;
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		u.m = (struct mcts_message){kinds[i], .node = m.front.root};
		refused(&u, sizeof(u.m) + (kinds[i] == START));
	}
	assert_true(m.searching && m.launchers == 1);
	assert_int_equal(m.launched, launched);
	assert_non_null(root());
	assert_int_equal(t->counts.nodes, nodes);
	/* thread 1 deletes what it is the parent of, and nothing else */
	u.m = (struct mcts_message){CREATE, .node = stranger(4), .index = 7};
	u.state[0] = 0;
	mcts_receive(t, 1, &u.m, sizeof(u.m) + 1);
	work();
	assert_int_equal(got(ADDRESS)->node, stranger(4));
	assert_int_equal(t->counts.nodes, nodes + 1);
	send((struct mcts_message){DELETE, .node = got(ADDRESS)->other});
	assert_int_equal(t->counts.nodes, nodes);
	mcts_close(&m);
}

/* Selections and a deletion of one node, in any order: all are done, and the node goes last. */
TEST(test_deletion_and_selections)
{
	for (unsigned first = 0; first < 3; first++) {
		struct mcts_thread *t = begin(4, 16);
		uint64_t selections, nodes, name;
		uint32_t i = 0;

		finish();
		while (!node_of(&m, root()->children->of[i].link))
			i++;
		name = root()->children->of[i].link;
		nodes = t->counts.nodes;
		selections = t->counts.selections;
		for (unsigned k = 0; k < 3; k++) {
			struct mcts_message message = {k == first ? DELETE : SELECT, .node = name,
						       .count = 1};

			mcts_receive(t, 0, &message, sizeof(message));
		}
		work();
		assert_null(node_of(&m, name));
		assert_true(t->counts.nodes < nodes);
		assert_true(t->counts.selections >= selections + 2);
		mcts_close(&m);
	}
}

/* Bytes of a peer that lies: whatever they are, the process goes on, and searches again. */
TEST(test_nonsense)
{
	struct mcts *processes[] = {&m};
	struct dice d = dice_of(1);
	struct board b;
	uint64_t kept;

	begin(4, 64);
	work();
	for (unsigned i = 0; i < 200000; i++) {
		union {
			struct mcts_message m;
			uint64_t words[12];
		} u;
		struct children *c = root() ? root()->children : NULL;
		size_t bytes = dice_below(&d, sizeof(u) + 1);

		for (unsigned k = 0; k < 12; k++)
			u.words[k] = dice_below(&d, 3) ? dice_below(&d, 20) : dice_next(&d);
		u.m.kind = (uint16_t)dice_below(&d, STATS + 2);
		if (dice_below(&d, 2))
			u.m.node = m.front.root;
		else if (c && dice_below(&d, 2))
			u.m.node = c->of[dice_below(&d, c->count)].link;
		if (dice_below(&d, 2))
			u.m.other = m.front.root + dice_below(&d, 40);
		else if (c && dice_below(&d, 2))
			u.m.other = c->of[dice_below(&d, c->count)].link;
		if (dice_below(&d, 2))
			u.m.index = dice_below(&d, 20);
		u.m.count %= 100; /* so that it comes to an end */
		if (u.m.kind == SEARCH)
			u.m.count = 16 * dice_below(&d, 4);
		mcts_receive(m.threads, dice_below(&d, 2), &u.m, bytes);
		for (unsigned k = 0; k < 20; k++)
			mcts_step(m.threads);
		mail_count = 0;
	}
	assert_true(m.threads->counts.refused > 1000);
	mcts_drop(m.threads);
	work();
	mail_count = 0;
	/* each place is in the tree of a peer or free, and there is room for a tree of its own */
	kept = m.threads->counts.nodes;
	for (struct node *n = m.threads->free; n; n = n->next)
		kept++;
	assert_int_equal(kept, m.threads->nodes);
	kept = m.threads->counts.nodes;
	m.o.place_local = true;
	board_start(&b, 4);
	memcpy(m.threads->position, &b, sizeof(b));
	m.front.root = node_new(m.threads, 0, 0)->name;
	mcts_search(m.threads, 300, UINT64_MAX);
	work();
	assert_true(m.front.done);
	assert_int_equal(m.front.visits, 300 * MCTS_SIMULATIONS);
	assert_int_equal(tree_check(processes, m.front.root), m.threads->counts.nodes - kept);
	assert_true(m.threads->counts.nodes > kept + 16);
	mcts_close(&m);
}

/* One that could not be opened, or is closed, may be closed. */
TEST(test_close_again)
{
	begin(3, 1);
	mcts_close(&m);
	mcts_close(&m);
	assert_null(m.threads);
}
