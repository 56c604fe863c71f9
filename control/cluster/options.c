/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include "base/log_once.h"
#include "transport/message.h"
#include "membership/peers_file.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSTANCE_MAX 48

static const char help[] =
    "Usage: weir-control --instance NAME --node ID --listen HOST:PORT --peers FILE [OPTION]...\n"
    "       weir-control --instance NAME --node ID|auto --listen HOST:PORT --join HOST:PORT[,...]\n"
    "       weir-control --instance NAME --node ID|auto --listen HOST:PORT --etcd URL[,...]\n"
    "Keeps the membership of a Weir cluster and sets up the links of one node's data plane.\n"
    "\n"
    "  --instance NAME       name of the data plane, as given to its weir-dataplane\n"
    "                        (default: $WEIR_INSTANCE, else \"default\")\n"
    "  --node ID             id of this node, 0 to 65534; with --join and --etcd also: auto\n"
    "  --listen HOST:PORT    address at which other nodes' weir-control reach this one\n"
    "  --peers FILE          all nodes, including this one, one per line:\n"
    "                        ID HOST:PORT NIC-ADDR[,NIC-ADDR...]   # comment\n"
    "  --join HOST:PORT[,HOST:PORT...]  instead of a file: members that are probably up; a node\n"
    "                        that finds its own address among them may begin a cluster\n"
    "  --etcd URL[,URL...]   keep the list of nodes in etcd, at http(s)://HOST:PORT; tried in "
    "turn\n"
    "  --etcd-user NAME      user name for etcd\n"
    "  --etcd-password FILE  file with that user's password in its first line\n"
    "  --etcd-tls DIR        DIR holds ca.pem, the CA of etcd, and, if etcd asks for a "
    "certificate,\n"
    "                        node.pem and node.key\n"
    "  --cluster NAME        refuse nodes of other clusters (default \"default\")\n"
    "  --tls DIR             speak TLS; DIR holds ca.pem, node.pem and node.key (weirctl pki\n"
    "                        makes them). SIGHUP reads them again\n"
    "  --insecure            allow addresses other than loopback without TLS\n"
    "  --node-timeout TIME   silence after which a node is suspect, 1s, 500ms or 500 (default 1s)\n"
    "  --log-format FORMAT   text, logfmt or json: with time, level and fields (default text)\n"
    "  --log-level LEVEL     error, warning, info or debug (default info)\n"
    "  --metrics HOST:PORT   serve metrics of the data plane for Prometheus: GET /metrics; an\n"
    "                        address other than loopback needs --insecure\n"
    "  --help, --version\n"
    "\n"
    "Files: /run/weir/NAME/ (or under $WEIR_RUN_DIR): control.sock of the data plane, "
    "control.pid.\n"
    "Exit codes: 0 stopped by SIGTERM or SIGINT, 1 failure while running, 2 usage, 3 resource or\n"
    "permission. Example of two nodes on one host:\n"
    "  weir-control --instance a --node 1 --listen 127.0.0.1:7471 --peers /etc/weir/peers\n"
    "  weir-control --instance b --node 2 --listen 127.0.0.1:7472 --peers /etc/weir/peers\n";

enum option_id {
	OPT_INSTANCE = 256,
	OPT_NODE,
	OPT_LISTEN,
	OPT_PEERS,
	OPT_CLUSTER,
	OPT_INSECURE,
	OPT_TIMEOUT,
	OPT_JOIN,
	OPT_ETCD,
	OPT_ETCD_USER,
	OPT_ETCD_PASSWORD,
	OPT_ETCD_TLS,
	OPT_TLS,
	OPT_HELP,
	OPT_LOG_FORMAT,
	OPT_LOG_LEVEL,
	OPT_METRICS,
	OPT_VERSION,
};

static const struct option long_options[] = {
    {"instance", required_argument, NULL, OPT_INSTANCE},
    {"node", required_argument, NULL, OPT_NODE},
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"peers", required_argument, NULL, OPT_PEERS},
    {"cluster", required_argument, NULL, OPT_CLUSTER},
    {"insecure", no_argument, NULL, OPT_INSECURE},
    {"node-timeout", required_argument, NULL, OPT_TIMEOUT},
    {"join", required_argument, NULL, OPT_JOIN},
    {"etcd", required_argument, NULL, OPT_ETCD},
    {"etcd-user", required_argument, NULL, OPT_ETCD_USER},
    {"etcd-password", required_argument, NULL, OPT_ETCD_PASSWORD},
    {"etcd-tls", required_argument, NULL, OPT_ETCD_TLS},
    {"tls", required_argument, NULL, OPT_TLS},
    {"log-format", required_argument, NULL, OPT_LOG_FORMAT},
    {"log-level", required_argument, NULL, OPT_LOG_LEVEL},
    {"metrics", required_argument, NULL, OPT_METRICS},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {0},
};

static int
usage_error(const char *format, const char *value)
{
	// The formats are this file's own.
	log_error(format, value);
	return EXIT_USAGE;
}

// Letters, digits, '_', '-', '.', no leading dot: it becomes a folder's name.
static bool
name_ok(const char *name, size_t max)
{
	size_t n = strlen(name);

	if (n == 0 || n >= max || name[0] == '.')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("_-.", name[i]))
			return false;
	return true;
}

static bool
number(const char *text, unsigned long max, unsigned long *value, char **rest)
{
	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*value = strtoul(text, rest, 10);
	return errno == 0 && *value <= max;
}

static int
set_node(struct control_options *o, const char *text)
{
	unsigned long id;
	char *rest;

	if (!strcmp(text, "auto")) {
		o->has_node = false;
		return -1;
	}
	if (!number(text, 65534, &id, &rest) || *rest)
		return usage_error("invalid value '%s' for --node (expected 0 to 65534, or auto)",
				   text);
	o->node = id;
	o->has_node = true;
	return -1;
}

static int
set_join(struct control_options *o, const char *text)
{
	char one[WEIR_CTL_PEER_TEXT], host[WEIR_CTL_PEER_TEXT];
	uint16_t port;

	for (const char *at = text;; at++) {
		size_t n = strcspn(at, ",");

		if (n < sizeof(one)) {
			memcpy(one, at, n);
			one[n] = 0;
		}
		if (n >= sizeof(one) || host_port_split(one, false, host, sizeof(host), &port))
			return usage_error("invalid value '%s' for --join (expected addresses of "
					   "members, HOST:PORT[,HOST:PORT...])",
					   text);
		at += n;
		if (!*at)
			break;
	}
	o->join = text;
	return -1;
}

static int
set_timeout(struct control_options *o, const char *text)
{
	unsigned long value;
	char *rest;

	if (number(text, 3600000, &value, &rest)) {
		if (!strcmp(rest, "s"))
			value *= 1000;
		else if (*rest && strcmp(rest, "ms"))
			value = 0;
		if (value >= 100 && value <= 3600000) {
			o->node_timeout = value;
			return -1;
		}
	}
	return usage_error("invalid value '%s' for --node-timeout (expected 100ms to 3600s)", text);
}

static int
set_option(struct control_options *o, int id, const char *value)
{
	switch (id) {
	case OPT_INSTANCE:
		o->instance = value;
		return -1;
	case OPT_NODE:
		return set_node(o, value);
	case OPT_LISTEN:
		o->listen = value;
		return -1;
	case OPT_PEERS:
		o->peers = value;
		return -1;
	case OPT_CLUSTER:
		o->cluster = value;
		return -1;
	case OPT_INSECURE:
		o->insecure = true;
		return -1;
	case OPT_TIMEOUT:
		return set_timeout(o, value);
	case OPT_JOIN:
		return set_join(o, value);
	case OPT_ETCD:
		o->etcd = value;
		return -1;
	case OPT_ETCD_USER:
		o->etcd_user = value;
		return -1;
	case OPT_ETCD_PASSWORD:
		o->etcd_password = value;
		return -1;
	case OPT_ETCD_TLS:
		o->etcd_tls = value;
		return -1;
	case OPT_TLS:
		o->tls = value;
		return -1;
	case OPT_LOG_FORMAT:
		if (log_format_parse(value, &o->log_format))
			return -1;
		return usage_error(
		    "invalid value '%s' for --log-format (expected text, logfmt or json)", value);
	case OPT_LOG_LEVEL:
		if (log_level_parse(value, &o->log_level))
			return -1;
		return usage_error(
		    "invalid value '%s' for --log-level (expected error, warning, info or debug)",
		    value);
	case OPT_METRICS:
		o->metrics = value;
		return -1;
	case OPT_HELP:
		fputs(help, stdout);
		return EXIT_OK;
	case OPT_VERSION:
		puts("weir-control " WEIR_VERSION);
		return EXIT_OK;
	}
	return EXIT_USAGE; // getopt has said why
}

// Where the list of nodes comes from: one of three.
static int
check_source(const struct control_options *o)
{
	int sources = !!o->peers + !!o->join + !!o->etcd;

	if (!sources)
		return usage_error("%s is missing; see --help", "--peers, --join or --etcd");
	if (sources > 1)
		return usage_error("%s contradict each other; give one",
				   "--peers, --join and --etcd");
	if (o->peers && !o->has_node)
		return usage_error("%s needs --join or --etcd; the peers file gives ids",
				   "--node auto");
	if (!o->etcd_user != !o->etcd_password)
		return usage_error("%s belong together; give both",
				   "--etcd-user and --etcd-password");
	if (!o->etcd && (o->etcd_user || o->etcd_tls))
		return usage_error("%s is missing; see --help", "--etcd");
	return -1;
}

static int
check(const struct control_options *o, bool node_given)
{
	if (!name_ok(o->instance, INSTANCE_MAX))
		return usage_error("invalid value '%s' for --instance (expected up to 47 letters, "
				   "digits, '_', '-', '.')",
				   o->instance);
	if (!name_ok(o->cluster, CONTROL_CLUSTER_MAX))
		return usage_error("invalid value '%s' for --cluster (expected up to 31 letters, "
				   "digits, '_', '-', '.')",
				   o->cluster);
	if (!node_given)
		return usage_error("%s is missing; see --help", "--node");
	if (!o->listen)
		return usage_error("%s is missing; see --help", "--listen");
	return check_source(o);
}

int
options_parse(int argc, char **argv, struct control_options *o)
{
	bool node_given = false;
	int id, status;

	*o = (struct control_options){
	    .cluster = "default", .node_timeout = 1000, .log_level = LOG_LEVEL_INFO};
	o->instance = getenv("WEIR_INSTANCE");
	if (!o->instance)
		o->instance = "default";
	opterr = 0;
	while ((id = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
		if (id == ':')
			return usage_error("%s needs a value; see --help", argv[optind - 1]);
		if (id == '?')
			return usage_error("unknown option '%s'; see --help", argv[optind - 1]);
		status = set_option(o, id, optarg);
		if (status >= 0)
			return status;
		node_given |= id == OPT_NODE;
	}
	if (optind < argc)
		return usage_error("unexpected argument '%s'; see --help", argv[optind]);
	return check(o, node_given);
}
