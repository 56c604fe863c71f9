/* SPDX-License-Identifier: BSD-3-Clause */
/* Ctrl-C ends a command, not a prompt. */
#include "weirctl.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

int
signals_open(sigset_t *before)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, before);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

void
signals_close(int fd, const sigset_t *before)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct signalfd_siginfo info;

	// the one that ended the command has done its work
	while (poll(&p, 1, 0) > 0 && read(fd, &info, sizeof(info)) > 0)
		;
	if (fd >= 0)
		close(fd);
	sigprocmask(SIG_SETMASK, before, NULL);
}
