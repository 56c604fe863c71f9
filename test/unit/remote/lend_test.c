/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that another node lends, and lenders that answer wrongly. */
#include "worlds/stream_pair.h"

#include "ipc/lend.h"

#include <pthread.h>

#define BYTES 100000u
#define LENT 102400u

enum { RIGHT, NO_MAGIC, POSITIVE, SHORT, REFUSED, LITTLE, SILENT, GONE, WAYS };

struct lender {
	struct weir *w;
	unsigned way;
	struct weir_listener *l;
	struct weir_region *region;
	struct weir_export *x;
	pthread_t thread;
};

/* Answers one request, and takes the memory back when its connection ends. */
static void *
lends(void *arg)
{
	struct lender *s = arg;
	struct weir_lend_answer answer = {.magic = WEIR_LEND_MAGIC};
	struct weir_lend_request request;
	struct weir_conn *c;
	size_t length = 0;

	assert_int_equal(weir_region_alloc(s->w, LENT, NULL, &s->region), 0);
	assert_int_equal(weir_export(s->region, 0, s->way == LITTLE ? 4096 : LENT, WEIR_LEND_RIGHTS,
				     &s->x, &answer.key),
			 0);
	assert_int_equal(weir_accept(s->l, PATIENT, &c), 0);
	assert_int_equal(weir_recv(c, &request, sizeof(request), &length, PATIENT), 0);
	assert_true(length == sizeof(request) && request.bytes == BYTES);
	if (s->way == NO_MAGIC)
		answer.magic++;
	if (s->way == POSITIVE)
		answer.status = 5;
	if (s->way == REFUSED) {
		answer.status = -EDQUOT;
		memset(answer.reason, 'x', sizeof(answer.reason)); /* without an end */
		answer.reason[2] = '\033';
	}
	if (s->way != SILENT && s->way != GONE)
		assert_int_equal(weir_send(c, &answer, sizeof(answer) - (s->way == SHORT), PATIENT),
				 0);
	if (s->way != GONE)
		while (weir_recv(c, &request, sizeof(request), &length, PATIENT) == -EAGAIN)
			;
	weir_close(c);
	assert_int_equal(weir_region_free(s->region), 0);
	assert_int_equal(weir_revoke(s->x), 0);
	return NULL;
}

static void
test_lent(void **state)
{
	static const int ends[WAYS] = {0,	-EPROTO, -EPROTO,    -EPROTO,
				       -EDQUOT, -EPROTO, -ETIMEDOUT, -ESHUTDOWN};

	for (unsigned way = 0; way < WAYS; way++) {
		struct plane *f = plane_create(NULL);
		struct weir *a = plane_attach(f);
		struct lender s = {.w = plane_attach_at(f, 1), .way = way};
		struct weir_where where = {.node = 1, .numa_node = -1};
		struct weir_remote *r = NULL, *other;
		struct weir_remote_info info;
		struct weir_key key;
		uint64_t word = 3, is = 0;
		struct weir_event event;
		int rc;

		plane_run(f);
		assert_int_equal(weir_remote_alloc(a, &where, BYTES, PATIENT, &r, NULL),
				 -ECONNREFUSED);
		assert_int_equal(weir_listen(s.w, WEIR_LEND_SERVICE, 0, &s.l), 0);
		assert_int_equal(weir_remote_alloc(a, &where, 0, PATIENT, &r, NULL), -EINVAL);
		assert_int_equal(weir_remote_alloc(a, NULL, BYTES, PATIENT, &r, NULL), -EINVAL);
		assert_int_equal(weir_remote_alloc(a, &where, BYTES, 0, &r, NULL), -EINVAL);
		assert_int_equal(pthread_create(&s.thread, NULL, lends, &s), 0);
		rc = weir_remote_alloc(a, &where, BYTES, way == SILENT ? 300 : PATIENT, &r, &key);
		if (way == GONE)
			assert_true(rc == ends[way] || rc == -ECONNRESET);
		else
			assert_int_equal(rc, ends[way]);
		if (rc) {
			assert_true(strlen(weir_reason()) > 20 && !strchr(weir_reason(), '\033'));
		} else {
			weir_remote_info(r, &info);
			assert_true(info.length >= BYTES && info.node == 1 &&
				    info.rights == WEIR_LEND_RIGHTS);
			assert_int_equal(weir_remote_put(r, BYTES - 8, &word, 8, 0), 0);
			assert_int_equal(weir_remote_flush(r, PATIENT), 0);
			assert_int_equal(
			    weir_remote_open(a, &key, WEIR_MAY_READ, 0, PATIENT, &other), 0);
			assert_int_equal(weir_remote_get(other, BYTES - 8, &is, 8, 0), 0);
			assert_int_equal(weir_remote_flush(other, PATIENT), 0);
			assert_int_equal(is, 3);
			assert_int_equal(weir_remote_free(other), -EINVAL);
			assert_int_equal(weir_remote_free(r), 0);
			do
				rc = weir_remote_get(other, 0, &is, 8, 0);
			while (!rc && !(rc = weir_remote_flush(other, PATIENT)));
			assert_int_equal(rc, -ESTALE);
			weir_remote_close(other);
			/* nothing of it was for the program */
			assert_int_equal(weir_poll(a, &event, 1), 0);
		}
		assert_int_equal(weir_remote_free(NULL), 0);
		pthread_join(s.thread, NULL);
		plane_stop(f);
		plane_settle(f);
		weir_detach(a);
		weir_detach(s.w);
		plane_destroy(f);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_lent)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
