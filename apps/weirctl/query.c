/* SPDX-License-Identifier: BSD-3-Clause */
/* Questions to a data plane, and words for what goes wrong with them. */
#include "weirctl.h"

#include "base/fail.h"
#include "base/vec.h"
#include "ipc/path_check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REASON(q) (q)->reason, sizeof((q)->reason)
#define RECORDS_MAX (64u << 20) /* bytes of one answer; more is no data plane of ours */

int
query_send(struct query *q, struct weir_ctl_msg *m, int fd)
{
	int rc = weir_ctl_send(&q->c, m, fd);

	return rc ? fail(REASON(q), WEIRCTL_FAILED, "data plane is gone: %s; start it again",
			 strerror(-rc))
		  : 0;
}

// The result of weir_ctl_expect() or weir_ctl_page() as 0 or an exit code.
static int
answered(struct query *q, int rc)
{
	char why[WEIR_VERSION_WHY];

	q->late = rc == -EAGAIN;
	switch (rc < 0 ? -rc : 0) {
	case 0:
		return 0;
	case EAGAIN:
		return fail(REASON(q), WEIRCTL_FAILED,
			    "data plane does not answer; look whether it is stopped");
	case EREMOTEIO:
		return fail(REASON(q), WEIRCTL_FAILED, "data plane refuses: %s",
			    q->c.in.m.error.reason);
	case ENODATA:
		return fail(REASON(q), WEIRCTL_FAILED,
			    "data plane sent an unexpected answer; install weirctl and "
			    "weir-dataplane from one release");
	case EPROTO:
		weir_version_choose(WEIR_CTL_VERSIONS, q->c.in.m.hello.versions, "control.sock",
				    "weirctl", "weir-dataplane", why);
		return fail(REASON(q), WEIRCTL_FAILED, "%s", why);
	case EBADMSG:
	case ENOMSG:
		return fail(REASON(q), WEIRCTL_FAILED,
			    "data plane sent a malformed answer; "
			    "install weirctl and weir-dataplane from one release");
	default:
		return fail(REASON(q), WEIRCTL_FAILED,
			    "data plane closed the connection; look at its log");
	}
}

int
query_receive(struct query *q, uint32_t type)
{
	return answered(q, weir_ctl_expect(&q->c, type));
}

int
query_open(struct query *q, const char *instance, double seconds)
{
	char path[128];
	int error, status;

	q->c.fd = -1;
	if (weir_ctl_path(instance, path, sizeof(path)))
		return fail(REASON(q), WEIRCTL_USAGE,
			    "path of control.sock is too long; shorten $WEIR_RUN_DIR or the "
			    "instance's name");
	if (path_check(path, PATH_AS_GIVEN, q->reason, sizeof(q->reason)))
		return WEIRCTL_RESOURCE;
	error = -weir_ctl_connect(&q->c, path, seconds);
	if (error == ENOENT || error == ECONNREFUSED)
		return fail(REASON(q), WEIRCTL_FAILED,
			    "no data plane for instance '%s' behind %s; start weir-dataplane",
			    instance, path);
	if (error)
		return fail(REASON(q),
			    error == EACCES || error == EPERM ? WEIRCTL_RESOURCE : WEIRCTL_FAILED,
			    "cannot connect to %s: %s; %s", path, strerror(error),
			    error == EACCES ? "run as root or as the data plane's user"
					    : "try again");
	error = -weir_ctl_hello(&q->c);
	status = error ? fail(REASON(q), WEIRCTL_FAILED, "data plane is gone: %s; start it again",
			      strerror(error))
		       : query_receive(q, WEIR_CTL_HELLO);
	if (status)
		weir_ctl_close(&q->c);
	return status;
}

int
query_rows(struct query *q, uint32_t kind, struct rows *rows)
{
	const struct weir_ctl_msg *in = &q->c.in.m;
	struct weir_ctl_msg ask = {.type = WEIR_CTL_QUERY};
	int rc = 1, status;

	*rows = (struct rows){.kind = kind, .bytes = weir_ctl_record_bytes(kind)};
	ask.query.rows = q->c.asked = kind;
	status = query_send(q, &ask, -1);
	while (!status && rc > 0) {
		size_t have = (size_t)rows->count * rows->bytes, more;

		rc = weir_ctl_page(&q->c);
		status = answered(q, rc);
		if (status)
			break;
		more = (size_t)in->rows.count * rows->bytes;
		if (have + more > RECORDS_MAX ||
		    VEC_RESERVE(rows->records, rows->room, have + more)) {
			status = fail(REASON(q), WEIRCTL_RESOURCE,
				      "out of memory for %zu bytes of records", have + more);
			break;
		}
		memcpy(rows->records + have, in->rows.records, more);
		rows->count += in->rows.count;
	}
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
	weir_ctl_close(&q->c);
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
	weir_ctl_close(&q->c);
	if (!status)
		*count = q->c.in.m.done.count;
	return status;
}
