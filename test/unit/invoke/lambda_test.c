/* SPDX-License-Identifier: BSD-3-Clause */
/* weir/invoke.hpp: what the members do is in test/unit/invoke/lambda.cpp. */
#include "group/team.h"
#include "invoke/lambda.h"
#include "worlds/test.h"

static int (*member)(struct weir *w, struct weir_group *g);

static int
be_member(struct team *t, uint32_t index)
{
	return member(t->w[index], t->g[index]);
}

static void
members(uint32_t size, int (*run)(struct weir *w, struct weir_group *g))
{
	member = run;
	team_of(size, be_member);
}

TEST(test_calls)
{
	members(1, lambda_calls);
	members(3, lambda_calls);
}

TEST(test_results)
{
	members(2, lambda_results);
}

/* Memory of a future that has ended stays untouched. */
TEST(test_future_ends)
{
	members(2, lambda_future_ends);
}

TEST(test_nested)
{
	for (uint32_t size = 1; size <= 3; size++)
		members(size, lambda_nested);
}

TEST(test_payloads)
{
	members(1, lambda_payloads);
	members(3, lambda_payloads);
}

/* Exceptions end futures, and no program; that of a call without a future is told once. */
TEST(test_throws)
{
	FILE *text = tmpfile();
	int saved = dup(STDERR_FILENO);
	char line[200];
	uint32_t told = 0;

	assert_non_null(text);
	assert_true(dup2(fileno(text), STDERR_FILENO) >= 0);
	members(2, lambda_throws);
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	rewind(text);
	while (fgets(line, sizeof(line), text))
		told += strstr(line, "an exception left a call") != NULL;
	fclose(text);
	assert_int_equal(told, 1);
}

/* A member lacks a lambda, and has others of the same names. */
TEST(test_differs)
{
	members(2, lambda_differs);
}

TEST(test_syncs)
{
	members(3, lambda_syncs);
}

/* Names are those of types, wherever a program is loaded. */
TEST(test_names)
{
	assert_int_equal(lambda_names(), 0);
}
