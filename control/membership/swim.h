/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Membership and failure detection, after SWIM (Das, Gupta, Motivala 2002): each period a node
 * probes one other, through three more if that doesn't answer, then suspects it; suspicion can be
 * refuted by the suspect alone; changes ride on probes and answers. Each node has one record, and
 * of two records the one with the higher (version, status) holds everywhere, so tables can be
 * merged in any order. Only the node itself raises its version.
 *
 * Besides the paper: a digest of the table goes with every message, and where two differ although
 * nothing is on its way they tell each other all; the time in which this process did not run
 * doesn't count against anybody; ids are claimed (below). Pure: messages, events and time in,
 * messages and changes out. The state tables are in docs/protocol.md.
 */
#ifndef WEIR_CONTROL_SWIM_H
#define WEIR_CONTROL_SWIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define SWIM_RECORDS 32u /* of one message */
#define SWIM_RIDERS 12u	 /* records that ride on a probe or its answer */
#define SWIM_HELPERS 3u	 /* others that are asked to probe a node that doesn't answer */
#define SWIM_PROBES 16u	 /* under way at once */
#define SWIM_RELAYS 32u	 /* asked for by others, under way at once */
#define SWIM_CONTACTS 4u /* tried each period while nobody is known to live */
/* Nodes known by hearsay alone, which have not spoken with us: of one member that told them; all.
 */
#define SWIM_BROUGHT 2048u
#define SWIM_UNPROVEN 4096u
/*
 * A version below is that of a node which claims its id and isn't up yet: whoever is up wins over
 * it, and of two claims the higher one.
 */
#define SWIM_UP (UINT64_C(1) << 62)
#define SWIM_VERSION_MAX (SWIM_UP + (SWIM_UP - 1))
/*
 * ms, 139 years. Hearsay with a version further ahead of our clock is refused. A node's own word
 * counts up to twice that, so it can refute whatever anybody has believed.
 */
#define SWIM_AHEAD (UINT64_C(1) << 42)

/* In the order in which they hold at one version. UNKNOWN: told by a source, never heard of. */
enum swim_status { SWIM_UNKNOWN, SWIM_ALIVE, SWIM_SUSPECT, SWIM_DEAD, SWIM_LEFT };

struct swim_record {
	uint16_t id;
	enum swim_status status;
	uint64_t run; /* of its control: random, of one start */
	uint64_t version;
	const void *info; /* config.info_size bytes, of the version */
};

struct swim_node {
	struct swim_record is; /* info points to the bytes behind */
	uint64_t since;	       /* swim time of this status */
	uint64_t expires;      /* SUSPECT: declared dead then; DEAD, LEFT: forgotten then */
	uint32_t spread;       /* messages on which the record still rides */
	uint16_t by;	       /* the member that told the record; the node itself: first hand */
	uint16_t introducer;   /* the member that told the node first, while it is unproven */
	uint32_t brought;      /* unproven nodes that it introduced */
	bool proven;	       /* it has spoken with us, or a source has told it */
	bool fixed;	       /* told by a source: not forgotten */
	bool accused;	       /* we suspect it ourselves: probed each period */
	bool sync_due;	       /* it asked for all soon after it was told all */
	uint64_t sync_sent_at; /* it was told all, as it had asked; 0: never */
	TAILQ_ENTRY(swim_node) news;
	uint64_t info[];
};

enum swim_msg_type {
	SWIM_PING = 1,
	SWIM_ASK,  /* probe `target` for the sender */
	SWIM_ACK,  /* `target` lives: the sender, or the one it was asked to probe */
	SWIM_SYNC, /* part of all that the sender knows; `want`: the last part, now the receiver's
		    */
	SWIM_NEWS, /* nothing but records */
};

struct swim_msg {
	enum swim_msg_type type;
	bool want;
	bool rooted; /* the sender belongs to a cluster that has begun */
	uint16_t target;
	uint32_t seq;
	uint64_t digest;
	uint32_t count;
	struct swim_record record[SWIM_RECORDS];
};

struct swim_ops {
	/* Records' info is valid during the call. The message may be lost. */
	void (*send)(void *user, uint16_t to, const struct swim_msg *m);
	/* A node's record changed, or it is known now, also our own. */
	void (*changed)(void *user, const struct swim_node *node);
	/* It is no longer known. The node is freed afterwards. */
	void (*forgotten)(void *user, const struct swim_node *node);
	/* Do both say that the node's control is at one address? Then they are one node, before and
	 * after a restart: two can't listen there. */
	bool (*same_place)(void *user, const void *info, const void *other);
	/* The id is ours for good: nobody else claims it. */
	void (*settled)(void *user);
	/* Another node has our id and the better right to it. The swim is to be ended, later. */
	void (*beaten)(void *user, const struct swim_record *other);
	/* So says hearsay: connect with the other node, then a Hello decides. */
	void (*rival)(void *user, const struct swim_record *other);
	/* A record was left out: what is wrong with it, or that member `from` tells too many. */
	void (*refused)(void *user, uint16_t from, const struct swim_record *r, const char *why);
};

struct swim_config {
	uint16_t id;
	bool claims;	  /* the id has to be claimed; else it is given, as by a peers file */
	bool picks;	  /* claims: another id will do as well */
	bool closed;	  /* nodes that no source has told are ignored */
	uint64_t run;	  /* random */
	uint64_t version; /* SWIM_UP + ms of the wall clock: grows with starts if clocks allow */
	uint64_t ticket;  /* claims: random, 1 ... 2^61: the version until nobody else has the id */
	uint64_t seed;
	uint32_t timeout; /* ms, the node timeout */
	uint32_t info_size;
	const struct swim_ops *ops;
	void *user;
};

struct swim_probe {
	uint16_t id;
	bool used, asked;
	uint32_t seq;
	uint64_t ask_at, until;
};

struct swim_relay {
	uint16_t from, target;
	uint32_t seq, own_seq;
	uint64_t until;
};

struct swim {
	struct swim_config config;
	struct swim_node *self;
	struct swim_node **node; /* all, by id */
	uint16_t *id;		 /* theirs: to be searched without a look at the nodes */
	uint32_t count, room;
	uint16_t *order;     /* the others, in this round's order */
	uint32_t next_probe; /* in `order` */
	uint32_t alive;	     /* ALIVE and SUSPECT, ourselves included */
	uint32_t accused;    /* nodes that we suspect ourselves */
	uint32_t unproven;
	uint64_t digest;	      /* of ALIVE and SUSPECT */
	TAILQ_HEAD(, swim_node) news; /* changes to be spread, the least told first */
	uint32_t news_count;
	struct swim_probe probe[SWIM_PROBES];
	struct swim_relay relay[SWIM_RELAYS];
	uint32_t seq;
	uint32_t failures; /* probes without an answer since anybody was heard */
	uint64_t rng;
	uint64_t now, clock; /* ms: as the caller told it last; without what we slept through */
	uint64_t began;	     /* `now` at the start */
	uint64_t crowded_at; /* `clock` when there was last no room for a node; 0: never */
	uint64_t period, period_at;
	uint64_t walk_at;	       /* when the next one expires */
	uint64_t synced_at, rooted_at; /* 0: never */
	bool young;		       /* has not agreed with anybody yet */
	bool sync_due;		       /* to some node */
	bool out;		       /* leaving, or beaten */
};

/* 0 or -ENOMEM. `info`: ours. */
int swim_init(struct swim *s, const struct swim_config *config, const void *info, uint64_t now);
void swim_fini(struct swim *s);

/* Does what is due; to be called at least four times a period. */
void swim_tick(struct swim *s, uint64_t now);
/* A message of node `from`, records checked by the decoder. */
void swim_input(struct swim *s, uint16_t from, const struct swim_msg *m, uint64_t now);
/* A node's own record, first on each connection. False: another node has that id. */
bool swim_hello(struct swim *s, const struct swim_record *record, uint64_t now);
/* Any message of a node came: it lives. */
void swim_heard(struct swim *s, uint16_t id);

/* A source tells: it is a member; it is none any more. 0 or -ENOMEM. */
int swim_add(struct swim *s, uint16_t id, const void *info);
void swim_remove(struct swim *s, uint16_t id);
/* Begins with a whole exchange: the node is a seed. */
void swim_join(struct swim *s, uint16_t id);
/* There may be nobody to ask: the cluster begins with this node. */
void swim_alone(struct swim *s);
/* Is a node's own record of a version that nobody could refute? */
bool swim_is_absurd(const struct swim *s, const struct swim_record *record);
/* There is reason to doubt that it lives: probes it at once. */
void swim_probe(struct swim *s, uint16_t id);
/* There is reason to doubt what is said of it, that it is dead, too: asks it. */
void swim_doubt(struct swim *s, uint16_t id);
/* Our own information has changed. */
void swim_set_info(struct swim *s, const void *info);
/* Tells a node our record, at once. */
void swim_send_own(struct swim *s, uint16_t to);
/* Goodbye for good: told to a few at once. Nothing else is to be called but swim_fini(). */
void swim_leave(struct swim *s);

/* Is there reason to ask a seed (again)? Nobody is known, or nobody who knows a cluster. */
bool swim_needs_seed(const struct swim *s);
/* Any other that lives; false: there is none. */
bool swim_some(struct swim *s, uint16_t *id);
/* NULL: not known. */
struct swim_node *swim_find(const struct swim *s, uint16_t id);
bool swim_is_settled(const struct swim *s);
/* ms that a node which is not there any more is remembered. */
uint64_t swim_memory(uint32_t timeout);
/* ms from suspicion to death, in a cluster of `nodes` nodes. */
uint32_t swim_patience(uint32_t timeout, uint32_t nodes);

#endif
