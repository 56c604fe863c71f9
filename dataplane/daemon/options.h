/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options of weir-dataplane, behind `--`. Each has a long name and most an environment variable; a
 * flag wins over the environment, that over the default. No DPDK.
 */
#ifndef WEIR_OPTIONS_H
#define WEIR_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/class.h"
#include "lcore/idle.h"
#include "nic/inject/impair.h"
#include "nic/nic.h"
#include "base/log.h"
#include "base/options.h"
#include "ipc/dpctl.h"
#include "broker/rate.h"
#include "broker/users.h"

#define OPTIONS_NICS 8u
#define OPTIONS_NAME_MAX 32
#define OPTIONS_TEXTS (OPTIONS_NICS + USERS_ALLOWED_MAX + USERS_LIMITED_MAX + 8u)

/* --nic roce:PORT,ip=ADDR/LEN,... or verbs:DEVICE,... */
struct nic_spec {
	bool verbs;			     /* by libibverbs, else by DPDK */
	char port[64];			     /* DPDK name or number, or the verbs device */
	uint8_t port_number;		     /* verbs: of the device; 0 = the first that is up */
	int32_t gid_index;		     /* verbs; -1 = found by address */
	struct nic_gid gid;		     /* verbs: all 0 = any */
	uint8_t prefix;			     /* 0: none was given */
	struct nic_route routes[NIC_ROUTES]; /* gw= and route= */
	uint8_t route_count;
	uint16_t vlan; /* ID in all frames; 0 = no tag */
	uint8_t pcp;   /* priority in the tag */
	/* by enum weir_class: DSCP; PCP (roce) or service level (verbs) */
	uint8_t dscp[WEIR_CLASSES], level[WEIR_CLASSES];
	uint16_t mtu;	 /* path MTU in bytes; 0 = from the port */
	uint16_t queues; /* 0 = chosen by the port */
	struct impair_config impair;
	uint32_t fault_ms;	       /* ms between two faults on purpose; 0 = none */
	uint64_t timeout_ns;	       /* longest wait for an ACK; 0 = the driver's default */
	uint8_t retry, rnr, rd_atomic; /* 0 = the driver's default */
};

/* Of packets of connections of the class, as queue pairs and address handles are told. */
static inline uint8_t
nic_spec_traffic_class(const struct nic_spec *spec, enum weir_class class)
{
	return (uint8_t)(spec->dscp[class] << 2);
}

static inline uint8_t
nic_spec_priority(const struct nic_spec *spec, enum weir_class class)
{
	return (uint8_t)(spec->level[class] + 1);
}

struct options {
	bool help, version; /* asked for: nothing else was parsed */
	const char *instance;
	const char *run_dir; /* of all instances */
	enum idle_mode idle;
	uint64_t idle_sleep_us, idle_spin_us;
	uint64_t adopt, answers, arena, channels, links, link_idle_s, ring_idle_s, max_connections,
	    max_memory;
	uint64_t max_sessions, memory;
	uint64_t node_timeout_ms;
	uint64_t exports, peer_ring, recv_wrs, regions, ring_slots, session_connections, tx_frames,
	    window;
	double threshold;
	uint64_t program_weight;
	struct rate program_rate;
	struct users users;
	uint64_t most[USER_LIMITS]; /* of all users: machine_limits.h */
	enum log_level log_level;
	enum log_format log_format;
	struct nic_spec nic[OPTIONS_NICS];
	unsigned nics;
	/* values of options that are more than a number, as they were given */
	struct {
		const char *option, *text;
	} text[OPTIONS_TEXTS];
	unsigned texts;
};

/*
 * Reads the arguments behind `--` (argv[0 ... argc), without a program name) and the environment.
 * Returns 0, or -EINVAL with one line "cause; remedy" in error.
 */
int options_parse(struct options *o, int argc, char **argv, char *error, size_t size);

/* Parses the argument of --nic. 0 or -EINVAL with a line in error. */
int options_parse_nic(struct nic_spec *spec, const char *text, char *error, size_t size);

/* Impairments, which may change while the port runs: sets one by its key of --nic. 0, or -EINVAL
 * and a line in error. */
int options_set_impairment(struct nic_spec *spec, const char *from, const char *key,
			   const char *value, char *error, size_t size);
/* Key and value of impairment `index`. False: there are fewer. */
bool options_impairment(const struct nic_spec *spec, unsigned index, const char **key,
			const char **help, char *value, size_t size);

/*
 * Row `index` of the configuration: option, value, and whether that is the default. False: there
 * are fewer.
 */
bool options_row(const struct options *o, unsigned index, struct weir_row_fact *r);

/* Whether `word` is an option of ours, with or without an argument behind `=`. */
bool options_know(const char *word);

extern const struct option_table options_table;

#endif
