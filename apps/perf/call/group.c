/* SPDX-License-Identifier: BSD-3-Clause */
#include "call.h"

#include <stdio.h>

int
call_group_open(struct call_group *p, struct weir *w, const struct perf_message *request,
		uint32_t rank, int timeout_ms)
{
	struct weir_function functions[CALL_FUNCTIONS] = {
	    [CALL_COUNT] = {.name = "perf.count", .version = 1, .run = call_count},
	    [CALL_ANSWER] = {.name = "perf.answer", .version = 1, .run = call_answered},
	};
	struct weir_group_options group = WEIR_GROUP_OPTIONS_INIT;
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;
	char name[WEIR_GROUP_NAME_MAX + 1];
	int rc;

	for (uint32_t i = 0; i < CALL_FUNCTIONS; i++)
		functions[i].min_length = functions[i].max_length = request->size;
	if (request->flags & PERF_ROWS)
		functions[CALL_COUNT].run_many = call_count_row;
	if (request->group) {
		snprintf(name, sizeof(name), "perf-%llx", (unsigned long long)request->group);
		group.rank = rank;
		group.size = request->members;
		rc = weir_group_join(w, name, &group, timeout_ms, &p->g);
	} else {
		rc = weir_group_self(w, &p->g);
	}
	if (rc) {
		p->g = NULL;
		return rc;
	}
	o.functions = functions;
	o.function_count = CALL_FUNCTIONS;
	o.threads = request->threads * (request->flags & PERF_HERE ? 2 : 1);
	o.batching.mode = request->mode;
	rc = weir_invoker_open(w, p->g, &o, &p->v);
	if (rc) {
		p->v = NULL;
		call_group_close(p);
	}
	return rc;
}

void
call_group_close(struct call_group *p)
{
	weir_invoker_close(p->v);
	weir_group_leave(p->g);
	*p = (struct call_group){0};
}

struct perf_schedule
call_schedule(const struct perf_message *request, uint32_t thread)
{
	return (struct perf_schedule){
	    .test = request->test,
	    .size = request->size,
	    .seed = perf_mix(request->seed ^ perf_mix(thread + 1)),
	};
}
