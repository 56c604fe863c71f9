/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that attaches and then breaks every rule it can: what the data plane and local peers
 * must survive. It speaks the session protocol itself, so that nothing of the library protects the
 * victim; only the attacks on messengers use the library's streams.
 *
 *   hostile INSTANCE MODE[:PROCESSES] SECONDS [SEED] [ADDRESS]
 *
 * Each mode repeats until the time is over, attaching again whenever the data plane has thrown it
 * out. Most modes take little CPU themselves, so that others lose time only to the attack.
 * `compute` only computes: measurements compare the other modes with it. $HOSTILE_UID: the user
 * that the program becomes. SIGTERM: the time is over. The last line counts attacks and answers.
 * Exit 0: the time is over and the data plane still answers. 1: it does not answer. 2: usage. 77:
 * the host lacks what the mode needs.
 */
#define _GNU_SOURCE
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TALLIES 32u
#define HANDED 1024u
#define TELL_S 0.5
#define GRACE_S 20.0 /* that processes have to end when the time is over */

/* Shared by all processes. */
struct books {
	atomic_flag lock;
	atomic_bool stop; /* on_term() sets it */
	_Atomic uint32_t rounds;
	double told; /* seconds(); this and `news` under the lock */
	bool news;   /* something was counted since then */
	struct {
		char what[44];
		_Atomic uint64_t n;
	} tally[TALLIES];
};

static const char *instance, *target;
static uint64_t rng_state;
static double ends_at;
static const char *mode_name, *seed;
static struct books *books;
static int handed_fd[HANDED];
static unsigned handed_count;
int patience_ms = PATIENCE_MS;

uint64_t
rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

double
seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Until now. The books locked, or nobody else writes to them. */
static void
tell(void)
{
	printf("hostile: %s: %u rounds, seed %s", mode_name, books->rounds, seed);
	for (unsigned i = 0; i < TALLIES && books->tally[i].what[0]; i++)
		printf("%s%s %llu", i ? ", " : ": ", books->tally[i].what,
		       (unsigned long long)books->tally[i].n);
	printf("\n");
	fflush(stdout);
	books->told = seconds();
	books->news = false;
}

/* Now and then, for tests that wait for what they count on. */
static void
tell_news(void)
{
	if (atomic_flag_test_and_set(&books->lock))
		return;
	if (books->news && seconds() - books->told > TELL_S)
		tell();
	atomic_flag_clear(&books->lock);
}

double
left(void)
{
	tell_news();
	return atomic_load(&books->stop) ? 0 : ends_at - seconds();
}

void
hold(void)
{
	while (left() > 0)
		usleep(20000);
}

const char *
instance_name(void)
{
	return instance;
}

bool
target_address(struct weir_address *address)
{
	return target && weir_address_parse(target, address) == 0;
}

void
tally(uint64_t n, const char *what, ...)
{
	char text[sizeof(books->tally[0].what)];
	va_list ap;
	unsigned i;

	va_start(ap, what);
	vsnprintf(text, sizeof(text), what, ap);
	va_end(ap);
	while (atomic_flag_test_and_set(&books->lock))
		sched_yield();
	for (i = 0; i < TALLIES && books->tally[i].what[0] && strcmp(books->tally[i].what, text);
	     i++)
		;
	if (i < TALLIES) {
		memcpy(books->tally[i].what, text, sizeof(text));
		atomic_fetch_add(&books->tally[i].n, n);
	}
	books->news = true;
	atomic_flag_clear(&books->lock);
	tell_news();
}

static void
on_term(int signal)
{
	atomic_store(&books->stop, true);
}

void
violated(const char *what)
{
	fprintf(stderr, "hostile: %s\n", what);
	exit(1);
}

int
punch(int fd, uint64_t at, uint64_t bytes)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)bytes);
}

/* ---- the session protocol ---- */

int
dial(void)
{
	const char *dir = getenv("WEIR_RUN_DIR");
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = 5};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/%s/session.sock", dir ? dir : "/run/weir",
		 instance);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

unsigned
handed(const int **fds)
{
	*fds = handed_fd;
	return handed_count;
}

static void
take_fds(struct msghdr *msg, int fds[FDS])
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	unsigned n = 0;

	if (c && c->cmsg_type == SCM_RIGHTS) {
		n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(c), n * sizeof(int));
	}
	for (unsigned i = 0; i < n; i++) {
		if (handed_count == HANDED) {
			close(handed_fd[rng() % HANDED]);
			handed_count--;
		}
		handed_fd[handed_count++] = fds[i];
	}
}

ssize_t
ask(int sock, const void *what, size_t length, struct weir_session_msg *reply, int fds[FDS])
{
	union {
		char buf[CMSG_SPACE(FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = reply, .iov_len = sizeof(*reply)};
	struct pollfd pfd = {.fd = sock, .events = POLLIN};
	struct msghdr msg;
	ssize_t n;

	for (unsigned i = 0; i < FDS; i++)
		fds[i] = -1;
	errno = ECONNRESET;
	if (send(sock, what, length, MSG_NOSIGNAL) < 0)
		return -1;
	do {
		msg = (struct msghdr){.msg_iov = &iov,
				      .msg_iovlen = 1,
				      .msg_control = control.buf,
				      .msg_controllen = sizeof(control.buf)};
		do
			n = poll(&pfd, 1, patience_ms);
		while (n < 0 && errno == EINTR); /* on_term() ends rounds, not an answer's wait */
		if (n != 1) {
			errno = ETIMEDOUT;
			return -1;
		}
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
		if (n <= 0) {
			errno = ECONNRESET;
			return -1;
		}
		take_fds(&msg, fds);
	} while (reply->type == WEIR_MSG_WAIT);
	return n;
}

int
request(struct victim *v, struct weir_session_msg *m, struct weir_session_msg *reply, int fds[FDS],
	uint32_t want)
{
	m->length = weir_session_length(m->type);
	if (ask(v->sock, m, m->length, reply, fds) < 0) {
		tally(1, "%s %s", weir_session_type_name(m->type),
		      errno == ETIMEDOUT ? "unanswered" : "hung up");
		return -1;
	}
	if (reply->type == want)
		return 0;
	if (reply->type == WEIR_MSG_REFUSED)
		tally(1, "%s refused (%s)", weir_session_type_name(m->type),
		      strerrorname_np(reply->refused.code));
	return -1;
}

void
drop(struct victim *v)
{
	if (v->arena)
		munmap(v->arena, v->geometry.bytes);
	if (v->segment)
		munmap(v->segment, v->segment_geometry.bytes);
	while (handed_count)
		close(handed_fd[--handed_count]);
	if (v->sock >= 0)
		close(v->sock);
	*v = NO_VICTIM;
}

bool
ended(const struct victim *v)
{
	struct pollfd pfd = {.fd = v->sock, .events = POLLRDHUP};

	return poll(&pfd, 1, 0) == 1 && (pfd.revents & (POLLHUP | POLLRDHUP));
}

void
hold_session(struct victim *v)
{
	while (left() > 0 && !ended(v))
		usleep(20000);
	if (ended(v))
		tally(1, "sessions ended");
}

int
add_channel(struct victim *v, uint32_t engine)
{
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL}, r;
	int fds[FDS];

	m.add_channel.engine = engine;
	return request(v, &m, &r, fds, WEIR_MSG_CHANNEL) ? -1 : (int)r.channel.channel;
}

int
attach(struct victim *v, uint64_t arena)
{
	struct weir_session_msg m = {.type = WEIR_MSG_HELLO}, r;
	int fds[FDS];

	*v = NO_VICTIM;
	v->sock = dial();
	if (v->sock < 0)
		return -1;
	m.hello.magic = WEIR_SESSION_MAGIC;
	m.hello.versions = WEIR_SESSION_VERSIONS;
	m.hello.arena = arena;
	memcpy(m.hello.name, "hostile", sizeof("hostile"));
	if (request(v, &m, &r, fds, WEIR_MSG_WELCOME))
		goto err;
	v->arena_fd = fds[0];
	v->geometry = r.welcome.geometry;
	v->arena = mmap(NULL, v->geometry.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (v->arena == MAP_FAILED) {
		v->arena = NULL;
		goto err;
	}
	memset(&m, 0, sizeof(m));
	m.type = WEIR_MSG_ADD_CHANNEL;
	m.add_channel.engine = UINT32_MAX;
	if (request(v, &m, &r, fds, WEIR_MSG_CHANNEL))
		goto err;
	v->channel = r.channel.channel;
	v->engine = r.channel.engine;
	v->doorbell = fds[0];
	v->ring = fds[1];
	return 0;
err:
	drop(v);
	return -1;
}

void
ring(struct victim *v)
{
	struct pollfd pfd = {.fd = v->ring, .events = POLLOUT};

	if (poll(&pfd, 1, 0) == 1) /* else it is full, and rings already */
		eventfd_write(v->ring, 1);
}

struct weir_channel_head *
channel(struct victim *v)
{
	return (struct weir_channel_head *)(v->arena +
					    weir_arena_channel(&v->geometry, v->channel));
}

int
connect_from(struct victim *v, uint32_t from, struct weir_session_msg *r)
{
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT};
	int fds[FDS];

	m.connect.channel = from;
	if (!target_address(&m.connect.address))
		return -1;
	return request(v, &m, r, fds, WEIR_MSG_CONNECTING);
}

int
open_conn(struct victim *v)
{
	struct weir_session_msg m = {.type = WEIR_MSG_SEGMENT}, r;
	int fds[FDS];

	if (connect_from(v, v->channel, &r))
		return -1;
	v->vqpn = r.connecting.vqpn;
	v->peer_vqpn = r.connecting.peer_vqpn;
	if (!r.connecting.segment)
		return 0;
	m.segment.segment = r.connecting.segment;
	if (request(v, &m, &r, fds, WEIR_MSG_SEGMENT_MAP))
		return -1;
	v->segment_fd = fds[0];
	v->segment_doorbell = fds[1];
	v->segment_ring = fds[2];
	v->segment_geometry = r.segment_map.geometry;
	v->side = r.segment_map.side;
	v->segment =
	    mmap(NULL, v->segment_geometry.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (v->segment == MAP_FAILED)
		v->segment = NULL;
	return v->segment ? 0 : -1;
}

void
start_tx(struct victim *v)
{
	struct weir_channel_head *h = channel(v);

	weir_ring_init(&v->tx, h + 1, v->geometry.ring_slots, &h->tx_tail, true);
	weir_ring_init(&v->returns, (struct weir_slot *)(h + 1) + 2 * v->geometry.ring_slots,
		       WEIR_RETURN_SLOTS, &h->return_tail, true);
}

bool
tx_room(struct victim *v)
{
	return weir_ring_room(&v->tx) || (weir_ring_refresh(&v->tx) && weir_ring_room(&v->tx));
}

struct weir_slot *
next_slot(struct weir_ring *r, uint8_t op, uint16_t order, uint32_t vqpn, uint32_t length)
{
	struct weir_slot *s = weir_ring_at(r, r->pos);

	s->op = op;
	s->flags = 0;
	s->order = order;
	s->vqpn = vqpn;
	s->length = length;
	return s;
}

void
close_unused(struct victim *v, uint32_t vqpn)
{
	struct weir_slot *s = weir_ring_at(&v->tx, v->tx.pos);

	if (!weir_ring_room(&v->tx) && (!weir_ring_refresh(&v->tx) || !weir_ring_room(&v->tx)))
		return;
	s->op = WEIR_OP_CLOSE;
	s->flags = 0;
	s->order = 0;
	s->vqpn = vqpn;
	weir_ring_publish(&v->tx, 1);
	ring(v);
}

/* ---- modes ---- */

#define SMALL (2u << 20)

static const struct mode {
	const char *name;
	void (*run)(struct victim *v);
	unsigned processes;
	bool alone;	/* attaches itself, or doesn't */
	uint64_t arena; /* 0: the usual */
} modes[] = {
    {"garbage", do_garbage, 1, false, 0},
    {"cursors", do_cursors, 1, false, 0},
    {"scribble", do_scribble, 1, false, 0},
    {"payload", do_payload, 1, false, 0},
    {"punch", do_punch, 1, false, 0},
    {"doorbell", do_doorbell, 1, false, 0},
    {"messages", do_messages, 1, false, 0},
    {"segment", do_segment, 1, false, 0},
    {"flags", do_flags, 1, false, 0},
    {"descriptors", do_descriptors, 1, false, 0},
    {"requests", do_requests, 1, false, 0},
    {"rewrite", do_rewrite, 1, false, 0},
    {"adopt", do_adopt, 1, false, 0},
    {"refault", do_refault, 1, false, 0},
    {"waiters", do_waiters, 1, false, 0},
    {"junk", do_junk, 1, false, 0},
    /* those before are all that `all` does: one program, which takes little CPU */
    {"linger", do_linger, 1, false, SMALL},
    {"linger-session", do_linger_session, 1, true, 0},
    {"linger-memory", do_linger_memory, 1, false, SMALL},
    {"bells", do_bells, 1, false, SMALL},
    {"inode", do_inode, 1, false, SMALL},
    {"compute", do_compute, 1, true, 0},
    {"attach", do_attach, 32, true, 0},
    {"knock", do_knock, 32, true, 0},
    {"holes", do_holes, 1, false, 0},
    {"keys", do_keys, 62, false, SMALL},
    {"regions", do_regions, 4, false, SMALL},
    {"segments", do_segments, 8, false, SMALL},
    {"memory", do_memory, 1, true, 0},
    {"stale", do_stale, 1, false, 0},
    {"log", do_log, 8, false, SMALL},
    {"pieces", do_pieces, 1, true, 0},
    {"impostor", do_impostor, 1, true, 0},
    {"begun", do_begun, 1, true, 0},
    {"cells", do_cells, 1, false, SMALL},
    {"guesses", do_guesses, 1, true, 0},
    {"map", do_map, 1, false, SMALL},
    {"locks", do_locks, 1, true, 0},
    {"opens", do_opens, 1, true, 0},
    {"fetches", do_fetches, 1, false, SMALL},
    {"group", do_group, 1, true, 0},
    {"window", do_window, 1, true, 0},
};
#define MODES (sizeof(modes) / sizeof(modes[0]))
#define ALL 16u

static int
usage(void)
{
	fprintf(stderr,
		"usage: hostile INSTANCE MODE[:PROCESSES]|all SECONDS [SEED] [ADDRESS]; modes:");
	for (unsigned i = 0; i < MODES; i++)
		fprintf(stderr, " %s", modes[i].name);
	fprintf(stderr, "\n");
	return 2;
}

/* The rounds of one process until the time is over. */
static void
attack(const struct mode *only)
{
	unsigned failures = 0, rounds = 0;
	struct victim v = NO_VICTIM;

	while ((left() > 0 || !rounds) && failures < 200) {
		const struct mode *mode = only ? only : &modes[rounds % ALL];

		if (!mode->alone && attach(&v, mode->arena) < 0) {
			if (left() <= 0) /* our other processes hold all sessions */
				break;
			failures++;
			usleep(20000);
			continue;
		}
		failures = 0;
		mode->run(&v);
		rounds++;
		atomic_fetch_add(&books->rounds, 1);
		drop(&v);
	}
}

/* Whether the data plane answers at all: it accepts a session or refuses one. */
static bool
answers(void)
{
	struct weir_session_msg m = {.type = WEIR_MSG_HELLO}, r;
	int fds[FDS], sock = dial();
	bool yes = false;

	m.length = weir_session_length(m.type);
	m.hello.magic = WEIR_SESSION_MAGIC;
	m.hello.versions = WEIR_SESSION_VERSIONS;
	memcpy(m.hello.name, "hostile", sizeof("hostile"));
	if (sock >= 0 && ask(sock, &m, m.length, &r, fds) > 0)
		yes = r.type == WEIR_MSG_WELCOME || r.type == WEIR_MSG_REFUSED;
	if (sock >= 0)
		close(sock);
	while (handed_count)
		close(handed_fd[--handed_count]);
	return yes;
}

/* A user who may not attach can only see that the data plane answers. */
static bool
lets_in(bool stranger)
{
	struct victim v;

	for (unsigned k = 0; k < 100; k++) {
		if (stranger ? answers() : attach(&v, 0) == 0) {
			if (!stranger)
				drop(&v);
			return true;
		}
		usleep(20000);
	}
	return false;
}

static void
become(const char *user)
{
	uid_t uid = user ? (uid_t)strtoul(user, NULL, 10) : 0;

	if (!uid)
		return;
	if (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid)) {
		perror("hostile: HOSTILE_UID");
		exit(2);
	}
	prctl(PR_SET_DUMPABLE, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* the change of user has cleared it */
}

static void
run_all(const struct mode *mode, unsigned processes)
{
	pid_t pids[256];
	double over = 0;

	for (unsigned i = 0; i < processes; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		rng_state += i * 0x9e3779b97f4a7c15ull;
		attack(mode);
		_exit(0);
	}
	for (unsigned i = 0; i < processes; i++) {
		while (waitpid(pids[i], NULL, WNOHANG) == 0) {
			if (left() <= 0 && !over)
				over = seconds();
			if (over && seconds() - over > GRACE_S) {
				tally(1, "processes hang");
				kill(pids[i], SIGKILL);
				break;
			}
			usleep(10000);
		}
	}
}

int
main(int argc, char **argv)
{
	const struct mode *mode = NULL;
	unsigned processes;
	char *colon;
	bool answered;

	if (argc < 4)
		return usage();
	instance = argv[1];
	colon = strchr(argv[2], ':');
	if (colon)
		*colon = 0;
	for (unsigned i = 0; i < MODES; i++)
		if (!strcmp(argv[2], modes[i].name))
			mode = &modes[i];
	if (!mode && strcmp(argv[2], "all"))
		return usage();
	processes = colon ? (unsigned)strtoul(colon + 1, NULL, 10) : mode ? mode->processes : 1;
	if (!processes || processes > 256)
		return usage();
	mode_name = argv[2];
	seed = argc > 4 ? argv[4] : "1";
	rng_state = strtoull(seed, NULL, 0) + 1;
	rng_state *= 0x9e3779b97f4a7c15ull;
	target = argc > 5 ? argv[5] : NULL;
	books =
	    mmap(NULL, sizeof(*books), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (books == MAP_FAILED)
		return 2;
	if (mode && mode->run == do_inode)
		inode_prepare();
	become(getenv("HOSTILE_UID"));
	signal(SIGTERM, on_term);
	ends_at = seconds() + strtod(argv[3], NULL);
	if (processes > 1)
		run_all(mode, processes);
	else
		attack(mode);
	answered = lets_in(getenv("HOSTILE_UID") != NULL);
	tell();
	if (!answered)
		fprintf(stderr, "hostile: %s: the data plane no longer lets anybody attach\n",
			argv[2]);
	fflush(NULL);
	/* another user cannot write coverage data: no exit handlers */
	_exit(!answered || (!books->rounds && !getenv("HOSTILE_UID")));
}
