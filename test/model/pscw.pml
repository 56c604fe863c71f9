/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Post, start, complete and wait of windows (lib/window/pscw.c): three members, each of which
 * exposes its part to others and accesses theirs, round after round. Post and complete are notices,
 * found by their source and kind; a complete repeats the number of the exposure that its post told.
 * Between members of a host (WORDS: of all; MIXED: of two) they are words, which keep the number of
 * the last exposure: a start waits for another number than that of the last one. Puts may go by
 * another connection than notices (shared windows, updates by the engine): complete flushes them
 * first.
 *
 * Never: a start that passes without the post of this exposure; a put that is executed outside of
 * an exposure to its origin; a wait that ends before all puts of its exposure are executed, or that
 * counts the complete of another one; members that wait for ever (an invalid end state).
 *
 * variants: ALL ROUNDS=3 WORDS WORDS,ALL WORDS,ROUNDS=3 MIXED,ALL
 * faults: UNFLUSHED TWICE ALL,UNCOUNTED WORDS,UNFLUSHED WORDS,TWICE WORDS,FORMER
 */
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define N 3

#define line(from, to) ((from) * N + (to))
#ifdef ALL /* each exposes its part to both others */
#define exposes(i, j) ((i) != (j))
#else /* to the next one */
#define exposes(i, j) ((j) == ((i) + 1) % N)
#endif
#ifdef WORDS
#define by_words(i, j) true
#elif defined(MIXED)
#define by_words(i, j) ((i) != 2 && (j) != 2)
#else
#define by_words(i, j) false
#endif

chan put[N * N] = [1] of { byte };	/* under way from a member to another one: its round */
chan post[N * N] = [2] of { byte };	/* notices that wait at their target: the exposure's number */
chan complete[N * N] = [2] of { byte }; /* the same */
byte posted[N * N], completed[N * N];	/* words: the last number, or 0 */
byte exposure[N];			/* number of the open one; 0: none */
byte executed[N * N], started[N * N];	/* puts; rounds */

/* r: the exposure that the origin has started. */
#define execute(i, j)                                                                              \
	atomic {                                                                                   \
		put[line(i, j)] ? r;                                                               \
		assert(exposure[j] == r);                                                          \
		executed[line(i, j)]++;                                                            \
		r = 0                                                                              \
	}

/* Engines execute what is under way, at any time. */
active proctype engines()
{
	byte r = 0;

end:
	do
	:: execute(0, 1)
	:: execute(0, 2)
	:: execute(1, 0)
	:: execute(1, 2)
	:: execute(2, 0)
	:: execute(2, 1)
	od
}

inline do_post(i)
{
	exposure[i] = round;
	k = 0;
	do
	:: k == N -> break
	:: k < N && exposes(i, k) ->
		if
		:: by_words(i, k) -> posted[line(i, k)] = round
		:: else -> post[line(i, k)] ! round
		fi;
		k++
	:: k < N && !exposes(i, k) -> k++
	od
}

/* A start takes a word: with TWICE, also the one that it took last. */
#ifdef TWICE
#define is_new(i, k) (posted[line(k, i)] != 0)
#else
#define is_new(i, k) (posted[line(k, i)] != started[line(i, k)])
#endif
/* A word ends a wait: with FORMER, also that of an earlier exposure. */
#ifdef FORMER
#define is_complete(i, k) (completed[line(k, i)] != 0)
#else
#define is_complete(i, k) (completed[line(k, i)] == round)
#endif

inline do_start(i)
{
	k = 0;
	do
	:: k == N -> break
	:: k < N && exposes(k, i) ->
		if
		:: by_words(k, i) ->
			is_new(i, k);
			number = posted[line(k, i)]
		:: !by_words(k, i) ->
#ifdef TWICE
			if
			:: post[line(k, i)] ? number
			:: started[line(i, k)] -> number = started[line(i, k)] + 1
			fi
#else
			post[line(k, i)] ? number
#endif
		fi;
		assert(number == started[line(i, k)] + 1 && exposure[k] == number);
		started[line(i, k)] = number;
		put[line(i, k)] ! number;
		k++
	:: k < N && !exposes(k, i) -> k++
	od
}

inline do_complete(i)
{
	k = 0;
	do
	:: k == N -> break
	:: k < N && exposes(k, i) ->
#ifndef UNFLUSHED
		executed[line(i, k)] == round;
#endif
		if
		:: by_words(i, k) -> completed[line(i, k)] = started[line(i, k)]
		:: else -> complete[line(i, k)] ! started[line(i, k)]
		fi;
		k++
	:: k < N && !exposes(k, i) -> k++
	od
}

inline do_wait(i)
{
	k = 0;
	do
	:: k == N -> break
	:: k < N && exposes(i, k) ->
#ifdef UNCOUNTED
		/* the first complete of anybody counts for all */
		if
		:: complete[line((i + 1) % N, i)] ? number
		:: complete[line((i + 2) % N, i)] ? number
		fi;
		k = N - 1;
#else
		if
		:: by_words(k, i) ->
			is_complete(i, k);
			number = round
		:: !by_words(k, i) -> complete[line(k, i)] ? number
		fi;
#endif
		assert(number == round);
		k++
	:: k < N && !exposes(i, k) -> k++
	od;
	k = 0;
	do
	:: k == N -> break
	:: k < N && exposes(i, k) -> assert(executed[line(k, i)] == round); k++
	:: k < N && !exposes(i, k) -> k++
	od;
	exposure[i] = 0;
	number = 0;
	k = 0
}

proctype member(byte i)
{
	byte round = 1, k = 0, number = 0;

	do
	:: round > ROUNDS -> break
	:: round <= ROUNDS ->
		do_post(i);
		do_start(i);
		do_complete(i);
		do_wait(i);
		round++
	od
}

init
{
	atomic {
		run member(0);
		run member(1);
		run member(2)
	}
}
