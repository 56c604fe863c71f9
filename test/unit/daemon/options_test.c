/* SPDX-License-Identifier: BSD-3-Clause */
#include "worlds/test.h"

#include "daemon/options.h"

static struct options o;
static char error[256];

static int
parse(const char *first, const char *second)
{
	char *argv[] = {(char *)first, (char *)second, NULL};

	error[0] = '\0';
	return options_parse(&o, first ? second ? 2 : 1 : 0, argv, error, sizeof(error));
}

/* The arguments are refused in one line that holds `cause` and a remedy. */
static void
refused(const char *first, const char *second, const char *cause)
{
	assert_int_not_equal(parse(first, second), 0);
	assert_non_null(strstr(error, cause));
	assert_true(strchr(error, ';') || strstr(error, " (expected "));
	assert_null(strchr(error, '\n'));
}

TEST(defaults)
{
	assert_int_equal(parse(NULL, NULL), 0);
	assert_string_equal(o.instance, "default");
	assert_string_equal(o.run_dir, "/run/weir");
	assert_int_equal(o.idle, IDLE_ADAPTIVE);
	assert_int_equal(o.idle_sleep_us, 2000);
	assert_int_equal(o.window, 2 << 20);
	assert_int_equal(o.peer_ring, 256 << 10);
	assert_true(o.threshold == 0.6);
	assert_int_equal(o.program_weight, 10);
	assert_int_equal(o.program_rate.bytes, 0);
	assert_int_equal(o.nics, 0);
	assert_false(o.help || o.version);
}

TEST(flag_env_default)
{
	setenv("WEIR_INSTANCE", "env", 1);
	assert_int_equal(parse(NULL, NULL), 0);
	assert_string_equal(o.instance, "env");
	assert_int_equal(parse("--instance", "flag"), 0);
	assert_string_equal(o.instance, "flag");
	assert_int_equal(parse("--instance=eq", NULL), 0);
	assert_string_equal(o.instance, "eq");
	setenv("WEIR_INSTANCE", "", 1);
	assert_int_equal(parse(NULL, NULL), 0);
	assert_string_equal(o.instance, "default");
	setenv("WEIR_INSTANCE", "../x", 1);
	refused(NULL, NULL, "WEIR_INSTANCE");
	unsetenv("WEIR_INSTANCE");
}

TEST(values)
{
	assert_int_equal(parse("--arena", "128M"), 0);
	assert_int_equal(o.arena, 128 << 20);
	assert_int_equal(parse("--arena", "2g"), 0);
	assert_int_equal(o.arena, 2ull << 30);
	assert_int_equal(parse("--idle", "poll"), 0);
	assert_int_equal(o.idle, IDLE_POLL);
	assert_int_equal(parse("--threshold", "0.25"), 0);
	assert_true(o.threshold == 0.25);
	assert_int_equal(parse("--program-rate", "100M,1M"), 0);
	assert_int_equal(o.program_rate.bytes, 100000000);
	assert_int_equal(o.program_rate.burst, 1000000);
	assert_int_equal(parse("--help", NULL), 0);
	assert_true(o.help);
	assert_int_equal(parse("--version", NULL), 0);
	assert_true(o.version);
}

TEST(bad_values)
{
	refused("--bogus", NULL, "unknown option '--bogus'");
	refused("bogus", NULL, "unexpected argument 'bogus'");
	refused("--arena", NULL, "missing value for --arena");
	refused("--arena", "12Q", "invalid value \'12Q\' for --arena ");
	refused("--arena", "-1", "invalid value \'-1\' for --arena ");
	refused("--arena", "99999999999G", "--arena");
	refused("--arena", "18446744073709551616", "--arena");
	refused("--arena", "1", "invalid value \'1\' for --arena ");
	refused("--idle", "lazy", "poll or adaptive");
	refused("--threshold", "1.5", "--threshold");
	refused("--threshold", "nan", "--threshold");
	refused("--instance", "a/b", "--instance");
	refused("--instance", "", "--instance");
	refused("--instance", ".", "--instance");
	refused("--instance", "name-that-is-longer-than-31-bytes", "--instance");
	refused("--run-dir", "relative", "--run-dir");
	refused("--ring-slots", "1000", "give 1024");
	refused("--ring-slots", "16", "from 32"); /* the library takes no smaller ones */
	refused("--peer-ring", "8M", "to 4M");	  /* nor do peers take larger ones */
	refused("--program-rate", "100", "invalid value \'100\' for --program-rate ");
	refused("--program-weight", "0", "--program-weight");
	refused("--max-connections", "1x", "--max-connections");
}

static uint32_t
get_ip(const struct nic_spec *n)
{
	const uint8_t *raw = n->gid.raw;

	return (uint32_t)raw[12] << 24 | (uint32_t)raw[13] << 16 | (uint32_t)raw[14] << 8 | raw[15];
}

TEST(nic)
{
	const struct nic_spec *n = &o.nic[0];

	assert_int_equal(parse("--nic", "roce:net_memif0,ip=10.0.0.1/24"), 0);
	assert_int_equal(o.nics, 1);
	assert_string_equal(n->port, "net_memif0");
	assert_int_equal(get_ip(n), 0x0a000001);
	assert_int_equal(n->prefix, 24);
	assert_int_equal(n->gid.raw[9], 0);
	assert_int_equal(n->gid.raw[10], 0xff);
	assert_int_equal(n->gid.raw[11], 0xff);
	assert_int_equal(n->vlan, 0);
	assert_int_equal(n->mtu, 0);
	assert_int_equal(n->impair.seed, 1);
	assert_int_equal(parse("--nic",
			       "roce:0,ip=192.168.7.9/16,mtu=4096,loss=0.5,dup=1,reorder=2.5,"
			       "delay=20,seed=99,timeout=1000,retry=3,rnr=7,rd_atomic=16,queues=2"),
			 0);
	assert_string_equal(n->port, "0");
	assert_int_equal(n->mtu, 4096);
	assert_true(n->impair.loss == 0.5 && n->impair.dup == 1 && n->impair.reorder == 2.5);
	assert_int_equal(n->impair.delay_us, 20);
	assert_int_equal(n->impair.seed, 99);
	assert_int_equal(n->timeout_ns, 1000000);
	assert_int_equal(n->retry, 3);
	assert_int_equal(n->rnr, 7);
	assert_int_equal(n->rd_atomic, 16);
	assert_int_equal(n->queues, 2);
}

TEST(routes)
{
	const struct nic_spec *n = &o.nic[0];

	assert_int_equal(parse("--nic", "roce:0,ip=10.0.0.1/24,gw=10.0.0.254,"
					"route=10.5.0.0/16@10.0.0.253"),
			 0);
	assert_int_equal(n->route_count, 2);
	assert_int_equal(n->routes[0].bits, 96);
	assert_int_equal(n->routes[1].bits, 96 + 16);
	assert_memory_equal(n->routes[0].gateway.raw, nic_gid_ipv4(0x0a0000fe).raw, 16);
	assert_memory_equal(n->routes[1].network.raw, nic_gid_ipv4(0x0a050000).raw, 16);
	assert_memory_equal(n->routes[1].gateway.raw, nic_gid_ipv4(0x0a0000fd).raw, 16);
	assert_int_equal(parse("--nic", "roce:0,route=fd01::/32@fd00::9,ip=fd00::1/64,gw=fd00::8"),
			 0);
	assert_int_equal(n->routes[0].bits, 32);
	assert_int_equal(n->routes[1].bits, 0);
	refused("--nic", "roce:0,ip=10.0.0.1/24,gw=10.0.1.254",
		"gateway 10.0.1.254 is not in the network of ip=");
	refused("--nic", "roce:0,ip=10.0.0.1/24,gw=fd00::8", "gateway fd00::8 is not in");
	refused("--nic", "roce:0,ip=10.0.0.1/24,gw=here", "the address of a gateway");
	refused("--nic", "roce:0,ip=10.0.0.1/24,route=10.5.0.0/16", "NET/LEN@GATEWAY");
	refused("--nic", "roce:0,ip=10.0.0.1/24,route=10.5.0.0/33@10.0.0.2", "NET/LEN@GATEWAY");
	refused("--nic", "roce:0,ip=10.0.0.1/24,route=fd01::/16@10.0.0.2", "NET/LEN@GATEWAY");
	refused("--nic", "verbs:mlx5_0,gw=10.0.0.2", "unknown key 'gw'");
}

/* The impairments, each of which may change while the port runs; no other key may. */
TEST(impairments)
{
	static const struct {
		const char *key, *value;
	} all[] = {{"corrupt", "0.5"}, {"delay", "7"},	 {"dup", "1"},	  {"jitter", "9"},
		   {"loss", "2"},      {"rate", "12.5"}, {"reorder", "3"}};
	struct nic_spec n;
	const char *key, *help;
	char value[32];

	assert_int_equal(parse("--nic", "roce:0,ip=10.0.0.1/24,jitter=5,corrupt=1,rate=100"), 0);
	n = o.nic[0];
	assert_true(n.impair.corrupt == 1 && n.impair.rate == 100);
	assert_int_equal(n.impair.jitter_us, 5);
	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		assert_int_equal(options_set_impairment(&n, "port.0.x", all[i].key, all[i].value,
							error, sizeof(error)),
				 0);
		assert_true(options_impairment(&n, i, &key, &help, value, sizeof(value)));
		assert_string_equal(key, all[i].key);
		assert_string_equal(value, all[i].value);
		assert_true(*help);
	}
	assert_false(options_impairment(&n, 7, &key, &help, value, sizeof(value)));
	assert_int_equal(
	    options_set_impairment(&n, "port.0.loss", "loss", "101", error, sizeof(error)),
	    -EINVAL);
	assert_non_null(strstr(error, "invalid value '101' for port.0.loss (expected percent"));
	assert_int_equal(
	    options_set_impairment(&n, "port.0.mtu", "mtu", "1024", error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "port.0.mtu can't be set while the port runs; see"));
	assert_true(n.impair.loss == 2);
	refused("--nic", "verbs:mlx5_0,rate=1", "unknown key 'rate'");
	refused("--nic", "roce:0,ip=10.0.0.1/24,rate=x", "Mbit/s");
}

static const struct weir_row_fact *
config(const char *name, unsigned skip)
{
	static struct weir_row_fact r;

	for (unsigned i = 0; memset(&r, 0, sizeof(r)), options_row(&o, i, &r); i++)
		if (!strcmp(r.name, name) && !skip--)
			return &r;
	return NULL;
}

static void
is(const char *name, const char *value, const char *from)
{
	const struct weir_row_fact *r = config(name, 0);

	assert_non_null(r);
	assert_string_equal(r->value, value);
	assert_string_equal(r->from, from);
}

/* The configuration in effect, as a user would type it, and what of it is not the default. */
TEST(shown)
{
	char *argv[] = {"--nic",       "roce:a,ip=10.0.0.1/24",
			"--nic",       "verbs:b",
			"--window",    "1536K",
			"--instance",  "x",
			"--idle",      "poll",
			"--recv-wrs",  "256",
			"--threshold", "0.25"};

	assert_int_equal(options_parse(&o, 14, argv, error, sizeof(error)), 0);
	assert_string_equal(config("nic", 0)->value, "roce:a,ip=10.0.0.1/24");
	assert_string_equal(config("nic", 1)->value, "verbs:b");
	assert_null(config("nic", 2));
	is("window", "1536K", "set");
	is("instance", "x", "set");
	is("run-dir", "/run/weir", "default");
	is("idle", "poll", "set");
	is("recv-wrs", "256", "set");
	is("threshold", "0.25", "set");
	is("arena", "64M", "default");
	is("program-rate", "none", "default");
	is("log-format", "text", "default");
	assert_null(config("help", 0));
	assert_null(config("allow", 0));
}

TEST(six_and_vlan)
{
	static const uint8_t local[16] = {0xfe, 0x80, [15] = 7};
	const struct nic_spec *n = &o.nic[0];

	assert_int_equal(parse("--nic", "roce:0,ip=fe80::7/64,vlan=4094,pcp=5"), 0);
	assert_memory_equal(n->gid.raw, local, sizeof(local));
	assert_int_equal(n->prefix, 64);
	assert_int_equal(n->vlan, 4094);
	assert_int_equal(n->pcp, 5);
	assert_int_equal(parse("--nic", "verbs:rxe0,ip=fe80::7/128"), 0);
	assert_memory_equal(n->gid.raw, local, sizeof(local));
	refused("--nic", "roce:0,ip=fe80::7/129", "a unicast address");
	refused("--nic", "roce:0,ip=fe80::7", "a unicast address");
	refused("--nic", "roce:0,ip=ff02::1/64", "a unicast address");
	refused("--nic", "roce:0,ip=::1/128", "a unicast address");
	refused("--nic", "roce:0,ip=::ffff:10.0.0.1/128", "a unicast address");
	refused("--nic", "roce:0,ip=fd00:::1/64", "a unicast address");
	refused("--nic", "roce:0,ip=10.0.0.1/24,vlan=0", "from 1 to 4094");
	refused("--nic", "roce:0,ip=10.0.0.1/24,vlan=4095", "from 1 to 4094");
	refused("--nic", "roce:0,ip=10.0.0.1/24,vlan=5,pcp=8", "from 0 to 7");
	refused("--nic", "roce:0,ip=10.0.0.1/24,pcp=3", "add vlan=ID");
	refused("--nic", "verbs:rxe0,vlan=5", "unknown key");
}

static void
marked(unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f)
{
	const struct nic_spec *n = &o.nic[0];

	assert_int_equal(n->dscp[WEIR_CLASS_NORMAL], a);
	assert_int_equal(n->dscp[WEIR_CLASS_LOW], b);
	assert_int_equal(n->dscp[WEIR_CLASS_HIGH], c);
	assert_int_equal(n->level[WEIR_CLASS_NORMAL], d);
	assert_int_equal(n->level[WEIR_CLASS_LOW], e);
	assert_int_equal(n->level[WEIR_CLASS_HIGH], f);
	assert_int_equal(nic_spec_traffic_class(n, WEIR_CLASS_HIGH), 4 * c);
	assert_int_equal(nic_spec_priority(n, WEIR_CLASS_LOW), 1 + e);
}

TEST(priorities)
{
	assert_int_equal(parse("--nic", "roce:0,ip=10.0.0.1/24"), 0);
	marked(0, 8, 26, 0, 0, 0);
	assert_int_equal(parse("--nic", "roce:0,ip=10.0.0.1/24,vlan=5,pcp=3,pcp_high=6,dscp=10"),
			 0);
	marked(10, 8, 26, 3, 3, 6);
	assert_int_equal(
	    parse("--nic", "roce:0,ip=10.0.0.1/24,vlan=5,pcp_low=0,pcp=3,dscp_low=1,dscp_high=63"),
	    0);
	marked(0, 1, 63, 3, 0, 3);
	assert_int_equal(parse("--nic", "verbs:rxe0,sl=2,sl_high=15,dscp_low=0"), 0);
	marked(0, 0, 26, 2, 2, 15);
	refused("--nic", "roce:0,ip=10.0.0.1/24,pcp_high=3", "add vlan=ID");
	refused("--nic", "roce:0,ip=10.0.0.1/24,dscp=64", "from 0 to 63");
	refused("--nic", "roce:0,ip=10.0.0.1/24,sl=1", "unknown key");
	refused("--nic", "verbs:rxe0,pcp_low=1", "unknown key");
	refused("--nic", "verbs:rxe0,sl=16", "from 0 to 15");
}

TEST(verbs_nic)
{
	const struct nic_spec *n = &o.nic[0];

	assert_int_equal(parse("--nic", "verbs:mlx5_0"), 0);
	assert_true(n->verbs);
	assert_string_equal(n->port, "mlx5_0");
	assert_int_equal(n->gid_index, -1);
	assert_int_equal(n->port_number, 0);
	assert_int_equal(get_ip(n), 0);
	assert_int_equal(parse("--nic", "verbs:rxe0,port=2,gid=0,mtu=2048,transport=rc,retry=2,"
					"timeout=500,rnr=1,rd_atomic=4,ip=10.0.0.1/24"),
			 0);
	assert_int_equal(n->port_number, 2);
	assert_int_equal(n->gid_index, 0);
	assert_int_equal(n->mtu, 2048);
	assert_int_equal(n->timeout_ns, 500000);
	assert_int_equal(get_ip(n), 0x0a000001);
	assert_int_equal(parse("--nic", "roce:0,ip=10.0.0.1/24"), 0);
	assert_false(n->verbs);
}

TEST(bad_nic)
{
	refused("--nic", "verbs:", "names no device");
	refused("--nic", "verbs:mlx5_0,gid=-1", "'-1' for gid=");
	refused("--nic", "verbs:mlx5_0,port=0", "'0' for port=");
	refused("--nic", "verbs:mlx5_0,loss=1", "unknown key 'loss'");
	refused("--nic", "verbs:mlx5_0,transport=uc", "UC has no SRQ");
	refused("--nic", "verbs:mlx5_0,transport=xrc", "transport=xrc is not offered");
	refused("--nic", "roce:0,ip=10.0.0.1/24,gid=3", "unknown key 'gid'");
	refused("--nic", "net_memif0,ip=10.0.0.1/24", "for --nic (expected roce:PORT");
	refused("--nic", "roce:", "names no port");
	refused("--nic", "roce:ip=10.0.0.1/24", "names no port");
	refused("--nic", "roce:net_memif0", "no address");
	refused("--nic", "roce:0,ip=10.0.0.1", "'10.0.0.1' for ip=");
	refused("--nic", "roce:0,ip=10.0.0.1/33", "'10.0.0.1/33' for ip=");
	refused("--nic", "roce:0,ip=10.0.0.1/0", "ip=");
	refused("--nic", "roce:0,ip=10.0.0.1/2x", "ip=");
	refused("--nic", "roce:0,ip=10.0.0/24", "ip=");
	refused("--nic", "roce:0,ip=/24", "ip=");
	refused("--nic", "roce:0,ip=127.0.0.1/8", "ip=");
	refused("--nic", "roce:0,ip=224.0.0.1/8", "ip=");
	refused("--nic", "roce:0,ip=10.0.0.1/24,mtu=1000", "expected 256, 512, 1024, 2048 or 4096");
	refused("--nic", "roce:0,ip=10.0.0.1/24,mtu=9000", "'9000' for mtu=");
	refused("--nic", "roce:0,ip=10.0.0.1/24,loss=101", "percent");
	refused("--nic", "verbs:rxe0,fault=1", "expected a number from 10");
	refused("--nic", "roce:0,ip=10.0.0.1/24,loss=", "percent");
	refused("--nic", "roce:0,ip=10.0.0.1/24,loss", "no value");
	refused("--nic", "roce:0,ip=10.0.0.1/24,,", "no value");
	refused("--nic", "roce:0,ip=10.0.0.1/24,speed=9", "unknown key 'speed'");
	refused("--nic", "roce:0,ip=10.0.0.1/24,retry=8", "'8' for retry=");
}

TEST(too_many_nics)
{
	char *argv[2 * (OPTIONS_NICS + 1)];

	for (unsigned i = 0; i < 2 * (OPTIONS_NICS + 1); i += 2) {
		argv[i] = (char *)"--nic";
		argv[i + 1] = (char *)"roce:0,ip=10.0.0.1/24";
	}
	assert_int_equal(options_parse(&o, 2 * OPTIONS_NICS, argv, error, sizeof(error)), 0);
	assert_int_equal(o.nics, OPTIONS_NICS);
	assert_int_not_equal(options_parse(&o, 2 * OPTIONS_NICS + 2, argv, error, sizeof(error)),
			     0);
}

TEST(knowing)
{
	assert_true(options_know("--instance"));
	assert_true(options_know("--instance=A"));
	assert_false(options_know("--instances"));
	assert_false(options_know("--no-huge"));
	assert_false(options_know("instance"));
	assert_false(options_know("-l"));
}
