/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of others, whose key is in the file HOSTILE_KEY: operations that are wrong in each field,
 * or in a piece of their layouts, keys that are forged. Memory that may be mapped, keys in
 * HOSTILE_KEY.read and .write: attempts to write what is read-only, to resize and seal what is not,
 * holes, stores after the end. The owner looks after the memory that the keys do not name, or not
 * for writing.
 */
#define _GNU_SOURCE
#include "hostile.h"

#include "ipc/key.h"
#include "ipc/pieces.h"
#include "remote/lock.h"
#include "weir/remote.h"
#include "weir/type.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT 16384u /* bytes of the memory */
#define CELLS 48u     /* operations of a connection */
#define OPEN_MS 3000

static void
read_key(struct weir_key_fields *key, const char *suffix)
{
	const char *prefix = getenv("HOSTILE_KEY");
	char path[4096];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s%s", prefix ? prefix : "", suffix);
	f = fopen(path, "re");
	ok = f && fread(key, sizeof(*key), 1, f) == 1 && weir_key_ok(key);

	if (f)
		fclose(f);
	if (!ok) {
		fprintf(stderr, "hostile: no key in '%s'; give HOSTILE_KEY\n", path);
		exit(2);
	}
}

/* A connection to the memory, from the channel of v. */
static int
open_memory(struct victim *v, const struct weir_key_fields *key, uint32_t rights)
{
	struct weir_session_msg m = {.type = WEIR_MSG_OPEN}, r;
	int fds[FDS];

	m.open.channel = v->channel;
	m.open.rights = rights;
	memcpy(m.open.key, key, sizeof(m.open.key));
	if (request(v, &m, &r, fds, WEIR_MSG_CONNECTING) || !r.connecting.vqpn)
		return -1;
	v->vqpn = r.connecting.vqpn;
	return 0;
}

/* A number that is a border of something, or any. */
static uint64_t
lie(void)
{
	static const uint64_t borders[] = {0,
					   1,
					   7,
					   WEIR_PUT_MAX,
					   WEIR_PUT_MAX + 1,
					   WEIR_ANSWER_MAX + 1,
					   EXPORT - 7,
					   EXPORT,
					   EXPORT + 1,
					   UINT32_MAX,
					   1ull << 32,
					   1ull << 63,
					   UINT64_MAX - 7,
					   UINT64_MAX};

	return rng() % 4 ? borders[rng() % (sizeof(borders) / sizeof(borders[0]))]
			 : rng() >> (rng() % 64);
}

/* One of 64 fields is wrong: one cell of ten. */
static uint64_t
maybe(uint64_t right)
{
	return rng() % 64 ? right : lie();
}

static uint64_t
offset(uint32_t align)
{
	return maybe(rng() % (EXPORT - WEIR_ANSWER_MAX) / align * align);
}

/* Where the pieces of a cell lie. */
struct pieces {
	uint64_t offset;
	uint32_t bytes;
};

/* A block of n pieces of 8 bytes: upwards or downwards, also one over the other. One of 16 leaves
 * the export by a byte, or comes back to it by a wrap. Returns the bytes of the description. */
static uint32_t
make_block(uint8_t op, uint8_t *payload, struct pieces *p)
{
	static const int64_t strides[] = {8, 16, 24, 4, 0, -8, -4, -40};
	uint64_t n = 2 + rng() % 15, reach;
	int64_t stride = strides[rng() % (sizeof(strides) / sizeof(strides[0]))];
	struct weir_layout l = {.block = 8, .dims = 1};

	if (op == WEIR_OP_UPDATE) /* of aligned elements */
		stride = stride / 8 * 8;
	l.dim[0].count = n;
	l.dim[0].stride = stride;
	reach = (n - 1) * (uint64_t)(stride < 0 ? -stride : stride);
	p->bytes = (uint32_t)(8 * n);
	p->offset = rng() % ((EXPORT - reach - 8) / 8) * 8 + (stride < 0 ? reach : 0);
	switch (rng() % 32) {
	case 0:
		p->offset = stride < 0 ? reach - 1 : EXPORT - reach - 7;
		break;
	case 1: /* the last piece would be the second again */
		l.dim[0].stride = (int64_t)(1ull << 63);
		l.dim[0].count = 3 + rng() % 2;
		p->bytes = (uint32_t)(8 * l.dim[0].count);
		break;
	default:
		return weir_pieces_put(payload, &l, 0);
	}
	tally(1, "wrong pieces");
	return weir_pieces_put(payload, &l, 0);
}

/* The same as a list, of which pieces may be empty. */
static uint32_t
make_list(uint8_t *payload, struct pieces *p)
{
	uint32_t n = 1 + (uint32_t)(rng() % 6), bad = (uint32_t)(rng() % (16 * n));
	uint32_t bytes = weir_list_put(payload, n);
	struct weir_piece piece;

	p->offset = 1024 + rng() % (EXPORT - 2048) / 8 * 8;
	p->bytes = 0;
	for (uint32_t i = 0; i < n; i++) {
		piece.offset = (int64_t)(rng() % 256) * 8 - 1024;
		piece.length = (rng() % 8 + !i) * 8;
		if (piece.offset + (int64_t)(p->offset + piece.length) > (int64_t)EXPORT)
			piece.offset = 0;
		if (i == bad) {
			static const uint64_t far[] = {EXPORT - 7, UINT64_MAX, 1ull << 63};

			piece.offset = (int64_t)(far[rng() % 3] - p->offset);
			piece.length = 8;
			tally(1, "wrong pieces");
		}
		p->bytes += (uint32_t)piece.length;
		memcpy(payload + weir_described(i), &piece, sizeof(piece));
	}
	return bytes;
}

/* A PUT, UPDATE or GET of pieces. Returns its payload's bytes. */
static uint32_t
make_laid_cell(const struct victim *v, uint8_t op, uint8_t data[WEIR_INLINE_MAX])
{
	uint64_t place = weir_arena_send(&v->geometry) + rng() % 64 * WEIR_BLOCK_SIZE;
	struct weir_cell_put put = {.handle = WEIR_HANDLE_FIRST, .options = WEIR_PUT_LAYOUT};
	struct weir_cell_access a = {.handle = WEIR_HANDLE_FIRST,
				     .options = WEIR_ACCESS_LAYOUT,
				     .result = (uint32_t)(place / WEIR_SLOT_SIZE)};
	uint8_t *payload = data + weir_cell_fields(op);
	struct pieces p;
	uint32_t described = rng() % 2 ? make_block(op, payload, &p) : make_list(payload, &p);

	put.offset = a.offset = maybe(p.offset);
	a.count = (uint32_t)maybe(op == WEIR_OP_UPDATE ? p.bytes / 8 : p.bytes);
	if (op == WEIR_OP_UPDATE) {
		a.type = WEIR_T_INT64;
		a.acc = WEIR_ACC_SUM;
	}
	if (op == WEIR_OP_PUT)
		memcpy(data, &put, WEIR_PUT_FIELDS);
	else
		memcpy(data, &a, WEIR_ACCESS_FIELDS);
	tally(1, "layouts");
	return described + (op == WEIR_OP_GET ? 0 : (uint32_t)maybe(p.bytes));
}

/* Fills a cell that is right but for what maybe() does. Returns its payload's bytes. */
static uint32_t
make_cell(const struct victim *v, uint8_t op, uint8_t data[WEIR_INLINE_MAX])
{
	uint32_t place = (uint32_t)((weir_arena_send(&v->geometry) + rng() % 64 * WEIR_BLOCK_SIZE) /
				    WEIR_SLOT_SIZE);
	struct weir_cell_access a = {.handle = (uint32_t)maybe(WEIR_HANDLE_FIRST),
				     .offset = offset(8),
				     .result = (uint32_t)maybe(place),
				     .count = (uint32_t)maybe(1 + rng() % 8)};
	struct weir_cell_put put = {.handle = a.handle, .options = (uint32_t)maybe(0)};
	struct weir_cell_notice n = {.handle = a.handle,
				     .options = (uint32_t)maybe(1 + rng() % 3),
				     .signal = offset(8),
				     .operand = rng(),
				     .reserved = maybe(0)};
	struct weir_cell_lock lock = {.handle = a.handle,
				      .kind =
					  (uint32_t)maybe(op == WEIR_OP_LOCK ? 1 + rng() % 2 : 0),
				      .result = op == WEIR_OP_LOCK ? a.result : 0};
	struct weir_cell_transfer t = {.place = WEIR_PLACE(0, (uint64_t)place * WEIR_SLOT_SIZE),
				       .handle = a.handle,
				       .options = (uint32_t)maybe(rng() % 4),
				       .offset = offset(1)};

	for (uint32_t i = 0; i < WEIR_INLINE_MAX; i += 4) {
		uint32_t x = (uint32_t)rng();

		memcpy(data + i, &x, sizeof(x));
	}
	if ((op == WEIR_OP_PUT || op == WEIR_OP_UPDATE || op == WEIR_OP_GET) && rng() % 3 == 0)
		return make_laid_cell(v, op, data);
	t.place = maybe(t.place);
	switch (op) {
	case WEIR_OP_PUT:
		put.offset = offset(1);
		memcpy(data, &put, WEIR_PUT_FIELDS);
		return (uint32_t)maybe(rng() % WEIR_PUT_MAX);
	case WEIR_OP_UPDATE:
		a.type = (uint8_t)maybe(WEIR_T_INT64);
		a.acc = (uint8_t)maybe(WEIR_ACC_SUM);
		a.options = (uint16_t)maybe(rng() % 2);
		memcpy(data, &a, WEIR_ACCESS_FIELDS);
		return (uint32_t)maybe(8 * a.count);
	case WEIR_OP_CAS:
		a.type = (uint8_t)maybe(WEIR_T_INT32);
		a.count = (uint32_t)maybe(1);
		memcpy(data, &a, WEIR_ACCESS_FIELDS);
		return (uint32_t)maybe(8);
	case WEIR_OP_GET:
		a.count = (uint32_t)maybe(1 + rng() % WEIR_ANSWER_MAX);
		a.options = (uint16_t)maybe(0);
		memcpy(data, &a, WEIR_ACCESS_FIELDS);
		return (uint32_t)maybe(0);
	case WEIR_OP_NOTICE:
		memcpy(data, &n, sizeof(n));
		return (uint32_t)maybe(0);
	case WEIR_OP_TRANSFER:
		memcpy(data, &t, sizeof(t));
		return (uint32_t)maybe(1 + rng() % WEIR_BLOCK_SIZE);
	default: /* locks, flushes */
		memset(data, 0, WEIR_SLOT_HEAD_BYTES);
		if (op != WEIR_OP_FLUSH)
			memcpy(data, &lock, sizeof(lock));
		return (uint32_t)maybe(0);
	}
}

/* Operations, most of them right, until the data plane ends the session, or enough were done. */
void
do_cells(struct victim *v)
{
	static const uint8_t ops[] = {WEIR_OP_PUT,    WEIR_OP_PUT,    WEIR_OP_UPDATE,
				      WEIR_OP_UPDATE, WEIR_OP_CAS,    WEIR_OP_GET,
				      WEIR_OP_GET,    WEIR_OP_NOTICE, WEIR_OP_LOCK,
				      WEIR_OP_UNLOCK, WEIR_OP_FLUSH,  WEIR_OP_TRANSFER};
	uint8_t data[WEIR_INLINE_MAX];
	struct weir_key_fields key;
	unsigned i;

	read_key(&key, "");
	if (open_memory(v, &key,
			rng() % 4 ? WEIR_RIGHTS_KNOWN : (uint32_t)rng() & WEIR_RIGHTS_KNOWN))
		return;
	start_tx(v);
	usleep(rng() % 8 ? 5000 : 0); /* before it is open, every operation is wrong */
	for (i = 0; i < CELLS && !ended(v); i++) {
		uint8_t op = ops[rng() % sizeof(ops)];
		uint32_t length = make_cell(v, op, data), n = 1;
		bool fits = weir_op_is_cell(op) && weir_cell_length_ok(op, length);

		if (fits)
			n = weir_cell_slots(op, length);
		for (unsigned k = 0; k < 100 && !tx_room(v); k++)
			usleep(100);
		if (weir_ring_room(&v->tx) < n)
			break;
		next_slot(&v->tx, op, (uint16_t)maybe(i), (uint32_t)maybe(v->vqpn), length);
		weir_ring_put_inline(&v->tx, data,
				     fits ? weir_cell_fields(op) + length : WEIR_SLOT_HEAD_BYTES);
		weir_ring_publish(&v->tx, n);
		ring(v);
		tally(1, "cells");
		if (rng() % 8 == 0)
			usleep(500);
	}
	usleep(2000);
	tally(ended(v), "sessions ended");
	if (i == CELLS && !ended(v) && rng() % 2)
		close_unused(v, v->vqpn);
}

/* Keys with one bit flipped, whose sum is right. */
void
do_guesses(struct victim *v)
{
	struct weir *w = join();
	struct weir_key_fields key, guess;

	if (!w)
		return;
	read_key(&key, "");
	for (unsigned i = 0; i < 40 && left() > 0; i++) {
		struct weir_remote *r = NULL;
		unsigned bit = (unsigned)(rng() % (8 * offsetof(struct weir_key_fields, sum)));
		struct weir_key bytes;
		int rc;

		guess = key;
		((uint8_t *)&guess)[bit / 8] ^= (uint8_t)(1u << bit % 8);
		guess.sum = weir_key_sum(&guess);
		memcpy(&bytes, &guess, sizeof(bytes));
		rc = weir_remote_open(w, &bytes, WEIR_MAY_READ, WEIR_OPEN_APART, OPEN_MS, &r);
		if (!rc)
			violated("a forged key was accepted");
		tally(1, "guesses refused (%s)", strerrorname_np(-rc));
	}
	weir_detach(w);
}

/* ---- memory that is mapped ---- */

#define LATE 0xee /* of stores after the end of an export: the owner's later memory has none */

/* The memory's descriptor, valid until drop(), or -1. */
static int
map_fd(struct victim *v, const struct weir_key_fields *key, uint32_t rights)
{
	struct weir_session_msg m = {.type = WEIR_MSG_MAP}, r;
	int fds[FDS];

	m.map.rights = rights;
	memcpy(m.map.key, key, sizeof(m.map.key));
	if (request(v, &m, &r, fds, WEIR_MSG_MAPPED))
		return -1;
	if (r.mapped.bytes != EXPORT)
		violated("an export has another length");
	return fds[0];
}

static void
must_fail(bool failed, const char *what)
{
	if (!failed)
		violated(what);
	tally(1, "writes refused by the kernel");
}

/* By its name in /proc: root may open anything. */
static bool
reopen_fails(int fd)
{
	char path[32];
	int other;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = geteuid() ? open(path, (rng() % 2 ? O_RDWR : O_WRONLY) | O_CLOEXEC) : -1;
	if (other >= 0)
		close(other);
	return other < 0;
}

/* As a debugger writes to read-only memory of a process. */
static bool
poke_fails(const uint8_t *at)
{
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	bool fails = fd < 0 || pwrite(fd, "x", 1, (off_t)(uintptr_t)at) < 0;

	if (fd >= 0)
		close(fd);
	return fails;
}

/* Each way to write memory whose descriptor is read-only. */
static void
stay_read_only(int fd)
{
	const int both = PROT_READ | PROT_WRITE;
	uint8_t *mapped = mmap(NULL, EXPORT, PROT_READ, MAP_SHARED, fd, 0);

	if (mapped == MAP_FAILED)
		violated("memory that may be read cannot be mapped");
	must_fail(mprotect(mapped, EXPORT, both) < 0, "mprotect() made a mapping writable");
	must_fail(mmap(NULL, EXPORT, both, MAP_SHARED, fd, 0) == MAP_FAILED,
		  "a second mapping of a read-only descriptor is writable");
	must_fail(reopen_fails(fd), "a read-only descriptor was opened for writing");
	must_fail(poke_fails(mapped), "/proc/self/mem wrote to a read-only mapping");
	must_fail(pwrite(fd, "x", 1, 0) < 0, "a read-only descriptor was written to");
	must_fail(ftruncate(fd, 0) < 0, "a read-only descriptor was truncated");
	must_fail(punch(fd, 0, 4096) < 0, "a hole through a read-only descriptor");
	must_fail(madvise(mapped, 4096, MADV_REMOVE) < 0, "a hole through a read-only mapping");
	must_fail(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0, "a read-only descriptor was sealed");
	must_fail(!geteuid() || fchmod(fd, 0666) < 0, "the mode of others' memory was changed");
	munmap(mapped, EXPORT);
	tally(1, "read-only mappings");
}

/* Whether the export of the key has ended. */
static bool
key_ended(struct victim *v, const struct weir_key_fields *key)
{
	struct weir_session_msg m = {.type = WEIR_MSG_MAP}, r;
	int fds[FDS];

	m.length = weir_session_length(m.type);
	m.map.rights = WEIR_RIGHT_READ;
	memcpy(m.map.key, key, sizeof(m.map.key));
	return ask(v->sock, &m, m.length, &r, fds) > 0 && r.type == WEIR_MSG_REFUSED &&
	       r.refused.code == EKEYREJECTED;
}

/* Holes in memory that may be written; its mapping outlives the export. */
static void
make_holes(struct victim *v, const struct weir_key_fields *key, int fd)
{
	uint64_t at = rng() % (EXPORT / 4096) * 4096, bytes = rng() % 2 ? 4096 : EXPORT - at;
	uint8_t *mapped = mmap(NULL, EXPORT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	bool over = false;

	if (mapped == MAP_FAILED)
		violated("memory that may be written cannot be mapped");
	must_fail(ftruncate(fd, 0) < 0, "mapped memory became shorter");
	must_fail(ftruncate(fd, 4 * EXPORT) < 0, "mapped memory became longer");
	must_fail(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0, "mapped memory was sealed");
	memset(mapped, (int)(rng() % 128), EXPORT); /* as it may */
	tally(1, "writable mappings");
	if (rng() % 2 ? punch(fd, at, bytes) : madvise(mapped + at, bytes, MADV_REMOVE)) {
		tally(1, "holes refused (%s)", strerrorname_np(errno));
	} else {
		for (unsigned k = 0; k < 300 && !over && !ended(v) && left() > 0; k++) {
			over = key_ended(v, key);
			if (!over)
				usleep(10000);
		}
		tally(over, "exports ended by holes");
	}
	if (over)
		memset(mapped, LATE, EXPORT);
	munmap(mapped, EXPORT);
}

/* Both kinds of memory in turn, by descriptors of all that the keys grant. */
void
do_map(struct victim *v)
{
	struct weir_key_fields key;
	int fd;

	read_key(&key, ".read");
	fd = map_fd(v, &key, WEIR_RIGHT_READ);
	if (fd >= 0)
		stay_read_only(fd);
	if (map_fd(v, &key, WEIR_RIGHT_READ | WEIR_RIGHT_WRITE) >= 0)
		violated("memory that may be read was given for writing");
	read_key(&key, ".write");
	fd = map_fd(v, &key, WEIR_RIGHT_READ);
	if (fd >= 0)
		stay_read_only(fd);
	fd = map_fd(v, &key, WEIR_RIGHT_READ | WEIR_RIGHT_WRITE);
	if (fd >= 0)
		make_holes(v, &key, fd);
	usleep(20000);
}

/* ---- floods ---- */

#define HANDLES 32u

static struct weir_remote *
open_handle(struct weir *w, unsigned rights)
{
	struct weir_remote *r = NULL;
	struct weir_key_fields key;
	struct weir_key bytes;
	int rc;

	read_key(&key, "");
	memcpy(&bytes, &key, sizeof(bytes));
	rc = weir_remote_open(w, &bytes, rights, WEIR_OPEN_APART, OPEN_MS, &r);
	if (rc)
		tally(1, "opens refused (%s)", strerrorname_np(-rc));
	return rc ? NULL : r;
}

struct asker {
	struct weir_remote *r;
	int kind;
	bool asked, held;
};

/* One step of a request that waits in the queue, until it has got the lock, which it gives back
 * when its turn comes again. */
static void
queue_up(struct asker *a)
{
	bool asked = a->asked;
	int rc;

	if (a->held) {
		weir_remote_unlock(a->r, 0);
		a->held = a->asked = false;
		return;
	}
	if (!asked)
		a->kind = rng() % 2 ? WEIR_LOCK_EXCLUSIVE : WEIR_LOCK_SHARED;
	rc = weir_lock_step(a->r, a->kind, &a->asked);
	a->held = !rc || rc == -EOWNERDEAD;
	tally(a->asked && !asked, "asked for a lock");
	tally(a->held, "got a lock");
}

/*
 * A request that waits for no time. It is taken back right behind the LOCK, so it gets the lock
 * only if an engine has taken that cell and answered in between: some calls of a hundred thousand,
 * though nobody else may hold the lock. That is no matter of fairness. Most calls ask for nothing:
 * the answer to the request before is still on its way.
 */
static void
ask_in_passing(struct asker *a)
{
	int rc = weir_remote_lock(a->r, rng() % 2 ? WEIR_LOCK_EXCLUSIVE : WEIR_LOCK_SHARED, 0);

	tally(1, "calls without time");
	tally(!rc, "of those that got a lock");
	if (!rc || rc == -EALREADY || rc == -EOWNERDEAD)
		weir_remote_unlock(a->r, 0);
}

/* Requests for one lock by many connections: half of them queue up, and keep it for a round, the
 * others take theirs back at once; some end while they wait, or with the lock. */
void
do_locks(struct victim *v)
{
	struct asker asker[HANDLES] = {{0}};
	struct weir *w = join();
	double end = seconds() + 5;

	for (unsigned i = 0; w && seconds() < end && left() > 0; i = (i + 1) % HANDLES) {
		struct asker *a = &asker[i];

		if (!a->r)
			*a = (struct asker){.r = open_handle(w, WEIR_MAY_LOCK)};
		if (!a->r)
			continue;
		if (i % 2)
			queue_up(a);
		else
			ask_in_passing(a);
		if (rng() % 64 == 0) {
			weir_remote_close(a->r);
			a->r = NULL;
		}
	}
	for (unsigned i = 0; i < HANDLES; i++)
		weir_remote_close(asker[i].r);
	weir_detach(w);
}

/* Connections to the memory, opened and closed without end. */
void
do_opens(struct victim *v)
{
	struct weir *w = join();
	double end = seconds() + 5;

	while (w && seconds() < end && left() > 0) {
		struct weir_remote *r = open_handle(w, WEIR_MAY_READ);

		if (!r)
			usleep(1000);
		tally(r != NULL, "opened memory");
		weir_remote_close(r);
	}
	weir_detach(w);
}

/* As many large gets as the ring takes, whose answers nobody looks at. */
void
do_fetches(struct victim *v)
{
	uint32_t place = (uint32_t)(weir_arena_send(&v->geometry) / WEIR_SLOT_SIZE);
	struct weir_cell_access a = {
	    .handle = WEIR_HANDLE_FIRST, .result = place, .count = WEIR_ANSWER_MAX};
	uint8_t data[WEIR_INLINE_MAX] = {0};
	uint32_t n = weir_cell_slots(WEIR_OP_GET, 0);
	double end = seconds() + 5;
	struct weir_key_fields key;
	uint16_t sent = 0;

	read_key(&key, "");
	if (open_memory(v, &key, WEIR_RIGHT_READ))
		return;
	start_tx(v);
	usleep(200000); /* until it is open */
	memcpy(data, &a, WEIR_ACCESS_FIELDS);
	while (seconds() < end && left() > 0 && !ended(v)) {
		unsigned burst = 0;

		while ((weir_ring_room(&v->tx) >= n ||
			(weir_ring_refresh(&v->tx) && weir_ring_room(&v->tx) >= n)) &&
		       burst < 1024) {
			next_slot(&v->tx, WEIR_OP_GET, sent++, v->vqpn, 0);
			weir_ring_put_inline(&v->tx, data, weir_cell_fields(WEIR_OP_GET));
			weir_ring_publish(&v->tx, n);
			burst++;
		}
		if (burst)
			ring(v);
		else
			usleep(50);
		tally(burst, "asked for bytes");
	}
	tally(ended(v), "sessions ended");
}
