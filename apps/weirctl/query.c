/* SPDX-License-Identifier: BSD-3-Clause */
#include "weirctl.h"

#include "ipc/path_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define RECORDS_MAX (64u << 20) /* bytes of one answer; more is no data plane of ours */

static int
socket_path(struct query *q, const char *instance, struct sockaddr_un *path)
{
	const char *base = getenv("WEIR_RUN_DIR");
	int n;

	path->sun_family = AF_UNIX;
	n = snprintf(path->sun_path, sizeof(path->sun_path), "%s/%s/control.sock",
		     base && *base ? base : "/run/weir", instance);
	if (n > 0 && (size_t)n < sizeof(path->sun_path))
		return path_check(path->sun_path, PATH_AS_GIVEN, q->reason, sizeof(q->reason))
			   ? WEIRCTL_RESOURCE
			   : 0;
	snprintf(q->reason, sizeof(q->reason),
		 "path of control.sock is too long; shorten $WEIR_RUN_DIR or the instance's name");
	return WEIRCTL_USAGE;
}

static int
connect_failed(struct query *q, const char *instance, const char *path, int error)
{
	if (error == ENOENT || error == ECONNREFUSED) {
		snprintf(q->reason, sizeof(q->reason),
			 "no data plane for instance '%s' behind %s; start weir-dataplane",
			 instance, path);
		return WEIRCTL_FAILED;
	}
	snprintf(q->reason, sizeof(q->reason), "cannot connect to %s: %s; %s", path,
		 strerror(error),
		 error == EACCES ? "run as root or as the data plane's user" : "try again");
	return error == EACCES || error == EPERM ? WEIRCTL_RESOURCE : WEIRCTL_FAILED;
}

int
query_send(struct query *q, struct weir_ctl_msg *m, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {m, m->length = weir_ctl_length(m->type)};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		control.align = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(fd)),
						 .cmsg_level = SOL_SOCKET,
						 .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
		h.msg_control = control.bytes;
		h.msg_controllen = sizeof(control.bytes);
	}
	if (sendmsg(q->fd, &h, MSG_NOSIGNAL) == (ssize_t)m->length)
		return 0;
	snprintf(q->reason, sizeof(q->reason), "data plane is gone: %s; start it again",
		 strerror(errno));
	return WEIRCTL_FAILED;
}

int
query_receive(struct query *q, uint32_t type)
{
	ssize_t n = recv(q->fd, q->in.bytes, sizeof(q->in), MSG_TRUNC);
	int status;

	q->late = n < 0 && (errno == EAGAIN || errno == EINTR);
	if (q->late) {
		snprintf(q->reason, sizeof(q->reason),
			 "data plane does not answer; look whether it is stopped");
		return WEIRCTL_FAILED;
	}
	if (n <= 0) {
		snprintf(q->reason, sizeof(q->reason),
			 "data plane closed the connection; look at its log");
		return WEIRCTL_FAILED;
	}
	status = weir_ctl_check(&q->in.m, n);
	if (!status && q->in.m.type == WEIR_CTL_ERROR) {
		snprintf(q->reason, sizeof(q->reason), "data plane refuses: %s",
			 q->in.m.error.reason);
		return WEIRCTL_FAILED;
	}
	if (!status && q->in.m.type == type)
		return 0;
	snprintf(q->reason, sizeof(q->reason),
		 "data plane speaks another version of control.sock; "
		 "install weirctl and weir-dataplane from one release");
	return WEIRCTL_FAILED;
}

void
query_limit(struct query *q, double seconds)
{
	// 0 would mean for ever
	double limit = seconds > 0.01 ? seconds : 0.01;
	struct timeval tv = {.tv_sec = limit, .tv_usec = (limit - (time_t)limit) * 1e6};

	setsockopt(q->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(q->fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

int
query_open(struct query *q, const char *instance, double seconds)
{
	struct sockaddr_un path = {0};
	struct weir_ctl_msg hello = {.type = WEIR_CTL_HELLO};
	int status;

	q->fd = -1;
	status = socket_path(q, instance, &path);
	if (status)
		return status;
	q->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (q->fd >= 0)
		query_limit(q, seconds);
	if (q->fd < 0 || connect(q->fd, (struct sockaddr *)&path, sizeof(path))) {
		status = connect_failed(q, instance, path.sun_path, errno);
		query_close(q);
		return status;
	}
	hello.hello.version = WEIR_CTL_VERSION;
	hello.hello.role = WEIR_ROLE_QUERY;
	hello.hello.node = UINT32_MAX;
	hello.hello.pid = getpid();
	status = query_send(q, &hello, -1);
	if (!status)
		status = query_receive(q, WEIR_CTL_HELLO);
	if (status)
		query_close(q);
	return status;
}

void
query_close(struct query *q)
{
	if (q->fd >= 0)
		close(q->fd);
	q->fd = -1;
}

static int
append(struct query *q, struct rows *rows)
{
	size_t have = (size_t)rows->count * rows->bytes;
	size_t more = (size_t)q->in.m.rows.count * rows->bytes;
	uint8_t *grown;

	if (!more)
		return 0;
	grown = have + more <= RECORDS_MAX ? realloc(rows->records, have + more) : NULL;
	if (!grown) {
		snprintf(q->reason, sizeof(q->reason), "out of memory for %zu bytes of records",
			 have + more);
		return WEIRCTL_RESOURCE;
	}
	memcpy(grown + have, q->in.m.rows.records, more);
	rows->records = grown;
	rows->count += q->in.m.rows.count;
	return 0;
}

int
query_rows(struct query *q, uint32_t kind, struct rows *rows)
{
	struct weir_ctl_msg ask = {.type = WEIR_CTL_QUERY};
	int status;

	*rows = (struct rows){.kind = kind, .bytes = weir_ctl_record_bytes(kind)};
	ask.query.rows = kind;
	status = query_send(q, &ask, -1);
	do {
		if (!status)
			status = query_receive(q, WEIR_CTL_ROWS);
		if (!status && q->in.m.rows.rows != kind) {
			snprintf(q->reason, sizeof(q->reason),
				 "data plane answered something else");
			status = WEIRCTL_FAILED;
		}
		if (!status)
			status = append(q, rows);
	} while (!status && q->in.m.rows.more);
	if (status) {
		free(rows->records);
		rows->records = NULL;
	}
	return status;
}

int
query_once(struct query *q, const char *instance, double seconds, uint32_t kind, struct rows *rows)
{
	int status = query_open(q, instance, seconds);

	if (!status)
		status = query_rows(q, kind, rows);
	query_close(q);
	return status;
}

int
query_change(struct query *q, const char *instance, struct weir_ctl_msg *m, uint32_t *count)
{
	int status = query_open(q, instance, WEIRCTL_ANSWER_SECONDS);

	if (!status)
		status = query_send(q, m, -1);
	if (!status)
		status = query_receive(q, WEIR_CTL_DONE);
	query_close(q);
	if (!status)
		*count = q->in.m.done.count;
	return status;
}
