/* SPDX-License-Identifier: BSD-3-Clause */
#include "pieces.h"

#include "weir/shuffle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER (2 * PIECE_MAX)

const struct piece_set piece_lines = {.has = {[0 ... '\n' - 1] = true, ['\n' + 1 ... 255] = true}};
const struct piece_set piece_words = {.has = {['A' ... 'Z'] = true, ['a' ... 'z'] = true}};

/* Reads more behind what is not yet consumed. 0, also at the end; or -errno. */
static int
fill(struct pieces *p)
{
	ssize_t n;

	memmove(p->buffer, p->buffer + p->at, p->have - p->at);
	p->base += p->at;
	p->have -= p->at;
	p->at = 0;
	do
		n = pread(p->fd, p->buffer + p->have, BUFFER - p->have, (off_t)(p->base + p->have));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return weir_fail(-errno, "cannot read the input: %s", strerror(errno));
	p->have += (size_t)n;
	p->over = !n;
	return 0;
}

/* Consumes bytes that are in the set, or are not. 0 or -errno. */
static int
skip(struct pieces *p, bool in)
{
	int rc = 0;

	while (!rc) {
		while (p->at < p->have && p->set->has[p->buffer[p->at]] == in)
			p->at++;
		if (p->at < p->have || p->over)
			break;
		rc = fill(p);
	}
	return rc;
}

int
pieces_open(struct pieces *p, int fd, uint64_t from, uint64_t end, const struct piece_set *set)
{
	*p = (struct pieces){.fd = fd, .set = set, .end = end, .base = from ? from - 1 : 0};
	p->buffer = malloc(BUFFER);
	if (!p->buffer)
		return weir_fail(-ENOMEM, "no memory to read; free some");
	/* a piece that begins before the range is of the one before */
	return from ? skip(p, true) : 0;
}

void
pieces_close(struct pieces *p)
{
	free(p->buffer);
}

int
pieces_next(struct pieces *p, uint8_t **piece, uint32_t *length)
{
	size_t n = 0;
	int rc = skip(p, false);

	if (rc)
		return rc;
	if (p->at == p->have || p->base + p->at >= p->end)
		return -ENODATA;
	for (;;) {
		while (p->at + n < p->have && p->set->has[p->buffer[p->at + n]])
			n++;
		if (n > PIECE_MAX)
			return weir_fail(-EMSGSIZE, "a line or word has more than 1 MiB");
		if (p->at + n < p->have || p->over)
			break;
		rc = fill(p);
		if (rc)
			return rc;
	}
	*piece = p->buffer + p->at;
	*length = (uint32_t)n;
	p->at += n;
	return 0;
}

int
input_open(struct input *in, const char *path, uint64_t split)
{
	struct stat s;
	uint64_t maps;

	*in = (struct input){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC)};
	if (in->fd < 0 || fstat(in->fd, &s))
		return weir_fail(-errno, "cannot read '%s': %s; name another file", path,
				 strerror(errno));
	in->size = (uint64_t)s.st_size;
	maps = (in->size + split - 1) / split;
	if (maps > WEIR_SHUFFLE_MAPS_MAX / 2)
		return weir_fail(-EINVAL, "'%s' makes too many map tasks; give a larger --split",
				 path);
	in->maps = maps ? (uint32_t)maps : 1;
	return 0;
}

int
input_pieces(const struct input *in, uint32_t map, const struct piece_set *set, struct pieces *p)
{
	uint64_t from = in->size * map / in->maps, end = in->size * (map + 1) / in->maps;

	return pieces_open(p, in->fd, from, end, set);
}
