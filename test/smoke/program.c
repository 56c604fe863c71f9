/* SPDX-License-Identifier: BSD-3-Clause */
#include "program.h"

#include "weir/remote.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool say_when;

void
say(const char *format, ...)
{
	va_list ap;

	if (say_when)
		printf("%llu ", (unsigned long long)now_ms());
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

int
failed(const char *what, int rc)
{
	say("%s: %s (%s)", what, strerror(-rc), weir_reason());
	return 1;
}

int
write_key(const char *path, const struct weir_key *key)
{
	FILE *f = fopen(path, "w");
	bool ok = f && fwrite(key, sizeof(*key), 1, f) == 1;

	if (f)
		ok = !fclose(f) && ok;
	return ok ? 0 : failed(path, -errno);
}

int
read_key(const char *path, struct weir_key *key)
{
	FILE *f = fopen(path, "r");
	bool ok = f && fread(key, sizeof(*key), 1, f) == 1;

	if (f)
		fclose(f);
	return ok ? 0 : failed(path, -EIO);
}

uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

double
now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

size_t
contents(uint64_t number, uint64_t seed, unsigned one_of, uint64_t *buf)
{
	uint64_t x = (number + 1) * 0x9e3779b97f4a7c15ull ^ seed * 0xbf58476d1ce4e5b9ull;
	size_t length;

	x ^= x >> 29;
	x *= 0x94d049bb133111ebull;
	x ^= x >> 32;
	length = x % one_of == 0 ? x % LARGEST : (x >> 8) % (1ull << (x % 14));
	for (size_t i = 0; i * 8 < length + 8; i++)
		buf[i] = x += 0x9e3779b97f4a7c15ull;
	return length;
}

bool
expected(uint64_t *count, uint64_t seed, unsigned one_of, const void *data, size_t length,
	 uint64_t report)
{
	static uint64_t want[LARGEST / 8 + 8];

	if (length != contents(*count, seed, one_of, want) || memcmp(want, data, length)) {
		say("wrong message %llu, %zu bytes", (unsigned long long)*count, length);
		return false;
	}
	if (++*count % report == 0)
		say("received %llu", (unsigned long long)*count);
	return true;
}

int
attach_to(const char *instance, const char *name, uint32_t flags, struct weir **w)
{
	struct weir_options o = {
	    .size = sizeof(o), .instance = instance, .name = name, .flags = flags};
	int rc = weir_attach(&o, w);

	return rc ? failed("attach", rc) : 0;
}

int
dial(struct weir *w, const char *text, struct weir_conn **c)
{
	struct weir_address a;
	int rc = weir_address_parse(text, &a);

	return rc ? rc : weir_connect(w, &a, PATIENCE_MS, c);
}

int
serve_at(struct weir *w, const char *service, unsigned backlog, struct weir_listener **l)
{
	int rc = weir_listen(w, service, backlog, l);

	if (rc)
		failed("listen", rc);
	else
		say("ready");
	return rc;
}

void
accept_all(struct weir_listener *l, size_t size)
{
	struct weir_conn *c;

	while (weir_accept(l, 0, &c) == 0)
		weir_conn_set_user(c, calloc(1, size));
}

int
end(struct weir_conn *c, int rc, uint64_t count)
{
	say("end %d after %llu", rc, (unsigned long long)count);
	weir_close(c);
	return rc ? 1 : 0;
}

unsigned long
number_at(int argc, char **argv, int i)
{
	return argc > i ? strtoul(argv[i], NULL, 0) : 0;
}
