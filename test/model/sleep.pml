/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleep and wake (docs/shared-memory.md): one publishes and rings; the other looks, says that it
 * sleeps, looks again, and sleeps. Stores wait in their processor's buffer and get to memory some
 * time later, as on x86. A sleeper that nobody wakes is an invalid end state.
 *
 * variants: MEMBARRIER
 * faults: NO_FENCE_SLEEPER NO_FENCE_PRODUCER NO_SECOND_LOOK
 * faults: MEMBARRIER,NO_FENCE_SLEEPER MEMBARRIER,NO_SECOND_LOOK
 */
#define MESSAGES 4

byte tail;     /* memory: published ever; written by the producer */
byte sleeping; /* memory; written by the sleeper */
bit bell;      /* the doorbell's socket: a full one is as good as a rung one */

chan tails = [2] of { byte };  /* the producer's store buffer */
chan sleeps = [2] of { byte }; /* the sleeper's */

active proctype buffers()
{
end:
	do
	:: tails ? tail
	:: sleeps ? sleeping
	od
}

inline fence_producer()
{
#if !defined(MEMBARRIER) && !defined(NO_FENCE_PRODUCER)
	empty(tails)
#else
	skip /* a compiler barrier */
#endif
}

inline fence_sleeper()
{
#if defined(NO_FENCE_SLEEPER)
	skip
#elif defined(MEMBARRIER)
	empty(sleeps) && empty(tails)
#else
	empty(sleeps)
#endif
}

active proctype producer()
{
	byte made, asleep;

	do
	:: made < MESSAGES ->
		made++;
		tails ! made;
		if /* one fence a batch */
		:: made < MESSAGES -> made++; tails ! made
		:: skip
		fi;
		fence_producer();
		asleep = sleeping;
		if
		:: asleep -> bell = 1
		:: else
		fi
	:: else -> break
	od
}

active proctype sleeper()
{
	byte taken, seen;

	do
	:: taken == MESSAGES -> break
	:: else ->
		seen = tail;
		if
		:: seen != taken -> taken = seen
		:: else ->
			sleeps ! 1;
			fence_sleeper();
#ifndef NO_SECOND_LOOK
			seen = tail;
#endif
			if
			:: seen != taken -> taken = seen
			:: else -> atomic { bell == 1; bell = 0 }
			fi;
			sleeps ! 0
		fi
	od
}
