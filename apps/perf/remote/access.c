/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on remote memory. */
#include "lanes.h"

#include "weir/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPEN_MS 10000

static int
begin_put(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	uint32_t size = run->request.size;
	struct weir_transfer t;

	lane_fill(l, i);
	if (run->there.block) {
		t = lane_transfer(l, i);
		return weir_remote_put_with(l->remote, &t);
	}
	return weir_remote_put(l->remote, remote_slot_at(&run->layout, l->number, i), l->buffer,
			       size, 0);
}

static int
begin_get(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	struct weir_transfer t;

	if (run->there.block) {
		t = lane_transfer(l, i);
		return weir_remote_get_with(l->remote, &t);
	}
	return weir_remote_get(l->remote, remote_slot_at(&run->layout, l->number, i), l->buffer,
			       run->request.size, 0);
}

static int
begin_acc(struct lane *l, uint64_t i)
{
	struct weir_update u = lane_update(l, i);

	return weir_remote_update(l->remote, &u);
}

static int
begin_fop(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;

	return weir_remote_fetch_op(l->remote, remote_slot_at(&run->layout, l->number, i),
				    l->buffer, l->fetched,
				    (enum weir_type)perf_element(run->request.type),
				    (enum weir_acc)perf_acc(run->request.op), 0);
}

static int
begin_cas(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	int64_t is = (int64_t)(i / run->layout.slots), then = is + 1;

	return weir_remote_compare_swap(l->remote, remote_slot_at(&run->layout, l->number, i), &is,
					&then, &l->fetched, WEIR_T_INT64, 0);
}

static int
begin_notify(struct lane *l, uint64_t i)
{
	struct weir_transfer t = lane_transfer(l, i);

	lane_fill(l, i);
	t.notify = WEIR_WITH_NOTICE;
	t.tag = (uint32_t)i & INT32_MAX;
	return weir_remote_put_with(l->remote, &t);
}

static int
begin_signal(struct lane *l, uint64_t i)
{
	struct weir_transfer t = lane_transfer(l, i);

	lane_fill(l, i);
	t.notify = WEIR_WITH_SIGNAL_SET;
	t.signal = remote_signal_at(&l->run->layout);
	t.operand = i + 1;
	return weir_remote_put_with(l->remote, &t);
}

/* It is complete when the lock is free again, or another's. */
static int
begin_lock(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	int rc = weir_remote_lock(run->lock, run->lock_kind, run->patience_ms);

	(void)i;
	if (!rc)
		rc = weir_remote_unlock(run->lock, run->patience_ms);
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

static int
flush(struct lane *l)
{
	return lane_flushed(l, weir_remote_flush(l->remote, l->run->patience_ms));
}

static int
await_notice(struct lane *l)
{
	struct weir_notice n;
	int rc = weir_notice_next(l->run->driver->weir, &n, l->run->patience_ms);

	l->errors += !rc && n.tag != ((uint32_t)(l->begun - 1) & INT32_MAX);
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

static int
await_signal(struct lane *l)
{
	uint64_t seen;
	int rc = weir_signal_wait(l->run->x, 0, WEIR_GE, l->begun, l->run->patience_ms, &seen);

	l->errors += !rc && seen != l->begun;
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

const struct remote_kind access_kinds[PERF_TESTS] = {
    [PERF_PUT] = {WEIR_MAY_WRITE, begin_put, flush, NULL},
    [PERF_GET] = {WEIR_MAY_READ, begin_get, flush, lane_got_right},
    [PERF_ACC] = {WEIR_MAY_UPDATE, begin_acc, flush, NULL},
    [PERF_FOP] = {WEIR_MAY_UPDATE, begin_fop, flush, lane_fetched_right},
    [PERF_CAS] = {WEIR_MAY_UPDATE, begin_cas, flush, lane_fetched_right},
    [PERF_NOTIFY] = {WEIR_MAY_NOTIFY, begin_notify, await_notice, NULL},
    [PERF_SIGNAL] = {WEIR_MAY_NOTIFY, begin_signal, await_signal, NULL},
    [PERF_LOCK] = {WEIR_MAY_LOCK, begin_lock, NULL, NULL},
};

int
access_open(struct remote_run *run)
{
	struct driver *d = run->driver;
	uint32_t flags = d->options->apart ? WEIR_OPEN_APART : 0;
	struct weir_key key;
	int rc;

	run->remotes = calloc(d->flow_count, sizeof(struct weir_remote *));
	rc = run->remotes ? 0 : -ENOMEM;
	for (uint32_t i = 0; i < d->flow_count && !rc; i++) {
		memcpy(key.bytes, d->flows[i].key, sizeof(key.bytes));
		rc = weir_remote_open(d->weir, &key, run->kind->rights | WEIR_MAY_WRITE, flags,
				      OPEN_MS, &run->remotes[i]);
	}
	if (rc)
		return rc;
	run->lock = run->remotes[0];
	if (perf_is_answered(run->request.test)) {
		/* memory for answers, which the target opens; a put of no bytes has a signal */
		rc = weir_region_alloc(d->weir, sizeof(uint64_t), NULL, &run->region);
		if (!rc)
			rc = weir_export(run->region, 0, sizeof(uint64_t),
					 WEIR_MAY_NOTIFY | WEIR_MAY_WRITE, &run->x, &key);
		if (!rc)
			rc = weir_remote_put(run->remotes[0], remote_key_at(&run->layout),
					     key.bytes, sizeof(key.bytes), 0);
		return rc ? rc : weir_remote_notify(run->remotes[0], REMOTE_HELLO, 0, 0);
	}
	if (!d->team || !d->number || run->request.test != PERF_LOCK)
		return 0;
	memcpy(key.bytes, d->team->key, sizeof(key.bytes));
	run->lock = NULL;
	return weir_remote_open(d->weir, &key, WEIR_MAY_LOCK, flags, OPEN_MS, &run->lock);
}

int
access_end(struct lane *l)
{
	int rc = weir_remote_put(l->remote, remote_count_at(&l->run->layout, l->number), &l->begun,
				 sizeof(l->begun), 0);

	return rc ? rc : flush(l);
}

void
access_close(struct remote_run *run)
{
	if (run->remotes && run->lock != run->remotes[0])
		weir_remote_close(run->lock);
	for (uint32_t i = 0; run->remotes && i < run->driver->flow_count; i++)
		weir_remote_close(run->remotes[i]);
	free(run->remotes);
	if (run->x)
		weir_revoke(run->x);
	if (run->region)
		weir_region_free(run->region);
}
