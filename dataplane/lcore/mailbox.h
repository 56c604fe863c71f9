/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mailbox of an engine: mails from main, the same mails back as answers, and events. Posting a
 * mail reserves the place of its answer, so the engine never waits to answer, and main never waits
 * at all. No DPDK.
 */
#ifndef WEIR_MAILBOX_H
#define WEIR_MAILBOX_H

#include "engine/engine.h"
#include "spsc.h"

#define MAILBOX_MAILS 256u
#define MAILBOX_EVENTS 256u

enum mail_kind {
	MAIL_COMMAND,	      /* about: struct engine_command */
	MAIL_DOORBELL_ADD,    /* about: struct doorbell, which the engine may ring from now on */
	MAIL_DOORBELL_REMOVE, /* about: struct doorbell, unknown to the engine when it comes back */
};

struct mail {
	enum mail_kind kind;
	void *about;
};

struct mailbox {
	struct spsc down;   /* mails from main to the engine */
	struct spsc up;	    /* the same mails, back to main */
	struct spsc events; /* struct engine_event from the engine to main */
	uint32_t under_way; /* main's: mails posted and not yet collected */
	struct mail down_cells[MAILBOX_MAILS], up_cells[MAILBOX_MAILS];
	struct engine_event event_cells[MAILBOX_EVENTS];
};

static inline void
mailbox_init(struct mailbox *m)
{
	spsc_init(&m->down, m->down_cells, MAILBOX_MAILS);
	spsc_init(&m->up, m->up_cells, MAILBOX_MAILS);
	spsc_init(&m->events, m->event_cells, MAILBOX_EVENTS);
	m->under_way = 0;
}

/* Main: whether mailbox_post() would take a mail. */
static inline bool
mailbox_has_room(const struct mailbox *m)
{
	return m->under_way < MAILBOX_MAILS;
}

/* Main: false while every place for an answer is reserved. */
static inline bool
mailbox_post(struct mailbox *m, const struct mail *mail)
{
	if (!mailbox_has_room(m) || !spsc_push(&m->down, mail, sizeof(*mail)))
		return false;
	m->under_way++;
	return true;
}

/* Main: next mail that came back, false if there is none. */
static inline bool
mailbox_collect(struct mailbox *m, struct mail *mail)
{
	if (!spsc_pop(&m->up, mail, sizeof(*mail)))
		return false;
	weir_assert(m->under_way > 0);
	m->under_way--;
	return true;
}

/* Main: next event, false if there is none. */
static inline bool
mailbox_next_event(struct mailbox *m, struct engine_event *event)
{
	return spsc_pop(&m->events, event, sizeof(*event));
}

/* Engine: next mail, false if there is none. */
static inline bool
mailbox_take(struct mailbox *m, struct mail *mail)
{
	return spsc_pop(&m->down, mail, sizeof(*mail));
}

/* Engine: hands a mail back. Its place is reserved: false is a bug. */
static inline bool
mailbox_give_back(struct mailbox *m, const struct mail *mail)
{
	return spsc_push(&m->up, mail, sizeof(*mail));
}

/* Engine: raises an event; false while the earlier ones fill the ring. */
static inline bool
mailbox_raise(struct mailbox *m, const struct engine_event *event)
{
	return spsc_push(&m->events, event, sizeof(*event));
}

#endif
