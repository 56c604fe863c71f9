/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connection of two controls (docs/protocol.md 6, control/cluster/member_conn.c, control/cluster/node_state.c): either
 * dials when it has none, both may at once; either is started anew, with or without its kernel
 * saying so; a connection goes dark and nobody is told. Messages of one connection arrive in order.
 * Timers are as long as it takes for what is on its way to arrive.
 *
 * Never: a Hello answered twice. Always: once nothing more goes wrong, both ends use the same one,
 * and go on using it.
 *
 * check: liveness
 * faults: NO_PROBE NEWEST_STAYS
 */
#define CONNS 3
#define NONE CONNS
#ifndef TROUBLE
#define TROUBLE 2
#endif

mtype = { HELLO, WELCOME, REFUSED, END };
mtype = { IDLE, DIALLING, JOINED };

/* [c + CONNS * n]: what is on its way to end n on connection c; and the run of the sender */
chan to[2 * CONNS] = [2] of { mtype, bit };

mtype is[2] = IDLE;
byte uses[2] = NONE;	/* which connection */
bit knows[2 * CONNS];	/* the kernel of end n has connection c: [c + CONNS * n] */
bit dark[CONNS];
bit life[2], peer_life[2]; /* of its control; of the other's when they joined */
byte trouble;
bit calm;

#define agree (is[0] == JOINED && is[1] == JOINED && uses[0] == uses[1])

ltl up { [] (calm -> <> [] agree) }

inline send(n, c, what)
{
	if
	:: !dark[c] -> to[c + CONNS * (1 - n)] ! what, life[n]
	:: dark[c]
	fi
}

/* n closes connection c and says why. */
inline close_it(n, c, what)
{
	send(n, c, what);
	knows[c + CONNS * n] = 0
}

inline drop_own(n)
{
	if
	:: uses[n] != NONE -> close_it(n, uses[n], END)
	:: else
	fi;
	is[n] = IDLE;
	uses[n] = NONE;
	peer_life[n] = 0
}

/* conn_replaces(): the Hello of another run comes from the same place. */
#if defined(NEWEST_STAYS)
#define stays(n, r) 0
#else
#define stays(n, r) ((is[n] == DIALLING || (is[n] == JOINED && peer_life[n] == r)) && n < 1 - n)
#endif

inline take(n, c, what, r)
{
	if
	:: what == HELLO ->
		if
		:: stays(n, r) -> close_it(n, c, REFUSED)
		:: else ->
			drop_own(n);
			is[n] = JOINED;
			uses[n] = c;
			knows[c + CONNS * n] = 1;
			peer_life[n] = r;
			send(n, c, WELCOME)
		fi
	:: what == WELCOME && uses[n] == c ->
		assert(is[n] == DIALLING);
		is[n] = JOINED;
		peer_life[n] = r
	:: (what == REFUSED || what == END) && uses[n] == c ->
		knows[c + CONNS * n] = 0;
		is[n] = IDLE;
		uses[n] = NONE;
		peer_life[n] = 0
	:: what != HELLO && uses[n] != c -> knows[c + CONNS * n] = 0
	fi
}

/* Connections in turn. */
proctype receiver(bit n)
{
	byte c;
	mtype what;
	bit r;

	do
	:: atomic {
		nempty(to[CONNS * n]) || nempty(to[1 + CONNS * n]) || nempty(to[2 + CONNS * n]) ->
		do
		:: nempty(to[c + CONNS * n]) -> break
		:: empty(to[c + CONNS * n]) -> c = (c + 1) % CONNS
		od;
		to[c + CONNS * n] ? what, r;
		take(n, c, what, r);
		what = 0;
		r = 0;
		c = (c + 1) % CONNS
	   }
	od
}

#define quiet(c) (empty(to[c]) && empty(to[c + CONNS]))
#define unused(c) (quiet(c) && !knows[c] && !knows[c + CONNS])
#define in_use(c) (nempty(to[c]) || nempty(to[c + CONNS]) || knows[c] || knows[c + CONNS])
#define lone(n) (uses[n] != NONE && quiet(uses[n]) && (dark[uses[n]] || uses[1 - n] != uses[n]))

inline dial(n, c)
{
	dark[c] = 0;
	knows[c] = 1;
	knows[c + CONNS] = 1;
	is[n] = DIALLING;
	uses[n] = c;
	send(n, c, HELLO)
}

proctype timer(bit n)
{
	do
	:: atomic { is[n] == IDLE && unused(0) -> dial(n, 0) }
	:: atomic { is[n] == IDLE && in_use(0) && unused(1) -> dial(n, 1) }
	:: atomic { is[n] == IDLE && in_use(0) && in_use(1) && unused(2) -> dial(n, 2) }
	/* no handshake in time */
	:: atomic { is[n] == DIALLING && lone(n) -> drop_own(n) }
#ifndef NO_PROBE
	/* no answer to a probe */
	:: atomic { is[n] == JOINED && lone(n) -> drop_own(n) }
#endif
	od
}

inline forget(n, c)
{
	if
	:: uses[n] != c && empty(to[c + CONNS * n]) -> knows[c + CONNS * n] = 0
	:: uses[n] == c || nempty(to[c + CONNS * n])
	fi
}

inline restart(n)
{
	if
	:: drop_own(n) /* its kernel tells */
	:: knows[uses[n] + CONNS * n] = 0; is[n] = IDLE; uses[n] = NONE; peer_life[n] = 0 /* the power was gone */
	fi;
	life[n] = 1 - life[n]
}

active proctype fate()
{
	byte c;

	do
	:: atomic { trouble < TROUBLE && uses[0] != NONE -> dark[uses[0]] = 1; trouble++ }
	:: atomic { trouble < TROUBLE && uses[1] != NONE -> dark[uses[1]] = 1; trouble++ }
	:: atomic { trouble < TROUBLE && uses[0] != NONE -> restart(0); trouble++ }
	:: atomic { trouble < TROUBLE && uses[1] != NONE -> restart(1); trouble++ }
	:: calm = 1; break
	od;
	/* kernels forget what nobody uses */
	do
	:: atomic { c = 0; do :: c < CONNS -> forget(0, c); forget(1, c); c++ :: else -> break od; c = 0 }
	od
}

init
{
	atomic {
		run receiver(0);
		run receiver(1);
		run timer(0);
		run timer(1)
	}
}
