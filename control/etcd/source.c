/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of nodes in etcd, as the command line says: its files, and which URLs may be plain. */
#include "cluster/control.h"
#include "etcd.h"
#include "base/secret.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PASSWORD_MAX 255

/* One control a process; what the source points to. */
static struct {
	struct etcd_options options;
	char password[PASSWORD_MAX + 2];
	char ca[PATH_MAX], certificate[PATH_MAX], key[PATH_MAX];
} etcd;

static int
open_secret(const char *option, const char *file, const char *remedy)
{
	char error[LOG_LINE_MAX];
	int fd = secret_open(file, remedy, error, sizeof(error));

	if (fd < 0)
		log_error("%s: %s", option, error);
	return fd;
}

static int
exit_code(int status)
{
	return status == -EACCES ? EXIT_RESOURCE : EXIT_USAGE;
}

/* Its first line. */
static int
load_password(const char *file)
{
	int fd = open_secret("--etcd-password", file, "give a file with a password");
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	bool got = f && fgets(etcd.password, sizeof(etcd.password), f);
	size_t n = got ? strcspn(etcd.password, "\r\n") : 0;

	if (f)
		fclose(f);
	if (fd < 0)
		return exit_code(fd);
	if (!n || n > PASSWORD_MAX) {
		log_error("%s holds no password; write a line of up to %d bytes", file,
			  PASSWORD_MAX);
		return EXIT_USAGE;
	}
	etcd.password[n] = 0;
	return -1;
}

/* ca.pem must be there; node.pem and node.key where etcd asks who we are. */
static int
find_files(const char *dir)
{
	int fd;

	snprintf(etcd.ca, sizeof(etcd.ca), "%s/ca.pem", dir);
	snprintf(etcd.certificate, sizeof(etcd.certificate), "%s/node.pem", dir);
	snprintf(etcd.key, sizeof(etcd.key), "%s/node.key", dir);
	if (access(etcd.ca, R_OK)) {
		int error = errno;

		log_error("--etcd-tls: cannot read %s: %s; put the CA of etcd's certificate there",
			  etcd.ca, strerror(error));
		return exit_code(-error);
	}
	etcd.options.access.ca = etcd.ca;
	if (access(etcd.certificate, F_OK))
		return -1;
	fd = open_secret("--etcd-tls", etcd.key, "put the key of node.pem there");
	if (fd < 0)
		return exit_code(fd);
	close(fd);
	etcd.options.access.certificate = etcd.certificate;
	etcd.options.access.key = etcd.key;
	return -1;
}

static int
check_url(const char *url, bool insecure)
{
	const char *rest = !strncmp(url, "https://", 8)	 ? url + 8
			   : !strncmp(url, "http://", 7) ? url + 7
							 : "";
	char text[200], host[200];
	struct in_addr a;
	uint16_t port;
	bool loopback;

	snprintf(text, sizeof(text), "%s", rest);
	for (size_t n = strlen(text); n && text[n - 1] == '/';)
		text[--n] = 0;
	if (strchr(text, '/') || host_port_split(text, false, host, sizeof(host), &port)) {
		log_error("invalid value '%s' for --etcd (expected http://HOST:PORT or "
			  "https://HOST:PORT)",
			  url);
		return EXIT_USAGE;
	}
	loopback = !strcmp(host, "localhost") || !strcmp(host, "::1") ||
		   (inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127);
	if (rest == url + 7 && !insecure && !loopback) {
		log_error(
		    "--etcd '%s' is neither TLS nor loopback; use https:// and --etcd-tls, or "
		    "add --insecure if all between are trusted",
		    url);
		return EXIT_USAGE;
	}
	return -1;
}

int
source_etcd(const struct control_options *o, const char *control, struct membership_source **source)
{
	unsigned count = 0;
	int status = -1;

	for (const char *at = o->etcd; at && status < 0; count++) {
		char url[200];
		size_t n = strcspn(at, ",");

		snprintf(url, sizeof(url), "%.*s", (int)(n < sizeof(url) ? n : sizeof(url) - 1),
			 at);
		status = check_url(url, o->insecure);
		at = at[n] ? at + n + 1 : NULL;
	}
	etcd.options = (struct etcd_options){
	    .urls = o->etcd,
	    .cluster = o->cluster,
	    .user = o->etcd_user,
	    .password = etcd.password,
	    .control = control,
	    .node = o->has_node ? o->node : ETCD_NODE_AUTO,
	    .lease = ETCD_LEASE,
	};
	if (status < 0 && count > ETCD_URLS) {
		log_error("--etcd has more than %u URLs; give some that are mostly up", ETCD_URLS);
		status = EXIT_USAGE;
	}
	if (status < 0 && o->etcd_user)
		status = load_password(o->etcd_password);
	if (status < 0 && o->etcd_tls)
		status = find_files(o->etcd_tls);
	if (status >= 0)
		return status;
	*source = etcd_source_create(&etcd.options);
	if (*source)
		return -1;
	log_error("out of memory for --etcd; free some");
	return EXIT_RESOURCE;
}
