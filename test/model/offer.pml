/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Offers, by which both ends of a link learn of each other's QPs (docs/protocol.md 2,
 * dataplane/broker/links/handshake.c, dataplane/broker/links/link.c), without repair. Offers are
 * lost, doubled and overtake each other; either end gives up at any time. Attempts count an end's
 * QPs. With RESTART the data plane of end 1 is started anew, once: its attempts begin anew, and
 * offers of or for the first incarnation are still under way.
 *
 * Never: an end that believes that its peer has taken up its QPs, when it has taken up others.
 * Always: once nothing more is lost and nobody gives up, both come up, after few attempts.
 *
 * check: liveness
 * variants: RESTART
 * faults: TAKE_ANY_ANSWER NO_ANSWER NEWER_IGNORED RESTART,OLD_LIFE_TAKEN
 */
#define WILD 1	   /* attempts of each end while things go wrong */
#define ATTEMPTS 6 /* that must suffice */

mtype = { DOWN, OFFERED, UP, QUIET };

/* to end 0 and 1: attempt, answered, joined; incarnations: of the sender, of whom it is meant for */
chan net[2] = [2] of { byte, byte, byte, bit, bit };
mtype is[2] = DOWN;
byte attempt[2], peer_attempt[2], burnt[2];
byte saved[6];		  /* the newest offer that came meanwhile: [n], answered [n + 2], joined [n + 4] */
bit confirmed[2], calm;
bit life[2], knows[2]; /* incarnation; of the other end, as far as known */
bit last; /* ghost: whose turn it was to offer again */
byte took[14];		  /* ghost: what attempt of the peer attempt a of end n took up: [n + 2 * a] */

#ifdef OLD_LIFE_TAKEN
#define fits(n, from, meant) 1
#else
#define fits(n, from, meant) (meant == life[n] && from >= knows[n])
#endif

#define waits(n) (is[n] == OFFERED || (is[n] == UP && !confirmed[n]))

ltl up { [] (calm -> <> (confirmed[0] && confirmed[1])) }

#define name(n, a) (a + 8 * life[n]) /* of an attempt */

inline send(n, a)
{
	if
	:: nfull(net[1 - n]) -> net[1 - n] ! attempt[n], a, peer_attempt[n], life[n], knows[n]
	:: full(net[1 - n]) -> /* the oldest is lost */
		net[1 - n] ? _, _, _, _, _;
		net[1 - n] ! attempt[n], a, peer_attempt[n], life[n], knows[n]
	fi
}

inline confirm(n)
{
	if
	:: is[n] == UP -> confirmed[n] = 1; assert(knows[n] != life[1 - n] || took[1 - n + 2 * peer_attempt[n]] == name(n, attempt[n]))
	:: else
	fi
}

inline build(n)
{
	attempt[n]++;
	assert(attempt[n] <= ATTEMPTS);
	peer_attempt[n] = 0;
	confirmed[n] = 0;
	is[n] = OFFERED
}

inline fail(n)
{
	is[n] = QUIET;
	confirmed[n] = 0
}

inline save(n, a, answered, joined)
{
	saved[n] = a; saved[n + 2] = answered; saved[n + 4] = joined
}

inline take(n, a, answered, joined)
{
	peer_attempt[n] = a;
	burnt[n] = a;
	assert(!took[n + 2 * attempt[n]]);
	took[n + 2 * attempt[n]] = name(1 - n, a);
	is[n] = UP;
	send(n, a);
	if
	:: answered == attempt[n] || joined == attempt[n] -> confirm(n)
	:: else
	fi
}

#ifdef TAKE_ANY_ANSWER
#define fresh(n, a, answered, joined) (answered || a > burnt[n])
#else
#define fresh(n, a, answered, joined)                                                              \
	(!(joined && joined != attempt[n]) && (answered -> answered == attempt[n] : a > burnt[n]))
#endif

inline input(n, a, answered, joined)
{
	if
	:: is[n] == DOWN ->
		build(n);
		if
		:: !answered && !joined && a > burnt[n] -> take(n, a, answered, joined)
		:: else -> send(n, 0)
		fi
	:: is[n] == OFFERED ->
		if
		:: fresh(n, a, answered, joined) -> take(n, a, answered, joined)
		:: else
		fi
	:: is[n] == UP && a == peer_attempt[n] ->
		if
		:: answered == attempt[n] || joined == attempt[n] -> confirm(n)
		:: else
		fi;
#ifndef NO_ANSWER
		if
		:: !answered -> send(n, peer_attempt[n])
		:: else
		fi
#endif
	:: is[n] == UP && a > peer_attempt[n] ->
#ifndef NEWER_IGNORED
		save(n, a, answered, joined);
		fail(n)
#endif
	:: is[n] == UP && a < peer_attempt[n] -> skip
	:: is[n] == QUIET ->
		if
		:: a > saved[n] -> save(n, a, answered, joined)
		:: else
		fi
	fi
}

/* The other end's first incarnation is gone, and the links with it. */
inline learn(n)
{
	knows[n] = 1;
	burnt[n] = 0;
	save(n, 0, 0, 0);
	if
	:: is[n] == OFFERED || is[n] == UP -> fail(n)
	:: else
	fi
}

inline restart()
{
	life[1] = 1;
	is[1] = DOWN;
	attempt[1] = 0; peer_attempt[1] = 0; burnt[1] = 0; confirmed[1] = 0;
	save(1, 0, 0, 0);
	took[1 + 2 * 1] = 0; took[1 + 2 * 2] = 0; took[1 + 2 * 3] = 0
}

proctype end_of_link(bit n)
{
	byte a, answered, joined;
	bit from, meant;

	do
#ifndef RESTART /* which is enough trouble */
	:: atomic { !calm && (is[n] == OFFERED || is[n] == UP) -> fail(n) }
#endif
	:: atomic { is[n] == QUIET ->
		is[n] = DOWN;
		a = saved[n]; answered = saved[n + 2]; joined = saved[n + 4];
		save(n, 0, 0, 0);
		if
		:: a && (calm || attempt[n] < WILD) -> input(n, a, answered, joined)
		:: else
		fi;
		a = 0; answered = 0; joined = 0
	   }
	/* QUIET lasts less than it takes to offer again */
	:: atomic { (calm -> is[n] != QUIET : is[n] != DOWN || attempt[n] < WILD) && nempty(net[n]) ->
		net[n] ? a, answered, joined, from, meant;
		if
		:: fits(n, from, meant) ->
			if
			:: from > knows[n] -> learn(n)
			:: else
			fi;
			input(n, a, answered, joined)
		:: else
		fi;
		a = 0; answered = 0; joined = 0; from = 0; meant = 0
	   }
	/* control says it */
	:: atomic { knows[n] != life[1 - n] -> learn(n) }
	od
}

/* What an end does by itself: offers, and offers again after a time in which all that is under way arrives. */
proctype timer(bit n)
{
	do
	:: atomic { is[n] == DOWN && !saved[n] && (calm || attempt[n] < WILD) -> build(n); send(n, 0) }
	:: atomic { waits(n) && (!calm || (empty(net[0]) && empty(net[1]) && (last != n || !waits(1 - n)))) -> send(n, 0); last = n }
	od
}

/* Loses, doubles and reorders, until it is calm. */
active proctype wire()
{
	byte a, answered, joined;
	bit from, meant;

	do
	:: atomic { !calm && nempty(net[0]) -> net[0] ? a, answered, joined, from, meant }
	:: atomic { !calm && nempty(net[1]) -> net[1] ? a, answered, joined, from, meant }
	:: atomic { !calm && len(net[0]) == 1 -> net[0] ? <a, answered, joined, from, meant>; net[0] ! a, answered, joined, from, meant }
	:: atomic { !calm && len(net[1]) == 1 -> net[1] ? <a, answered, joined, from, meant>; net[1] ! a, answered, joined, from, meant }
	:: atomic { !calm && len(net[0]) == 2 -> net[0] ? a, answered, joined, from, meant; net[0] ! a, answered, joined, from, meant }
	:: atomic { !calm && len(net[1]) == 2 -> net[1] ? a, answered, joined, from, meant; net[1] ! a, answered, joined, from, meant }
#ifdef RESTART
	:: atomic { !calm && !life[1] -> restart() }
#endif
	:: calm = 1; break
	od
}

init
{
	atomic {
		run end_of_link(0);
		run end_of_link(1);
		run timer(0);
		run timer(1)
	}
}
