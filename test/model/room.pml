/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Room in a segment (docs/shared-memory.md): one sends until there is no room, says that it wants to
 * know, looks again and sleeps. The other consumes; it tells some of that in passing, without
 * ringing, and all of it before it sleeps. Another thread of its program consumes too what was
 * taken out of the ring, also while it sleeps, and looks no further. Stores wait in their processor's buffer, as on x86; the two threads
 * hold a lock, whose release empties it.
 *
 * Never: the sender asleep with room that was not told, the consumer with a message for which nobody
 * woke it (an invalid end state).
 *
 * variants: MEMBARRIER
 * faults: NOT_TOLD_AT_REST PASSING_FORGETS NO_LOOK NO_FENCE_WISH NO_RING HELPER_KEEPS
 * faults: MEMBARRIER,NO_FENCE_WISH MEMBARRIER,HELPER_KEEPS
 */
#define MESSAGES 5
#define ROOM 2

byte head;	  /* memory: published; by the sender */
byte tail;	  /* memory: told to be consumed; by the consumer's program */
bit wanted;	  /* memory; by the sender */
bit sleeping;	  /* memory; by the consumer */
bit bell_room;	  /* rings the sender */
bit bell_message; /* rings the consumer */

/* of the consumer's program, under its lock */
byte parked; /* taken out of the ring */
byte consumed;
bit untold, armed, lock;

chan sends = [3] of { byte, byte }; /* the sender's store buffer: which, value */
chan tells = [3] of { byte, byte }; /* that of the consumer's program */
#define HEAD 0
#define WANTED 1
#define TAIL 2
#define SLEEPING 3

active proctype buffers()
{
	byte what, value;
end:
	do
	:: atomic { nempty(sends) -> sends ? what, value;
		if :: what == HEAD -> head = value :: else -> wanted = value fi }
	:: atomic { nempty(tells) -> tells ? what, value;
		if :: what == TAIL -> tail = value :: else -> sleeping = value fi }
	od
}

/* who sleeps issues it; with a membarrier it empties both buffers */
inline fence_sleeper(own)
{
#ifdef NO_FENCE_WISH
	skip
#elif defined(MEMBARRIER)
	empty(sends) && empty(tells)
#else
	empty(own)
#endif
}

inline fence_producer(own)
{
#ifdef MEMBARRIER
	skip
#else
	empty(own)
#endif
}

active proctype sender()
{
	byte sent, seen, asleep;

	do
	:: sent == MESSAGES -> break
	:: sent < MESSAGES && sent - seen < ROOM ->
		sent++;
		sends ! HEAD, sent;
		fence_producer(sends);
		asleep = sleeping;
		if :: asleep -> bell_message = 1 :: else fi
	:: sent < MESSAGES && sent - seen >= ROOM ->
		seen = tail;
		if
		:: sent - seen < ROOM
		:: else ->
			sends ! WANTED, 1;
			fence_sleeper(sends);
#ifndef NO_LOOK
			seen = tail;
#endif
			if
			:: sent - seen < ROOM
			:: else -> atomic { bell_room == 1; bell_room = 0 }
			fi;
			sends ! WANTED, 0
		fi
	od
}

inline tell()
{
	if
	:: untold ->
		untold = 0;
		tells ! TAIL, consumed;
		fence_producer(tells);
		if
#ifndef NO_RING
		:: wanted -> bell_room = 1
#endif
		:: else
		fi
	:: else
	fi
}

/* Takes one message; tells in passing or not. Locked. */
inline take(sleeps)
{
	consumed++;
	untold = 1;
	if
	:: tells ! TAIL, consumed
#ifdef PASSING_FORGETS
		; untold = 0
#endif
	:: skip
	fi;
	if
	:: wanted || sleeps -> tell()
	:: else
	fi
}

#define enter atomic { lock == 0 -> lock = 1 }
#define leave empty(tells); lock = 0

active proctype consumer()
{
	do
	:: enter;
		if
		:: consumed == MESSAGES -> leave; break
		:: consumed < parked -> take(0); leave
		:: head != parked -> parked = head; leave
		:: head == parked && consumed < MESSAGES ->
			armed = 1;
			tells ! SLEEPING, 1;
#ifndef NOT_TOLD_AT_REST
			tell();
#endif
			fence_sleeper(tells);
			if
			:: head != parked || consumed == MESSAGES -> leave
			:: else -> leave;
				/* the helper's last message wakes it for the end */
				atomic { bell_message == 1; bell_message = 0 }
			fi;
			enter;
			armed = 0;
			tells ! SLEEPING, 0;
			leave
		fi
	od
}

active proctype helper()
{
	do
	:: consumed < parked ->
		enter;
		if
		:: consumed < parked ->
#ifdef HELPER_KEEPS
			take(0);
#else
			take(armed);
#endif
			if :: consumed == MESSAGES -> bell_message = 1 :: else fi
		:: else
		fi;
		leave
	:: consumed == MESSAGES -> break
	od
}
