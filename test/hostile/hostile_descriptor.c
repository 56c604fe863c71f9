/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors: such that take long to close, sent along with whatever the data plane or a peer
 * reads; those that we were handed, their flags changed, filled, emptied and shut down; the inode
 * of shared memory, locked by a write that doesn't end.
 */
#define _GNU_SOURCE
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LINGER_S 2
#define MQUEUE_FS 0x19800202
#define LARGE (512u << 20)

/* ---- descriptors that take long to close ---- */

/* A TCP socket with unsent data, whose peer takes none: close() waits for LINGER_S. */
static int
lingering(int listener)
{
	struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
	static const char data[65536];
	struct sockaddr_in at;
	socklen_t length = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (getsockname(listener, (struct sockaddr *)&at, &length) ||
	    connect(fd, (struct sockaddr *)&at, length) ||
	    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger))) {
		close(fd);
		return -1;
	}
	while (send(fd, data, sizeof(data), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	return fd;
}

/* Accepts nothing; as soon as it is closed nobody lingers any more. */
static int
listener_open(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 1024)) {
		perror("hostile: a TCP socket on the loopback");
		exit(77);
	}
	return fd;
}

/* The last reference is freed page by page. */
static int
large_memory(void)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC);
	void *p;

	if (fd < 0 || ftruncate(fd, LARGE))
		return -1;
	p = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p != MAP_FAILED)
		munmap(p, LARGE);
	return fd;
}

/* On its way by a thread: whose close() is the last one, of two at the same time, waits itself. */
struct parcel {
	pthread_t thread;
	int sock, fd;
	const void *data;
	size_t length;
};

static struct parcel parcels[256];
static unsigned parcel_count;

static void *
deliver(void *arg)
{
	struct parcel *p = arg;
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)p->data, .iov_len = p->length};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.room,
			   .msg_controllen = sizeof(control.room)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	ssize_t n;
	int error;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &p->fd, sizeof(int));
	n = sendmsg(p->sock, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	error = errno;
	close(p->fd);
	if (n < 0)
		tally(1, "descriptors not sent (%s)", strerrorname_np(error));
	else
		tally(1, "descriptors sent");
	return NULL;
}

/* Along with `length` bytes, the only reference to `fd`. */
static void
send_along(int sock, const void *data, size_t length, int fd)
{
	struct parcel *p = &parcels[parcel_count];

	if (fd < 0)
		return;
	*p = (struct parcel){.sock = sock, .fd = fd, .data = data, .length = length};
	if (parcel_count < sizeof(parcels) / sizeof(parcels[0]) &&
	    pthread_create(&p->thread, NULL, deliver, p) == 0)
		parcel_count++;
	else
		close(fd);
}

/* All have arrived, and been closed. Without their listener that takes no time. */
static void
parcels_end(int listener)
{
	close(listener);
	while (parcel_count)
		pthread_join(parcels[--parcel_count].thread, NULL);
}

static bool
is_socket(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

static bool
is_queue(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == MQUEUE_FS;
}

/* Whoever is woken by it closes it. */
void
do_linger(struct victim *v)
{
	int listener = listener_open();
	const int *fds;
	unsigned n, sockets = 0;

	open_conn(v);
	n = handed(&fds);
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < n; i++) {
			if (!is_socket(fds[i]))
				continue;
			sockets++;
			send_along(fds[i], "", 1, lingering(listener));
		}
		usleep(300000);
	}
	if (!sockets)
		tally(1, "rounds without a socket");
	parcels_end(listener);
}

static size_t
greeting(struct weir_session_msg *m)
{
	*m = (struct weir_session_msg){.type = WEIR_MSG_HELLO};
	m->length = weir_session_length(m->type);
	m->hello.magic = WEIR_SESSION_MAGIC;
	m->hello.versions = WEIR_SESSION_VERSIONS;
	m->hello.arena = 2 << 20;
	memcpy(m->hello.name, "hostile", sizeof("hostile"));
	return m->length;
}

/* With the greeting, also of somebody who may not attach, and with a request. */
void
do_linger_session(struct victim *v)
{
	static struct weir_session_msg hello, m;
	int listener = listener_open(), sock[8];
	size_t length = greeting(&hello);

	for (unsigned i = 0; i < 8; i++) {
		sock[i] = dial();
		if (sock[i] >= 0)
			send_along(sock[i], &hello, length, lingering(listener));
	}
	usleep(100000);
	if (attach(v, 2 << 20) == 0) {
		m = (struct weir_session_msg){.type = WEIR_MSG_UNLISTEN};
		m.length = weir_session_length(m.type);
		m.listening.listener = 255;
		for (unsigned i = 0; i < 8; i++)
			send_along(v->sock, &m, m.length, lingering(listener));
	}
	usleep(1000000);
	parcels_end(listener);
	for (unsigned i = 0; i < 8; i++)
		if (sock[i] >= 0)
			close(sock[i]);
}

void
do_linger_memory(struct victim *v)
{
	const int *fds;
	unsigned n;

	open_conn(v);
	n = handed(&fds);
	for (unsigned i = 0; i < n; i++)
		if (is_socket(fds[i]))
			send_along(fds[i], "", 1, large_memory());
	send_along(v->sock, "x", 1, large_memory());
	usleep(100000);
	parcels_end(-1);
}

/* ---- what we were handed ---- */

static void
fill_socket(int fd)
{
	unsigned n = 0;

	while (n < 10000 && send(fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		n++;
	tally(n, "datagrams");
}

static void
fill_counter(int fd)
{
	uint64_t most = UINT64_MAX - 1, one = 1;
	struct pollfd pfd = {.fd = fd, .events = POLLOUT};

	fcntl(fd, F_SETFL, O_NONBLOCK);
	if (read(fd, &one, sizeof(one)) > 0) /* somebody else's ring */
		tally(1, "counters emptied");
	if (write(fd, &most, sizeof(most)) > 0)
		tally(1, "counters filled");
	fcntl(fd, F_SETFL, 0);
	if (poll(&pfd, 1, 0) == 1)
		tally(1, "counters read again");
}

static void
fill_queue(int fd)
{
	static const struct timespec past;
	struct mq_attr attr = {0};
	char room[8192];

	tally(mq_setattr(fd, &attr, NULL) == 0, "queues made to block");
	while (mq_timedreceive(fd, room, sizeof(room), NULL, &past) >= 0)
		tally(1, "rings taken from a queue");
	while (mq_timedsend(fd, "", 0, 0, &past) == 0)
		tally(1, "rings put into a queue");
}

/* Each made to block, filled or emptied by who isn't to, and in the end shut down. */
void
do_bells(struct victim *v)
{
	const int *fds;
	unsigned n;

	atomic_store(&channel(v)->rx_sleeping, 1);
	open_conn(v);
	n = handed(&fds);
	for (unsigned round = 0; round < 20 && !ended(v); round++) {
		atomic_store(&channel(v)->rx_sleeping, 1);
		for (unsigned i = 0; i < n; i++) {
			if (fds[i] == v->arena_fd || fds[i] == v->segment_fd)
				continue;
			fcntl(fds[i], F_SETFL, 0);
			if (is_socket(fds[i]))
				fill_socket(fds[i]);
			else if (is_queue(fds[i]))
				fill_queue(fds[i]);
			else
				fill_counter(fds[i]);
		}
		usleep(5000);
	}
	for (unsigned i = 0; i < n; i++)
		shutdown(fds[i], (int)(rng() % 3));
	usleep(20000);
}

/* ---- an inode that is locked ---- */

static int fault_fd = -1;
static char *missing; /* a page that comes when do_inode() lets it */

struct holder {
	pthread_t thread;
	int fd;
	_Atomic int result; /* errno or 0 of the write, once it has ended; -1 before */
};

void
inode_prepare(void)
{
	struct uffdio_api api = {.api = UFFD_API};

	fault_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fault_fd < 0 || ioctl(fault_fd, UFFDIO_API, &api)) {
		printf("hostile: inode: no userfaultfd for this user: %s\n", strerror(errno));
		exit(77);
	}
}

static void
page_take_away(void)
{
	struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_MISSING};

	missing = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	reg.range.start = (uintptr_t)missing;
	reg.range.len = 4096;
	if (missing == MAP_FAILED || ioctl(fault_fd, UFFDIO_REGISTER, &reg)) {
		perror("hostile: inode: userfaultfd");
		exit(77);
	}
}

static void
page_bring_back(void)
{
	struct uffdio_zeropage zero = {.range = {(uintptr_t)missing, 4096}};

	ioctl(fault_fd, UFFDIO_ZEROPAGE, &zero);
}

/* The kernel locks the inode, then waits for the page. */
static void *
write_on(void *arg)
{
	struct holder *h = arg;
	struct stat st;
	off_t at = fstat(h->fd, &st) ? 0 : st.st_size - 4096;

	atomic_store(&h->result, pwrite(h->fd, missing, 4096, at) < 0 ? errno : 0);
	return NULL;
}

static void
hold_inode(struct holder *h, int fd, const char *what)
{
	*h = (struct holder){.fd = fd, .result = -1};
	if (fd < 0 || pthread_create(&h->thread, NULL, write_on, h)) {
		h->fd = -1;
		return;
	}
	usleep(20000);
	if (atomic_load(&h->result) < 0)
		tally(1, "inodes held (%s)", what);
	else
		tally(1, "inodes not held (%s: %s)", what, strerrorname_np(h->result));
}

/* Memory that the data plane gave us, while it makes and ends connections and regions in it. */
void
do_inode(struct victim *v)
{
	struct weir_session_msg r, m;
	struct holder holder[3];
	double end = seconds() + (left() < 1 ? left() : 1);
	int fds[FDS];

	open_conn(v);
	start_tx(v);
	patience_ms = 3000;
	page_take_away();
	hold_inode(&holder[0], v->segment_fd, "segment");
	hold_inode(&holder[1], v->arena_fd, "arena");
	hold_inode(&holder[2], adopt(v, 1 << 20, 3, &r), "region");
	do {
		if (connect_from(v, v->channel, &r) == 0 && r.connecting.vqpn) {
			close_unused(v, r.connecting.vqpn);
			tally(1, "connections while held");
		}
		if (adopt(v, 4096, 3, &r) >= 0)
			disown(v, r.region.region);
		disown(v, 1);
		m = (struct weir_session_msg){.type = WEIR_MSG_DROP_SEGMENT};
		request(v, &m, &r, fds, WEIR_MSG_OK);
		usleep(20000);
	} while (seconds() < end && !ended(v));
	page_bring_back();
	for (unsigned i = 0; i < 3; i++)
		if (holder[i].fd >= 0)
			pthread_join(holder[i].thread, NULL);
	munmap(missing, 4096);
	patience_ms = PATIENCE_MS;
}
