/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/crash.h"
#include "control.h"
#include "rundir.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

// The file's text, NUL-terminated, or NULL and an exit code after having said why not.
static char *
read_file(const char *name, int *status)
{
	FILE *f = fopen(name, "re");
	char *text = f ? malloc(PEERS_TEXT_MAX + 1) : NULL;
	size_t n = 0;

	*status = EXIT_USAGE;
	if (text)
		n = fread(text, 1, PEERS_TEXT_MAX + 1, f);
	if (!f && errno == EACCES) {
		*status = EXIT_RESOURCE;
		log_error("cannot read %s: %s; let this user read it", name, strerror(errno));
	} else if (!text || ferror(f)) {
		log_error("cannot read %s: %s; give the peers file with --peers", name,
			  strerror(errno));
		free(text);
		text = NULL;
	} else if (n > PEERS_TEXT_MAX || memchr(text, 0, n)) {
		log_error("%s is no peers file: it is %s; write a line a node", name,
			  n > PEERS_TEXT_MAX ? "longer than 1 MiB" : "not text");
		free(text);
		text = NULL;
	} else {
		text[n] = 0;
	}
	if (f)
		fclose(f);
	return text;
}

static int
load_peers(const char *name, struct peers *peers)
{
	char error[256];
	int status;
	char *text = read_file(name, &status);

	if (!text)
		return status;
	status = peers_parse(text, peers, error, sizeof(error));
	free(text);
	if (!status)
		return -1;
	log_error("%s:%s", name, error);
	return status == -ENOMEM ? EXIT_RESOURCE : EXIT_USAGE;
}

static int
enter(struct rundir *r, const char *instance)
{
	int owner = 0, status = rundir_enter(r, instance, &owner);

	if (!status)
		return -1;
	if (status == -EBUSY)
		log_error("weir-control of instance '%s' runs already (pid %d); stop it or choose "
			  "another --instance",
			  instance, owner);
	else if (status == -ENAMETOOLONG)
		log_error("path of the run directory is too long; shorten $WEIR_RUN_DIR");
	else
		log_error("cannot use run directory %s: %s; run as root or set $WEIR_RUN_DIR",
			  r->path, strerror(-status));
	return EXIT_RESOURCE;
}

// A connection per peer and a few strangers: as many descriptors as we may have.
static void
raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

int
main(int argc, char **argv)
{
	struct control_options options;
	struct rundir run;
	struct peers peers = {0};
	char socket_path[RUNDIR_MAX + 16];
	int status;

	log_open(NULL);
	crash_install(NULL);
	status = options_parse(argc, argv, &options);
	if (status < 0) {
		log_open(options.instance);
		log_set_level(options.log_level);
		log_set_format(options.log_format);
	}
	if (status < 0 && options.peers)
		status = load_peers(options.peers, &peers);
	if (status >= 0)
		return status;
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stderr, NULL, _IOLBF, 0);
	raise_limit();
	status = enter(&run, options.instance);
	if (status < 0) {
		snprintf(socket_path, sizeof(socket_path), "%s/control.sock", run.path);
		status = control_run(&options, options.peers ? &peers : NULL, socket_path);
		rundir_leave(&run);
	}
	peers_free(&peers);
	return status;
}
