/* SPDX-License-Identifier: BSD-3-Clause */
#include "run_dir.h"

#include "ipc/path_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Others may look in, whatever our umask: who may attach is the socket's to say. */
static int
make_dir(const char *path)
{
	if (mkdir(path, 0755))
		return -1;
	(void)!chmod(path, 0755); /* fails if it is gone again, which shows later */
	return 0;
}

/* Makes parent and path; somebody may remove an empty one meanwhile, so more than one try. */
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

/* Opens and locks the pid file. 0, -EAGAIN: it, or its directory, has just been removed; or -errno.
 */
static int
lock(struct run_dir *r, const char *instance, char *error, size_t size)
{
	int rc, fd = open(r->pid_file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct stat ours, named;
	char pid[16] = "";

	/* whoever may open it could lock it, and keep us from starting again */
	if (fd < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
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
	if (fstat(fd, &ours) == 0 && stat(r->pid_file, &named) == 0 &&
	    ours.st_ino == named.st_ino && ours.st_dev == named.st_dev && !fchmod(fd, 0600)) {
		r->pid_fd = fd;
		return 0;
	}
	close(fd);
	return -EAGAIN;
}

int
run_dir_take(struct run_dir *r, const char *parent, const char *instance, const char *daemon,
	     char *error, size_t size)
{
	int rc, length = snprintf(r->path, sizeof(r->path), "%s/%s", parent, instance);
	const char *elsewhere = getenv("RUNTIME_DIRECTORY");
	char pid[16], why[256];

	r->pid_fd = -1;
	r->daemon = daemon;
	error[0] = '\0';
	snprintf(r->pid_file, sizeof(r->pid_file), "%s/%s.pid", r->path, daemon);
	rc = length < 0 || (size_t)length >= sizeof(r->path) ? -ENAMETOOLONG : -EAGAIN;
	for (int i = 0; i < 16 && rc == -EAGAIN; i++) {
		/* before anything is made there, and what others may have made meanwhile */
		rc = path_check(r->path, PATH_OURS, error, size);
		if (!rc)
			rc = make_dirs(parent, r->path);
		if (!rc)
			rc = path_check(r->path, PATH_OURS, error, size);
		if (!rc)
			rc = lock(r, instance, error, size);
	}
	/* A daemon without the right to write to the run directory, which is root's, has its pid
	 * file in the directory that systemd has made for it (RuntimeDirectory=). */
	if ((rc == -EACCES || rc == -EROFS) && !*error) {
		rc = -EACCES;
		if (elsewhere && *elsewhere == '/' && !strchr(elsewhere, ':') &&
		    !path_check(elsewhere, PATH_OURS, why, sizeof(why))) {
			length = snprintf(r->pid_file, sizeof(r->pid_file), "%s/%s.pid", elsewhere,
					  daemon);
			if ((size_t)length < sizeof(r->pid_file))
				rc = lock(r, instance, error, size);
		}
	}
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
		snprintf(error, size, "can't write %s: %s; make room there", r->pid_file,
			 strerror(-rc));
		run_dir_release(r);
	}
	return rc;
}

void
run_dir_release(struct run_dir *r)
{
	if (r->pid_fd < 0)
		return;
	unlink(r->pid_file);
	close(r->pid_fd);
	r->pid_fd = -1;
}
