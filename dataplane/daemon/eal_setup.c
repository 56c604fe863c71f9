/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "eal_setup.h"

#include "munmap_guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>

#define ARGUMENTS_MAX 128
#define PREFIX "weir-"
#define PROGRAM "weir-dataplane"

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
	if (a->argc < ARGUMENTS_MAX - 1)
		a->argv[a->argc++] = (char *)argument;
}

/* Without a word about lcores: main and one engine, on two CPUs if we may use so many. */
static void
append_cores(struct arguments *a)
{
	int cpu[2] = {0, 0}, found = 0;
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
			if (CPU_ISSET(i, &set))
				cpu[found++] = i;
	if (found == 1)
		cpu[1] = cpu[0];
	snprintf(a->cores, sizeof(a->cores), "--lcores=0@%d,1@%d", cpu[0], cpu[1]);
	append(a, a->cores);
}

/* Ours first: of an option given twice EAL takes the last. */
static void
build(struct arguments *a, const char *instance, int argc, char **argv)
{
	bool no_huge = given(argc, argv, "--no-huge");

	append(a, PROGRAM);
	append(a, "--log-level=*:error");
	snprintf(a->prefix, sizeof(a->prefix), "--file-prefix=" PREFIX "%s", instance);
	append(a, a->prefix);
	if (!given(argc, argv, "-l") && !given(argc, argv, "-c") && !given(argc, argv, "-s") &&
	    !given(argc, argv, "--lcores"))
		append_cores(a);
	if (no_huge && !given(argc, argv, "-m")) {
		append(a, "-m");
		append(a, "512");
	}
	/* pages come back whatever kills us; zero-copy ports need the files */
	if (!no_huge && !given(argc, argv, "--single-file-segments"))
		append(a, "--huge-unlink=always");
	/* EAL takes --in-memory for a promise about hugepages; without them it means: no files */
	for (int i = 1; i < argc; i++)
		append(a, no_huge && strcmp(argv[i], "--in-memory") == 0 ? "--no-shconf" : argv[i]);
}

/* ---- what EAL says goes into a file for the while; its complaint becomes our one line ---- */

struct capture {
	int file, out, err;
};

static void
capture_start(struct capture *c)
{
	fflush(stdout);
	c->file = memfd_create("eal", MFD_CLOEXEC);
	c->out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	c->err = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (c->file < 0 || c->out < 0 || c->err < 0)
		return;
	dup2(c->file, STDOUT_FILENO);
	dup2(c->file, STDERR_FILENO);
}

/* Gives the terminal back; the text is the caller's to free, NULL if there is none. */
static char *
capture_end(struct capture *c)
{
	off_t length = c->file >= 0 ? lseek(c->file, 0, SEEK_END) : 0;
	char *text = length > 0 ? calloc(1, (size_t)length + 1) : NULL;

	fflush(stdout);
	if (c->out >= 0)
		dup2(c->out, STDOUT_FILENO);
	if (c->err >= 0)
		dup2(c->err, STDERR_FILENO);
	if (text && pread(c->file, text, (size_t)length, 0) < 0)
		text[0] = '\0';
	close(c->file);
	close(c->out);
	close(c->err);
	return text;
}

/* Lines that say nothing of the cause. */
static bool
says_little(const char *line)
{
	static const char *const little[] = {"EAL: FATAL: Invalid 'command line'",
					     "EAL: Invalid 'command line'", "EAL: Detected",
					     "EAL: Multi-process socket", "EAL: Selected IOVA"};

	for (size_t i = 0; i < sizeof(little) / sizeof(little[0]); i++)
		if (strncmp(line, little[i], strlen(little[i])) == 0)
			return true;
	return false;
}

static const char *
find_cause(char *text)
{
	for (char *line; (line = strsep(&text, "\n"));) {
		char *option = strstr(line, "option '");

		if (option)
			return strncmp(line, PROGRAM ": ", 16) == 0 ? line + 16 : line;
		if (says_little(line) || !strstr(line, ": ") || line[0] == ' ' || line[0] == '\t')
			continue;
		if (strncmp(line, "EAL: ", 5) == 0)
			line += 5;
		if (strncmp(line, "FATAL: ", 7) == 0)
			line += 7;
		return line;
	}
	return "EAL does not start";
}

/* What a driver said when it could not make its port; "" if nothing. */
static char grievance[160];

static void
note_grievance(char *text)
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
		snprintf(grievance, sizeof(grievance), "%s", at);
		at = grievance + strlen(grievance);
		while (at > grievance && (at[-1] == '.' || at[-1] == '!'))
			*--at = '\0';
		return;
	}
}

void
eal_explain(char *error, size_t size)
{
	size_t cause = strcspn(error, ";");

	if (*grievance)
		snprintf(error + cause, size - cause, ": %s; check its --vdev", grievance);
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

/* A --file-prefix of the user's may be shared: only a directory with our name is removed. */
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
	rmdir(path); /* if no other process of DPDK is left */
}

int
eal_setup(const char *instance, int argc, char **argv, char *error, size_t size)
{
	struct arguments a = {0};
	struct capture capture;
	char *text;
	int rc;

	if (argc > ARGUMENTS_MAX - 16) {
		snprintf(error, size, "%d EAL options are too many; give fewer than %d", argc,
			 ARGUMENTS_MAX - 16);
		return -EINVAL;
	}
	build(&a, instance, argc, argv);
	rte_openlog_stream(stderr);
	capture_start(&capture);
	rc = rte_eal_init(a.argc, a.argv) < 0 ? (rte_errno ? -rte_errno : -EIO) : 0;
	text = capture_end(&capture);
	if (rc) {
		rc = complain(rc, text, error, size);
		if (rc != -EBUSY)
			remove_runtime_dir(rte_eal_get_runtime_dir(), instance);
	} else if (text) {
		if (given(argc, argv, "--log-level"))
			fputs(text, stderr);
		note_grievance(text);
	}
	free(text);
	return rc;
}

void
eal_teardown(const char *instance)
{
	char path[256];

	snprintf(path, sizeof(path), "%s", rte_eal_get_runtime_dir());
	/* what it still listens to lies in memory that goes now; the thread ends with the process
	 */
	quiet_hold_interrupts();
	rte_eal_cleanup();
	remove_runtime_dir(path, instance);
}
