/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "eal_setup.h"

#include "base/log.h"
#include "munmap_guard.h"

#include "ipc/invariant.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>

#define ARGUMENTS_MAX 128
#define PREFIX "weir-"
#define PROGRAM "weir-dataplane"

static FILE *eal_log; /* of EAL and drivers; NULL: stderr */

struct arguments {
	char *argv[ARGUMENTS_MAX];
	int argc;
	char prefix[64], cores[64];
};

static bool
given(int argc, char **argv, const char *option)
{
	size_t length = strlen(option);
	bool is_short = option[1] != '-';

	for (int i = 1; i < argc; i++)
		if (strncmp(argv[i], option, length) == 0 &&
		    (is_short || argv[i][length] == '\0' || argv[i][length] == '='))
			return true;
	return false;
}

static void
append(struct arguments *a, const char *argument)
{
	weir_assert(a->argc < ARGUMENTS_MAX - 1); /* eal_setup() has refused more */
	if (a->argc < ARGUMENTS_MAX - 1)
		a->argv[a->argc++] = (char *)argument;
}

/* Ours first: EAL takes the last of an option that is given twice. */
static void
build(struct arguments *a, const char *instance, int argc, char **argv)
{
	bool no_huge = given(argc, argv, "--no-huge");
	int cpu[2] = {0, 0}, found = 0;
	cpu_set_t set;

	append(a, PROGRAM);
	append(a, "--log-level=*:error");
	snprintf(a->prefix, sizeof(a->prefix), "--file-prefix=" PREFIX "%s", instance);
	append(a, a->prefix);
	if (!given(argc, argv, "-l") && !given(argc, argv, "-c") && !given(argc, argv, "-s") &&
	    !given(argc, argv, "--lcores")) {
		/* main and one engine, on two CPUs if we may use two */
		if (sched_getaffinity(0, sizeof(set), &set) == 0)
			for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
				if (CPU_ISSET(i, &set))
					cpu[found++] = i;
		if (found == 1)
			cpu[1] = cpu[0];
		snprintf(a->cores, sizeof(a->cores), "--lcores=0@%d,1@%d", cpu[0], cpu[1]);
		append(a, a->cores);
	}
	if (no_huge && !given(argc, argv, "-m")) {
		append(a, "-m");
		append(a, "512");
	}
	/* the kernel frees the pages whatever kills us; zero-copy ports need the files */
	if (!no_huge && !given(argc, argv, "--single-file-segments"))
		append(a, "--huge-unlink=always");
	/* EAL allows --in-memory with hugepages only; without them it means: no files */
	for (int i = 1; i < argc; i++)
		append(a, no_huge && strcmp(argv[i], "--in-memory") == 0 ? "--no-shconf" : argv[i]);
}

/* ---- output of EAL goes into a file while it starts; its error becomes our one line ---- */

/* rte_eal_init(): 0 or -errno; in *text its output, the caller's to free, NULL if there is none. */
static int
init_quietly(struct arguments *a, char **text)
{
	int file, out, err, rc;
	off_t length;

	fflush(stdout);
	file = memfd_create("eal", MFD_CLOEXEC);
	out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	err = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (file >= 0 && out >= 0 && err >= 0) {
		dup2(file, STDOUT_FILENO);
		dup2(file, STDERR_FILENO);
	}
	rc = rte_eal_init(a->argc, a->argv) < 0 ? (rte_errno ? -rte_errno : -EIO) : 0;
	length = file >= 0 ? lseek(file, 0, SEEK_END) : 0;
	*text = length > 0 ? calloc(1, (size_t)length + 1) : NULL;
	fflush(stdout);
	if (out >= 0)
		dup2(out, STDOUT_FILENO);
	if (err >= 0)
		dup2(err, STDERR_FILENO);
	if (*text && pread(file, *text, (size_t)length, 0) < 0)
		(*text)[0] = '\0';
	close(file);
	close(out);
	close(err);
	return rc;
}

/* The first line that names a cause. */
static const char *
find_cause(char *text)
{
	static const char *const vague[] = {"EAL: FATAL: Invalid 'command line'",
					    "EAL: Invalid 'command line'", "EAL: Detected",
					    "EAL: Multi-process socket", "EAL: Selected IOVA"};

	for (char *line; (line = strsep(&text, "\n"));) {
		char *option = strstr(line, "option '");
		bool is_vague = false;

		if (option)
			return strncmp(line, PROGRAM ": ", 16) == 0 ? line + 16 : line;
		for (size_t i = 0; i < sizeof(vague) / sizeof(vague[0]); i++)
			is_vague |= strncmp(line, vague[i], strlen(vague[i])) == 0;
		if (is_vague || !strstr(line, ": ") || line[0] == ' ' || line[0] == '\t')
			continue;
		if (strncmp(line, "EAL: ", 5) == 0)
			line += 5;
		if (strncmp(line, "FATAL: ", 7) == 0)
			line += 7;
		return line;
	}
	return "EAL does not start";
}

static char driver_error[160]; /* of a driver that could not make its port; "": none */

static void
note_driver_error(char *text)
{
	for (char *line; (line = strsep(&text, "\n"));) {
		char *at = strstr(line, "(): ");

		if (!at || strncmp(line, "vdev_probe", 10) == 0 || strncmp(line, "EAL:", 4) == 0)
			continue;
		for (at += 4; *at == ' ';)
			at++;
		if (strncmp(at, "net_", 4) == 0 && strstr(at, ": ")) /* the port's name again */
			at = strstr(at, ": ") + 2;
		at[strcspn(at, ";")] = '\0';
		snprintf(driver_error, sizeof(driver_error), "%s", at);
		at = driver_error + strlen(driver_error);
		while (at > driver_error && (at[-1] == '.' || at[-1] == '!'))
			*--at = '\0';
		return;
	}
}

void
eal_explain(char *error, size_t size)
{
	size_t cause = strcspn(error, ";");
	int raw = strstr(error, "af_packet") ? socket(AF_PACKET, SOCK_RAW, 0) : 0;

	if (raw > 0)
		close(raw);
	if (raw < 0 && errno == EPERM) /* the driver names no cause */
		snprintf(error + cause, size - cause,
			 ": it needs CAP_NET_RAW; run as root or with that capability "
			 "(AmbientCapabilities=)");
	else if (*driver_error)
		snprintf(error + cause, size - cause, ": %s; check its --vdev", driver_error);
}

static int
complain(int rc, char *text, char *error, size_t size)
{
	const char *cause = text ? find_cause(text) : "EAL does not start", *remedy;
	size_t length;

	if (strstr(cause, "Permission denied")) {
		remedy = "run as root, or add --in-memory or --no-huge";
		rc = -EACCES;
	} else if (strstr(cause, "memseg")) {
		remedy = "ask for less memory: -m MB";
		rc = -ENOMEM;
	} else if (strstr(cause, "hugepage") || strstr(cause, "memory available") ||
		   strstr(cause, "init memory")) {
		remedy =
		    "reserve hugepages with scripts/setup_hugepages.sh, or add --no-huge -m 512";
		rc = -ENOMEM;
	} else if (strstr(cause, "lock")) {
		remedy =
		    "stop the other process with this --file-prefix, or use another --instance";
		rc = -EBUSY;
	} else if (rc == -ENODEV) {
		remedy = "check --vdev and -a";
	} else if (rc == -EACCES || rc == -EPERM) {
		remedy = "run as root, or add --in-memory or --no-huge";
	} else {
		remedy = "check the EAL options, which stand before --";
	}
	length = strcspn(cause, ".?;"); /* no second sentence */
	while (cause[length] && cause[length + 1] && cause[length + 1] != ' ')
		length += 1 + strcspn(cause + length + 1, ".?;");
	snprintf(error, size, "%.*s; %s", (int)length, cause, remedy);
	if (error[0] >= 'A' && error[0] <= 'Z' && error[1] >= 'a' && error[1] <= 'z')
		error[0] += 'a' - 'A';
	return rc;
}

/* Removes it only if it has our name: the user's --file-prefix may be shared. */
static void
remove_runtime_dir(const char *runtime_dir, const char *instance)
{
	char path[256], name[64], *slash;
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "%s", runtime_dir);
	snprintf(name, sizeof(name), "/" PREFIX "%s", instance);
	slash = strrchr(path, '/');
	dir = slash && strcmp(slash, name) == 0 ? opendir(path) : NULL;
	if (!dir)
		return;
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
	rmdir(path);
	*slash = '\0';
	rmdir(path); /* fails while another process of DPDK has files there */
}

int
eal_setup(const char *instance, int argc, char **argv, char *error, size_t size)
{
	struct arguments a = {0};
	char *text;
	int rc;

	if (argc > ARGUMENTS_MAX - 16) {
		snprintf(error, size, "%d EAL options are too many; give fewer than %d", argc,
			 ARGUMENTS_MAX - 16);
		return -EINVAL;
	}
	build(&a, instance, argc, argv);
	rte_openlog_stream(stderr);
	rc = init_quietly(&a, &text);
	if (rc) {
		rc = complain(rc, text, error, size);
		if (rc != -EBUSY)
			remove_runtime_dir(rte_eal_get_runtime_dir(), instance);
	} else {
		/* what EAL and drivers say from now on becomes lines of the log, as in its format
		 */
		eal_log = log_stream(LOG_LEVEL_WARNING);
		if (eal_log)
			rte_openlog_stream(eal_log);
		if (text && given(argc, argv, "--log-level"))
			fputs(text, eal_log ? eal_log : stderr);
		if (text)
			note_driver_error(text);
	}
	free(text);
	return rc;
}

void
eal_teardown(const char *instance)
{
	char path[256];

	snprintf(path, sizeof(path), "%s", rte_eal_get_runtime_dir());
	/* The thread listens to objects in memory that is freed now; it ends with the process. */
	quiet_hold_interrupts();
	rte_eal_cleanup();
	rte_openlog_stream(stderr);
	if (eal_log)
		fclose(eal_log);
	eal_log = NULL;
	remove_runtime_dir(path, instance);
}
