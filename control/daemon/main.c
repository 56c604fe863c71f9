/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/crash.h"
#include "base/run_dir.h"
#include "cluster/control.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

// Returns -1 or an exit code after having said why not.
static int
load_peers(const char *name, struct peers *peers)
{
	FILE *f = fopen(name, "re");
	char *text = f ? malloc(PEERS_TEXT_MAX + 1) : NULL, error[256];
	int status = EXIT_USAGE;
	size_t n = 0;

	if (text)
		n = fread(text, 1, PEERS_TEXT_MAX + 1, f);
	if (!f && errno == EACCES) {
		status = EXIT_RESOURCE;
		log_error("cannot read %s: %s; let this user read it", name, strerror(errno));
	} else if (!text || ferror(f)) {
		log_error("cannot read %s: %s; give the peers file with --peers", name,
			  strerror(errno));
	} else if (n > PEERS_TEXT_MAX || memchr(text, 0, n)) {
		log_error("%s is not a peers file: it is %s; write one line per node", name,
			  n > PEERS_TEXT_MAX ? "longer than 1 MiB" : "not text");
	} else {
		text[n] = 0;
		status = peers_parse(text, peers, error, sizeof(error));
		if (status)
			log_error("%s:%s", name, error);
		status = !status ? -1 : status == -ENOMEM ? EXIT_RESOURCE : EXIT_USAGE;
	}
	free(text);
	if (f)
		fclose(f);
	return status;
}

static int
run(const struct control_options *options, const struct peers *peers)
{
	const char *parent = getenv("WEIR_RUN_DIR");
	char socket_path[RUN_DIR_SOCKET_MAX], error[512];
	struct run_dir dir;
	int status;

	control_hold_signals(); // until they end us in order
	if (run_dir_take(&dir, parent && *parent ? parent : "/run/weir", options->instance,
			 "control", error, sizeof(error))) {
		log_error("%s", error);
		return EXIT_RESOURCE;
	}
	snprintf(socket_path, sizeof(socket_path), "%s/control.sock", dir.path);
	status = control_run(options, peers, socket_path);
	run_dir_release(&dir);
	return status;
}

int
main(int argc, char **argv)
{
	struct control_options options;
	struct peers peers = {0};
	struct rlimit limit;
	int status;

	log_open(NULL);
	log_find_format(argc, argv);
	crash_install(NULL);
	status = control_options_parse(argc, argv, &options);
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
	// A connection per peer and a few strangers: as many descriptors as we may have.
	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	status = run(&options, options.peers ? &peers : NULL);
	peers_free(&peers);
	return status;
}
