/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void
notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	size_t n = path ? strlen(path) : 0;
	int fd;

	/* '@': a name that is no file */
	if (n < 2 || n >= sizeof(a.sun_path) || (*path != '/' && *path != '@'))
		return;
	memcpy(a.sun_path, path, n);
	if (*path == '@')
		a.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	/* a manager that doesn't listen is no reason to wait or to end */
	sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&a,
	       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
	close(fd);
}

uint64_t
notify_watchdog(void)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	unsigned long long n;
	char *end;

	if (!usec || (pid && strtoul(pid, NULL, 10) != (unsigned long)getpid()))
		return 0;
	errno = 0;
	n = strtoull(usec, &end, 10);
	return errno || *end || end == usec || n > UINT64_MAX / 1000 ? 0 : n * 500;
}

void
watchdog_open(struct watchdog *w, uint64_t now)
{
	*w = (struct watchdog){.every = notify_watchdog(), .due = now};
}

uint64_t
watchdog_feed(struct watchdog *w, uint64_t now, bool well)
{
	if (!w->every)
		return UINT64_MAX;
	if (now >= w->due) {
		if (well)
			notify("WATCHDOG=1");
		w->due = now + w->every;
	}
	return w->due;
}
