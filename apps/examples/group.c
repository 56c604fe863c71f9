/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that compute together: group NAME SIZE STEPS. Each of SIZE programs, on any nodes, joins
 * the group NAME and integrates its part of 4 / (1 + x²) from 0 to 1; the sum of all parts is pi.
 * Each program checks it, and that all have the same bits. "weir-run -n SIZE group STEPS" starts
 * such programs on this machine.
 */
#include <weir/group.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static double
part(uint32_t rank, uint32_t size, unsigned long steps)
{
	double sum = 0;

	for (unsigned long i = rank; i < steps; i += size) {
		double x = ((double)i + 0.5) / (double)steps;

		sum += 4 / (1 + x * x);
	}
	return sum / (double)steps;
}

static int
compute(struct weir_group *g, unsigned long steps)
{
	uint32_t rank = weir_group_rank(g), size = weir_group_size(g), same;
	double mine = part(rank, size, steps), pi, first;
	int rc = weir_group_allreduce(g, &mine, &pi, 1, WEIR_T_DOUBLE, WEIR_ACC_SUM, -1);

	first = pi;
	if (!rc)
		rc = weir_group_broadcast(g, 0, &first, sizeof(first), -1);
	same = pi == first;
	if (!rc)
		rc = weir_group_allreduce(g, &same, &same, 1, WEIR_T_UINT32, WEIR_ACC_MIN, -1);
	if (rc) {
		fprintf(stderr, "group: %s\n", weir_reason());
		return 1;
	}
	printf("rank %u of %u: pi is %.9f\n", rank, size, pi);
	if (same && fabs(pi - 3.141592653589793) < 1e-6)
		return 0;
	fprintf(stderr, "group: wrong, or not the same everywhere; give more steps\n");
	return 1;
}

int
main(int argc, char **argv)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	bool named = argc == 4; /* else it is the launcher's group */
	struct weir_group *g;
	struct weir *w;
	int rc;

	if (!named && argc != 2) {
		fprintf(stderr, "usage: group [NAME SIZE] STEPS\n");
		return 2;
	}
	if (named)
		o.size = (uint32_t)strtoul(argv[2], NULL, 10);
	rc = weir_attach(NULL, &w);
	if (!rc) {
		rc = weir_group_join(w, named ? argv[1] : NULL, named ? &o : NULL, 30000, &g);
		if (rc)
			weir_detach(w);
	}
	if (rc) {
		fprintf(stderr, "group: %s\n", weir_reason());
		return 1;
	}
	rc = compute(g, strtoul(argv[argc - 1], NULL, 10));
	weir_group_leave(g);
	weir_detach(w);
	return rc;
}
