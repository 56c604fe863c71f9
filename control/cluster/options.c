/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include "base/log_once.h"
#include "transport/message.h"
#include "membership/peers_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define INSTANCE_MAX 48

static int
usage_error(const char *format, const char *value)
{
	// The formats are this file's own.
	log_error(format, value);
	return EXIT_USAGE;
}

static int
invalid_name(const char *option, const char *name, const char *expected)
{
	char error[512];

	option_invalid(option, name, expected, error, sizeof(error));
	return usage_error("%s", error);
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

static int
take_node(void *into, const char *text, char *error, size_t size)
{
	struct control_options *o = into;
	uint64_t id;

	o->has_node = strcmp(text, "auto") != 0;
	if (!o->has_node)
		return 0;
	if (option_number(text, false, 0, 65534, &id))
		return -EINVAL;
	o->node = (uint16_t)id;
	return 0;
}

static int
take_join(void *into, const char *text, char *error, size_t size)
{
	char one[WEIR_CTL_PEER_TEXT], host[WEIR_CTL_PEER_TEXT];
	struct control_options *o = into;
	uint16_t port;

	for (const char *at = text;; at++) {
		size_t n = strcspn(at, ",");

		if (n < sizeof(one)) {
			memcpy(one, at, n);
			one[n] = 0;
		}
		if (n >= sizeof(one) || host_port_split(one, false, host, sizeof(host), &port))
			return -EINVAL;
		at += n;
		if (!*at)
			break;
	}
	o->join = text;
	return 0;
}

static int
take_timeout(void *into, const char *text, char *error, size_t size)
{
	struct control_options *o = into;
	size_t digits = strspn(text, "0123456789");
	bool seconds = !strcmp(text + digits, "s");
	char number[24];
	uint64_t value;

	if (digits >= sizeof(number) || (!seconds && text[digits] && strcmp(text + digits, "ms")))
		return -EINVAL;
	memcpy(number, text, digits);
	number[digits] = 0;
	if (option_number(number, false, 0, 3600000, &value))
		return -EINVAL;
	value *= seconds ? 1000 : 1;
	if (value < 100 || value > 3600000)
		return -EINVAL;
	o->node_timeout = (uint32_t)value;
	return 0;
}

#define AT(field) OPTION_FIELD(struct control_options, field)

static const struct option_spec specs[] = {
    {"cluster", 0, OPTION_TEXT, AT(cluster), "NAME", "default",
     "name of the cluster; nodes of another cluster are refused"},
    {"etcd", 0, OPTION_TEXT, AT(etcd), "URL[,URL...]", NULL,
     "keep the list of nodes in etcd at http(s)://HOST:PORT; URLs are tried in turn"},
    {"etcd-password", 0, OPTION_TEXT, AT(etcd_password), "FILE", NULL,
     "file whose first line is the password of --etcd-user"},
    {"etcd-tls", 0, OPTION_TEXT, AT(etcd_tls), "DIR", NULL,
     "ca.pem: the CA of etcd's certificate; node.pem and node.key: used if etcd requests a "
     "certificate"},
    {"etcd-user", 0, OPTION_TEXT, AT(etcd_user), "NAME", NULL, "user name for etcd"},
    {"help", 0, OPTION_STOP, AT(help), NULL, NULL, "print this text"},
    {"insecure", 0, OPTION_FLAG, AT(insecure), NULL, NULL,
     "allow addresses other than loopback without TLS"},
    {"instance", 0, OPTION_TEXT, AT(instance), "NAME", "default",
     "name of the data plane, the same as its weir-dataplane's", .env = "WEIR_INSTANCE"},
    {"join", 0, OPTION_CALL, 0, 0, "HOST:PORT[,HOST:PORT...]", NULL,
     "controls of some members, instead of a peers file; a node whose own address is among them "
     "starts the cluster",
     .take = take_join},
    {"listen", 0, OPTION_TEXT, AT(listen), "HOST:PORT", NULL,
     "address at which the controls of other nodes reach this one"},
    {"log-format", 0, OPTION_WORD, AT(log_format), NULL, "text",
     "format of log lines: for people, or for programs with time, level and fields",
     .env = "WEIR_LOG_FORMAT", .words = "text|logfmt|json"},
    {"log-level", 0, OPTION_WORD, AT(log_level), NULL, "info", "lowest severity to log",
     .env = "WEIR_LOG_LEVEL", .words = "error|warning|info|debug"},
    {"metrics", 0, OPTION_TEXT, AT(metrics), "HOST:PORT", NULL,
     "serve metrics of the data plane for Prometheus: GET /metrics; an address other than loopback "
     "needs --insecure"},
    {"node", 0, OPTION_CALL, 0, 0, "ID", NULL,
     "id of this node, 0 to 65534; with --join or --etcd also auto", .take = take_node,
     .expected = "a node id from 0 to 65534, or auto",
     .given = offsetof(struct control_options, node_given)},
    {"node-timeout", 0, OPTION_CALL, 0, 0, "TIME", "1s",
     "silence after which a node is suspect, as 1s, 500ms or 500", .take = take_timeout,
     .expected = "a time from 100ms to 3600s"},
    {"peers", 0, OPTION_TEXT, AT(peers), "FILE", NULL,
     "all nodes, including this one, one per line: ID HOST:PORT NIC-ADDR[,NIC-ADDR...]   # "
     "comment"},
    {"tls", 0, OPTION_TEXT, AT(tls), "DIR", NULL,
     "speak TLS; DIR contains ca.pem, node.pem and node.key (see weirctl pki); SIGHUP reads them "
     "again"},
    {"version", 0, OPTION_STOP, AT(version), NULL, NULL, "print the version"},
};

const struct option_table control_option_table = {
    OPTION_SPECS(specs, struct control_options),
    .head =
	"Usage: weir-control --instance NAME --node ID --listen HOST:PORT --peers FILE "
	"[OPTION]...\n"
	"       weir-control --instance NAME --node ID|auto --listen HOST:PORT --join "
	"HOST:PORT[,...]\n"
	"       weir-control --instance NAME --node ID|auto --listen HOST:PORT --etcd URL[,...]\n"
	"Keeps the membership of a Weir cluster and sets up the links of one node's data "
	"plane.\n\n",
    .tail =
	"\n"
	"Files: /run/weir/NAME/ (or under $WEIR_RUN_DIR): control.sock of the data plane, "
	"control.pid.\n"
	"Exit codes: 0 stopped by SIGTERM or SIGINT, 1 failure while running, 2 usage, 3 resource "
	"or\n"
	"permission. Example of two nodes on one host:\n"
	"  weir-control --instance a --node 1 --listen 127.0.0.1:7471 --peers /etc/weir/peers\n"
	"  weir-control --instance b --node 2 --listen 127.0.0.1:7472 --peers /etc/weir/peers\n",
};

int
control_options_parse(int argc, char **argv, struct control_options *o)
{
	char error[512];
	int sources;

	argc--;
	if (option_defaults(&control_option_table, o, error, sizeof(error)) ||
	    option_parse(&control_option_table, o, &argc, argv + 1, error, sizeof(error)))
		return usage_error("%s", error);
	if (o->help) {
		option_print_help(&control_option_table, stdout);
		return EXIT_OK;
	}
	if (o->version) {
		puts("weir-control " WEIR_VERSION);
		return EXIT_OK;
	}
	if (!name_ok(o->instance, INSTANCE_MAX))
		return invalid_name("--instance", o->instance,
				    "up to 47 letters, digits, '_', '-', '.'");
	if (!name_ok(o->cluster, CONTROL_CLUSTER_MAX))
		return invalid_name("--cluster", o->cluster,
				    "up to 31 letters, digits, '_', '-', '.'");
	if (!o->node_given)
		return usage_error("%s is missing; see --help", "--node");
	if (!o->listen)
		return usage_error("%s is missing; see --help", "--listen");
	sources = !!o->peers + !!o->join + !!o->etcd;
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
