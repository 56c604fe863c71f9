/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One map task of a STAGE (docs/decisions.md 180 and 183; lib/shuffle/commit.c, move.c, store.c):
 * two producers attempt it, two processes own partitions. Process 0 also selects attempts, and
 * moves a partition while they run. A producer dies at any step. Partition 0 is process 0's,
 * partition 1 is process 1's, partition 2 moves between them.
 *
 * Never: an owner that is told of a winner without its blocks and counts; records in a partition
 * twice, or with an owner that has lost it; a selected task of which a partition has no records.
 *
 * variants: MOVES=0 MOVES=2,ATTEMPTS=1 FIRST=1
 * faults: EARLY TWO_WINNERS LATE_COUNTS STALE UNHEARD FORGETS OLD_WORD TWICE
 */
#ifndef MOVES
#define MOVES 1
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2 /* of each producer */
#endif
#ifndef FIRST
#define FIRST 0 /* owner of partition 2 */
#endif
#define ALL (2 * ATTEMPTS)
#define NONE 255

mtype = { WON, MOVED, AGAIN };

/* of each producer to each owner, and to different threads there: attempt, epoch, and partition or
 * bits of all */
chan blocks[4] = [3] of { byte, byte, byte };
chan counts[4] = [1] of { byte, byte, byte };
/* of process 0 to 1 and to the producers, in order: what, attempt or owner, epoch */
chan line[4] = [4 * MOVES + 2] of { mtype, byte, byte };

/* what a process has heard: 0 and 1, 2 and 3 the producers */
byte epoch[4], moved[4], owner[4];

/* what process 0's thread 0 decides by */
byte selected = NONE, least, moves = MOVES;

/* the store of each owner */
byte winner[2] = NONE, since[2];
bit was[2], lacks[2];
byte got[2 * ALL], said[2 * ALL], born[2 * ALL]; /* by attempt: partitions, epoch */
bit counted[2 * ALL];
byte records[3], records2[2]; /* partition 2: at each owner */

byte taken[ALL], told[ALL]; /* blocks and counts that have arrived */

#ifdef UNHEARD
#define unheard(o, e) false
#else
#define unheard(o, e) (e > epoch[o])
#endif
#define is_late(o, e)                                                                              \
	(e < since[o] || e < moved[o] ||                                                           \
	 ((winner[o] != NONE || (was[o] && !lacks[o])) && !unheard(o, e)))

/* Attempts of epochs before that. */
inline forget(o, before)
{
	i = 0;
	do
	:: i < ALL ->
		if
		:: born[o * ALL + i] < before -> got[o * ALL + i] = 0; counted[o * ALL + i] = 0
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline publish(o, a, p)
{
	if
	:: !(got[o * ALL + a] & (1 << p))
#ifndef TWICE
	:: (got[o * ALL + a] & (1 << p)) && was[o] && !(lacks[o] && p == 2)
#endif
	:: else ->
		if
		:: p == 2 -> assert(owner[o] == o); records2[o]++; assert(records2[o] == 1)
		:: else -> records[p]++; assert(records[p] == 1)
		fi
	fi
}

/* As select_attempt(). */
inline elect(o, a)
{
	if
	:: winner[o] != NONE
	:: else ->
		winner[o] = a;
		if
		:: was[o] && !lacks[o]
		:: else ->
			assert(counted[o * ALL + a] && got[o * ALL + a] == said[o * ALL + a]);
			publish(o, a, 0);
			publish(o, a, 1);
			publish(o, a, 2);
			lacks[o] = 0;
			was[o] = 1
		fi;
#ifdef OLD_WORD
		forget(o, NONE)
#else
		forget(o, epoch[o] + 1)
#endif
	fi
}

/* The word is heard by process n. */
inline hear_moved(n, to, e)
{
	moved[n] = e;
	if
	:: n < 2 ->
		records2[n] = 0;
		lacks[n] = (to == n -> was[n] : 0)
	:: else
	fi;
	owner[n] = to;
	epoch[n] = e
}

inline hear_again(n, e)
{
	if
	:: n < 2 ->
		winner[n] = NONE;
		since[n] = e;
#ifdef FORGETS
		forget(n, NONE)
#else
		forget(n, e)
#endif
	:: else
	fi;
	epoch[n] = e
}

inline tell(what, x, e)
{
	line[1] ! what, x, e;
	line[2] ! what, x, e;
	line[3] ! what, x, e
}

/* Process 0's thread 0, which runs functions one by one. */
proctype decider()
{
	byte i;

	do
	:: atomic { moves ->
		moves--;
		hear_moved(0, 1 - owner[0], epoch[0] + 1);
		tell(MOVED, owner[0], epoch[0]);
		least = epoch[0];
		if
		:: selected != NONE ->
			hear_again(0, epoch[0] + 1);
			tell(AGAIN, 0, epoch[0]);
			selected = NONE;
			least = epoch[0]
		:: else
		fi }
	:: !moves -> break
	od
}

/* Thread 0 of another process. */
proctype listener(byte n)
{
	byte x, e, i;

end:
	do
	:: atomic { line[n] ? MOVED, x, e -> hear_moved(n, x, e) }
	:: atomic { line[n] ? AGAIN, x, e -> hear_again(n, e) }
	:: atomic { line[n] ? WON, x, e ->
		if
		:: n == 1 -> elect(1, x)
		:: else
		fi }
	od
}

/* Threads that take blocks and counts of a producer. */
proctype taker(byte o, producer)
{
	byte a, e, x;

end:
	do
	:: atomic { blocks[2 * producer + o] ? a, e, x ->
		if
		:: is_late(o, e)
		:: else ->
			born[o * ALL + a] = e;
			got[o * ALL + a] = got[o * ALL + a] | (1 << x)
		fi;
		taken[a]++ }
	:: atomic { counts[2 * producer + o] ? a, e, x ->
		if
		:: is_late(o, e)
		:: else ->
			born[o * ALL + a] = e;
			said[o * ALL + a] = x;
			counted[o * ALL + a] = 1
		fi;
		told[a]++ }
	od
}

#define to_owner(p) (p == 2 -> owner[2 + me] : p)

inline push(p)
{
	atomic {
		x = to_owner(p);
		sent[x] = sent[x] | (1 << p);
		blocks[2 * me + x] ! a, e, p
	}
}

inline count()
{
	counts[2 * me] ! a, e, sent[0];
	counts[2 * me + 1] ! a, e, sent[1];
	told[a] == 2
}

/* The answer of process 0, in `x`. */
inline ask()
{
	atomic {
		if
#ifdef TWO_WINNERS
		:: true ->
#elif defined(STALE)
		:: selected == NONE ->
#else
		:: selected == NONE && e >= least ->
#endif
			selected = a;
			elect(0, a);
			line[1] ! WON, a, 0
		:: else
		fi;
		x = selected
	}
}

proctype producer(byte me)
{
	byte a = me * ATTEMPTS, e, x, i, sent[2];

	do
	:: a == (me + 1) * ATTEMPTS -> break
	:: else ->
		e = epoch[2 + me];
		atomic { sent[0] = 0; sent[1] = 0 };
		push(0);
		push(1);
		push(2);
#ifndef EARLY
		taken[a] == 3;
#endif
#ifdef LATE_COUNTS
		ask();
		count();
#else
		count();
		ask();
#endif
		if
		:: x == NONE -> epoch[2 + me] >= least; a++
		:: else -> break
		fi
	od
}

/* A producer that stops anywhere: what it has sent stays under way. */
proctype mortal(byte me)
{
	byte a = me * ATTEMPTS, e, x, i, sent[2];

	e = epoch[2 + me];
	do
	:: push(0); break
	:: goto dead
	od;
	do
	:: push(1); break
	:: goto dead
	od;
	push(2);
	taken[a] == 3;
	do
	:: count(); break
	:: counts[2 * me] ! a, e, sent[0]; goto dead
	od;
	do
	:: ask(); break
	:: goto dead
	od;
dead:
	skip
}

proctype judge()
{
	timeout;
	assert(selected == NONE || (records[0] == 1 && records[1] == 1 && records2[owner[0]] == 1))
}

init
{
	atomic {
		owner[0] = FIRST;
		owner[1] = FIRST;
		owner[2] = FIRST;
		owner[3] = FIRST;
		run decider();
		run listener(1);
		run listener(2);
		run listener(3);
		run taker(0, 0);
		run taker(0, 1);
		run taker(1, 0);
		run taker(1, 1);
		run producer(0);
		run mortal(1);
		run judge()
	}
}
