/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings of idle peers (docs/protocol.md 2, dataplane/engine/conn/link_ring.c) between two ends of a
 * link, each of which owns a ring and writes into the other's. Both change their rings, lose their
 * queue pairs and go on with others, and end the link when they have no connection. A frame is one
 * line. A key names one registration of one memory.
 *
 * Never: a frame in a memory, or of a size, that its reader does not look at; a key that is gone; a
 * staging that is left while the NIC may read it; a line that breaks the rules; an end that is over
 * before its last line has arrived; an end that waits for ever (an invalid end state).
 *
 * variants: OTHER=1 REPAIRS=2 CHANGES=2 CLOSES=1,REPAIRS=0 CLOSES=1,MESSAGES=0 NO_MEMORY
 * faults: SENDS_IN_LEFT NO_CREDIT NO_ACK NO_MOVED OLD_KEY LOST_PROOF LINES_OF_RING,NO_MEMORY
 * faults: THEN_REFUSED,CHANGES=2,REPAIRS=0 FREED_AT_OFFER,REPAIRS=0 ONE_PROOF,CLOSES=1,REPAIRS=0
 * faults: STAYS_FORGETS,CLOSES=1,REPAIRS=0 ASKS_FIRST,CLOSES=1,REPAIRS=0
 */
#ifndef CHANGES
#define CHANGES 1 /* end 0: rounds of a small ring and a large one again */
#endif
#ifndef OTHER
#define OTHER 0 /* end 1: small rings offered; it doesn't get a large one again */
#endif
#ifndef REPAIRS
#define REPAIRS 1
#endif
#ifndef CLOSES
#define CLOSES 0 /* each end */
#endif
#ifndef MESSAGES
#define MESSAGES 1 /* of each end */
#endif
#define ROOM 2	   /* frames in a ring */

mtype = { MESSAGE, RING, LEFT, CLOSE, CLOSED, STAYS, CREDIT };
mtype = { NONE, DUE, POSTED, ACKED };
mtype = { SETTLED, WANTED, OFFERED, ASKED, LEAVING, GOES_ON, AGREED, OVER };

#define SMALL 1 /* memories and lines */
#define LARGE 2

/* to 0 and 1: what, of RING: memory and key, of LEFT: lines, of CREDIT: consumed; key and lines of the writer */
chan wire[2] = [6] of { mtype, byte, byte, byte, byte };

/* sending; a frame in the staging, by its position */
typedef frames { mtype kind[4]; byte first[4]; byte second[4] };
frames staged[2];
byte tx[2], credited[2], unsent[2];
mtype last_wr[2] = NONE; /* of LINK_CLOSE or LINK_CLOSED */
mtype left_wr[2] = NONE;
bit unacked[2];		 /* a frame is */
mtype way[2] = SETTLED;
byte peer_key[2], lines[2], staging[2]; /* in use */
byte next_key[2], next_lines[2], next_staging[2];
byte then_memory[2], then_key[2], left_at[2];

/* receiving; memories are SMALL and LARGE */
typedef registered { byte named[3] };
registered regions[2]; /* 0: it is not registered */
byte keys[2];	  /* ever made */
byte rx[2], told[2], got[2];
bit owes[2];
mtype ring[2] = SETTLED;
byte memory[2], used[2], next_memory[2];
bit given[2]; /* a large ring is with the engine, which doesn't use it yet */

/* both */
bit ring_due[2], left_due[2], close_due[2], closed_due[2], stays_due[2];
bit conns[2], paused[2], gone[2], failed[2], stop;
mtype end[2] = GOES_ON;
byte repairs = REPAIRS, smaller[2], larger[2], closes[2];

#define key_in_use(n) regions[n].named[memory[n]]
#define any_due(n) (ring_due[n] || left_due[n] || close_due[n] || closed_due[n] || stays_due[n])
#define works(n) (!stop && !paused[n] && !gone[n])
#define lasts(n) (end[n] == GOES_ON || end[n] == ASKED)
#define at_rest(n)                                                                                 \
	(end[n] == GOES_ON && ring[n] == SETTLED && way[n] == SETTLED && !any_due(n) && !paused[n] && \
	 !unsent[n] && got[n] == MESSAGES && credited[n] == tx[n])
#define finished ((at_rest(0) && at_rest(1)) || (gone[0] && gone[1]))
#ifdef NO_ACK
#define proven(n) true
#else
#define proven(n) (left_wr[n] == NONE || left_wr[n] == ACKED)
#endif
#ifdef NO_CREDIT
#define consumed(n) true
#else
#define consumed(n) (credited[n] == left_at[n])
#endif
#ifdef SENDS_IN_LEFT
#define may_send(n) works(n)
#else
#define may_send(n) (works(n) && way[n] != LEFT)
#endif

/* A WRITE leaves; what its receiver doesn't take any more is lost. */
inline post(n, op, one, two)
{
	if
	:: paused[1 - n] || gone[1 - n]
	:: else ->
		assert(op == CREDIT || peer_key[n] == regions[1 - n].named[SMALL] ||
		       peer_key[n] == regions[1 - n].named[LARGE]);
		wire[1 - n] ! op, one, two, peer_key[n], lines[n]
	fi
}

inline prove(n)
{
	if
	:: last_wr[n] == DUE -> last_wr[n] = POSTED
	:: else
	fi;
	if
	:: left_wr[n] == DUE -> left_wr[n] = POSTED
	:: else
	fi
}

inline put(n, line, x, y)
{
	staged[n].kind[tx[n] % 4] = line;
	staged[n].first[tx[n] % 4] = x;
	staged[n].second[tx[n] % 4] = y;
	tx[n]++;
	post(n, line, x, y);
	unacked[n] = 1;
	prove(n)
}

inline over(n)
{
	assert(!close_due[n] && !closed_due[n] && got[n] == MESSAGES && !conns[n]);
	end[n] = OVER;
	gone[n] = 1
}

inline agreed(n)
{
	end[n] = AGREED;
	ring_due[n] = 0;
	left_due[n] = 0
}

inline way_begin(n, offered, key)
{
	next_key[n] = key;
	next_lines[n] = offered;
	if
	:: offered == SMALL -> next_staging[n] = SMALL; way[n] = LEAVING; left_due[n] = 1
	:: else -> way[n] = ASKED
	fi
}

inline take_ring(n, offered, key)
{
	assert(lasts(n));
	if
#ifndef THEN_REFUSED
	:: way[n] == LEFT && !then_memory[n] -> then_memory[n] = offered; then_key[n] = key
#endif
	:: way[n] == SETTLED -> way_begin(n, offered, key)
	:: else -> assert(false)
	fi
}

inline take_left(n, length)
{
	assert(ring[n] == OFFERED && !ring_due[n] && length <= next_memory[n]);
	ring[n] = SETTLED;
	memory[n] = next_memory[n];
#ifdef LINES_OF_RING
	used[n] = next_memory[n];
#else
	used[n] = length;
#endif
	if
	:: memory[n] == LARGE -> given[n] = 0
	:: else
	fi
}

inline take_close(n)
{
	assert(lasts(n) && !stays_due[n]);
	if
	:: conns[n] -> stays_due[n] = 1
	:: !conns[n] && end[n] == ASKED ->
		agreed(n);
		if
		:: !any_due(n) && (last_wr[n] == NONE || last_wr[n] == ACKED) -> over(n)
		:: else
		fi
	:: else -> agreed(n); closed_due[n] = 1
	fi
}

inline take(n, what, a, b, key, size)
{
	if
	:: what == CREDIT ->
		if
		:: a > credited[n] -> credited[n] = a
		:: else
		fi
	:: else ->
		assert(key == key_in_use(n) && size == used[n]);
		rx[n]++;
		if
		:: what == MESSAGE -> got[n]++
		:: what == RING -> take_ring(n, a, b)
		:: what == LEFT -> take_left(n, a)
		:: what == CLOSE -> take_close(n)
		:: what == CLOSED ->
			assert(end[n] == ASKED && !close_due[n]);
			over(n)
		:: what == STAYS ->
			assert(end[n] == ASKED && !close_due[n]);
			end[n] = GOES_ON;
			last_wr[n] = NONE
#ifdef STAYS_FORGETS
			; left_wr[n] = NONE
#endif
		fi
	fi
}

/* One line leaves: those of the link in this order, a message between any of them. */
inline send(n)
{
	if
	:: unsent[n] -> unsent[n]--; put(n, MESSAGE, 0, 0)
	:: ring_due[n] -> ring_due[n] = 0; put(n, RING, next_memory[n], regions[n].named[next_memory[n]])
	:: !ring_due[n] && stays_due[n] -> stays_due[n] = 0; put(n, STAYS, 0, 0)
#ifdef ASKS_FIRST
	:: !ring_due[n] && close_due[n] ->
#else
	:: !ring_due[n] && !stays_due[n] && close_due[n] ->
#endif
		close_due[n] = 0;
		last_wr[n] = DUE;
		put(n, CLOSE, 0, 0)
	:: !ring_due[n] && closed_due[n] -> closed_due[n] = 0; last_wr[n] = DUE; put(n, CLOSED, 0, 0)
	:: !ring_due[n] && !close_due[n] && !closed_due[n] && !stays_due[n] && left_due[n] ->
		left_due[n] = 0;
		way[n] = LEFT;
		left_wr[n] = DUE;
#ifdef ONE_PROOF
		last_wr[n] = DUE;
#endif
		put(n, LEFT, next_lines[n], 0);
		left_at[n] = tx[n]
	fi
}

inline settle(n)
{
	/* nothing is sent again by the NIC from a staging that is left, nor by a repair */
	assert(staging[n] == next_staging[n] || !unacked[n]);
	way[n] = SETTLED;
	peer_key[n] = next_key[n];
	lines[n] = next_lines[n];
	staging[n] = next_staging[n];
	left_wr[n] = NONE;
	if
	:: then_memory[n] && lasts(n) -> way_begin(n, then_memory[n], then_key[n])
	:: else
	fi;
	then_memory[n] = 0;
	then_key[n] = 0;
	next_key[n] = (way[n] == SETTLED -> 0 : next_key[n]);
	left_at[n] = 0
}

/* Its queue pairs are gone: what has not been taken will never be. */
inline pause(n)
{
	do
	:: wire[n] ? _, _, _, _, _
	:: empty(wire[n]) -> break
	od;
	if
	:: !lasts(n) ->
		/* the peer has, or can do without, our last line */
		close_due[n] = 0;
		closed_due[n] = 0;
		failed[n] = 1;
		over(n)
	:: else -> paused[n] = 1
	fi
}

inline register(n, which)
{
	keys[n]++;
	regions[n].named[which] = keys[n]
}

/* What the peer offers is taken up: its ring in use has a new key. */
inline resume(n)
{
	byte at;

	assert(rx[1 - n] >= credited[n] && rx[1 - n] <= tx[n]);
	if
#ifndef NO_MOVED
	:: way[n] == LEFT && rx[1 - n] == left_at[n] ->
		assert(used[1 - n] == next_lines[n]);
#ifndef OLD_KEY
		next_key[n] = key_in_use(1 - n)
#endif
	:: else ->
#else
	:: true ->
#endif
		assert(used[1 - n] == lines[n]);
		peer_key[n] = key_in_use(1 - n)
	fi;
	unacked[n] = 0;
	owes[n] = 1;
	at = rx[1 - n];
	do
	:: at < tx[n] ->
		post(n, staged[n].kind[at % 4], staged[n].first[at % 4], staged[n].second[at % 4]);
		unacked[n] = 1;
		at++
	:: else -> break
	od;
	at = 0;
#ifdef LOST_PROOF
	left_wr[n] = NONE
#else
	if
	:: left_wr[n] != NONE -> left_wr[n] = DUE
	:: else
	fi
#endif
	;
	if
	:: last_wr[n] != NONE -> last_wr[n] = DUE
	:: else
	fi
}

proctype engine(bit n)
{
	byte a, b, key, size;
	mtype what;

	do
	:: stop -> break
	:: atomic { works(n) && nempty(wire[n]) ->
		wire[n] ? what, a, b, key, size;
		take(n, what, a, b, key, size);
		what = 0; a = 0; b = 0; key = 0; size = 0
	   }
	:: atomic { may_send(n) && tx[n] - credited[n] < ROOM && (unsent[n] || any_due(n)) -> send(n) }
	:: atomic { works(n) && (told[n] != rx[n] || owes[n]) ->
		/* by the credit line, at any time */
		told[n] = rx[n];
		owes[n] = 0;
		post(n, CREDIT, rx[n], 0);
		prove(n)
	   }
	:: atomic { works(n) && works(1 - n) && (last_wr[n] == POSTED || left_wr[n] == POSTED) ->
		/* all that was posted is acknowledged */
		last_wr[n] = (last_wr[n] == POSTED -> ACKED : last_wr[n]);
		left_wr[n] = (left_wr[n] == POSTED -> ACKED : left_wr[n]);
		unacked[n] = 0;
		if
		:: end[n] == AGREED && last_wr[n] == ACKED -> over(n)
		:: else
		fi
	   }
	:: atomic { works(n) && way[n] == LEFT && consumed(n) && proven(n) -> settle(n) }

	/* its ring */
	:: atomic { works(n) && end[n] == GOES_ON && ring[n] == SETTLED && memory[n] == LARGE && smaller[n] ->
		smaller[n]--;
		next_memory[n] = SMALL;
		ring[n] = OFFERED;
		ring_due[n] = 1
#ifdef FREED_AT_OFFER
		; regions[n].named[LARGE] = 0
#endif
	   }
	:: atomic { works(n) && end[n] == GOES_ON && ring[n] == SETTLED && memory[n] == SMALL && larger[n] ->
		larger[n]--;
		ring[n] = WANTED
	   }
	:: atomic { !stop && !gone[n] && memory[n] == SMALL && regions[n].named[LARGE] && !given[n] ->
		/* main frees what was left */
		regions[n].named[LARGE] = 0
	   }
	:: atomic { !stop && !gone[n] && ring[n] == WANTED && !regions[n].named[LARGE] ->
		/* main answers */
		if
		:: end[n] == GOES_ON ->
			register(n, LARGE);
			given[n] = 1;
			next_memory[n] = LARGE;
			ring[n] = OFFERED;
			ring_due[n] = 1
		:: ring[n] = SETTLED
		fi
	   }

	/* the peer's */
	:: atomic { !stop && !gone[n] && way[n] == ASKED ->
		/* main answers */
		if
		:: next_staging[n] = LARGE
#ifdef NO_MEMORY
		:: next_staging[n] = staging[n]; next_lines[n] = lines[n]
#endif
		fi;
		way[n] = LEAVING;
		if
		:: lasts(n) -> left_due[n] = 1
		:: else
		fi
	   }

	/* the end */
	:: atomic { !stop && conns[n] && !unsent[n] && got[n] == MESSAGES && CLOSES -> conns[n] = 0 }
	:: atomic { works(n) && !conns[n] && end[n] == GOES_ON && closes[n] ->
		closes[n]--;
		end[n] = ASKED;
		close_due[n] = 1
	   }
	:: atomic { works(n) && gone[1 - n] && !lasts(n) && empty(wire[n]) -> pause(n) }

	/* faults of queue pairs */
	:: atomic { works(n) && (paused[1 - n] || failed[1 - n] || (!gone[1 - n] && repairs)) ->
		if
		:: paused[1 - n] || failed[1 - n]
		:: else -> repairs--
		fi;
		pause(n)
	   }
	:: atomic { !stop && paused[n] && gone[1 - n] ->
		/* nothing is left to go on with */
		assert(!conns[n] && end[n] == ASKED);
		gone[n] = 1
	   }
	od
}

proctype mains()
{
	do
	:: stop -> break
	:: atomic { !stop && finished -> stop = 1 }
	:: atomic { !stop && paused[0] && paused[1] ->
		paused[0] = 0;
		paused[1] = 0;
		register(0, memory[0]);
		register(1, memory[1]);
		resume(0);
		resume(1)
	   }
	od
}

init
{
	atomic {
		byte n;

		do
		:: n < 2 ->
			keys[n] = 2;
			regions[n].named[SMALL] = 1;
			regions[n].named[LARGE] = 2;
			memory[n] = LARGE;
			used[n] = LARGE;
			peer_key[n] = 2;
			lines[n] = LARGE;
			staging[n] = LARGE;
			unsent[n] = MESSAGES;
			conns[n] = 1;
			closes[n] = CLOSES;
			n++
		:: else -> break
		od;
		smaller[0] = CHANGES;
		larger[0] = CHANGES;
		smaller[1] = OTHER;
		run engine(0);
		run engine(1);
		run mains()
	}
}
