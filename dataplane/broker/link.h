/* SPDX-License-Identifier: BSD-3-Clause */
/* Links: QPs and memory that connect an engine of ours with an engine of a peer. */
#ifndef WEIR_BROKER_LINK_H
#define WEIR_BROKER_LINK_H

#include "broker.h"

#include <sys/queue.h>

struct broker_command;
struct broker_link;
struct broker_node;

enum link_state {
	LINK_DOWN,    /* neither QPs nor memory exist */
	LINK_OFFERED, /* our QPs exist; the peer's are not known */
	LINK_ADDING,  /* QPs in RTS; the engine is being told */
	LINK_UP,      /* the engine has it; usable once confirmed */
	LINK_PAUSING, /* QPs failed; the engine releases them */
	LINK_PAUSED,  /* QPs are destroyed; new QPs are made soon, then OFFERED */
	LINK_FAILING, /* QPs in ERR; the engine releases the link */
	LINK_QUIET,   /* every engine finishes a turn before QPs and memory are freed */
};

TAILQ_HEAD(broker_links, broker_link);

/* Links of one engine: how many there may be, and who waits for one. */
struct broker_room {
	struct broker_links idle;    /* up and without connections; least recently used first */
	struct broker_links wanting; /* DOWN: wait for room */
	uint32_t used, wanted;	     /* links that are not DOWN; members of wanting */
	uint32_t closing;	     /* of those used: end in order, or were asked to */
	uint32_t granted;	     /* receive WRs of those used */
	uint64_t look_at;	     /* ns: when those that wait try again */
};

/* Memory of a link that it returns while its peer is idle. */
struct link_memory {
	struct broker_link *l;
	uint8_t *at; /* NULL: none. Lines, and behind those of the staging the engine's work */
	size_t bytes;
	uint32_t lines;
	struct nic_mr mr;
	bool given;	       /* the engine was given it, and has not used it yet */
	bool answering;	       /* LINK_RING or LINK_STAGING is under way */
	uint32_t quiet, round; /* before it is freed: engines that have not finished their turn */
};

struct broker_link {
	struct broker_link *next, *next_of_node;
	struct broker *b;
	uint32_t engine;
	uint32_t node;		      /* peer */
	uint32_t peer_engine;	      /* WEIR_END(): with the link's class */
	struct broker_link *loop_end; /* loop: the other end */
	bool leads;		      /* loop: the end that connects */
	enum link_state state;
	bool confirmed;	    /* the peer has accepted our offer: we may send */
	bool open;	    /* connections may be made over it */
	bool live;	    /* the engine has the link; from PAUSING to UP it is being repaired */
	bool first_failure; /* PAUSING: of a link that was up, so the deadline may be extended */
	bool rebuild_now;   /* PAUSING: new QPs are made at once */
	/* end in order, and room for others */
	bool closing;	 /* the engine was asked to end it, or says that it ends: not open */
	bool over;	 /* it ended so; until it begins again */
	bool idled;	 /* closing: the engine has said LINK_IDLE since */
	bool is_idle;	 /* in room.idle */
	bool is_timed;	 /* in broker.timed */
	bool wanting;	 /* in room.wanting */
	bool no_room;	 /* it could not begin: no room here, or at the peer */
	bool full_there; /* DOWN: the latter */
	uint64_t idle_since;
	uint64_t stays_until; /* then it may be asked again to make room */
	/* no_room: since when; when it could begin at last, after it had lacked room for long */
	uint64_t lacks_since, room_at;
	uint64_t retry_at; /* DOWN: the peer had no room; connections wait until then. 0: no */
	TAILQ_ENTRY(broker_link) in_idle, in_timed, in_wanting;
	uint32_t recv_wrs;	  /* granted */
	uint32_t resumes;	  /* enum weir_resume: QPs of this attempt that are new */
	uint32_t resumes_next;	  /* PAUSING, ADDING: enum weir_resume of the repair that follows */
	uint32_t born, peer_born; /* attempts with which it first came up */
	uint64_t consumed, received; /* positions of our ring when the engine paused */
	uint64_t resumed_at;
	void *user[2];	       /* nic_qp_init.user of its QPs */
	uint32_t id;	       /* in the engine's table */
	uint32_t attempt;      /* of our QPs */
	uint32_t peer_attempt; /* attempt of the peer that ours is connected to, or 0 */
	uint32_t peer_newest;  /* newest attempt of the peer that was ever accepted */
	uint64_t peer_incarnation;
	uint32_t fail_status; /* ADDING: status to fail with once the engine has the link, or 0 */
	uint32_t quiet, quiet_round; /* engines that have not finished their turn */
	uint64_t deadline, resend;
	struct nic_qp *qp[2];
	struct nic_ah *ah; /* for datagrams, once a connection needs it */
	uint32_t psn[2];
	uint8_t *memory; /* struct engine_least, then the credit lines */
	size_t memory_bytes;
	struct weir_slot
	    *answers; /* lines: memory that no NIC uses, touched as far as it is used */
	uint32_t answer_bytes;
	struct engine_least least;
	struct weir_credit_line *credit;
	struct nic_mr credit_mr;
	struct link_memory ring, staging; /* larger than those of `least` */
	struct engine_rings rings;	  /* as the engine said last */
	uint32_t ring_lines;		  /* of the ring in use, as far as an offer names it */
	bool ring_least;		  /* likewise: it is that of `least` */
	struct weir_link_offer peer;	  /* accepted */
	struct weir_link_offer saved;	  /* came while the link went down; attempt 0: none */
};

/* Moves a link; asserts that the pair of states is legal. */
void link_enter(struct broker_link *l, enum link_state to);

/* A line about a link, which names its engine and its node first. */
#define LINK_BLAME(l, level, format, ...)                                                          \
	broker_blame_node(                                                                         \
	    (l)->b, (l)->node, "its links", level,                                                 \
	    ((struct log_field[]){{"engine", (l)->engine, NULL}, {"node", (l)->node, NULL}}), 2,   \
	    format, (l)->engine, (l)->node, ##__VA_ARGS__)

static inline uint32_t
link_class(const struct broker_link *l)
{
	return WEIR_END_CLASS(l->peer_engine);
}

/*
 * A usable link of a class, or NULL: being set up (*status 0), or impossible (*status: positive
 * errno).
 */
struct broker_link *link_want(struct broker *b, uint32_t engine, struct broker_node *n,
			      uint32_t class, int *status);
struct broker_link *link_find(const struct broker *b, uint32_t engine, uint32_t node,
			      uint32_t peer_engine);
struct broker_link *link_by_id(const struct broker *b, uint32_t engine, uint32_t id);
/* Finds or makes it. NULL: out of memory. */
struct broker_link *link_make(struct broker *b, uint32_t engine, uint32_t node,
			      uint32_t peer_engine);
/* Makes QPs and memory. 0 or -errno, logged. Then link_offer_send() or link_take(). */
int link_start(struct broker_link *l);
/* Connects our QPs to the QPs of the offer and gives the link to the engine. */
int link_take(struct broker_link *l, const struct weir_link_offer *offer);
void broker_link_fail(struct broker_link *l, uint32_t status);
void link_confirm(struct broker_link *l);
/* Makes QPs from index `first` on: 0 for both, 1 for the second. */
int link_make_qps(struct broker_link *l, unsigned first);
void link_destroy_qps(struct broker_link *l, unsigned first);
int link_connect_qps(struct broker_link *l, const struct weir_link_offer *o, unsigned first);
/* Registers ring and credit lines again, so that their keys change. */
int link_change_keys(struct broker_link *l);
void link_fill_command(const struct broker_link *l, struct engine_link_command *c);
/* `done` of LINK_ADD and LINK_RESUME. */
void link_engine_has_it(struct broker *b, struct broker_command *c);
/* Returns the next deadline. */
uint64_t link_timers(struct broker *b, uint64_t now);
bool link_all_down(const struct broker *b);
void link_free_all(struct broker *b);

/* ---- memory of its rings ---- */

#define QUIET_ROUNDS 2u /* work begun before the first ends before the second does */

/* The memory that it keeps, and its ring. 0 or -errno. */
int link_memory_make(struct broker_link *l);
/* The staging for a ring of this size. 0 or -errno. */
int link_staging_make(struct broker_link *l, uint32_t lines);
/* No engine uses any of it. */
void link_memory_free(struct broker_link *l);
size_t link_memory_bytes(const struct broker_link *l);
/* The ring in use, as offers name it. */
const struct nic_mr *link_ring_mr(const struct broker_link *l);
/* The engine says LINK_RINGS. */
void link_rings_event(struct broker *b, uint32_t engine, const struct engine_event *event);

/* ---- repair: a link whose QPs failed continues with new QPs ---- */

/* Begins a repair of the QPs `resumes` (enum weir_resume). */
void link_repair(struct broker_link *l, uint32_t resumes);
/* The driver reports that a QP has failed, by its nic_qp_init.user. */
void link_qp_fatal(struct broker *b, const void *qp_user);
/* Connects the new QPs to the QPs of the offer and lets the engine resume. */
int link_take_again(struct broker_link *l, const struct weir_link_offer *offer);
/* PAUSED, at the deadline: makes the new QPs. */
void link_rebuild(struct broker_link *l);
/* The repair took too long: the link fails. */
void link_give_up(struct broker_link *l);

/* ---- room: links that no connection uses make way for others ---- */

void links_init(struct broker *b);
/* A link that is DOWN begins: QPs and memory are made. False: it waits for room, or *rc says why
 * not. An offer in `saved` is the peer's wish, else it is ours. */
bool link_begin(struct broker_link *l, int *rc);
/* Whether there is room for the link, as far as their number goes. */
bool link_has_room(const struct broker_link *l);
/* Room was found, or not, for links that wait. */
void links_serve(struct broker *b, uint32_t engine);
/* Counts a link in, or out; `in` before its recv_wrs are known: they are set. */
void link_takes_room(struct broker_link *l);
void link_gives_room(struct broker_link *l);
/* No connection uses the link, as far as main knows; a connection is about to. */
void link_idle(struct broker_link *l);
/* It came up: whoever wanted it is about to use it. */
void link_is_new(struct broker_link *l);
void link_used(struct broker_link *l);
/* Ends those that were idle for long. Returns the next deadline. */
uint64_t links_idle_timers(struct broker *b, uint64_t now);
/* The engine says LINK_IDLE, LINK_CLOSED or LINK_STAYS. */
void link_end_event(struct broker *b, uint32_t engine, const struct engine_event *event);
/* Both ends have agreed that it is over. */
void link_ended(struct broker_link *l);
/* The engine takes no connection for this link: it is about to end. */
void link_ends(struct broker *b, uint32_t engine, uint32_t id);
/* It cannot begin: no room here, or at the peer. */
void link_lacks(struct broker_link *l);
/* Whether connections wait because there is no room, here or at the peer, or there was none until
 * after that time. */
bool link_lacks_room(struct broker *b, uint32_t engine, const struct broker_node *n, uint32_t class,
		     uint64_t until);

/* ---- handshake ---- */

void link_offer_fill(const struct broker_link *l, uint32_t answered, struct weir_link_offer *o);
void link_offer_send(struct broker_link *l, uint32_t answered);
void link_offer_input(struct broker *b, const struct weir_link_offer *o);
/* Tells the peer that its attempt fails: positive errno as in weir_link_offer. */
void link_offer_refuse(struct broker_link *l, uint32_t attempt, uint32_t status);
/* Sends a control that has just connected all offers again. */
void link_resync(struct broker *b);

#endif
