/* SPDX-License-Identifier: BSD-3-Clause */
/* A node that a messenger ever knew. */
#ifndef WEIR_MESSAGE_PEER_H
#define WEIR_MESSAGE_PEER_H

#include "messenger.h"

#include <sys/queue.h>

struct lane;

enum peer_state {
	PEER_DOWN,    /* no lanes */
	PEER_OPEN,    /* lanes, or about to have some */
	PEER_LEAVING, /* we close: BYE is sent when no request is outstanding */
	PEER_BYE,     /* BYE is sent: the other end closes its lanes */
	PEER_ASKED,   /* BYE was received: our lanes close when no request is outstanding */
};

/* m->lock */
struct peer {
	uint16_t node; /* or process, messenger.h */
	uint8_t state; /* enum peer_state */
	bool told;     /* the program was told CREATED */
	bool evicted;
	bool counts;	   /* against the limit of connections */
	bool stepping;	   /* on m->stepping */
	bool asked;	   /* BYE was received since we began to close */
	uint32_t threads;  /* receivers over there, as its messenger said; else 1 */
	uint32_t incoming; /* lanes from there */
	uint32_t used;	   /* as in lanes; of those that are gone */
	/*
	 * Of the messenger over there, as the HELLO on our lanes to its name says; before one came,
	 * as the first lane from there claims. When another lane claims to be of another messenger,
	 * a probe asks the name again.
	 */
	uint64_t incarnation;
	uint64_t made;	    /* counts our lanes */
	uint64_t said_by;   /* `made` of the lane that said `incarnation`; 0: none yet */
	uint64_t named;	    /* ns when the first lane to the name was made; 0: none yet */
	struct lane *probe; /* a lane on no page of a sender; NULL: none */
	uint64_t probed;    /* ns when the last probe was made */
	uint64_t deadline;  /* of closing */
	uint32_t lives;	    /* counts transitions to DOWN */
	int leave_status;   /* how the last closing ended */
	bool unflushed;	    /* a lane of ours was lost with messages that were not complete */
	int lost;	    /* how its last lane ended */
	/* m->leaf */
	uint64_t room_used; /* part of m->room_used */
	uint64_t room_pass; /* m->room_passes when messages of it waited for its share; 0: never */
	TAILQ_HEAD(lane_list, lane) lanes;
	TAILQ_ENTRY(peer) in_open, in_stepping;
};

struct peer *peer_get(struct weir_messenger *m, uint16_t node);
/* A lane is about to be made: counts the peer, evicts another. 0, -EAGAIN: not now. m->lock. */
int peer_use(struct weir_messenger *m, struct peer *p, bool must);
/* No lane was made after all. m->lock. */
void peer_unuse(struct weir_messenger *m, struct peer *p);
/* m->lock. */
void peer_lane_open(struct lane *lane);
/* A lane has gone. m->lock. */
void peer_lane_gone(struct lane *lane, int status);
/* Begins to close. m->lock. */
void peer_leave(struct weir_messenger *m, struct peer *p, enum peer_state state);
/* The messenger closes: says good-bye to strangers, which may be about to say HELLO. True while any
 * is left. m->lock. */
bool peer_strangers_leave(struct weir_messenger *m);
/* Advances closing peers. True while any is still closing. m->lock. */
bool peers_step(struct weir_messenger *m);
/* Our session is over, and another one begins: connected nodes are reported as lost. m->lock. */
void peers_lost(struct weir_messenger *m, int status);
/* Whether the lane's session is over, and the messenger goes on in another one. */
bool lane_is_former(const struct lane *lane);
/* A lane of ours is lost: notes whether messages on it were not complete. m->lock and worker. */
void peer_unflushed(struct lane *lane);
/* A lane from a stranger is the process's from now on. 0 or -ENOMEM. m->lock. */
int peer_adopt(struct lane *lane, uint16_t process);
/* HELLO was received. m->lock. */
void peer_hello(struct lane *lane, uint64_t incarnation, uint32_t threads);
/* BYE was received on a lane of ours. m->lock. */
void peer_bye(struct weir_messenger *m, struct peer *p);
/* BYE was received on a lane from there, for a lane of ours with the key. m->lock. */
void peer_bye_for(struct weir_messenger *m, struct peer *p, uint64_t key);
/* Looks for the HELLO on a lane to the peer's name: the number of receivers. m->lock. */
void peer_listen(struct peer *p);
/* Looks at all lanes for threads that are not inside a call. Nothing locked. */
void peers_look(struct weir_messenger *m);

#endif
