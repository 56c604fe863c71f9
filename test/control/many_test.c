/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More nodes than a control keeps connections: a hundred weir-control processes, each beside a fake
 * data plane. All come up, offers between any two pass, and connections that nobody needs go.
 */
#include "fake.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#define NODES 70 /* each takes much memory */
#else
#define NODES FAKE_MAX
#endif
#define STREAMS 64u /* CONTROL_STREAMS */
#define PAIRS 200
#define REST 5000 /* ms that are measured */

// Reports to each data plane about the others, by place.
static struct node {
	bool up[NODES];
	uint32_t others_up;
	uint32_t offered_by[NODES]; /* attempt */
	bool lost[NODES];	    /* told that it is down: what was offered to it is void */
	uint32_t state_changes;
} node[NODES];

static void
told(int i, const struct weir_ctl_msg *m)
{
	struct node *n = &node[i];

	if (m->type == WEIR_CTL_NODE) {
		uint32_t other = m->node.id - 1;
		bool up = m->node.state == WEIR_NODE_UP && !m->node.self;

		assert_true(other < NODES);
		n->state_changes += n->up[other] != up;
		n->others_up += up;
		n->others_up -= n->up[other];
		n->up[other] = up;
		n->lost[other] |= m->node.state == WEIR_NODE_DOWN;
	} else if (m->type == WEIR_CTL_LINK) {
		n->offered_by[m->link.node - 1] = m->link.attempt;
	}
}

static int
setup(void **state)
{
	fake_count = NODES;
	fake_told = told;
	fake_patience = 90000;
	for (int i = 0; i < NODES; i++)
		fake_control[i].timeout = "3s";
	return fake_setup(state);
}

static bool
all_up(void)
{
	for (int i = 0; i < NODES; i++)
		if (node[i].others_up != NODES - 1)
			return false;
	return true;
}

static void
offer(int from, int to, int pair)
{
	struct weir_ctl_msg m = fake_offer(from, to, 1 + (uint32_t)pair, 0);

	fake_dp_send(from, &m);
}

// Of all processes, ms of CPU, and the most descriptors that one of them has.
static void
look(uint64_t *cpu, uint32_t *descriptors)
{
	*cpu = *descriptors = 0;
	for (int i = 0; i < NODES; i++) {
		uint32_t n = 0;
		char path[64];
		struct dirent *e;
		DIR *d;

		*cpu += fake_cpu_ms(fake_control[i].pid);
		snprintf(path, sizeof(path), "/proc/%d/fd", fake_control[i].pid);
		d = opendir(path);
		assert_non_null(d);
		while ((e = readdir(d)))
			n += e->d_name[0] != '.';
		closedir(d);
		if (n > *descriptors)
			*descriptors = n;
	}
}

static void
come_up(void)
{
	uint64_t begin = now_ms();

	for (int i = 0; i < NODES; i++) {
		fake_dp_start(i, 1000 + i);
		fake_control_start(i);
		fake_pump(1);
	}
	AWAIT(all_up(), LONG);
	printf("%d nodes: up after %.1f s\n", NODES, (double)(now_ms() - begin) / 1e3);
}

/*
 * Connections of the start are closed again, and then nothing changes for the time that is
 * measured. (A control that gets no CPU meanwhile is given up and comes back.)
 */
static void
rest(void)
{
	uint64_t end = now_ms() + LONG, begin, cpu, before;
	uint32_t descriptors, most, changes;

	do {
		assert_true(now_ms() < end);
		changes = 0;
		for (int i = 0; i < NODES; i++)
			changes -= node[i].state_changes;
		look(&before, &descriptors);
		begin = now_ms();
		fake_pump(descriptors > STREAMS + 20 ? 500 : REST);
		look(&cpu, &most);
		for (int i = 0; i < NODES; i++)
			changes += node[i].state_changes;
	} while (descriptors > STREAMS + 20 || most > STREAMS + 20 || changes || !all_up());
	printf("then %.1f ms of CPU a node and second, %u descriptors\n",
	       (double)(cpu - before) * 1e3 / (double)(now_ms() - begin) / NODES, most);
}

static int
other_of(int pair)
{
	return (pair % NODES + 1 + pair * 37 % (NODES - 1)) % NODES;
}

// Pairs far and near, connected or not, in both directions.
static void
offer_all(void)
{
	uint64_t begin = now_ms();
	uint32_t missing = PAIRS;

	for (int i = 0; i < NODES; i++)
		memset(node[i].lost, 0, sizeof(node[i].lost));
	for (int i = 0; i < PAIRS; i++)
		offer(i % NODES, other_of(i), i);
	while (missing && now_ms() < begin + LONG) {
		fake_pump(50);
		missing = 0;
		for (int i = 0; i < PAIRS; i++) {
			int from = i % NODES, to = other_of(i);

			if (node[to].offered_by[from])
				continue;
			missing++;
			if (node[from].lost[to]) {
				node[from].lost[to] = false;
				offer(from, to, i);
			}
		}
	}
	assert_int_equal(missing, 0);
	printf("%d offers: after %llu ms\n", PAIRS, (unsigned long long)(now_ms() - begin));
}

static void
test_a_hundred(void **state)
{
	come_up();
	rest();
	offer_all();
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_a_hundred, setup, fake_teardown),
	};

	return FAKE_MAIN("control_many", tests);
}
