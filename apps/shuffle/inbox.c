/* SPDX-License-Identifier: BSD-3-Clause */
#include "inbox.h"

#include "shuffle/format/record.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct chunk *
chunk_new(uint32_t room)
{
	struct chunk *c = malloc(sizeof(*c) + room);

	if (c) {
		c->next = NULL;
		c->used = c->done = 0;
		c->room = room;
	}
	return c;
}

void
chunks_push(struct chunks *l, struct chunk *c)
{
	c->next = NULL;
	if (l->tail)
		l->tail->next = c;
	else
		l->head = c;
	l->tail = c;
	l->bytes += c->used;
}

struct chunk *
chunks_pop(struct chunks *l)
{
	struct chunk *c = l->head;

	if (!c)
		return NULL;
	l->head = c->next;
	if (!l->head)
		l->tail = NULL;
	l->bytes -= c->used;
	return c;
}

uint8_t *
chunks_room(struct chunks *l, uint32_t bytes)
{
	struct chunk *c = l->tail;

	if (!c || c->room - c->used < bytes) {
		c = chunk_new(bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES);
		if (!c)
			return NULL;
		chunks_push(l, c);
	}
	c->used += bytes;
	l->bytes += bytes;
	return c->data + c->used - bytes;
}

void
chunks_free(struct chunks *l)
{
	struct chunk *c;

	while ((c = chunks_pop(l)))
		free(c);
}

uint32_t
frame_size(const struct weir_record *r)
{
	return (uint32_t)sizeof(struct frame_head) + record_size(r->key_length, r->value_length);
}

void
frame_write(uint8_t *to, struct frame_head head, const struct weir_record *r)
{
	head.bytes = record_size(r->key_length, r->value_length);
	memcpy(to, &head, sizeof(head));
	record_write(to + sizeof(head), r);
}

int
inbox_init(struct inbox *in, int bell)
{
	pthread_condattr_t attr;
	int rc;

	*in = (struct inbox){.bell = bell};
	rc = pthread_condattr_init(&attr);
	if (rc)
		return -rc;
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	rc = pthread_cond_init(&in->ready, &attr);
	pthread_condattr_destroy(&attr);
	return rc ? -rc : -pthread_mutex_init(&in->lock, NULL);
}

void
inbox_destroy(struct inbox *in)
{
	chunks_free(&in->list);
	pthread_cond_destroy(&in->ready);
	pthread_mutex_destroy(&in->lock);
}

bool
inbox_is_full(struct inbox *in, uint32_t thread)
{
	if (in->list.bytes < INBOX_MAX)
		return false;
	in->waiters |= UINT64_C(1) << thread;
	return true;
}

void
inbox_wake_locked(struct inbox *in)
{
	const uint64_t one = 1;

	if (in->woken)
		return;
	in->woken = true;
	if (!in->asleep)
		return;
	if (in->in_epoll)
		(void)!write(in->bell, &one, sizeof(one));
	else
		pthread_cond_signal(&in->ready);
}

void
inbox_wake(struct inbox *in)
{
	pthread_mutex_lock(&in->lock);
	inbox_wake_locked(in);
	pthread_mutex_unlock(&in->lock);
}

uint64_t
inbox_take(struct inbox *in, struct chunks *to)
{
	uint64_t waiters;

	pthread_mutex_lock(&in->lock);
	if (in->list.head) {
		if (to->tail)
			to->tail->next = in->list.head;
		else
			to->head = in->list.head;
		to->tail = in->list.tail;
		to->bytes += in->list.bytes;
		in->list = (struct chunks){0};
	}
	waiters = in->waiters;
	in->waiters = 0;
	in->woken = false;
	pthread_mutex_unlock(&in->lock);
	return waiters;
}

void
inbox_sleep(struct inbox *in, int timeout_ms)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	until.tv_sec += timeout_ms / 1000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&in->lock);
	in->asleep = true;
	while (!in->list.head && !in->woken && !rc)
		rc = timeout_ms < 0 ? pthread_cond_wait(&in->ready, &in->lock)
				    : pthread_cond_timedwait(&in->ready, &in->lock, &until);
	in->asleep = in->woken = false;
	pthread_mutex_unlock(&in->lock);
}

bool
inbox_doze(struct inbox *in)
{
	bool empty;

	pthread_mutex_lock(&in->lock);
	empty = !in->list.head && !in->woken;
	in->asleep = in->in_epoll = empty;
	pthread_mutex_unlock(&in->lock);
	return empty;
}

void
inbox_rise(struct inbox *in)
{
	pthread_mutex_lock(&in->lock);
	in->asleep = in->in_epoll = in->woken = false;
	pthread_mutex_unlock(&in->lock);
}
