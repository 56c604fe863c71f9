/* SPDX-License-Identifier: BSD-3-Clause */
#include "rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PID_FILE "control.pid"

static int
make_folders(const char *base, const char *path)
{
	if (mkdir(base, 0755) && errno != EEXIST)
		return -errno;
	if (mkdir(path, 0755) && errno != EEXIST)
		return -errno;
	return 0;
}

static int
read_pid(int fd)
{
	char text[16] = "";

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
		return 0;
	return strtoul(text, NULL, 10);
}

// Opens and locks the file; -ESTALE if somebody has removed it in between.
static int
lock_file(const char *file, int *owner)
{
	struct stat held, named;
	int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	int status;

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		status = errno == EWOULDBLOCK ? -EBUSY : -errno;
		*owner = read_pid(fd);
	} else if (fstat(fd, &held) || stat(file, &named) || held.st_ino != named.st_ino) {
		status = -ESTALE;
	} else {
		return fd;
	}
	close(fd);
	return status;
}

int
rundir_enter(struct rundir *r, const char *instance, int *owner)
{
	const char *base = getenv("WEIR_RUN_DIR");
	char file[RUNDIR_MAX + 16];
	int fd = -ESTALE, n;

	if (!base || !*base)
		base = "/run/weir";
	n = snprintf(r->path, sizeof(r->path), "%s/%s", base, instance);
	if (n < 0 || (size_t)n >= sizeof(r->path))
		return -ENAMETOOLONG;
	snprintf(file, sizeof(file), "%s/" PID_FILE, r->path);
	for (int i = 0; i < 10 && (fd == -ESTALE || fd == -ENOENT); i++) {
		fd = make_folders(base, r->path);
		if (fd == 0)
			fd = lock_file(file, owner);
	}
	if (fd < 0)
		return fd;
	if (ftruncate(fd, 0) || dprintf(fd, "%d\n", (int)getpid()) < 0) {
		int status = -errno;

		close(fd);
		return status;
	}
	r->pid_fd = fd;
	return 0;
}

void
rundir_leave(struct rundir *r)
{
	char file[RUNDIR_MAX + 16];

	snprintf(file, sizeof(file), "%s/" PID_FILE, r->path);
	unlink(file);
	close(r->pid_fd);
	// Fails while the data plane has files there, or another instance runs, as it should.
	if (rmdir(r->path) == 0) {
		*strrchr(r->path, '/') = 0;
		rmdir(r->path);
	}
}
