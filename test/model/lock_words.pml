/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lock that programs of a host take by words (lib/ipc/lock_words.h) and others by the queue of
 * the owner engine (dataplane/engine/bulk/lock.c; lock.pml has what else the queue does). Programs
 * below MEMBERS have words; the others ask the engine alone. Each access to a word is one step. One
 * program may die anywhere; the engine hears of it later. A grant without doubt to a
 * program with words is written there by the engine, and left there by the program. One program
 * may take its request back, which the engine may have granted meanwhile; until the engine has
 * heard of it, the program does not use its words.
 *
 * Never: two holders that exclude each other; a holder that is not told that an exclusive one died
 * with the lock; a program that waits for ever (an invalid end state).
 *
 * variants: N=3,MEMBERS=2,ROUNDS=1 N=2,MEMBERS=2,ROUNDS=2 N=3,MEMBERS=3,ROUNDS=1
 * faults: READERS LATE FENCE FORGETS SUCCESSOR UNTOLD OPENS UNWRITTEN SILENT EARLY,N=2,ROUNDS=2 KEPT,N=2,ROUNDS=2
 */
#ifndef N
#define N 3
#endif
#ifndef MEMBERS
#define MEMBERS 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef WITHDRAWALS
#define WITHDRAWALS 1
#endif

mtype = { SHARED, EXCLUSIVE, LOCK, UNLOCK, TAKEN, END, GRANTED, DOUBT, CANCELED };

/* words; owner: number + 1 */
byte owner;
bit closed, word_doubt, shared[MEMBERS];
#if MEMBERS > 2
#define readers (shared[0] || shared[1] || shared[2])
#else
#define readers (shared[0] || shared[1])
#endif

/* to the engine, and back */
chan cell[N] = [2] of { mtype, mtype };
chan granted[N] = [1] of { mtype };

/* of the engine */
chan queue = [N] of { byte, mtype };
byte holders;
bit exclusive, in_doubt, told;
bit holds[N], waits[N];

/* as programs see it */
byte in_shared, in_exclusive, deaths, withdrawals;
bit withdrawn[N]; /* the engine has not heard of it */
bit doubt; /* one died with the lock, and no exclusive holder was told */

inline enter(kind, answer)
{
	assert(!in_exclusive && (kind == SHARED || !in_shared));
	assert(!doubt || answer == DOUBT);
	if
	:: kind == SHARED -> in_shared++
	:: else -> in_exclusive++; doubt = 0
	fi
}

inline leave(kind, died)
{
	if
	:: kind == SHARED -> in_shared--
	:: else -> in_exclusive--; doubt = died
	fi
}

/* A program may die before each of its steps. */
#define mortal :: atomic { deaths < DEATHS -> deaths++; goto dead }

proctype program(byte i)
{
	byte rounds = ROUNDS, j;
	mtype my, answer;
	bit inside, by_words;

again:
	if
	:: !rounds -> goto end
	:: rounds -> rounds--
	fi;
	if
	:: my = SHARED
	:: my = EXCLUSIVE
	fi;
	if
#ifdef EARLY
	:: i >= MEMBERS -> goto ask
	:: i < MEMBERS && my == SHARED -> goto by_entry
	:: i < MEMBERS && my == EXCLUSIVE -> skip
#else
	:: i >= MEMBERS || withdrawn[i] -> goto ask
	:: i < MEMBERS && !withdrawn[i] && my == SHARED -> goto by_entry
	:: i < MEMBERS && !withdrawn[i] && my == EXCLUSIVE -> skip
#endif
	fi;

	/* alone */
	if
	:: atomic { !owner && !closed && !word_doubt -> owner = i + 1 }
	:: atomic { owner || closed || word_doubt -> goto ask }
	mortal
	fi;
#ifndef READERS
	j = 0;
	do
	:: atomic { j < MEMBERS && !shared[j] -> j++ }
	:: atomic { j < MEMBERS && shared[j] -> break }
	:: j == MEMBERS -> break
	mortal
	od;
	if
	:: j < MEMBERS -> atomic { owner = 0; j = 0; goto ask }
	:: j == MEMBERS -> skip
	mortal
	fi;
#endif
	atomic { j = 0; enter(my, GRANTED); inside = 1 };
	if
	:: atomic { true -> leave(my, 0); inside = 0; owner = 0 }
	mortal
	fi;
	goto again;

by_entry:
#ifdef FENCE
	if
	:: atomic { !owner && !closed && !word_doubt -> skip }
	:: atomic { owner || closed || word_doubt -> goto ask }
	fi;
	shared[i] = 1;
#else
	shared[i] = 1;
	if
	:: atomic { !owner && !closed && !word_doubt -> skip }
	:: atomic { owner || closed || word_doubt -> shared[i] = 0; goto ask }
	mortal
	fi;
#endif
	atomic { enter(my, GRANTED); inside = 1 };
	if
	:: atomic { true -> leave(my, 0); inside = 0; shared[i] = 0 }
	mortal
	fi;
	goto again;

ask:
	cell[i] ! LOCK, my;
	if
	:: atomic { granted[i] ? answer ->
		by_words = (i < MEMBERS && answer == GRANTED);
		enter(my, answer);
		inside = 1;
		answer = 0 }
	:: atomic { withdrawals < WITHDRAWALS && empty(granted[i]) ->
		withdrawals++;
		withdrawn[i] = 1;
		cell[i] ! TAKEN, my;
		goto taken_back }
	mortal
	fi;
	if
	:: atomic { !by_words -> leave(my, 0); inside = 0; cell[i] ! UNLOCK, my }
	:: atomic { by_words && my == EXCLUSIVE -> leave(my, 0); inside = 0; owner = 0 }
	:: atomic { by_words && my == SHARED -> leave(my, 0); inside = 0; shared[i] = 0 }
	mortal
	fi;
	goto again;

taken_back:
	/* granted or not */
	if
	:: granted[i] ? _ -> goto again
	mortal
	fi;

dead:
	atomic {
		if
		:: inside -> leave(my, (my == EXCLUSIVE))
		:: else
		fi
	}
end:
	cell[i] ! END, SHARED
}

proctype engine()
{
	byte i, j, w, gone;
	mtype m, kind;
	bit free;

again:
	if
	:: atomic { nempty(cell[0]) -> i = 0; cell[0] ? m, kind }
	:: atomic { nempty(cell[1]) -> i = 1; cell[1] ? m, kind }
#if N > 2
	:: atomic { nempty(cell[2]) -> i = 2; cell[2] ? m, kind }
#endif
	/* a turn looks at the words that the first waiter awaits, and finds them free */
	:: queue ? [_, SHARED] && !exclusive && !owner -> goto serve
	:: queue ? [_, EXCLUSIVE] && !holders && !owner && !readers -> goto serve
	:: gone == N -> goto done
	fi;
	atomic {
		if
		:: m == LOCK -> queue ! i, kind; waits[i] = 1
		:: m == UNLOCK -> holds[i] = 0; holders--; exclusive = 0
		:: m == TAKEN ->
			withdrawn[i] = 0;
			if
			:: waits[i] ->
				waits[i] = 0;
				queue ?? eval(i), kind;
				granted[i] ! CANCELED
			:: holds[i] ->
				holds[i] = 0;
#ifndef SILENT
				in_doubt = (exclusive -> told : in_doubt);
#endif
				exclusive = 0;
				holders--
			:: !waits[i] && !holds[i] ->
#ifndef KEPT
				shared[i] = 0;
				if
				:: owner == i + 1 -> owner = 0
				:: else
				fi
#else
				skip
#endif
			fi
		:: m == END ->
			gone++;
			if
			:: holds[i] ->
				holds[i] = 0;
				in_doubt = exclusive;
				exclusive = 0;
				holders--
			:: !holds[i] && waits[i] ->
#ifndef FORGETS
				waits[i] = 0;
				queue ?? eval(i), kind
#endif
			:: else
			fi;
			if
			:: i < MEMBERS ->
				shared[i] = 0;
				if
#ifdef SUCCESSOR
				:: owner ->
#else
				:: owner == i + 1 ->
#endif
					owner = 0;
					closed = 1;
#ifndef UNTOLD
					word_doubt = 1
#endif
				:: else
				fi
			:: else
			fi
		fi;
		m = 0
	}
serve:
	do
	:: empty(queue) ->
		atomic {
#ifdef OPENS
			closed = 0;
#else
			if
			:: !holders && !in_doubt -> closed = 0
			:: else
			fi;
#endif
			break
		}
	:: nempty(queue) ->
		queue ? <w, kind>;
		if
		:: (kind == EXCLUSIVE && holders) || (kind == SHARED && exclusive) -> break
		:: else
		fi;
#ifndef LATE
		atomic {
			closed = 1;
			in_doubt = in_doubt || word_doubt;
			word_doubt = 0;
			free = (owner == 0)
		};
#else
		atomic {
			in_doubt = in_doubt || word_doubt;
			word_doubt = 0;
			free = (owner == 0)
		};
#endif
		j = 0;
		do
		:: atomic { kind == EXCLUSIVE && j < MEMBERS -> free = free && !shared[j]; j++ }
		:: kind == SHARED || j == MEMBERS -> break
		od;
		j = 0;
#ifdef LATE
		closed = 1;
#endif
		if
		:: !free -> break
		:: free ->
			atomic {
				queue ? w, kind;
				waits[w] = 0;
				if
				:: w < MEMBERS && !in_doubt ->
					/* by its words */
#ifndef UNWRITTEN
					if
					:: kind == EXCLUSIVE -> owner = w + 1
					:: else -> shared[w] = 1
					fi;
#endif
					granted[w] ! GRANTED
				:: else ->
					holds[w] = 1;
					holders++;
					exclusive = (kind == EXCLUSIVE);
					told = exclusive && in_doubt;
					if
					:: in_doubt -> granted[w] ! DOUBT
					:: else -> granted[w] ! GRANTED
					fi;
					in_doubt = in_doubt && !exclusive
				fi
			}
		fi
	od;
	atomic { w = 0; kind = 0; free = 0; i = 0 };
	goto again;
done:
	skip
}

init
{
	byte i;

	atomic {
		run engine();
		for (i : 0 .. N - 1) {
			run program(i)
		}
	}
	_nr_pr == 1;
	assert(!holders && empty(queue))
}
