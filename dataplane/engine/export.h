/* SPDX-License-Identifier: BSD-3-Clause */
/* Exports: ranges of adopted memory that programs of other sessions and nodes operate on. */
#ifndef WEIR_ENGINE_EXPORT_H
#define WEIR_ENGINE_EXPORT_H

#include "engine.h"
#include "base/list.h"

struct conn;
struct session;

struct export
{
	uint32_t generation; /* 0: none */
	uint16_t rights;     /* WEIR_RIGHT_* */
	/* enum weir_type: updates of these types and those behind them exclude one another, since
	 * plain code executes them */
	uint8_t alone_from;
	uint8_t *base; /* dynamic: of no bytes */
	uint64_t length;
	const struct engine_ranges *ranges; /* dynamic; else NULL */
	_Atomic bool *updating;		    /* of engine_region; dynamic: NULL */
	struct weir_export_counters counters;
	struct {			/* in the owner engine */
		struct list_node queue; /* struct engine_seat, in the order of their coming */
		uint32_t holders, waiters;
		uint32_t holder; /* vqpn of the latest; 0: not known */
		/* ns: the lock has been held since then, or longer; 0: not known, as programs leave
		 * and take open words again */
		uint64_t since;
		bool exclusive; /* they are one, exclusive */
		bool in_doubt;	/* the last exclusive one ended with it; none was told */
		bool told;	/* the present one, exclusive, of the end of the one before */
		bool ended;
		struct list_node polled; /* in engine.lock_polls */
		uint32_t scanned;	 /* words closed: programs before it do not hold the lock */
	} lock;
	/* of its lock, for programs of this host; NULL: none. Programs write them at any time */
	struct weir_lock_words *words;
	uint32_t members;	      /* that have words */
	uint16_t region, lock_region; /* which it keeps; 0: none */
	uint16_t session, number;
	uint32_t channel; /* with WEIR_RIGHT_NOTIFY: of its session, for notices */
	uint32_t openers; /* length of conns */
	struct list_node conns;
	uint32_t keyed;	      /* connections whose peers may still WRITE or READ it */
	bool stopped;	      /* no connection to it is made any more */
	uint64_t keyed_until; /* ns: stopped; nothing is awaited any more then */
};

int export_add(struct engine *e, const struct engine_export *k);
/* Replaces the ranges of a dynamic export. */
void export_set_ranges(struct engine *e, const struct engine_export *k);
/* From now on no operation on it begins. Cells are executed at once, so none is under way; WRITEs
 * and READs of peers may be: k->keyed. */
int export_stop(struct engine *e, struct engine_export *k);
/* -EAGAIN: peers have not acknowledged its end. */
int export_remove(struct engine *e, const struct engine_export *k);
/* The session ends, and with it all its exports. */
void exports_end(struct engine *e, struct session *s);
/* NULL: there is none of that generation. */
struct export *export_known(struct engine *e, uint32_t session, uint32_t number,
			    uint32_t generation);
/* The export that a command names, or NULL: there is none any more. */
struct export *export_named(struct engine *e, const struct engine_conn_command *k);
/* Operations of this connection, whose executing end is here, are on this export. `key`: what the
 * peer is told; NULL: nothing. */
void export_bind(struct engine *e, struct conn *c, struct export *x, uint32_t rights,
		 const struct engine_export_key *key);
/* They are no longer. c may be the beginning end, which has none. */
void export_unbind(struct engine *e, struct conn *c);
/* The connection has ended: its peer does not use the key any more. */
void export_unkey(struct conn *c);
/* An operation was outside its range or its opener's rights. */
void export_count_refused(struct engine *e, struct export *x);
/* Adds openers and counters of this engine's copies to the records. */
void exports_count(struct engine *e, struct engine_export_record *records, uint32_t n);

#endif
