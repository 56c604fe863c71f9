/* SPDX-License-Identifier: BSD-3-Clause */
#include "output.h"

#include "weir/weir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER (1u << 20)

static int
failed(const struct output *o, int error)
{
	return weir_fail(-error, "cannot write '%s': %s; name another file", o->path,
			 strerror(error));
}

int
output_open(struct output *o, const char *path)
{
	*o = (struct output){.path = path, .buffer = malloc(BUFFER)};
	o->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (o->fd < 0)
		return failed(o, errno);
	return o->buffer ? 0 : failed(o, ENOMEM);
}

static int
flush(struct output *o)
{
	for (size_t at = 0; at < o->used;) {
		ssize_t n = write(o->fd, o->buffer + at, o->used - at);

		if (n < 0 && errno != EINTR)
			return failed(o, errno);
		at += n > 0 ? (size_t)n : 0;
	}
	o->used = 0;
	return 0;
}

int
output_write(struct output *o, const void *bytes, size_t length)
{
	while (length) {
		size_t n = length < BUFFER - o->used ? length : BUFFER - o->used;

		memcpy(o->buffer + o->used, bytes, n);
		o->used += n;
		bytes = (const uint8_t *)bytes + n;
		length -= n;
		if (o->used == BUFFER) {
			int rc = flush(o);

			if (rc)
				return rc;
		}
	}
	return 0;
}

int
output_close(struct output *o, int rc)
{
	if (!rc)
		rc = flush(o);
	if (o->fd >= 0 && close(o->fd) && !rc)
		rc = failed(o, errno);
	free(o->buffer);
	return rc;
}

int
output_directory(const char *path)
{
	if (!mkdir(path, 0777) || errno == EEXIST)
		return 0;
	return weir_fail(-errno, "cannot make directory '%s': %s; name another one", path,
			 strerror(errno));
}
