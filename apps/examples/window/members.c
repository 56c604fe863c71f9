/* SPDX-License-Identifier: BSD-3-Clause */
#include "members.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATIENT 30000 /* ms until all have started */

/* Options come first. */
static bool
take_options(struct members *m, int argc, char **argv, const char *usage, int *next)
{
	for (; *next < argc && argv[*next][0] == '-'; (*next)++) {
		const char *option = argv[*next];

		if (!strstr(usage, option))
			return false;
		if (!strcmp(option, "--apart")) {
			m->apart = true;
		} else if (!strcmp(option, "--pencils")) {
			m->pencils = true;
		} else if (!strcmp(option, "--by") && *next + 1 < argc) {
			m->by_messages = !strcmp(argv[++*next], "messages");
			if (!m->by_messages && strcmp(argv[*next], "puts"))
				return false;
		} else {
			return false;
		}
	}
	return true;
}

/* A number above 0; 0: it is none. */
static size_t
number(const char *text)
{
	char *end;
	size_t n = strtoul(text, &end, 10);

	return *end ? 0 : n;
}

bool
members_arguments(struct members *m, int argc, char **argv, const char *usage, size_t *numbers,
		  unsigned n)
{
	int next = 1;
	bool valid = take_options(m, argc, argv, usage, &next) && argc - next == (int)n + 2;

	if (valid) {
		m->name = argv[next++];
		m->size = (uint32_t)number(argv[next++]);
		valid = m->size;
	}
	for (unsigned i = 0; valid && i < n; i++)
		valid = (numbers[i] = number(argv[next++])) > 0;
	if (!valid)
		fprintf(stderr, "usage: %s %s\n", m->program, usage);
	return valid;
}

int
members_join(struct members *m)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	int rc = weir_attach(NULL, &m->w);

	if (rc)
		return rc;
	o.size = m->size;
	rc = weir_group_join(m->w, m->name, &o, PATIENT, &m->g);
	if (!rc)
		m->rank = weir_group_rank(m->g);
	return rc;
}

int
members_leave(struct members *m, int rc)
{
	if (rc == MEMBERS_WRONG)
		fprintf(stderr, "%s: rank %u: wrong values\n", m->program, m->rank);
	else if (rc)
		fprintf(stderr, "%s: %s: %s\n", m->program, strerror(-rc), weir_reason());
	for (uint32_t i = 0; m->conn && i < m->size; i++)
		weir_close(m->conn[i]);
	free(m->conn);
	weir_listener_close(m->listener);
	weir_group_leave(m->g);
	weir_detach(m->w);
	return rc ? 1 : 0;
}

int
members_window(struct members *m, uint64_t bytes, uint32_t unit, void **base,
	       struct weir_window **win)
{
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;

	o.name = m->program;
	o.flags = m->apart ? WEIR_WINDOW_APART : 0;
	o.disp_unit = unit;
	return weir_window_allocate(m->g, bytes, &o, -1, base, win);
}

int
members_connect(struct members *m)
{
	struct weir_member member;
	struct weir_conn *c;
	uint32_t from;
	char to[128];
	int rc;

	m->conn = calloc(m->size, sizeof(struct weir_conn *));
	if (!m->conn)
		return -ENOMEM;
	snprintf(to, sizeof(to), "%s.%u", m->name, m->rank);
	rc = weir_listen(m->w, to, m->size, &m->listener);
	if (!rc)
		rc = weir_group_barrier(m->g, -1);
	for (uint32_t i = 0; !rc && i < m->rank; i++) {
		weir_group_member(m->g, i, &member);
		snprintf(to, sizeof(to), "node:%u:%s.%u", member.node, m->name, i);
		rc = weir_connect_to(m->w, to, NULL, PATIENT, &m->conn[i]);
		if (!rc)
			rc = weir_send(m->conn[i], &m->rank, sizeof(m->rank), -1);
	}
	for (uint32_t i = m->rank + 1; !rc && i < m->size; i++) {
		rc = weir_accept(m->listener, PATIENT, &c);
		if (!rc)
			rc = weir_recv(c, &from, sizeof(from), &(size_t){0}, PATIENT);
		if (!rc)
			m->conn[from] = c;
	}
	return rc;
}

int
members_exchange(struct members *m, const struct piece *out, size_t outs, const struct piece *in,
		 size_t ins)
{
	struct weir_event events[16]; /* each is followed by a look at all */
	size_t length;
	int rc = 0;

	while (outs || ins) {
		while (outs && !(rc = weir_send(m->conn[out->rank], out->buf, out->length, 0)))
			out++, outs--;
		if (rc && rc != -EAGAIN)
			return rc;
		while (ins && !(rc = weir_recv(m->conn[in->rank], in->buf, in->length, &length, 0)))
			in++, ins--;
		if (rc && rc != -EAGAIN)
			return rc;
		if (outs || ins) {
			rc = weir_wait(m->w, events, 16, -1);
			if (rc < 0 && rc != -EINTR)
				return rc;
		}
		rc = 0;
	}
	return 0;
}

double
seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

void
members_report(const struct members *m, const char *what, double spent, size_t steps)
{
	if (!m->rank)
		printf("%s: %.1f us a step\n", what, 1e6 * spent / (double)steps);
}

int
members_agree(const struct members *m, bool right)
{
	int32_t all = right;
	int rc = weir_group_allreduce(m->g, &all, &all, 1, WEIR_T_INT32, WEIR_ACC_MIN, -1);

	return rc ? rc : all ? 0 : MEMBERS_WRONG;
}
