/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lives of connections between two engines (docs/protocol.md 4, dataplane/engine/conn/conn.c and
 * dataplane/engine/conn/ctrl_line.c): one entry at each end, used again and again. Programs send,
 * shut down sending, close and die at any time; either engine may give the connection up. Lines
 * arrive in order and none is lost: the ring does that, across repairs too.
 *
 * Never: a line that its receiver does not expect (the link would end), one for an entry that is
 * somebody else's by now, a message complete for its sender and not delivered, an entry that stays.
 *
 * faults: END_EARLY FREE_UNACKNOWLEDGED FREE_UNLANDED NO_SEAL NO_ANSWER_TO_RESET REFUSE_EARLY
 */
#ifndef LIVES
#define LIVES 2
#endif
#ifndef MESSAGES
#define MESSAGES 1 /* of each end, in a life; with 2 there are 3.6 million states */
#endif

mtype = { CONNECT, ACCEPT, REJECT, MESSAGE, END, FIN, RESET, FIN_ACK, CREDIT };
mtype = { NONE, OPENING, OPEN, FINISHING, FINISHED, DEAD, PEER_GONE };

chan to[2] = [12] of { mtype, byte, byte }; /* to end 0 and 1: line, life, value */

mtype is[2] = NONE;
byte life[2];			    /* the entry's generation */
bit closed[2], died[2];		    /* by its program */
bit accepts[2], sealed[2], reset_sent[2];
bit shut[2], peer_shut[2], end_sent[2];
bit owe_connect[2], owe_accept[2], owe_end[2], owe_fin[2], owe_reset[2], owe_fin_ack[2];
byte waiting[2], made[2], sent[2];  /* messages: not sent yet, of the program, sent */
byte landed[2], completed[2];	    /* that left the peer's ring; of these delivered */
byte received[2];
byte untold[2];			    /* message lines of end n consumed, credit not told yet */
byte delivered[4];		    /* ghost: messages of end n in a life: [n + 2 * (life & 1)] */

#define owes(n) (owe_connect[n] || owe_accept[n] || owe_end[n] || owe_fin[n] || owe_reset[n] || owe_fin_ack[n])
#ifdef FREE_UNLANDED
#define all_landed(n) 1
#else
#define all_landed(n) (landed[n] == sent[n])
#endif
#define ghost(n) delivered[n + 2 * (life[n] & 1)]

inline owe_nothing(n)
{
	owe_connect[n] = 0; owe_accept[n] = 0; owe_end[n] = 0; owe_fin[n] = 0; owe_reset[n] = 0; owe_fin_ack[n] = 0
}

/* owe(): an end's last word is FIN or RESET. */
inline owe_last(n, what)
{
	if
	:: is[n] == FINISHED || is[n] == PEER_GONE || reset_sent[n] -> skip
	:: else -> what = 1
	fi
}

inline settle(n)
{
	if
	:: is[n] == PEER_GONE && closed[n] && !owes(n) && all_landed(n) ->
		assert(completed[n] <= ghost(n));
		assert(sealed[n] || (completed[n] == sent[n] && completed[n] == ghost(n)));
		is[n] = NONE
	:: else
	fi
}

inline try_finish(n)
{
	if
#ifdef END_EARLY
	:: is[n] == OPEN && shut[n] && !end_sent[n] -> owe_end[n] = 1
#else
	:: is[n] == OPEN && shut[n] && !end_sent[n] && !waiting[n] -> owe_end[n] = 1
#endif
	:: is[n] == FINISHING && !waiting[n] && died[n] -> is[n] = DEAD; owe_last(n, owe_reset[n])
	:: is[n] == FINISHING && !waiting[n] && !died[n] -> owe_end[n] = 0; owe_last(n, owe_fin[n])
	:: else
	fi
}

inline finish_if_shut(n)
{
	if
	:: is[n] == OPEN && shut[n] && peer_shut[n] -> is[n] = FINISHING
	:: else
	fi;
	try_finish(n)
}

inline begin(n, state)
{
	life[n]++;
	is[n] = state;
	shut[n] = 0; peer_shut[n] = 0; end_sent[n] = 0;
	closed[n] = 0; died[n] = 0; sealed[n] = 0; reset_sent[n] = 0;
	accepts[n] = (state == OPEN);
	waiting[n] = 0; made[n] = 0; sent[n] = 0; landed[n] = 0; completed[n] = 0; received[n] = 0;
	ghost(n) = 0
}

inline peer_ended(n, seal)
{
	if
	:: is[n] == PEER_GONE || (reset_sent[n] && !seal) -> skip /* our RESET is the answer */
	:: else ->
#ifndef NO_SEAL
		sealed[n] = sealed[n] | seal;
#endif
		accepts[n] = 0;
		waiting[n] = 0;
		owe_nothing(n);
#ifdef NO_ANSWER_TO_RESET
		owe_fin_ack[n] = !seal;
#else
		owe_fin_ack[n] = 1;
#endif
		if
		:: (is[n] == FINISHED && !seal) || reset_sent[n] -> skip /* its FIN_ACK has to come */
		:: else -> is[n] = PEER_GONE
		fi;
#ifdef FREE_UNACKNOWLEDGED
		is[n] = PEER_GONE;
#endif
		settle(n)
	fi
}

inline give_up(n)
{
#ifdef REFUSE_EARLY
	accepts[n] = 0;
#endif
	is[n] = DEAD; /* what comes until RESET is in the ring is still delivered */
	waiting[n] = 0;
	owe_end[n] = 0;
	owe_fin[n] = 0;
	owe_last(n, owe_reset[n])
}

inline take(n, line, whose, value)
{
	if
	:: line == CONNECT ->
		if
		:: is[n] == NONE -> begin(n, OPEN); assert(life[n] == whose); owe_accept[n] = 1
		:: is[n] == NONE -> life[n]++; to[1 - n] ! REJECT(whose, 0)
		:: else -> assert(false) /* of one life at a time in this model */
		fi
	:: line == CREDIT ->
		assert(is[n] != NONE && life[n] == whose);
		landed[n] = landed[n] + value;
		completed[n] = (sealed[n] -> completed[n] : completed[n] + value);
		settle(n)
	:: else ->
		assert(is[n] != NONE && life[n] == whose);
		if
		:: line == ACCEPT ->
			assert(is[n] == OPENING);
			accepts[n] = 1;
			is[n] = (closed[n] -> FINISHING : OPEN);
			try_finish(n)
		:: line == REJECT ->
			assert(is[n] == OPENING);
			is[n] = PEER_GONE;
			sealed[n] = 1;
			settle(n)
		:: line == MESSAGE ->
			assert(is[n] != OPENING && !peer_shut[n]);
			untold[1 - n]++;
			if
			:: accepts[n] -> received[n]++; delivered[1 - n + 2 * (whose & 1)]++
			:: else
			fi
		:: line == END ->
			assert(is[n] != OPENING && !peer_shut[n]);
			assert(!accepts[n] || value == received[n]);
			peer_shut[n] = 1;
			accepts[n] = 0;
			finish_if_shut(n)
		:: line == FIN ->
			assert(is[n] != OPENING);
			assert(!accepts[n] || value == received[n]);
			peer_ended(n, 0)
		:: line == RESET ->
			assert(is[n] != OPENING);
			if
			:: !sealed[n] && value <= sent[n] && value >= completed[n] -> completed[n] = value
			:: else
			fi;
			peer_ended(n, 1)
		:: line == FIN_ACK ->
			assert(is[n] == FINISHED || (is[n] == DEAD && reset_sent[n]));
			is[n] = PEER_GONE;
			accepts[n] = 0;
			settle(n)
		fi
	fi
}

/* What an end says next: what it owes, lowest first, then messages. */
inline say(n)
{
	if
	:: owe_connect[n] -> owe_connect[n] = 0; to[1 - n] ! CONNECT(life[n], 0)
	:: else ->
		if
		:: owe_accept[n] -> owe_accept[n] = 0; to[1 - n] ! ACCEPT(life[n], 0); try_finish(n)
		:: else ->
			if
			:: owe_end[n] ->
				owe_end[n] = 0;
				to[1 - n] ! END(life[n], sent[n]);
				end_sent[n] = 1
			:: !owe_end[n] && owe_fin[n] ->
				owe_fin[n] = 0;
				to[1 - n] ! FIN(life[n], sent[n]);
				is[n] = FINISHED
			:: !owe_end[n] && !owe_fin[n] && owe_reset[n] ->
				owe_reset[n] = 0;
				to[1 - n] ! RESET(life[n], received[n]);
				reset_sent[n] = 1;
				accepts[n] = 0
			:: !owe_end[n] && !owe_fin[n] && !owe_reset[n] ->
				owe_fin_ack[n] = 0;
				to[1 - n] ! FIN_ACK(life[n], 0)
			fi
		fi
	fi;
	settle(n)
}

proctype engine(bit n)
{
	mtype line;
	byte whose, value;

	do
	:: atomic { to[n] ? line(whose, value) -> take(n, line, whose, value); line = 0; whose = 0; value = 0 }
	:: atomic { owes(n) && !(is[n] == FINISHING && waiting[n] && !owe_accept[n]) -> say(n) }
	:: atomic { (is[n] == OPEN || is[n] == FINISHING) && waiting[n] && !owe_accept[n] ->
		waiting[n]--;
		sent[n]++;
		to[1 - n] ! MESSAGE(life[n], 0);
		try_finish(n)
	   }
	/* credit for what this end has taken out of its ring */
	:: atomic { untold[1 - n] -> to[1 - n] ! CREDIT(life[1 - n], untold[1 - n]); untold[1 - n] = 0 }
	/* it can't go on: a rule broken, or a dead program's messages don't leave */
	:: atomic { is[n] == OPEN || (is[n] == FINISHING && died[n]) -> give_up(n) }
	:: atomic { life[0] == LIVES && is[0] == NONE && is[1] == NONE && empty(to[0]) && empty(to[1]) && !untold[0] && !untold[1] -> break }
	od
}

proctype program(bit n)
{
	do
	:: atomic { n == 0 && is[n] == NONE && is[1] == NONE && life[n] < LIVES && life[1] == life[0] && empty(to[0]) && !untold[0] ->
		begin(n, OPENING);
		owe_connect[n] = 1
	   }
	:: atomic { is[n] == OPEN && !closed[n] && !shut[n] && made[n] < MESSAGES -> made[n]++; waiting[n]++ }
	:: atomic { is[n] == OPEN && !closed[n] && !shut[n] -> shut[n] = 1; finish_if_shut(n) }
	:: atomic { is[n] != NONE && !closed[n] ->
		closed[n] = 1;
		if
		:: !(shut[n] && peer_shut[n]) -> died[n] = 1
		:: skip
		fi;
		if
		:: is[n] == OPEN -> is[n] = FINISHING
		:: else
		fi;
		try_finish(n);
		settle(n)
	   }
	:: atomic { life[0] == LIVES && is[0] == NONE && is[1] == NONE && empty(to[0]) && empty(to[1]) -> break }
	od
}

init
{
	atomic {
		run engine(0);
		run engine(1);
		run program(0);
		run program(1)
	}
}
