/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers to operations on remote memory (docs/protocol.md, dataplane/engine/bulk/answer.c) between
 * two ends of a link, each with two connections to memory of the other. An operation takes the
 * lines of its answer out of the link's credit. Its answer returns them, and so does the peer's last
 * line of the connection, behind which no answer comes. Exports are revoked, programs close, at any
 * time. A line of the wire is one of the ring: it is full until its reader has taken it out.
 *
 * Never: an answer without room at the end that answers; one of a connection that is over; credit
 * that is lost, or returned twice; two ends that wait for each other (an invalid end state).
 *
 * variants: OPS=1,GRANT=4,ROOM=2 CLOSES=0,ROOM=2 REVOKES=0,ROOM=2
 * faults: NO_CREDIT EARLY OVERTAKES FORGETS TWICE BLOCKS
 */
#ifndef OPS
#define OPS 2 /* of each connection */
#endif
#ifndef GRANT
#define GRANT 2 /* lines of answers at once */
#endif
#ifndef ROOM
#define ROOM 1 /* lines of a ring */
#endif
#ifndef CLOSES
#define CLOSES 1
#endif
#ifndef REVOKES
#define REVOKES 1
#endif

mtype = { OPERATION, ANSWER, FIN, LAST };

/* to 0 and 1: what, connection, lines of its answer */
chan wire[2] = [ROOM] of { mtype, byte, byte };

/* connections 0 and 1 are begun by end 0, 2 and 3 by end 1 */
byte todo[4] = OPS;
chan awaited[4] = [OPS] of { byte };
bit fin[4], over[4]; /* at the end that began it */
byte credit[2] = GRANT;

/* at the end that has the memory */
bit gone[4], last_due[4];
byte unanswered[4];
chan buffer[2] = [4 * OPS] of { byte, byte };
byte buffered[2]; /* lines */

#define finished                                                                                   \
	(todo[0] + todo[1] + todo[2] + todo[3] + len(awaited[0]) + len(awaited[1]) +               \
	     len(awaited[2]) + len(awaited[3]) + len(wire[0]) + len(wire[1]) + len(buffer[0]) +    \
	     len(buffer[1]) + last_due[0] + last_due[1] + last_due[2] + last_due[3] ==             \
	 0)
#ifdef OVERTAKES
#define may_be_last(id) last_due[id]
#else
#define may_be_last(id) (last_due[id] && !unanswered[id])
#endif
#if defined(NO_CREDIT) || defined(BLOCKS)
#define pays 0
#else
#define pays 1
#endif
#ifdef BLOCKS /* operations stay in the ring while there is no room for their answers */
#define may_take(n) (buffered[n] + 2 <= GRANT || !(wire[n] ? [OPERATION, _, _]))
#else
#define may_take(n) true
#endif

#define may_begin(n, id) (todo[id] && nfull(wire[1 - n]) && (credit[n] || !pays))

/* An operation leaves. */
inline begin(n, id)
{
	todo[id]--;
	if
	:: credit[n] > 1 -> lines = 2
	:: lines = 1
	fi;
	credit[n] = credit[n] - pays * lines;
	awaited[id] ! lines;
	wire[1 - n] ! OPERATION, id, lines
}

inline execute(n, id)
{
	if
	:: gone[id]
	:: else ->
		assert(buffered[n] + lines <= GRANT);
		buffered[n] = buffered[n] + lines;
		buffer[n] ! id, lines;
		unanswered[id]++;
#ifdef EARLY
		credit[1 - n] = credit[1 - n] + lines
#endif
	fi
}

inline take_answer(n, id)
{
	assert(!over[id]);
#ifdef TWICE
	awaited[id] ? <was>;
	if
	:: fin[id]
	:: else -> awaited[id] ? was
	fi;
#else
	awaited[id] ? was;
#endif
	assert(was == lines);
#ifndef EARLY
	credit[n] = credit[n] + pays * lines
#endif
}

/* No answer comes any more. */
inline take_last(n, id)
{
	over[id] = 1;
	todo[id] = 0;
	do
	:: nempty(awaited[id]) ->
		awaited[id] ? was;
#ifndef FORGETS
		credit[n] = credit[n] + pays * was
#endif
	:: empty(awaited[id]) -> break
	od
}

inline end_memory(id)
{
	if
	:: gone[id]
	:: else -> gone[id] = 1; last_due[id] = 1
	fi
}

proctype engine(byte n)
{
	byte id, lines, was;
	mtype what;

	do
	:: atomic { may_begin(n, 2 * n) -> begin(n, 2 * n) }
	:: atomic { may_begin(n, 2 * n + 1) -> begin(n, 2 * n + 1) }
	:: atomic { nempty(wire[n]) && may_take(n) ->
		wire[n] ? what, id, lines;
		if
		:: what == OPERATION -> execute(n, id)
		:: what == ANSWER -> take_answer(n, id)
		:: what == FIN -> end_memory(id)
		:: what == LAST -> take_last(n, id)
		fi;
		assert(credit[n] <= GRANT) }
	:: atomic { nempty(buffer[n]) && nfull(wire[1 - n]) ->
		buffer[n] ? id, lines;
		buffered[n] = buffered[n] - lines;
		unanswered[id]--;
		wire[1 - n] ! ANSWER, id, lines }
	:: atomic { nfull(wire[1 - n]) && (may_be_last(2 - 2 * n) || may_be_last(3 - 2 * n)) ->
		id = (may_be_last(2 - 2 * n) -> 2 - 2 * n : 3 - 2 * n);
		last_due[id] = 0;
		wire[1 - n] ! LAST, id, 0 }
	:: atomic { REVOKES && !finished && !gone[2 - 2 * n] -> end_memory(2 - 2 * n) }
	:: atomic { CLOSES && !finished && nfull(wire[1 - n]) && !fin[2 * n] && !over[2 * n] ->
		fin[2 * n] = 1;
		todo[2 * n] = 0;
		wire[1 - n] ! FIN, 2 * n, 0 }
	:: finished -> break
	od;
	assert(credit[n] == GRANT)
}

init
{
	atomic {
		run engine(0);
		run engine(1)
	}
}
