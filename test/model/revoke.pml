/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Revocation of an export while a peer WRITEs it, and while the queue pair of these WRITEs fails and
 * is repaired (docs/protocol.md, dataplane/engine/bulk/{export,transfer,flight}.c). The beginning end
 * posts WRITEs and counts those in flight. RESET tells it of the end; its last line, FIN_ACK, leaves
 * when none is in flight. The NIC forgets the key, and the memory is another's, when that has come or
 * the link is down. A WRITE of a queue pair that failed may still arrive until the other end has
 * replaced its half, and counts as in flight until then. Then it leaves again, if its connection is
 * open.
 *
 * Never: a WRITE that lands in memory that was given away; one that the NIC refuses, which would
 * break the queue pair of all programs; an end that waits for one that is gone (an invalid end
 * state).
 *
 * variants: WRITES=3,FAILS=1 WRITES=1,FAILS=3
 * faults: UNDONE HASTY EARLY REPEATS FORGETS
 */
#ifndef WRITES
#define WRITES 2
#endif
#ifndef FAILS
#define FAILS 2
#endif

chan wire = [WRITES] of { byte };	/* WRITEs under way: their queue pair */
chan acknowledged = [WRITES] of { byte }; /* their queue pairs, too */
chan ring = [1] of { bit };		/* RESET */
chan back = [1] of { bit };		/* FIN_ACK */

bit key = 1, given_away, down, broken;
byte fails = FAILS;
byte ours, theirs; /* number of the queue pair at the beginning end, at the end of the memory */

/* WRITEs of unknown outcome. */
inline rewind()
{
#ifdef REPEATS
	todo = todo + in_flight;
#else
	if
	:: !closed -> todo = todo + in_flight
	:: else
	fi;
#endif
	in_flight = 0
}

#ifdef HASTY /* FIN_ACK does not wait for WRITEs in flight */
#define is_idle true
#else
#define is_idle (!in_flight)
#endif
#ifdef REPEATS
#define may_post todo
#else
#define may_post (todo && !closed)
#endif

proctype begins()
{
	byte todo = WRITES, in_flight, qp;
	bit closed, said;

	do
	:: atomic { may_post && !broken && !down ->
		todo--;
		in_flight++;
		wire ! ours }
	:: atomic { acknowledged ? qp ->
		if
		:: qp == ours && !broken && in_flight -> in_flight--
		:: else
		fi }
	:: atomic { ring ? _ -> closed = 1 }
	:: atomic { closed && !said && is_idle && !down -> said = 1; back ! 1 }
	:: atomic { broken && ours != theirs -> ours = theirs; broken = 0; rewind() }
#ifdef EARLY /* before the other end has replaced its half */
	:: atomic { broken && in_flight -> rewind() }
#endif
	:: down -> break
	:: said && !broken && !may_post -> break
	od
}

/* The queue pair fails; main of the other end replaces its half. */
proctype repair()
{
end:
	do
	:: atomic { fails && !broken && !down -> fails--; broken = 1 }
	:: atomic { broken && ours == theirs && !down -> theirs++ }
	:: atomic { !down -> down = 1 }
	od
}

/* The NIC of the memory. A link that is down has no queue pair. */
proctype nic()
{
	byte qp;

end:
	do
	:: atomic { wire ? qp ->
		if
		:: qp == theirs && !down ->
			assert(key);
			assert(!given_away);
			if
			:: nfull(acknowledged) -> acknowledged ! qp
			:: true /* lost */
			fi
		:: else
		fi }
	od
}

proctype exports()
{
	ring ! 1;
#ifndef UNDONE
	if
	:: back ? _
#ifndef FORGETS
	:: down
#endif
	fi;
#endif
	atomic { key = 0; given_away = 1 }
}

init
{
	atomic {
		run begins();
		run repair();
		run nic();
		run exports()
	}
}
