/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs with remote memory and windows that rma_kill.sh and window_kill.sh kill and stop. Each
 * worker keeps a book in a mapped file of DIR, which survives SIGKILL: what it has begun, and what
 * has completed.
 *
 *   rma_kill INSTANCE own DIR            exports memory, writes its keys, says "ready"; on SIGUSR1,
 *                                        and when the memory ends, compares it with the books
 *   rma_kill INSTANCE update DIR SLOT    adds to a word of its own and to one of all
 *   rma_kill INSTANCE put DIR SLOT       puts 16 MiB at once, again and again, into area SLOT
 *   rma_kill INSTANCE lock DIR SLOT      increments a word under the lock by a get and a put
 *   rma_kill INSTANCE join DIR SLOT N    joins a group of N members, and makes barriers
 *   rma_kill INSTANCE map DIR SLOT       adds to a word of memory that may be mapped
 *   rma_kill INSTANCE window DIR SLOT N  is rank SLOT of a group of N with a window, and does all
 *                                        of that there (rma_kill_window.c)
 *   rma_kill INSTANCE ask DIR N          joins the group once, within a second; says "join RC"
 *   rma_kill INSTANCE hold DIR           locks, says "held RC", unlocks on SIGUSR1
 *   rma_kill - book DIR NAME             says what is begun, completed, errors, the last error
 *   rma_kill - check DIR                 compares all books with the memory of each life of the
 *                                        owner
 *
 * Workers outlive data planes and owners: they attach and open again until SIGTERM.
 */
#include "rma_kill.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TOTAL SLOTS	    /* the word of all that add */
#define LOCKED (SLOTS + 1u) /* the word under the lock */
#define WORDS (SLOTS + 2u)
#define AREAS 2u
#define GUARD (2ull << 20) /* bytes around the areas that nobody may write */
#define GUARD_BYTE 0xa5
#define LATCH 4096u /* offset of memory that has a lock alone */
#define LATCH_BYTES 64u
#define AT_AREA(i) (GUARD + (i) * (AREA + GUARD))
#define REGION AT_AREA(AREAS)
#define MAPPED_BYTES 4096u /* of the region that programs of the owner's host map: words */
#define BATCH 8u

static const char *const role_name[] = {"own", "update", "put", "lock", "join", "window", "map"};

/* Contents of the memory of each life of the owner at its end. */
struct remains {
	_Atomic uint32_t valid;
	bool early; /* programs may have added to mapped words since */
	uint64_t word[WORDS], mapped[SLOTS];
	uint8_t seen[AREAS][256]; /* values of bytes */
};
struct estate {
	_Atomic uint64_t lives;
	struct remains life[LIVES];
};

struct keys {
	uint64_t life;
	struct weir_key words, latch, area[AREAS], mapped;
};

_Atomic int stopping;
static _Atomic int asked;
struct weir *w;
struct book *book;

static void
on_signal(int signal)
{
	if (signal == SIGTERM)
		stopping = 1;
	else
		asked = 1;
}

void *
map_file(const char *name, size_t bytes, int flags)
{
	void *at = MAP_FAILED;
	int fd = open(name, flags, 0600);

	if (fd >= 0 && (!(flags & O_CREAT) || !ftruncate(fd, (off_t)bytes)))
		at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return at == MAP_FAILED ? NULL : at;
}

/* ---- the books and the memory ---- */

struct sums {
	uint64_t add_completed, add_begun, lock_completed, lock_begun;
	unsigned books, faults;
};

void
in_between(unsigned *faults, const char *what, uint64_t completed, uint64_t value, uint64_t begun)
{
	if (completed <= value && value <= begun)
		return;
	++*faults;
	say("wrong: %s: %llu completed, %llu in memory, %llu begun", what,
	    (unsigned long long)completed, (unsigned long long)value, (unsigned long long)begun);
}

void
check_area(unsigned *faults, const char *name, const uint8_t seen[256], uint64_t completed,
	   uint64_t begun)
{
	for (unsigned i = 0; i < 256; i++)
		if (seen[i] && (uint8_t)(i - completed) > begun - completed) {
			++*faults;
			say("wrong: %s: %llu completed, %llu begun, a byte is %u", name,
			    (unsigned long long)completed, (unsigned long long)begun, i);
		}
}

/* One pass over all books: called with `after` false, the memory is read, then with true. */
static void
read_books(uint64_t life, bool after, uint64_t completed[][SLOTS], struct sums *s,
	   const struct remains *is)
{
	DIR *d = opendir(".");
	struct dirent *e;

	while (d && (e = readdir(d))) {
		struct book *b =
		    strchr(e->d_name, '-') ? map_file(e->d_name, sizeof(*b), O_RDWR) : NULL;
		struct tally *t;
		uint32_t role, slot;

		if (!b)
			continue;
		role = b->role, slot = b->slot, t = &b->life[life];
		if (!after) {
			completed[role][slot] = t->completed;
		} else if (role == UPDATE) {
			in_between(&s->faults, e->d_name, completed[role][slot], is->word[slot],
				   t->begun);
			s->add_begun += t->begun;
			s->add_completed += completed[role][slot];
		} else if (role == MAP) {
			in_between(&s->faults, e->d_name, is->early ? 0 : completed[role][slot],
				   is->mapped[slot], t->begun);
		} else if (role == LOCK) {
			s->lock_begun += t->begun;
			s->lock_completed += completed[role][slot];
		} else if (role == PUT) {
			check_area(&s->faults, e->d_name, is->seen[slot], completed[role][slot],
				   t->begun);
		}
		s->books += after;
		munmap(b, sizeof(*b));
	}
	if (d)
		closedir(d);
	if (after) {
		in_between(&s->faults, "all that add", s->add_completed, is->word[TOTAL],
			   s->add_begun);
		in_between(&s->faults, "under the lock", s->lock_completed, is->word[LOCKED],
			   s->lock_begun);
	}
}

/* ---- the owner ---- */

struct owner {
	struct estate *estate;
	uint8_t *memory, *mapped;
	uint64_t life;
};

static void
guard_check(const struct owner *o, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		if (o->memory[i] != GUARD_BYTE) {
			wrong("byte %llu beside the exports was written", (unsigned long long)i);
			return;
		}
}

static void
read_memory(const struct owner *o, struct remains *is)
{
	const _Atomic uint64_t *word = (const _Atomic uint64_t *)o->memory;

	for (unsigned i = 0; i < WORDS; i++)
		is->word[i] = word[i];
	for (unsigned i = 0; i < SLOTS; i++)
		is->mapped[i] = ((const _Atomic uint64_t *)o->mapped)[i];
	memset(is->seen, 0, sizeof(is->seen));
	for (unsigned i = 0; i < AREAS; i++)
		for (uint64_t k = 0; k < AREA; k++)
			is->seen[i][((const _Atomic uint8_t *)o->memory)[AT_AREA(i) + k]] = 1;
	for (unsigned i = SLOTS; i < MAPPED_BYTES / 8; i++)
		if (((const _Atomic uint64_t *)o->mapped)[i])
			wrong("word %u of the mapped memory was written", i);
	guard_check(o, WORDS * 8, LATCH);
	guard_check(o, LATCH + LATCH_BYTES, GUARD);
	for (unsigned i = 0; i < AREAS; i++)
		guard_check(o, AT_AREA(i) + AREA, AT_AREA(i + 1));
}

/* Compares the memory with the books, of which the programs may be at work. */
static void
compare(const struct owner *o)
{
	static uint64_t completed[sizeof(role_name) / sizeof(role_name[0])][SLOTS];
	struct remains *is = &o->estate->life[o->life];
	struct sums s = {0};

	read_books(o->life, false, completed, &s, NULL);
	read_memory(o, is);
	read_books(o->life, true, completed, &s, is);
	if (s.faults)
		wrong("%u books do not agree with the memory", s.faults);
	say("compared %u books, %s", s.books, book->failure[0] ? book->failure : "all agree");
}

static int
export_all(struct owner *o, struct weir_region *region, struct weir_region *mapped)
{
	const unsigned rights = WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE | WEIR_MAY_LOCK;
	struct keys k = {.life = o->life};
	struct weir_export *x;
	int rc = weir_export(region, 0, WORDS * 8, rights, &x, &k.words), fd;

	if (!rc)
		rc = weir_export(region, LATCH, LATCH_BYTES, WEIR_MAY_LOCK, &x, &k.latch);
	for (unsigned i = 0; !rc && i < AREAS; i++)
		rc = weir_export(region, AT_AREA(i), AREA, WEIR_MAY_WRITE, &x, &k.area[i]);
	if (!rc)
		rc = weir_export(mapped, 0, MAPPED_BYTES, rights | WEIR_MAY_MAP, &x, &k.mapped);
	if (rc)
		return rc;
	fd = open("keys.new", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, &k, sizeof(k)) != sizeof(k) || rename("keys.new", "keys"))
		rc = -errno;
	if (fd >= 0)
		close(fd);
	return rc;
}

/* Serves until the data plane is gone, or until SIGTERM. */
static void
own(struct owner *o)
{
	struct weir_region_info info;
	struct weir_region *region, *mapped;
	struct weir_event ev[8];
	int rc = weir_region_alloc(w, REGION, NULL, &region);

	if (!rc)
		rc = weir_region_alloc(w, MAPPED_BYTES, NULL, &mapped);
	if (rc) {
		if (rc != -ENODEV)
			wrong("no memory: %s", weir_reason());
		return;
	}
	weir_region_info(mapped, &info);
	o->mapped = info.base;
	weir_region_info(region, &info);
	o->life = o->estate->lives++;
	if (o->life == LIVES) {
		wrong("more than %u lives", LIVES);
		exit(1);
	}
	o->memory = info.base;
	memset(o->memory, GUARD_BYTE, REGION);
	memset(o->memory, 0, WORDS * 8);
	memset(o->memory + LATCH, 0, LATCH_BYTES);
	for (unsigned i = 0; i < AREAS; i++)
		memset(o->memory + AT_AREA(i), 0, AREA);
	rc = export_all(o, region, mapped);
	if (rc && rc != -ENODEV)
		wrong("export: %s (%s)", strerror(-rc), weir_reason());
	if (!rc)
		say("ready");
	while (!rc && !stopping) {
		rc = weir_wait(w, ev, 8, 50);
		rc = rc > 0 || rc == -EINTR ? 0 : rc;
		if (asked) {
			asked = 0;
			compare(o);
		}
	}
	/* nobody writes into it any more, but programs that map it and have not heard */
	compare(o);
	o->estate->life[o->life].early = rc;
	o->estate->life[o->life].valid = 1;
}

/* ---- workers ---- */

bool
may_end(int rc)
{
	book->errors++;
	book->last = rc;
	return rc == -ECONNRESET || rc == -EHOSTDOWN || rc == -ESTALE || rc == -ENODEV ||
	       (rc == -EINTR && stopping);
}

bool
may_fail(int rc)
{
	return rc == -EKEYREJECTED || rc == -EHOSTUNREACH || rc == -ETIMEDOUT ||
	       rc == -ECONNREFUSED;
}

void
ended(const char *what, int rc)
{
	if (!may_end(rc))
		wrong("%s: %s (%s)", what, strerror(-rc), weir_reason());
	say("%s: %d", what, rc);
}

struct work {
	struct weir_remote *r;
	struct tally *t;
	unsigned slot;
	bool maps;
	bool known; /* `next` is */
	uint64_t next;
	uint8_t *buf; /* PUT */
	struct weir_group *g;
};

static int
update(struct work *k)
{
	static uint64_t seen[BATCH], one = 1;
	struct weir_update u = {
	    .operand = &one, .count = 1, .type = WEIR_T_UINT64, .op = WEIR_ACC_SUM};
	uint64_t n = 1 + k->t->begun % BATCH, i;
	int rc = 0;

	k->t->begun += n;
	for (i = 0; !rc && i < n; i++) {
		rc = weir_remote_fetch_op(k->r, 8 * k->slot, &one, &seen[i], WEIR_T_UINT64,
					  WEIR_ACC_SUM, 0);
		u.offset = 8 * TOTAL;
		if (!rc && !k->maps)
			rc = weir_remote_update(k->r, &u);
	}
	if (!rc)
		rc = weir_remote_flush(k->r, PATIENCE_MS);
	if (rc)
		return rc;
	/* nobody else adds to that word */
	if (!k->known && (seen[0] < k->t->completed || seen[0] > k->t->begun - n))
		wrong("%llu completed, %llu begun, and fetched %llu",
		      (unsigned long long)k->t->completed, (unsigned long long)k->t->begun - n,
		      (unsigned long long)seen[0]);
	for (i = 0; i < n; i++)
		if (k->known ? seen[i] != k->next + i : seen[i] != seen[0] + i)
			wrong("fetched %llu, expected %llu", (unsigned long long)seen[i],
			      (unsigned long long)(k->known ? k->next : seen[0]) + i);
	k->next = seen[n - 1] + 1;
	k->known = true;
	k->t->completed += n;
	return 0;
}

/* Every second put goes out of the region itself. */
static int
put(struct work *k)
{
	uint64_t n = k->t->begun + 1;
	int rc;

	memset(k->buf, (int)(n % 256), AREA);
	k->t->begun = n;
	rc = weir_remote_put(k->r, 0, k->buf, AREA, n % 2 ? WEIR_KEEP : 0);
	if (!rc)
		rc = weir_remote_flush(k->r, PATIENCE_MS);
	if (!rc)
		k->t->completed = n;
	return rc;
}

static int
lock(struct work *k)
{
	uint64_t value = 0;
	int rc = weir_remote_lock(k->r, WEIR_LOCK_EXCLUSIVE, PATIENCE_MS);

	book->repaired += rc == -EOWNERDEAD;
	if (rc && rc != -EOWNERDEAD)
		return rc;
	k->t->begun++;
	rc = weir_remote_get(k->r, 8 * LOCKED, &value, sizeof(value), 0);
	if (!rc)
		rc = weir_remote_flush(k->r, PATIENCE_MS);
	value++;
	if (!rc)
		rc = weir_remote_put(k->r, 8 * LOCKED, &value, sizeof(value), 0);
	if (!rc)
		rc = weir_remote_unlock(k->r, PATIENCE_MS);
	if (!rc)
		k->t->completed++;
	return rc;
}

static int
barrier(struct work *k)
{
	int rc;

	k->t->begun++;
	rc = weir_group_barrier(k->g, PATIENCE_MS);
	if (!rc)
		k->t->completed++;
	return rc;
}

static int
repeat(struct work *k, int (*step)(struct work *k), const char *what)
{
	int rc = 0;

	while (!rc && !stopping) {
		rc = step(k);
		usleep(500);
	}
	if (rc)
		ended(what, rc);
	return rc;
}

static bool
read_keys(struct keys *k)
{
	int fd = open("keys", O_RDONLY);
	bool ok = fd >= 0 && read(fd, k, sizeof(*k)) == sizeof(*k);

	if (fd >= 0)
		close(fd);
	return ok;
}

/* On one life of the owner after the other. */
static void
work_remotely(enum role role, unsigned slot)
{
	static int (*const step[])(struct work *) = {
	    [UPDATE] = update, [PUT] = put, [LOCK] = lock, [MAP] = update};
	static const unsigned rights[] = {
	    [UPDATE] = WEIR_MAY_UPDATE,
	    [PUT] = WEIR_MAY_WRITE,
	    [LOCK] = WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_LOCK,
	    [MAP] = WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE,
	};
	struct work k = {.slot = slot, .maps = role == MAP};
	struct weir_remote_info is;
	struct weir_region *region;
	struct weir_export *x;
	struct weir_key own;
	int rc = 0;

	if (role == PUT) {
		struct weir_region_info info;

		/* its own export is to end with it */
		rc = weir_region_alloc(w, AREA, NULL, &region);
		if (!rc)
			rc = weir_export(region, 0, AREA, WEIR_MAY_READ, &x, &own);
		if (rc) {
			ended("memory", rc);
			return;
		}
		weir_region_info(region, &info);
		k.buf = info.base;
	}
	while (rc != -ENODEV && !stopping) {
		struct keys keys;

		usleep(10000);
		if (!read_keys(&keys))
			continue;
		k.t = &book->life[keys.life];
		k.known = false;
		rc = weir_remote_open(w,
				      role == PUT   ? &keys.area[slot]
				      : role == MAP ? &keys.mapped
						    : &keys.words,
				      rights[role], 0, PATIENCE_MS, &k.r);
		if (rc) {
			if (!may_fail(rc))
				ended("open", rc);
			continue;
		}
		weir_remote_info(k.r, &is);
		if (role == MAP && is.local != !!is.mapped)
			wrong("memory of %s host is %smapped", is.local ? "this" : "another",
			      is.mapped ? "" : "not ");
		rc = repeat(&k, step[role], role_name[role]);
		weir_remote_close(k.r);
	}
}

static void
work_together(unsigned slot, uint32_t size)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	struct work k = {.slot = slot, .t = &book->life[0]};
	int rc = 0;

	o.size = size;
	while (rc != -ENODEV && !stopping) {
		uint64_t since = now_ms();

		rc = weir_group_join(w, "rma_kill", &o, PATIENCE_MS, &k.g);
		if (rc) {
			/* control has not told the node id of a new data plane */
			bool early = rc == -EAGAIN && now_ms() - since < PATIENCE_MS;

			if (!early && !may_fail(rc))
				ended("join", rc);
			usleep(10000);
			continue;
		}
		say("joined as %u", weir_group_rank(k.g));
		rc = repeat(&k, barrier, "barrier");
		weir_group_leave(k.g);
	}
}

/* ---- one call ---- */

static int
ask(uint32_t size)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	struct weir_group *g;
	int rc;

	o.size = size;
	rc = weir_group_join(w, "rma_kill", &o, 1000, &g);
	say("join %d", rc);
	if (!rc)
		weir_group_leave(g);
	return 0;
}

static int
hold(void)
{
	struct weir_remote *r;
	struct keys keys;
	sigset_t usr1;
	int signal, rc;

	if (!read_keys(&keys))
		return failed("keys", -errno);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	rc = weir_remote_open(w, &keys.latch, WEIR_MAY_LOCK, 0, PATIENCE_MS, &r);
	if (rc)
		return failed("open", rc);
	rc = weir_remote_lock(r, WEIR_LOCK_EXCLUSIVE, 4 * PATIENCE_MS);
	say("held %d", rc);
	if (rc && rc != -EOWNERDEAD)
		return failed("lock", rc);
	sigwait(&usr1, &signal);
	rc = weir_remote_unlock(r, PATIENCE_MS);
	say("unlocked %d", rc);
	weir_remote_close(r);
	return rc != 0;
}

/* ---- what the test asks ---- */

static int
show(const char *name)
{
	struct book *b = map_file(name, sizeof(*b), O_RDWR);
	uint64_t begun = 0, completed = 0;

	for (unsigned i = 0; b && i < LIVES; i++) {
		completed += b->life[i].completed, begun += b->life[i].begun;
		for (unsigned k = 0; k < OF_WINDOWS; k++) {
			completed += b->window[i][k].completed;
			begun += b->window[i][k].begun;
		}
	}
	printf("%llu %llu %llu %d\n", (unsigned long long)begun, (unsigned long long)completed,
	       (unsigned long long)(b ? b->errors : 0), b ? b->last : 0);
	return 0;
}

static int
check(void)
{
	static uint64_t completed[sizeof(role_name) / sizeof(role_name[0])][SLOTS];
	struct estate *e = map_file("estate", sizeof(*e), O_RDWR);
	struct sums s = {0};
	unsigned lives = 0;
	struct dirent *f;
	DIR *d = opendir(".");

	for (uint64_t life = 0; e && life < e->lives; life++) {
		struct sums of = {0};

		if (!e->life[life].valid)
			continue; /* it was killed, and its memory with it */
		read_books(life, false, completed, &of, NULL);
		read_books(life, true, completed, &of, &e->life[life]);
		s.faults += of.faults;
		lives++;
	}
	while (d && (f = readdir(d))) {
		struct book *b =
		    strchr(f->d_name, '-') ? map_file(f->d_name, sizeof(*b), O_RDWR) : NULL;

		if (b && b->failure[0]) {
			s.faults++;
			printf("wrong: %s: %s\n", f->d_name, b->failure);
		}
	}
	printf("%u faults in %u lives\n", s.faults, lives);
	return s.faults || (e && !lives);
}

/* Repeats until the data plane is there. False: SIGTERM came first. */
static bool
attach(const char *instance)
{
	struct weir_options o = {.size = sizeof(o), .instance = instance, .name = "rma_kill"};
	int r;

	while (!stopping) {
		r = weir_attach(&o, &w);
		if (!r)
			return true;
		if (r != -ENOENT && r != -ECONNREFUSED && r != -ENODEV && r != -ETIMEDOUT &&
		    !(r == -EINTR && stopping))
			wrong("attach: %s (%s)", strerror(-r), weir_reason());
		usleep(20000);
	}
	return false;
}

static int
live(enum role role, int argc, char **argv)
{
	unsigned slot = (unsigned)number_at(argc, argv, 4);
	struct owner o = {0};
	char name[64];

	if (slot >= (role == PUT ? AREAS : SLOTS))
		return 2;
	snprintf(name, sizeof(name), "%s-%u", role_name[role], slot);
	book = map_file(name, sizeof(*book), O_RDWR | O_CREAT);
	if (role == OWN)
		o.estate = map_file("estate", sizeof(*o.estate), O_RDWR | O_CREAT);
	if (!book || (role == OWN && !o.estate))
		return failed(name, -errno);
	book->slot = slot;
	book->role = role;
	while (attach(argv[1])) {
		if (role == OWN)
			own(&o);
		else if (role == JOIN)
			work_together(slot, (uint32_t)number_at(argc, argv, 5));
		else if (role == WINDOW)
			work_in_window(slot, (uint32_t)number_at(argc, argv, 5));
		else
			work_remotely(role, slot);
		weir_detach(w);
	}
	return book->failure[0] ? 1 : 0;
}

int
main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	static struct book none;
	const char *mode = argc > 3 ? argv[2] : "";

	if (argc > 3 && chdir(argv[3]))
		return failed(argv[3], -errno);
	sigaction(SIGTERM, &action, NULL);
	if (!strcmp(mode, "book") && argc > 4)
		return show(argv[4]);
	if (!strcmp(mode, "check"))
		return check();
	if (!strcmp(mode, "hold") || !strcmp(mode, "ask")) {
		book = &none;
		if (!attach(argv[1]))
			return 0;
		return mode[0] == 'h' ? hold() : ask((uint32_t)number_at(argc, argv, 4));
	}
	sigaction(SIGUSR1, &action, NULL);
	for (unsigned i = 0; i < sizeof(role_name) / sizeof(role_name[0]); i++)
		if (!strcmp(mode, role_name[i]))
			return live((enum role)i, argc, argv);
	fprintf(stderr, "rma_kill: no mode '%s'; see the head of rma_kill.c\n", mode);
	return 2;
}
