/* SPDX-License-Identifier: BSD-3-Clause */
/* Limits that follow from the machine: their sum fits it, or somebody is told. */
#define _GNU_SOURCE
#include "worlds/test.h"

#include "daemon/machine_limits.h"

#include <ftw.h>
#include <sys/stat.h>

#define GIB (1ull << 30)

static struct options o;
static char text[512];

static void
derive(uint64_t machine, uint64_t files, const char *option, const char *value)
{
	char *argv[] = {(char *)option, (char *)value, NULL};

	if (options_parse(&o, option ? 2 : 0, argv, text, sizeof(text)))
		fail_msg("%s", text);
	limits_derive(&o, machine, files);
}

TEST(test_fits)
{
	const uint64_t machine[] = {GIB / 4, GIB, 24 * GIB, 4096 * GIB};

	for (size_t i = 0; i < sizeof(machine) / sizeof(machine[0]); i++) {
		derive(machine[i], 1 << 20, NULL, NULL);
		assert_true(
		    limits_fit(&o, machine[i] / 2, machine[i], 1 << 20, text, sizeof(text)));
		/* whoever uses up what it may leaves room for others */
		assert_int_equal(o.users.others.most[USER_MEMORY], machine[i] / 4);
		assert_true(2 * o.users.others.most[USER_REGIONS] <= o.most[USER_REGIONS] + 1);
		assert_true(2 * o.users.others.most[USER_SEGMENTS] <= o.most[USER_SEGMENTS] + 1);
		assert_true(o.most[USER_REGIONS] >= o.max_sessions);
	}
	/* nothing is known of the machine: no limit, and nothing to say */
	derive(0, 1 << 20, NULL, NULL);
	assert_int_equal(o.most[USER_MEMORY], 0);
	assert_true(limits_fit(&o, GIB, 0, 1 << 20, text, sizeof(text)));
}

/* Links: by memory, unless an option says how many. Programs of a node begin at least 1,024 of
 * them; the last eighth is for those that peers begin. */
TEST(test_links)
{
	derive(GIB, 1 << 20, NULL, NULL);
	assert_int_equal(o.links, 1171);
	assert_in_range(o.links - o.links / 8, 1024, 1025);
	derive(64 * GIB, 1 << 20, NULL, NULL);
	assert_int_equal(o.links, 2048);
	derive(32 * GIB, 1 << 20, NULL, NULL);
	assert_in_range(o.links, 1172, 2047);
	derive(64 * GIB, 1 << 20, "--peer-ring", "512K"); /* each costs more */
	assert_in_range(o.links, 1171, 2047);
	derive(4096 * GIB, 1 << 20, NULL, NULL);
	assert_int_equal(o.links, 2048);
	derive(64 * GIB, 1 << 20, "--links", "16");
	assert_int_equal(o.links, 16);
}

TEST(test_warned)
{
	derive(GIB, 1 << 20, "--max-memory", "1G");
	assert_int_equal(o.most[USER_MEMORY], GIB);
	assert_false(limits_fit(&o, GIB / 4, GIB, 1 << 20, text, sizeof(text)));
	assert_string_equal(text,
			    "all limits together are 1280 MiB, this machine (or control group) "
			    "has 1024 MiB; lower --max-memory, or --links, --peer-ring, "
			    "--tx-frames, or start it where there is more");
	derive(64 * GIB, 4096, "--max-sessions", "1024");
	assert_false(limits_fit(&o, GIB, 64 * GIB, 4096, text, sizeof(text)));
	assert_non_null(strstr(text, "open files, 4096 are allowed; raise that limit"));
	assert_true(o.most[USER_SEGMENTS] > 0);
	/* mappings of a process are few */
	derive(64 * GIB, 1 << 20, "--max-sessions", "4096");
	assert_true(o.most[USER_REGIONS] + o.max_sessions < 65530 / 4 * 3);
}

TEST(test_users)
{
	char *argv[] = {"--user-limit", "1001:memory=64M,regions=none", "--user-limit",
			"1002:sessions=1"};

	assert_int_equal(options_parse(&o, 4, argv, text, sizeof(text)), 0);
	limits_derive(&o, 16 * GIB, 1 << 20);
	assert_int_equal(o.users.limited[0].limits.most[USER_MEMORY], 64 << 20);
	assert_int_equal(o.users.limited[0].limits.most[USER_REGIONS], 0);
	assert_int_equal(o.users.limited[0].limits.most[USER_SEGMENTS],
			 o.users.others.most[USER_SEGMENTS]);
	/* who is named for another reason is not without limit */
	assert_int_equal(o.users.limited[1].limits.most[USER_MEMORY], 4 * GIB);
	assert_int_equal(o.users.limited[1].limits.most[USER_SESSIONS], 1);
	assert_int_equal(o.users.others.most[USER_SESSIONS], 0);
}

static void
write_to(const char *root, const char *name, const char *words)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); at++) {
		*at = 0;
		mkdir(path, 0700);
		*at = '/';
	}
	f = fopen(path, "we");
	assert_non_null(f);
	fputs(words, f);
	fclose(f);
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

TEST(test_machine)
{
	char root[] = "/tmp/weir-limits-XXXXXX";

	assert_non_null(mkdtemp(root));
	assert_int_equal(machine_memory(root), 0);
	write_to(root, "proc/meminfo", "MemFree:  1 kB\nMemTotal:    8388608 kB\n");
	assert_int_equal(machine_memory(root), 8 * GIB);
	write_to(root, "proc/self/cgroup", "3:cpu:/x\n0::/system.slice/weir.service\n");
	assert_int_equal(machine_memory(root), 8 * GIB);
	write_to(root, "sys/fs/cgroup/system.slice/weir.service/memory.max", "max\n");
	write_to(root, "sys/fs/cgroup/system.slice/memory.max", "4294967296\n");
	assert_int_equal(machine_memory(root), 4 * GIB);
	write_to(root, "sys/fs/cgroup/system.slice/weir.service/memory.max", "2147483648\n");
	assert_int_equal(machine_memory(root), 2 * GIB);
	/* as a container sees it */
	write_to(root, "proc/self/cgroup", "0::/\n");
	write_to(root, "sys/fs/cgroup/memory.max", "1073741824\n");
	assert_int_equal(machine_memory(root), GIB);
	assert_int_equal(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}
