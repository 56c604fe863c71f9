/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lock of an export (docs/protocol.md, dataplane/engine/bulk/lock.c): programs that ask for it,
 * give up, unlock and die at any time, the engines of their connections, and the queue in the owner
 * engine. Connection 0 is of the owner engine; the others ask it by way of main, whose answers to a
 * request and to its end may overtake each other.
 *
 * Never: two holders that exclude each other; a holder that is not told that an exclusive one died
 * with the lock; a waiter that nobody serves (an invalid end state).
 *
 * variants: N=3,NEAR=3,ROUNDS=1 N=3,NEAR=2,ROUNDS=1 NEAR=0,ROUNDS=1
 * faults: BOTH STALE FORGETS KEEPS UNTOLD CROSSES EARLY
 */
#ifndef N
#define N 2
#endif
#ifndef ROUNDS
#define ROUNDS 2 /* of each program */
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef NEAR
#define NEAR 1 /* connections of the owner engine */
#endif

mtype = { SHARED, EXCLUSIVE, UNLOCK, UNSEEN, END, GRANTED, DOUBT, CANCELED };
mtype:at = { NONE, WAITS, HELD };

/* from a program to the engine of its connection, and back */
chan cell[N] = [3] of { mtype };
chan locked[N] = [2] of { mtype };

/* of the connections */
mtype:at at[N] = NONE;
mtype wanted[N];
bit ask_due[N], drop_due[N], dropping[N], drop_held[N], drop_dead[N], drop_unseen[N];
byte turn[N]; /* of what main heard last */

/* main: to the owner engine in order; what it says to the other is in no order */
chan ask[N] = [3] of { bit, mtype, byte, bit, bit, bit }; /* a request, or its end */
chan granted[N] = [2] of { byte, mtype };
chan dropped[N] = [2] of { byte };

/* of the owner engine */
chan queue = [2 * N] of { byte, mtype, byte };
byte holders;
bit exclusive, in_doubt, told;

/* as programs see it */
byte in_shared, in_exclusive, deaths, left = N;
bit doubt; /* one died with the lock, and no exclusive holder was told */

/* within one step: 0 between steps, which keeps states equal */
bit held, was_held, dead, unseen, asks;
byte w, t, number;
mtype m, kind, said;

inline clear()
{
	held = 0;
	was_held = 0;
	dead = 0;
	unseen = 0;
	asks = 0;
	w = 0;
	t = 0;
	number = 0;
	m = 0;
	kind = 0;
	said = 0
}

#define near(i) (i < NEAR)
#ifdef BOTH
#define may_enter(kind) (!exclusive)
#else
#define may_enter(kind) (kind == EXCLUSIVE -> !holders : !exclusive)
#endif

/* Lets those enter that may. */
inline serve()
{
	do
	:: queue ? [_, _, _] ->
		queue ? <w, kind, t>;
		if
		:: may_enter(kind) ->
			queue ? w, kind, t;
			holders++;
			exclusive = (kind == EXCLUSIVE);
			said = (in_doubt -> DOUBT : GRANTED);
			if
			:: exclusive -> told = in_doubt; in_doubt = 0
			:: else
			fi;
			if
			:: near(w) -> at[w] = HELD; locked[w] ! said
			:: else -> granted[w] ! t, said
			fi
		:: else -> break
		fi
	:: else -> break
	od
}

inline release(died, blind)
{
	assert(holders);
	if
	:: exclusive -> in_doubt = (died || (blind && told))
	:: else
	fi;
	exclusive = 0;
	holders--;
	serve()
}

/* The request of connection i is over. */
inline drop(i, died, blind)
{
	held = (at[i] == HELD);
	at[i] = NONE;
	if
	:: near(i) && held ->
		release(died, blind)
	:: near(i) && !held ->
#ifdef FORGETS
		if
		:: died
		:: else -> queue ?? eval(i), kind, t; serve()
		fi
#else
		queue ?? eval(i), kind, t;
		serve()
#endif
	:: !near(i) && ask_due[i] -> ask_due[i] = 0
	:: else ->
		drop_due[i] = 1;
		drop_held[i] = held;
		drop_dead[i] = died;
		drop_unseen[i] = blind || !held
	fi
}

proctype program(byte i)
{
	bit begun, silent, inside;
	byte rounds = ROUNDS;
	mtype my, answer;

	do
	:: atomic { rounds && !begun && !silent ->
		rounds--;
		begun = 1;
		silent = 1;
		if
		:: my = SHARED
		:: my = EXCLUSIVE
		fi;
		cell[i] ! my }
	:: atomic { nempty(locked[i]) ->
		locked[i] ? answer;
		silent = 0;
		if
		:: begun ->
			assert(answer != CANCELED);
			assert(!in_exclusive && (my == SHARED || !in_shared));
			assert(!doubt || answer == DOUBT);
			inside = 1;
			if
			:: my == SHARED -> in_shared++
			:: else -> in_exclusive++; doubt = 0
			fi
		:: else
		fi;
		answer = 0 }
	:: atomic { begun && !inside -> /* gives up */
		cell[i] ! UNSEEN;
		begun = 0 }
	:: atomic { inside ->
		inside = 0;
		begun = 0;
		if
		:: my == SHARED -> in_shared--
		:: else -> in_exclusive--
		fi;
		cell[i] ! UNLOCK }
	:: atomic { deaths < DEATHS ->
		deaths++;
		if
		:: inside && my == SHARED -> in_shared--
		:: inside && my == EXCLUSIVE -> in_exclusive--; doubt = 1
		:: else
		fi;
		break }
	:: !rounds && !begun && !silent -> break
	od;
	cell[i] ! END;
	left--
}

/* The engine of connection i. */
proctype connection(byte i)
{
	bit over;

	do
	:: atomic { nempty(cell[i]) ->
		cell[i] ? m;
		if
		:: m == UNLOCK || m == UNSEEN ->
			assert(at[i] != NONE);
			if
			:: at[i] == WAITS -> drop(i, 0, m == UNSEEN); locked[i] ! CANCELED
			:: else ->
#ifdef CROSSES
				if
				:: m == UNSEEN -> at[i] = NONE
				:: else -> drop(i, 0, 0)
				fi
#elif defined(UNTOLD)
				drop(i, 0, 0)
#else
				drop(i, 0, m == UNSEEN)
#endif
			fi
		:: m == END ->
			over = 1;
			if
#ifdef KEEPS
			:: at[i] == WAITS -> drop(i, 1, 0)
#else
			:: at[i] != NONE -> drop(i, 1, 0)
#endif
			:: else
			fi
		:: else ->
			assert(at[i] == NONE);
			at[i] = WAITS;
			if
			:: near(i) -> queue ! i, m, 0; serve()
			:: else -> wanted[i] = m; ask_due[i] = 1
			fi
		fi;
		clear() }
	/* what main must hear of */
	:: atomic { drop_due[i] && nfull(ask[i]) ->
		drop_due[i] = 0;
		dropping[i] = 1;
		ask[i] ! 0, SHARED, turn[i], drop_held[i], drop_dead[i], drop_unseen[i] }
#ifdef EARLY
	:: atomic { ask_due[i] && nfull(ask[i]) ->
#else
	:: atomic { ask_due[i] && !drop_due[i] && !dropping[i] && nfull(ask[i]) ->
#endif
		ask_due[i] = 0;
		turn[i]++;
		ask[i] ! 1, wanted[i], turn[i], 0, 0, 0 }
	/* what main says */
	:: atomic { nempty(granted[i]) ->
		granted[i] ? t, said;
		if
#ifdef STALE
		:: at[i] == WAITS ->
#else
		:: t == turn[i] && at[i] == WAITS && !ask_due[i] ->
#endif
			at[i] = HELD;
			locked[i] ! said
		:: else
		fi;
		clear() }
	:: atomic { nempty(dropped[i]) ->
		dropped[i] ? t;
		if
		:: t == turn[i] -> dropping[i] = 0
		:: else
		fi;
		clear() }
	/* the owner engine takes a command */
	:: atomic { nempty(ask[i]) ->
		ask[i] ? asks, m, t, was_held, dead, unseen;
		if
		:: asks -> queue ! i, m, t; serve()
		:: else ->
			number = t;
			if
			:: !was_held && queue ?? [eval(i), _, eval(number)] ->
				queue ?? eval(i), kind, eval(number);
				serve()
			:: else -> release(dead, unseen)
			fi;
			dropped[i] ! number
		fi;
		clear() }
	:: atomic { !left && over && empty(cell[i]) && empty(ask[i]) && empty(granted[i]) &&
		    empty(dropped[i]) && !drop_due[i] -> break }
	od
}

init
{
	byte i;

	atomic {
		for (i : 0 .. N - 1) {
			run program(i);
			run connection(i)
		}
	}
	_nr_pr == 1;
	assert(!holders && empty(queue))
}
