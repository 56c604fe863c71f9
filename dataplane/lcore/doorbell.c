/* SPDX-License-Identifier: BSD-3-Clause */
#include "doorbell.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

enum {
	TOKENS = 64,	   /* wakes in a row that a doorbell may cause */
	TOKEN_NS = 50000,  /* ns until it may cause another */
	MUTE_NS = 1000000, /* ns for which a doorbell that rings too often is ignored */
};

uint64_t
loop_ring_doorbell(void *loop, uint32_t number, bool cpu_time)
{
	struct loop *l = loop;
	struct doorbell *d = number < l->config.doorbells ? l->doorbell[number] : NULL;

	return d ? weir_bell_ring_timed(&d->bell, cpu_time) : 0;
}

void
doorbell_mail(struct loop *l, const struct mail *mail)
{
	struct doorbell *d = mail->about;

	weir_assert(d->number < l->config.doorbells);
	if (mail->kind == MAIL_DOORBELL_ADD) {
		weir_assert(!l->doorbell[d->number]);
		l->doorbell[d->number] = d;
		return;
	}
	l->doorbell[d->number] = NULL;
	if (d->muted_until) {
		struct doorbell **at = &l->muted;

		while (*at != d) {
			weir_assert(*at);
			at = &(*at)->next_muted;
		}
		*at = d->next_muted;
	}
}

static void
set_events(struct loop *l, struct doorbell *d, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = d};

	/* fails if main has removed it already: it reports nothing any more */
	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, d->bell.wait, &e))
		return;
}

void
doorbell_rang(struct loop *l, struct doorbell *d, uint64_t now)
{
	uint64_t more = (now - d->refilled) / TOKEN_NS;

	if (d->tokens + more >= TOKENS) {
		d->tokens = TOKENS;
		d->refilled = now;
	} else {
		d->tokens += (uint32_t)more;
		d->refilled += more * TOKEN_NS;
	}
	if (d->tokens) {
		d->tokens--;
		return;
	}
	if (d->muted_until)
		return;
	set_events(l, d, 0);
	d->muted_until = now + MUTE_NS;
	d->next_muted = l->muted;
	l->muted = d;
}

uint64_t
doorbell_unmute(struct loop *l, uint64_t now)
{
	struct doorbell **at = &l->muted;
	uint64_t next = UINT64_MAX;

	while (*at) {
		struct doorbell *d = *at;

		if (d->muted_until > now) {
			if (d->muted_until < next)
				next = d->muted_until;
			at = &d->next_muted;
			continue;
		}
		*at = d->next_muted;
		d->muted_until = 0;
		set_events(l, d, EPOLLIN | EPOLLET);
	}
	return next;
}

/* ---- main's side ---- */

int
loop_doorbell_add(struct loop *l, uint32_t number, struct weir_bell bell)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLET};
	struct doorbell *d;
	int rc;

	if (number >= l->config.doorbells || l->known[number])
		return -EINVAL;
	/* a doorbell that leaves may have the number still */
	if (l->leaving || !mailbox_has_room(&l->mailbox))
		return -EAGAIN;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->bell = bell;
	d->number = number;
	d->tokens = TOKENS;
	e.data.ptr = d;
	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, bell.wait, &e)) {
		rc = -errno;
		free(d);
		return rc;
	}
	mailbox_post(&l->mailbox, &(struct mail){MAIL_DOORBELL_ADD, d});
	l->known[number] = d;
	return 0;
}

void
doorbell_post_leaving(struct loop *l)
{
	while (l->leaving) {
		struct doorbell *d = l->leaving;

		if (!mailbox_post(&l->mailbox, &(struct mail){MAIL_DOORBELL_REMOVE, d}))
			return;
		l->leaving = d->next_leaving;
	}
}

void
loop_doorbell_remove(struct loop *l, uint32_t number)
{
	struct doorbell *d = number < l->config.doorbells ? l->known[number] : NULL;

	if (!d)
		return;
	l->known[number] = NULL;
	epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, d->bell.wait, NULL);
	d->next_leaving = l->leaving;
	l->leaving = d;
	doorbell_post_leaving(l);
	loop_wake(l);
}

void
doorbell_forget(struct doorbell *d)
{
	weir_bell_close(&d->bell);
	free(d);
}

void
doorbell_close_all(struct loop *l)
{
	struct doorbell *next;
	struct mail mail;

	while (mailbox_take(&l->mailbox, &mail) || mailbox_collect(&l->mailbox, &mail))
		if (mail.kind == MAIL_DOORBELL_REMOVE)
			doorbell_forget(mail.about);
	for (struct doorbell *d = l->leaving; d; d = next) {
		next = d->next_leaving;
		doorbell_forget(d);
	}
	for (uint32_t i = 0; i < l->config.doorbells; i++)
		if (l->known[i])
			doorbell_forget(l->known[i]);
}
