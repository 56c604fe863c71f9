/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weir_invoker_quiet() (lib/invoke/meet.c): threads make calls and join; functions make calls, too.
 * A call is made, lies in an open run, is counted in `sent` when that closes, leaves, and runs. At
 * the end of a turn the thread closes its runs, and then counts as `closed` what it has run. Waves
 * sum both counts over all threads: in any order, while the threads go on.
 *
 * Never: quiet while a call has not run; no quiet at all.
 *
 * faults: JOINED_BEFORE_CLOSED ONE_WAVE OVERLAP COUNTED_WHEN_SENT CLOSED_BEFORE_RUN CLOSED_BEFORE_SENT
 */
#ifndef THREADS
#define THREADS 3
#endif
#ifndef BUDGET
#define BUDGET 3 /* calls that are made at most */
#endif

byte budget = BUDGET, made, ran, joined;
bit quiet;
byte open[THREADS];   /* calls in open runs */
byte packed[THREADS]; /* that have not left */
byte inbox[THREADS];  /* that have arrived */
byte sent[THREADS], turn[THREADS], closed[THREADS];

inline make(i)
{
	atomic {
		budget > 0 ->
		budget--;
		made++;
		open[i]++
	}
}

inline close_runs(i)
{
#ifndef COUNTED_WHEN_SENT
	sent[i] = sent[i] + open[i];
#endif
	atomic {
		packed[i] = packed[i] + open[i];
		open[i] = 0
	}
}

/* To any thread, its own too. */
inline leave(i, to)
{
	atomic {
		packed[i]--;
		select(to : 0 .. THREADS - 1);
#ifdef COUNTED_WHEN_SENT
		sent[i]++;
#endif
		inbox[to]++
	}
}

proctype thread(byte i)
{
	byte to;

	do
	:: make(i)
	:: break
	od;
#ifdef JOINED_BEFORE_CLOSED
	joined++;
	close_runs(i);
#else
	close_runs(i);
	joined++;
#endif
	do
	:: atomic {
		packed[i] > 0 -> leave(i, to)
	}
	:: inbox[i] > 0 ->
		atomic {
			inbox[i]--;
#ifdef CLOSED_BEFORE_RUN
			closed[i]++
#endif
		};
		do
		:: make(i)
		:: atomic {
			ran++;
			turn[i]++;
			break
		}
		od
	:: turn[i] > 0 -> /* the end of a turn */
#ifdef CLOSED_BEFORE_SENT
		closed[i] = closed[i] + turn[i];
#endif
		close_runs(i);
		atomic {
#if !defined(CLOSED_BEFORE_RUN) && !defined(CLOSED_BEFORE_SENT)
			closed[i] = closed[i] + turn[i];
#endif
			turn[i] = 0
		}
	:: quiet -> break
	od
}

#define ALL ((1 << THREADS) - 1)

byte wave_sent, wave_closed, last_closed;

/* The counts of a thread that the wave has not looked at go into it. */
inline look(i, looked)
{
	atomic {
		i = 0;
		do
		:: looked & (1 << i) -> i++
		:: !(looked & (1 << i)) -> break
		:: !(looked & (1 << i)) && ALL - looked - (1 << i) > (1 << i) -> i++
		od;
		wave_closed = wave_closed + closed[i]
	};
	atomic {
		wave_sent = wave_sent + sent[i];
		looked = looked | (1 << i)
	}
}

proctype waves()
{
	byte i, looked;
#ifdef OVERLAP
	byte next; /* threads that the next wave has looked at */
#endif
	bit any;

	joined == THREADS;
	do
	::
#ifdef OVERLAP
		/* a thread takes part in the next wave when it has done so in the last one */
		do
		:: looked == ALL && next == ALL -> break
		:: looked != ALL -> atomic {
			select(i : 0 .. THREADS - 1);
			if
			:: looked & (1 << i)
			:: else ->
				last_closed = last_closed + closed[i];
				looked = looked | (1 << i)
			fi
		}
		:: next != looked -> atomic {
			select(i : 0 .. THREADS - 1);
			if
			:: looked & (1 << i) && !(next & (1 << i)) ->
				wave_sent = wave_sent + sent[i];
				next = next | (1 << i)
			:: else
			fi
		}
		od;
		any = 1;
		next = 0;
#else
		do
		:: looked != ALL -> look(i, looked)
		:: looked == ALL -> break
		od;
#endif
		atomic {
			looked = 0;
			if
#ifdef ONE_WAVE
			:: wave_sent == wave_closed -> break
#else
			:: any && wave_sent == last_closed -> break
#endif
			:: else
			fi;
			any = 1;
#ifdef OVERLAP
			last_closed = 0;
#else
			last_closed = wave_closed;
#endif
			wave_sent = 0;
			wave_closed = 0
		}
	od;
	assert(made == ran);
	quiet = 1
}

init
{
	byte i;

	atomic {
		run waves();
		for (i : 0 .. THREADS - 1) {
			run thread(i)
		}
	}
}
