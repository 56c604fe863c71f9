/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fences of windows (lib/window/board.c): two hosts with two members each, which meet on the lines
 * of their host; the first of each host, its leader, exchanges a message with the other one and
 * releases its host. One member may die anywhere. Members hear of it from their neighbours in the
 * group, a ring here, as long as they wait for something.
 *
 * Never: a member that passes before all have come; a member that waits for ever (an invalid end
 * state) once another one has died.
 *
 * variants: ROUNDS=3 DEATHS=0
 * faults: FORGETS EARLY BEFORE ALONE
 */
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#define N 4

#define leads(i) (i % 2 == 0)
#define host(i) (i / 2)
#define mate(i) (i % 2 == 0 -> i + 1 : i - 1)
#define above(i) ((i + 1) % N)
#define below(i) ((i + N - 1) % N)

byte arrived[N], released[2]; /* lines: fences that a member, or all hosts, have come to */
chan lead[2] = [ROUNDS] of { byte }; /* to the leader of a host: the other one has come */
bit dead[N], told[N];		     /* the member tells its neighbours that one has died */
byte deaths, ended;

/* A neighbour has died, or tells of one that has. */
#define hears(i) (dead[above(i)] || dead[below(i)] || told[above(i)] || told[below(i)])

#ifdef FORGETS
#define tell(i) skip
#else
#define tell(i) told[i] = 1
#endif

#define local_came(i, r) (arrived[i] >= r && arrived[mate(i)] >= r)
#ifdef BEFORE
#define was_released(i, r) (released[host(i)] + 1 >= r)
#else
#define was_released(i, r) (released[host(i)] >= r)
#endif

inline may_die()
{
	if
	:: deaths < DEATHS -> atomic { deaths++; dead[i] = 1; goto over }
	:: skip
	fi
}

/* Waits until `cond` holds; looks at it once more before it gives up. */
#define await(cond)                                                                                \
	if                                                                                         \
	:: cond                                                                                    \
	:: hears(i) && !(cond) -> goto failed                                                      \
	fi

proctype member(byte i)
{
	byte r = 1;

	do
	:: r > ROUNDS -> break
	:: else ->
		may_die();
#ifdef EARLY
		if
		:: leads(i) -> lead[1 - host(i)] ! r
		:: else
		fi;
#endif
		arrived[i] = r;
		may_die();
		if
		:: leads(i) ->
			await(local_came(i, r));
			may_die();
#ifndef EARLY
			lead[1 - host(i)] ! r;
#endif
			may_die();
#ifndef ALONE
			if
			:: lead[host(i)] ? eval(r)
			:: hears(i) && empty(lead[host(i)]) -> goto failed
			fi;
#endif
			may_die();
			released[host(i)] = r
		:: else ->
			await(was_released(i, r))
		fi;
		assert(arrived[0] >= r && arrived[1] >= r && arrived[2] >= r && arrived[3] >= r);
		r++
	od;
	/* the next call that it makes */
	ended++;
	if
	:: ended == N
	:: hears(i) -> tell(i)
	fi;
	goto out;
failed:
	tell(i);
over:
	ended++;
out:
	skip
}

init
{
	atomic {
		run member(0);
		run member(1);
		run member(2);
		run member(3)
	}
}
