/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "worlds/test.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

#include "ipc/path_check.h"
#include "base/run_dir.h"

static char parent[32];
static char error[256];

static int
make_parent(void **state)
{
	snprintf(parent, sizeof(parent), "/tmp/weir-run-XXXXXX");
	return mkdtemp(parent) ? 0 : -1;
}

static int
remove_dir(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return rmdir(path);
}

/* Nothing but directories is left. */
static int
no_parent(void **state)
{
	return access(parent, F_OK) ? 0 : nftw(parent, remove_dir, 8, FTW_DEPTH | FTW_PHYS);
}

/* A test in a directory of its own, `parent`. */
#define TEST_HERE(name) TEST_IN(make_parent, no_parent, name)

static int
take(struct run_dir *a, const char *instance, const char *daemon)
{
	return run_dir_take(a, parent, instance, daemon, error, sizeof(error));
}

static mode_t
mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 07777;
}

TEST_HERE(one_holder_of_a_name)
{
	struct run_dir a, b, c;
	char expected[64];

	assert_int_equal(take(&a, "x", "dataplane"), 0);
	assert_int_equal(take(&b, "x", "dataplane"), -EBUSY);
	snprintf(expected, sizeof(expected), "runs already as pid %d;", getpid());
	assert_non_null(strstr(error, expected));
	assert_int_equal(take(&b, "y", "dataplane"), 0);
	run_dir_release(&a);
	assert_int_equal(take(&c, "x", "dataplane"), 0);
	run_dir_release(&b);
	run_dir_release(&c);
}

TEST_HERE(what_a_crash_left_is_taken_over)
{
	char path[128];
	struct run_dir a;
	int fd;

	snprintf(path, sizeof(path), "%s/x", parent);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/x/dataplane.pid", parent);
	fd = open(path, O_CREAT | O_WRONLY, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "1234567\n", 8), 8);
	close(fd);
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(take(&a, "x", "dataplane"), 0);
	/* and nobody else may open it: who may, may lock it */
	assert_int_equal(mode_of(path), 0600);
	run_dir_release(&a);
	assert_int_equal(take(&a, "x", "dataplane"), 0);
	assert_int_equal(mode_of(path), 0600);
	run_dir_release(&a);
}

TEST_HERE(what_others_keep_there_stays)
{
	char path[128];
	struct run_dir a;
	int fd;

	assert_int_equal(take(&a, "x", "dataplane"), 0);
	snprintf(path, sizeof(path), "%s/x/control.pid", parent);
	fd = open(path, O_CREAT | O_WRONLY, 0644);
	assert_true(fd >= 0);
	close(fd);
	run_dir_release(&a);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(unlink(path), 0);
}

/* A container that has mounted the directory of an instance finds the next start in it. */
TEST_HERE(the_directory_stays)
{
	struct stat before, after;
	struct run_dir a;
	char path[128];

	snprintf(path, sizeof(path), "%s/x", parent);
	assert_int_equal(take(&a, "x", "dataplane"), 0);
	assert_int_equal(stat(path, &before), 0);
	run_dir_release(&a);
	assert_int_equal(take(&a, "x", "dataplane"), 0);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	run_dir_release(&a);
}

/* The two daemons of an instance share its directory. */
TEST_HERE(two_daemons)
{
	struct run_dir a, b;

	assert_int_equal(take(&a, "x", "dataplane"), 0);
	assert_int_equal(take(&b, "x", "control"), 0);
	run_dir_release(&a);
	assert_int_equal(take(&a, "x", "control"), -EBUSY);
	assert_non_null(strstr(error, "weir-control of instance 'x' runs already"));
	run_dir_release(&b);
}

/* The mode of the socket says which users may attach, not the umask of the operator. */
TEST_HERE(umask_of_the_operator)
{
	mode_t before = umask(077);
	char path[128];
	struct run_dir a;

	assert_int_equal(rmdir(parent), 0);
	assert_int_equal(take(&a, "x", "dataplane"), 0);
	umask(before);
	assert_int_equal(mode_of(parent), 0755);
	snprintf(path, sizeof(path), "%s/x", parent);
	assert_int_equal(mode_of(path), 0755);
	run_dir_release(&a);
}

/* The longest one leaves room for the sockets' names. */
TEST_HERE(too_long)
{
	char name[96], path[200];
	struct run_dir a;

	memset(name, 'x', sizeof(name));
	name[RUN_DIR_MAX - 1 - strlen(parent)] = 0;
	assert_int_equal(take(&a, name, "control"), -ENAMETOOLONG);
	assert_non_null(strstr(error, "WEIR_RUN_DIR"));
	name[RUN_DIR_MAX - 2 - strlen(parent)] = 0;
	assert_int_equal(take(&a, name, "control"), 0);
	assert_true(snprintf(path, sizeof(path), "%s/session.sock", a.path) < RUN_DIR_SOCKET_MAX);
	run_dir_release(&a);
}

TEST(no_such_place)
{
	struct run_dir a;

	assert_int_equal(run_dir_take(&a, "/proc/none", "x", "dataplane", error, sizeof(error)),
			 -ENOENT);
	assert_non_null(strstr(error, "WEIR_RUN_DIR"));
	run_dir_release(&a);
}

#define ANOTHER_USER 12345

static void
expect(const char *dir, const char *why)
{
	struct run_dir a;
	int rc = run_dir_take(&a, dir, "x", "dataplane", error, sizeof(error));

	if (why) {
		assert_true(rc < 0);
		if (!strstr(error, why))
			fail_msg("'%s', not '%s'", error, why);
	} else {
		assert_int_equal(rc, 0);
		run_dir_release(&a);
	}
}

/* Nobody else may have made it, or any directory above it. */
TEST_HERE(of_another_user)
{
	char dir[64], below[96];

	if (geteuid())
		skip();
	snprintf(dir, sizeof(dir), "%s/run", parent);
	assert_int_equal(mkdir(dir, 0755), 0);
	assert_int_equal(chown(dir, ANOTHER_USER, ANOTHER_USER), 0);
	expect(dir, "belongs to user 12345; let root or user 0 make it");
	snprintf(below, sizeof(below), "%s/below", dir);
	expect(below, "belongs to user 12345");
	assert_int_equal(access(below, F_OK), -1); /* nothing was made there */
	snprintf(below, sizeof(below), "%s/x", dir);
	assert_int_equal(access(below, F_OK), -1);
	/* what is there already is left as it is */
	assert_int_equal(mkdir(below, 0700), 0);
	expect(dir, "belongs to user 12345");
	assert_int_equal(mode_of(below), 0700);
	assert_int_equal(chown(dir, 0, 0), 0);
	assert_int_equal(chown(below, ANOTHER_USER, ANOTHER_USER), 0);
	expect(dir, "belongs to user 12345");
	assert_int_equal(rmdir(below), 0);
	expect(dir, NULL);
}

TEST_HERE(others_may_write_to_it)
{
	char dir[64], below[96];

	snprintf(dir, sizeof(dir), "%s/run", parent);
	snprintf(below, sizeof(below), "%s/x", dir);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(mkdir(dir, 0755), 0);
		assert_int_equal(chmod(dir, i ? 0775 : 0757), 0);
		expect(dir, i ? "(mode 0775); chmod go-w it" : "(mode 0757); chmod go-w it");
		assert_int_equal(rmdir(dir), 0);
	}
	/* of an instance not even so */
	assert_int_equal(mkdir(dir, 0755), 0);
	assert_int_equal(mkdir(below, 0755), 0);
	assert_int_equal(chmod(below, 01777), 0);
	expect(dir, "(mode 1777); chmod go-w it");
	assert_int_equal(rmdir(below), 0);
	assert_int_equal(rmdir(dir), 0);
	/* like /tmp: what is ours there stays ours */
	assert_int_equal(chmod(parent, 01777), 0);
	expect(dir, NULL);
	assert_int_equal(chmod(parent, 0777), 0);
	expect(dir, "(mode 0777); chmod go-w it");
}

/* A link is followed where nobody else could change it, and what holds here must hold there. */
TEST_HERE(symbolic_links)
{
	char link[64], to[64], name[96];

	snprintf(link, sizeof(link), "%s/link", parent);
	snprintf(to, sizeof(to), "%s/to", parent);
	assert_int_equal(mkdir(to, 0755), 0);
	assert_int_equal(symlink("to", link), 0);
	snprintf(name, sizeof(name), "%s/run", link);
	expect(name, NULL);
	if (!geteuid()) {
		assert_int_equal(chown(to, ANOTHER_USER, ANOTHER_USER), 0);
		expect(name, "belongs to user 12345");
		assert_int_equal(chown(to, 0, 0), 0);
		assert_int_equal(lchown(link, ANOTHER_USER, ANOTHER_USER), 0);
		expect(name, "belongs to user 12345");
		assert_int_equal(lchown(link, 0, 0), 0);
	}
	expect(link, NULL);
	/* the directory of an instance is none */
	assert_int_equal(unlink(link), 0);
	snprintf(name, sizeof(name), "%s/x", to);
	assert_int_equal(rmdir(name), 0);
	assert_int_equal(symlink("/tmp", name), 0);
	expect(to, "is not a directory");
	assert_int_equal(unlink(name), 0);
}

/* A program trusts any path, and below a directory for all users only root and itself. */
TEST_HERE(as_given)
{
	char dir[64], name[96];

	if (geteuid())
		skip();
	snprintf(dir, sizeof(dir), "%s/run", parent);
	snprintf(name, sizeof(name), "%s/x/session.sock", dir);
	assert_int_equal(mkdir(dir, 0755), 0);
	assert_int_equal(chown(dir, ANOTHER_USER, ANOTHER_USER), 0);
	assert_int_equal(path_check(name, PATH_AS_GIVEN, error, sizeof(error)), 0);
	assert_int_equal(chmod(parent, 01777), 0);
	assert_int_equal(path_check(name, PATH_AS_GIVEN, error, sizeof(error)), -EACCES);
	assert_non_null(strstr(error, "belongs to user 12345"));
	assert_int_equal(chown(dir, 0, 0), 0);
	assert_int_equal(path_check(name, PATH_AS_GIVEN, error, sizeof(error)), 0);
	assert_int_equal(rmdir(dir), 0);
	assert_int_equal(rmdir(parent), 0);
}
