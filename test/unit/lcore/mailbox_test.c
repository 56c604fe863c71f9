/* SPDX-License-Identifier: BSD-3-Clause */
/* Also run under ThreadSanitizer: main and an engine as two threads. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lcore/mailbox.h"

#define MAILS 20000u

static struct mailbox box;

static void
ring_wraps_and_fills(void **state)
{
	uint64_t cells[4], value;
	struct spsc r;

	spsc_init(&r, cells, 4);
	atomic_store(&r.head, UINT32_MAX - 1); /* the counters wrap, too */
	atomic_store(&r.tail, UINT32_MAX - 1);
	r.tail_seen = r.head_seen = UINT32_MAX - 1;
	assert_true(spsc_empty(&r));
	for (uint64_t lap = 0; lap < 10; lap++) {
		assert_false(spsc_pop(&r, &value, sizeof(value)));
		for (uint64_t i = 0; i < 4; i++) {
			assert_int_equal(spsc_room(&r), 4 - i);
			assert_true(spsc_push(&r, &i, sizeof(i)));
		}
		assert_false(spsc_push(&r, &lap, sizeof(lap)));
		assert_false(spsc_empty(&r));
		for (uint64_t i = 0; i < 4; i++) {
			assert_true(spsc_pop(&r, &value, sizeof(value)));
			assert_int_equal(value, i);
		}
	}
}

static void
answer_has_a_place(void **state)
{
	struct mail mail = {MAIL_COMMAND, NULL};

	mailbox_init(&box);
	/* the engine takes everything and answers nothing: main is refused, the answers fit */
	for (unsigned i = 0; i < MAILBOX_MAILS; i++) {
		assert_true(mailbox_post(&box, &mail));
		assert_true(mailbox_take(&box, &mail));
	}
	assert_false(mailbox_post(&box, &mail));
	assert_false(mailbox_take(&box, &mail));
	for (unsigned i = 0; i < MAILBOX_MAILS; i++)
		assert_true(mailbox_give_back(&box, &mail));
	assert_false(mailbox_post(&box, &mail));
	assert_true(mailbox_collect(&box, &mail));
	assert_true(mailbox_post(&box, &mail));
	assert_false(mailbox_post(&box, &mail));
}

static void
events_are_bounded(void **state)
{
	struct engine_event event = {.type = ENGINE_EVENT_VIOLATION, .reason = "why"};

	mailbox_init(&box);
	for (unsigned i = 0; i < MAILBOX_EVENTS; i++) {
		event.wc_status = i;
		assert_true(mailbox_raise(&box, &event));
	}
	assert_false(mailbox_raise(&box, &event));
	for (unsigned i = 0; i < MAILBOX_EVENTS; i++) {
		assert_true(mailbox_next_event(&box, &event));
		assert_int_equal(event.wc_status, i);
		assert_string_equal(event.reason, "why");
	}
	assert_false(mailbox_next_event(&box, &event));
}

static _Atomic bool refused; /* an answer had no place: the engine writes */

/* Plays the engine: adds one to what it is sent, raises an event for each. */
static void *
engine_thread(void *arg)
{
	unsigned answered = 0, raised = 0;
	struct engine_event event = {0};
	struct mail mail;

	while (answered < MAILS || raised < MAILS) {
		bool idle = true;

		if (mailbox_take(&box, &mail)) {
			++*(uint64_t *)mail.about;
			if (!mailbox_give_back(&box, &mail)) {
				atomic_store(&refused, true);
				return NULL;
			}
			answered++;
			idle = false;
		}
		event.conn.vqpn = raised;
		if (raised < MAILS && mailbox_raise(&box, &event)) {
			raised++;
			idle = false;
		}
		if (idle)
			sched_yield();
	}
	return NULL;
}

static void
two_threads(void **state)
{
	static uint64_t numbers[MAILS];
	unsigned posted = 0, collected = 0, events = 0;
	struct engine_event event;
	struct mail mail;
	pthread_t thread;

	mailbox_init(&box);
	assert_int_equal(pthread_create(&thread, NULL, engine_thread, NULL), 0);
	while (collected < MAILS || events < MAILS) {
		bool idle = true;

		assert_false(atomic_load(&refused));
		mail = (struct mail){MAIL_COMMAND, &numbers[posted < MAILS ? posted : 0]};
		if (posted < MAILS) {
			numbers[posted] = posted;
			if (mailbox_post(&box, &mail)) {
				posted++;
				idle = false;
			}
		}
		if (mailbox_collect(&box, &mail)) {
			assert_ptr_equal(mail.about, &numbers[collected]);
			assert_int_equal(*(uint64_t *)mail.about, collected + 1);
			collected++;
			idle = false;
		}
		if (mailbox_next_event(&box, &event)) {
			assert_int_equal(event.conn.vqpn, events);
			events++;
			idle = false;
		}
		if (idle)
			sched_yield();
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(box.under_way, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(ring_wraps_and_fills),
	    cmocka_unit_test(answer_has_a_place),
	    cmocka_unit_test(events_are_bounded),
	    cmocka_unit_test(two_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
