/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Credit of rings and receive WRs between two engines (docs/protocol.md 3,
 * dataplane/engine/tx/link.c), both of which have messages to send, and sleep when they can do
 * nothing; only an immediate wakes them. A frame is a head and messages of one line each.
 *
 * Never: a ring overrun, an immediate without a receive WR, credit for what was not consumed, both
 * standing still with something to send (an invalid end state).
 *
 * variants: LINES=8
 * faults: NO_LINE_KEPT LINES=8,NO_WR_KEPT NO_WAKE NO_STALLED CREDIT_EARLY
 */
#ifndef MESSAGES
#define MESSAGES 4 /* of each end */
#endif
#ifndef LINES
#define LINES 4 /* of a ring */
#endif
#define WRS 4	/* receive WRs granted */

#define SHORT 3 /* turns that don't take all completions there are: for ever, they would starve the credit */

#ifdef NO_LINE_KEPT
#define ROOM LINES
#else
#define ROOM (LINES - 1) /* for messages: one line is kept for the head that says STALLED */
#endif
#ifdef NO_WR_KEPT
#define WRS_OF_MESSAGE 1
#else
#define WRS_OF_MESSAGE 3
#endif

mtype = { FRAME, WAKE };

/* completions that wait at engine 0 and 1: lines, messages, STALLED, credit of the head */
chan cq[2] = [8] of { mtype, byte, byte, bit, byte, byte };
byte line_consumed[2], line_wrs[2]; /* credit lines in the memory of 0 and 1; written by the peer */

byte unsent[2], got[2];
byte tx[2], credited[2];	     /* lines written, of those given back, as the writer knows */
byte rx[2], rx_told[2];		     /* lines consumed, and told */
byte used[2], wrs_credited[2];	     /* receive WRs of the peer: used, given back */
byte wrs_back[2], wrs_told[2];	     /* own receive WRs: posted again, and told */
bit stalled[2], stall_told[2], peer_stalled[2];

#define left(n) (WRS + wrs_credited[n] - used[n])
#define done (got[0] == MESSAGES && got[1] == MESSAGES)

inline take_credit(n, consumed, wrs)
{
	assert(consumed <= tx[n] && wrs <= used[n]);
	if
	:: wrs > wrs_credited[n] -> wrs_credited[n] = wrs; stalled[n] = 0; stall_told[n] = 0
	:: else
	fi;
	if
	:: consumed > credited[n] -> credited[n] = consumed; stalled[n] = 0; stall_told[n] = 0
	:: else
	fi
}

/* An immediate takes a receive WR of the peer when it arrives. */
inline use_wr(n)
{
	used[n]++;
	assert(used[n] - wrs_back[1 - n] <= WRS)
}

inline credit_told(n)
{
	rx_told[n] = rx[n];
	wrs_told[n] = wrs_back[n];
	peer_stalled[n] = 0
}

inline send_frame(n, messages)
{
	tx[n] = tx[n] + 1 + messages;
	assert(tx[n] - rx[1 - n] <= LINES);
	use_wr(n);
	cq[1 - n] ! FRAME(1 + messages, messages, stalled[n], rx[n], wrs_back[n]);
	stall_told[n] = stalled[n];
	unsent[n] = unsent[n] - messages;
	credit_told(n)
}

inline write_credit(n)
{
	line_consumed[1 - n] = rx[n];
	line_wrs[1 - n] = wrs_back[n];
#ifndef NO_WAKE
	if
	:: peer_stalled[n] && left(n) >= 1 -> use_wr(n); cq[1 - n] ! WAKE(0, 0, 0, 0, 0)
	:: else
	fi;
#endif
	credit_told(n)
}

/* The sending half of a pass: link_send(). `room`: what the messages of a frame may take. */
inline send_what_fits(n, room, messages)
{
	messages = 0;
	room = credited[n] + ROOM - tx[n];
	if
	:: unsent[n] && room >= 2 && left(n) >= WRS_OF_MESSAGE ->
		/* some of those that its program has by now */
		messages = 1;
		do
		:: messages < unsent[n] && messages < room - 1 -> messages++
		:: break
		od;
		if
		:: messages == room - 1 && messages < unsent[n] -> stalled[n] = 1
		:: skip /* the rest comes later */
		fi;
		send_frame(n, messages)
	:: unsent[n] && (room < 2 || left(n) < WRS_OF_MESSAGE) ->
		stalled[n] = 1;
#ifndef NO_STALLED
		if
		:: !stall_told[n] && left(n) >= 2 && tx[n] < credited[n] + LINES -> send_frame(n, 0)
		:: else
		fi
#endif
	:: else
	fi;
	if
	:: peer_stalled[n] || rx[n] - rx_told[n] > LINES / 4 || (wrs_back[n] - wrs_told[n]) * 4 >= WRS -> write_credit(n)
	:: rx[n] != rx_told[n] || wrs_back[n] != wrs_told[n] -> write_credit(n) /* the delay is over */
	:: else /* not over yet, or nothing to tell */
	fi
}

#define pressing(n)                                                                                \
	(len(cq[n]) || peer_stalled[n] || rx[n] != rx_told[n] || wrs_back[n] != wrs_told[n] ||     \
	 line_consumed[n] > credited[n] || (unsent[n] && !stalled[n]))

proctype engine(bit n)
{
	byte lines, messages, consumed, wrs, snap_consumed, snap_wrs, cut;
	int room;
	bit told, snap;

	do
	:: done -> break
	:: atomic { !done && pressing(n) -> /* a turn */
		snap_consumed = line_consumed[n];
		snap_wrs = line_wrs[n];
		do
		:: cq[n] ? FRAME(lines, messages, told, consumed, wrs) ->
#ifdef CREDIT_EARLY
			rx[n] = rx[n] + lines + 1;
#else
			rx[n] = rx[n] + lines;
#endif
			wrs_back[n]++;
			got[n] = got[n] + messages;
			peer_stalled[n] = peer_stalled[n] | told;
			take_credit(n, consumed, wrs);
			snap = 1
		:: cq[n] ? WAKE(_, _, _, _, _) -> wrs_back[n]++; snap = 1
		:: snap && cut < SHORT -> cut++; break /* not all has been seen yet */
		:: empty(cq[n]) -> break
		od;
		take_credit(n, snap_consumed, snap_wrs);
		send_what_fits(n, room, messages);
		lines = 0; messages = 0; consumed = 0; wrs = 0; room = 0; told = 0; snap = 0; snap_consumed = 0; snap_wrs = 0
	   }
	:: !done && !pressing(n) -> /* asleep; a credit line wakes nobody */
		done || len(cq[n])
	od
}

init
{
	atomic {
		unsent[0] = MESSAGES;
		unsent[1] = MESSAGES;
		run engine(0);
		run engine(1)
	}
}
