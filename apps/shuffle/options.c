/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

struct transport_options
shuffle_transport(const struct shuffle_options *o)
{
	const struct weir_shuffle_options defaults = WEIR_SHUFFLE_OPTIONS_INIT;
	struct transport_options t = {
	    .kind = o->transport,
	    .per_process = o->sockets,
	    .threads = o->threads,
	    .shuffle = defaults,
	};

	t.shuffle.partitions = o->partitions;
	t.shuffle.block = o->block;
	t.shuffle.memory = o->memory;
	t.shuffle.codec = o->codec;
	t.shuffle.spill = o->spill[0] ? o->spill : NULL;
	return t;
}

const char *
shuffle_transport_name(const struct shuffle_options *o)
{
	if (o->transport == TRANSPORT_TCP)
		return o->sockets ? "tcp, socket per process" : "tcp, socket per thread";
	return o->transport == TRANSPORT_WEIR ? "weir" : "none";
}
