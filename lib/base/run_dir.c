/* SPDX-License-Identifier: BSD-3-Clause */
#include "run_dir.h"

#include "ipc/path_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Room for it all: RUN-DIR/NAME/DAEMON.pid */
#define FILE_MAX (RUN_DIR_MAX + 32)

/* Others may look in, whatever our umask: who may attach is the socket's to say. */
static int
make_dir(const char *path)
{
	if (mkdir(path, 0755))
		return -1;
	(void)!chmod(path, 0755); /* fails if it is gone again, which shows later */
	return 0;
}

/* Makes parent and path; whoever ends may remove an empty one meanwhile, so more than one try. */
static int
make_dirs(const char *parent, const char *path)
{
	for (int i = 0; i < 16; i++) {
		if (make_dir(parent) && errno != EEXIST)
			return -errno;
		if (make_dir(path) == 0 || errno == EEXIST)
			return 0;
		if (errno != ENOENT)
			return -errno;
	}
	return -EBUSY;
}

static int
take(struct run_dir *r, const char *parent, const char *instance, const char *file, char *error,
     size_t size)
{
	for (int i = 0; i < 16; i++) {
		/* before anything is made there, and what others may have made meanwhile */
		int rc = path_check(r->path, PATH_OURS, error, size), fd;
		struct stat ours, named;
		char pid[16] = "";

		if (!rc)
			rc = make_dirs(parent, r->path);
		if (!rc)
			rc = path_check(r->path, PATH_OURS, error, size);
		if (rc)
			return rc;
		/* whoever may open it could lock it, and keep us from starting again */
		fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0 && errno == ENOENT)
			continue; /* the directory was just removed */
		if (fd < 0)
			return -errno;
		if (flock(fd, LOCK_EX | LOCK_NB)) {
			rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
			if (rc == -EBUSY) {
				ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);

				pid[n > 0 ? strcspn(pid, "\n") : 0] = '\0';
				snprintf(error, size,
					 "weir-%s of instance '%s' runs already%s%s; stop it, or "
					 "give another --instance",
					 r->daemon, instance, *pid ? " as pid " : "", pid);
			}
			close(fd);
			return rc;
		}
		/* only if the file that we have locked is still the one that has the name */
		if (fstat(fd, &ours) == 0 && stat(file, &named) == 0 &&
		    ours.st_ino == named.st_ino && ours.st_dev == named.st_dev &&
		    !fchmod(fd, 0600)) {
			r->pid_fd = fd;
			return 0;
		}
		close(fd);
	}
	return -EAGAIN;
}

static void
pid_file(const struct run_dir *r, char file[FILE_MAX])
{
	snprintf(file, FILE_MAX, "%s/%s.pid", r->path, r->daemon);
}

int
run_dir_take(struct run_dir *r, const char *parent, const char *instance, const char *daemon,
	     char *error, size_t size)
{
	char file[FILE_MAX], pid[16];
	int rc, length = snprintf(r->path, sizeof(r->path), "%s/%s", parent, instance);

	r->pid_fd = -1;
	r->daemon = daemon;
	error[0] = '\0';
	pid_file(r, file);
	rc = length < 0 || (size_t)length >= sizeof(r->path)
		 ? -ENAMETOOLONG
		 : take(r, parent, instance, file, error, size);
	if (rc) {
		if (!*error)
			snprintf(error, size,
				 "no run directory %s: %s; run as root, or set $WEIR_RUN_DIR to a "
				 "place of yours",
				 r->path, strerror(-rc));
		return rc;
	}
	length = snprintf(pid, sizeof(pid), "%d\n", getpid());
	if (ftruncate(r->pid_fd, 0) || write(r->pid_fd, pid, (size_t)length) != length) {
		rc = -errno;
		snprintf(error, size, "can't write %s: %s; make room there", file, strerror(-rc));
		run_dir_release(r);
	}
	return rc;
}

void
run_dir_release(struct run_dir *r)
{
	char file[FILE_MAX];

	if (r->pid_fd < 0)
		return;
	pid_file(r, file);
	unlink(file);
	close(r->pid_fd);
	r->pid_fd = -1;
	/* unless the other daemon is still there, or another instance */
	if (rmdir(r->path) == 0) {
		*strrchr(r->path, '/') = '\0';
		rmdir(r->path);
	}
}
