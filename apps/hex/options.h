/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef HEX_OPTIONS_H
#define HEX_OPTIONS_H

#include "search.h"

#include "base/options.h"

struct hex_options {
	uint32_t size;
	uint32_t flood, local, remote_always; /* words */
	uint64_t rollouts;		      /* of a phase; 0: see hex_rollouts() */
	double seconds;			      /* 0: no limit */
	uint64_t seed;
	uint32_t nodes;		     /* of a thread */
	uint32_t processes, threads; /* in virtual time, or of the crew; 0: one real thread */
	uint32_t real_threads;	     /* of each process of a crew; 0: there is none */
	uint32_t mode;		     /* enum weir_batch_mode */
	const char *instance;
	struct crew *crew; /* the processes that search together, or NULL */
	uint64_t simulation_ns, selection_ns, message_ns, within_ns, between_ns;
	uint32_t games; /* of a match */
	const char *picture;
	bool effort, json, progress, help, version;
};

extern const struct option_table hex_option_table;

/* Of a phase of these options. */
uint64_t hex_rollouts(const struct hex_options *o);
uint64_t hex_ns(const struct hex_options *o);

/* Stores "name=value,name=value" over what *o has. 0, or -EINVAL and error. */
int hex_settings(struct hex_options *o, const char *text, char *error, size_t size);

#endif
