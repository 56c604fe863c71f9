/* SPDX-License-Identifier: BSD-3-Clause */
#include "secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int
secret_open(const char *path, const char *remedy, char *error, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	int status = 0;

	if (fd < 0) {
		status = -errno;
		snprintf(error, size, "cannot read %s: %s; %s", path, strerror(-status), remedy);
		return status;
	}
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		snprintf(error, size, "%s is not a file; %s", path, remedy);
		status = -EINVAL;
	} else if (st.st_mode & 077) {
		snprintf(error, size, "%s is open to others (mode %04o); chmod 600 it", path,
			 (unsigned)st.st_mode & 07777);
		status = -EACCES;
	} else if (st.st_uid != geteuid() && st.st_uid != 0) {
		snprintf(error, size, "%s belongs to user %u; chown it to user %u", path,
			 (unsigned)st.st_uid, (unsigned)geteuid());
		status = -EACCES;
	}
	if (!status)
		return fd;
	close(fd);
	return status;
}
