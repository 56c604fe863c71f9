/* SPDX-License-Identifier: BSD-3-Clause */
/* Options that the programs share. */
#ifndef SHUFFLE_OPTIONS_H
#define SHUFFLE_OPTIONS_H

#include "transport.h"

#include "base/options.h"

struct shuffle_options {
	uint32_t transport; /* enum transport_kind */
	uint32_t sockets;   /* word */
	uint32_t threads, block, partitions;
	uint32_t codec; /* enum weir_codec */
	uint64_t memory;
	const char *spill[2]; /* directories, terminated by NULL */
	const char *instance;
	bool json, help, version;
};

/* Entries of the table of a struct whose member `common` is a struct shuffle_options. */
#define SHUFFLE_AT(type, field) OPTION_FIELD(type, common.field)
#define SHUFFLE_BLOCK(type)                                                                        \
	{                                                                                          \
		"block", 0, OPTION_SIZE, SHUFFLE_AT(type, block), "BYTES", "64K",                  \
		    "size of a full block", .min = WEIR_SHUFFLE_BLOCK_MIN,                         \
					    .max = WEIR_SHUFFLE_BLOCK_MAX                          \
	}
#define SHUFFLE_CODEC(type)                                                                        \
	{                                                                                          \
		"codec", 0, OPTION_WORD, SHUFFLE_AT(type, codec), NULL, "none",                    \
		    "compression of blocks; Weir only", .words = "none|lz4|zstd"                   \
	}
#define SHUFFLE_HELP(type)                                                                         \
	{                                                                                          \
		"help", 'h', OPTION_STOP, SHUFFLE_AT(type, help), NULL, NULL, "print this text"    \
	}
#define SHUFFLE_INSTANCE(type)                                                                     \
	{                                                                                          \
		"instance", 0, OPTION_TEXT, SHUFFLE_AT(type, instance), "NAME", "default",         \
		    "name of the data plane; without weir-run, TCP and none need no data plane",   \
		    .env = "WEIR_INSTANCE"                                                         \
	}
#define SHUFFLE_JSON(type)                                                                         \
	{                                                                                          \
		"json", 0, OPTION_FLAG, SHUFFLE_AT(type, json), NULL, NULL,                        \
		    "print results as JSON"                                                        \
	}
#define SHUFFLE_MEMORY(type)                                                                       \
	{                                                                                          \
		"memory", 0, OPTION_SIZE, SHUFFLE_AT(type, memory), "BYTES", "256M",               \
		    "bound of all buffers of a process; Weir only", .min = 1u << 20,               \
								    .max = UINT64_C(1) << 40       \
	}
#define SHUFFLE_PARTITIONS(type, initial, text)                                                    \
	{                                                                                          \
		"partitions", 0, OPTION_UNSIGNED, SHUFFLE_AT(type, partitions), "N", initial,      \
		    text, .max = WEIR_PARTITIONS_MAX                                               \
	}
#define SHUFFLE_SOCKETS(type)                                                                      \
	{                                                                                          \
		"sockets", 0, OPTION_WORD, SHUFFLE_AT(type, sockets), NULL, "thread",              \
		    "TCP: one socket per pair of threads, or of processes",                        \
		    .words = "thread|process"                                                      \
	}
#define SHUFFLE_SPILL(type)                                                                        \
	{                                                                                          \
		"spill", 0, OPTION_TEXT, SHUFFLE_AT(type, spill[0]), "DIR", NULL,                  \
		    "directory for what exceeds --memory; Weir only", .min = 1                     \
	}
#define SHUFFLE_THREADS(type)                                                                      \
	{                                                                                          \
		"threads", 't', OPTION_UNSIGNED, SHUFFLE_AT(type, threads), "N", "4",              \
		    "threads of each process; each one produces and consumes",                     \
		    .env = "WEIR_THREADS", .min = 1, .max = WEIR_INVOKE_THREADS_MAX                \
	}
#define SHUFFLE_TRANSPORT(type)                                                                    \
	{                                                                                          \
		"transport", 0, OPTION_WORD, SHUFFLE_AT(type, transport), NULL, "weir",            \
		    "carrier of records; none: they stay in their process",                        \
		    .words = "weir|tcp|none"                                                       \
	}
#define SHUFFLE_VERSION(type)                                                                      \
	{                                                                                          \
		"version", 0, OPTION_STOP, SHUFFLE_AT(type, version), NULL, NULL,                  \
		    "print the version"                                                            \
	}

/* Makes options of a transport; the program adds kind, flags and functions. */
struct transport_options shuffle_transport(const struct shuffle_options *o);
/* Names of transports and sockets for reports. */
const char *shuffle_transport_name(const struct shuffle_options *o);

#endif
