/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Selections of a child whose node is not known yet (apps/hex/mcts.c, descend() and set_link()):
 * threads that select it, and the one that learns its name. Name and number of waiting selections
 * are one word, which both sides change by an atomic operation. With TWO_WORDS they are two, as in
 * the published code of Seriema: each side changes its word, and then looks at the other one. That
 * needs a full fence on both sides: without one, the name may still be in a store buffer of the CPU
 * while the number is read (UNFENCED).
 *
 * Never: a selection that is left behind, so that its phase never ends; one that goes on twice.
 *
 * variants: SELECTORS=4 TWO_WORDS TWO_WORDS,SELECTORS=4
 * faults: TWO_WORDS,UNFENCED STORED
 */
#ifndef SELECTORS
#define SELECTORS 3
#endif
#define NAME 100

byte word;	   /* below NAME: selections that wait */
bit name;	   /* of TWO_WORDS: it is known */
byte waiting;	   /* the other word */
byte done, ended;

inline take_waiting()
{
	atomic {
		done = done + waiting;
		waiting = 0
	}
}

proctype selector()
{
#ifdef TWO_WORDS
	if
	:: name -> done++
	:: else ->
		waiting++;
		if
		:: name -> take_waiting()
		:: else
		fi
	fi;
#else
	byte seen = word;

	do
	:: seen >= NAME ->
		done++;
		break
	:: else ->
		atomic {
			if
			:: word == seen -> word++; break
			:: else -> seen = word
			fi
		}
	od;
#endif
	ended++
}

proctype owner()
{
#ifdef TWO_WORDS
#ifdef UNFENCED
	if
	:: name = 1; take_waiting()
	:: take_waiting(); name = 1
	fi;
#else
	name = 1;
	take_waiting();
#endif
#else
	byte before;

#ifdef STORED
	before = word;
	word = NAME;
#else
	atomic {
		before = word;
		word = NAME
	};
#endif
	done = done + before;
#endif
	ended++
}

init
{
	byte i;

	atomic {
		run owner();
		for (i : 1 .. SELECTORS) {
			run selector()
		}
	};
	ended == SELECTORS + 1;
	assert(done == SELECTORS)
}
