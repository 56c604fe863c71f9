/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tables of functions. Members of a group often have equal ones: a table is stored once for all
 * that have it.
 */
#include "invoker.h"

#include "client/reason.h"
#include "ipc/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t
function_table_hash(const struct function_entry *entries, uint32_t count)
{
	return weir_hash(WEIR_HASH, entries, count * sizeof(*entries));
}

static bool
is_same(const struct function_entry *a, const struct function_entry *b)
{
	return a->name == b->name && a->version == b->version;
}

/* ---- the own table ---- */

static int
check(const struct weir_function *f, uint32_t number)
{
	size_t length = f->name ? strnlen(f->name, WEIR_FUNCTION_NAME_MAX + 1) : 0;

	if (!length || length > WEIR_FUNCTION_NAME_MAX)
		return weir_fail(-EINVAL, "function %u: a name of %zu bytes (expected 1 to %u)",
				 number, length, WEIR_FUNCTION_NAME_MAX);
	if (f->min_length > f->max_length || f->max_length > WEIR_ARGS_MAX)
		return weir_fail(-EINVAL,
				 "'%s': arguments of %u to %u bytes (expected a range within 0 to "
				 "%u)",
				 f->name, f->min_length, f->max_length, WEIR_ARGS_MAX);
	if (f->flags & ~WEIR_FUNCTION_UNORDERED)
		return weir_fail(-EINVAL, "'%s' has unknown flags 0x%x; see WEIR_FUNCTION_*",
				 f->name, f->flags & ~WEIR_FUNCTION_UNORDERED);
	if (!f->run && !f->run_many)
		return weir_fail(-EINVAL, "'%s' has neither run nor run_many; give one", f->name);
	return 0;
}

static int
check_twice(const struct weir_invoker *v, const struct function_entry *entries, uint32_t number)
{
	for (uint32_t i = 0; i < number; i++)
		if (is_same(&entries[i], &entries[number]))
			return weir_fail(
			    -EEXIST,
			    "functions %u ('%s') and %u ('%s') have the same version, %u, and the "
			    "same name or hash of it; rename one",
			    i, v->functions[i].name, number, v->functions[number].name,
			    entries[i].version);
	return 0;
}

int
functions_adopt(struct weir_invoker *v, const struct weir_invoker_options *o,
		struct function_table **own)
{
	struct function_table *table;
	int rc = 0;

	v->functions = calloc(o->function_count + 1, sizeof(*v->functions));
	table = v->functions ? function_table_make(v, o->function_count) : NULL;
	if (!table)
		return weir_fail(-ENOMEM, "no memory for functions; free some");
	for (uint32_t i = 0; i < o->function_count && !rc; i++) {
		const struct weir_function *f = &o->functions[i];

		rc = check(f, i);
		if (rc)
			break;
		v->functions[i] = *f;
		v->functions[i].name = strdup(f->name);
		if (!v->functions[i].name)
			return weir_fail(-ENOMEM, "no memory for functions; free some");
		table->entries[i] =
		    (struct function_entry){.name = weir_hash(WEIR_HASH, f->name, strlen(f->name)),
					    .version = f->version,
					    .min_length = (uint16_t)f->min_length,
					    .max_length = (uint16_t)f->max_length};
		rc = check_twice(v, table->entries, i);
	}
	*own = table;
	return rc ? rc : function_table_complete(v, table);
}

void
functions_free(struct weir_invoker *v)
{
	struct function_table *table;

	while ((table = SLIST_FIRST(&v->tables))) {
		SLIST_REMOVE_HEAD(&v->tables, next);
		free(table->targets);
		free(table->entries);
		free(table);
	}
	for (uint32_t i = 0; v->functions && v->functions[i].name; i++)
		free((char *)(uintptr_t)v->functions[i].name);
	free(v->functions);
}

int
weir_invoker_function(const struct weir_invoker *v, const char *name, uint32_t version)
{
	for (uint32_t i = 0; i < v->o.function_count; i++)
		if (v->functions[i].version == version && !strcmp(v->functions[i].name, name))
			return (int)i;
	return weir_fail(-ENOENT, "the invoker has no function '%.63s' of version %u", name,
			 version);
}

/* ---- tables of other processes ---- */

struct function_table *
function_table_make(struct weir_invoker *v, uint32_t count)
{
	struct function_table *table = calloc(1, sizeof(*table));

	if (!table)
		return NULL;
	table->count = count;
	table->entries = calloc(count + 1, sizeof(*table->entries));
	if (!table->entries) {
		free(table);
		return NULL;
	}
	SLIST_INSERT_HEAD(&v->tables, table, next);
	return table;
}

int
function_table_complete(struct weir_invoker *v, struct function_table *table)
{
	const struct weir_function *f;
	struct function_target *to;

	table->hash = function_table_hash(table->entries, table->count);
	table->targets = calloc(v->o.function_count + 1, sizeof(*table->targets));
	if (!table->targets)
		return weir_fail(-ENOMEM, "no memory for functions; free some");
	for (uint32_t i = 0; i < v->o.function_count; i++) {
		struct function_entry own = {.version = v->functions[i].version};

		f = &v->functions[i];
		to = &table->targets[i];
		own.name = weir_hash(WEIR_HASH, f->name, strlen(f->name));
		to->number = FUNCTION_NONE;
		for (uint32_t k = 0; k < table->count; k++) {
			const struct function_entry *its = &table->entries[k];

			if (!is_same(its, &own))
				continue;
			to->number = (uint16_t)k;
			to->min_length =
			    (uint16_t)(its->min_length > f->min_length ? its->min_length
								       : f->min_length);
			to->max_length =
			    (uint16_t)(its->max_length < f->max_length ? its->max_length
								       : f->max_length);
			break;
		}
	}
	return 0;
}

int
function_refuse(const struct weir_invoker *v, struct weir_to to, uint32_t function, size_t length)
{
	const struct function_table *table = v->processes[to.process].table;
	const struct function_target *target = &table->targets[function];
	const struct weir_function *f = &v->functions[function];
	const struct function_entry *other = NULL;
	uint64_t name;

	if (function >= v->o.function_count)
		return weir_fail(-EINVAL, "function %u of %u; give a number below that", function,
				 v->o.function_count);
	if (target->number != FUNCTION_NONE)
		return weir_fail(-EMSGSIZE,
				 "%zu bytes of arguments; '%s' takes %u to %u here, and %u to %u "
				 "at both ends",
				 length, f->name, f->min_length, f->max_length, target->min_length,
				 target->max_length);
	name = weir_hash(WEIR_HASH, f->name, strlen(f->name));
	for (uint32_t i = 0; i < table->count && !other; i++)
		if (table->entries[i].name == name)
			other = &table->entries[i];
	if (!other)
		return weir_fail(-ENOSYS, "process %u has no '%s'; start one build", to.process,
				 f->name);
	return weir_fail(-ENOSYS, "process %u has '%s' version %u, here it is %u; start one build",
			 to.process, f->name, other->version, f->version);
}
