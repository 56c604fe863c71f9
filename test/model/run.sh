#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# run.sh FILE.pml: checks a model with SPIN as it is, in each of its variants, and with each of its faults, which
# must be found. These are named in its first comment: "variants:", "faults:" and words, macros joined by commas.
set -u
model=$(realpath "$1") || exit 2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cp "$model" "$work" && cd "$work" || exit 1
model=${model##*/}
bad=0

# check MACROS OPTIMIZATION: 0 nothing found, 1 an error was found; what SPIN says lies in pan.log.
check()
{
	local -a macros=()

	[ -z "$1" ] || mapfile -t macros < <(tr , '\n' <<<"$1" | sed 's/^/-D/')
	rm -f pan.* ./*.trail
	spin "${macros[@]}" -a "$model" >spin.log 2>&1 || { cat spin.log; exit 1; }
	gcc "$2" -w "${how[@]}" -DMEMLIM=4000 -o pan pan.c || exit 1
	./pan -m200000 "${options[@]}" >pan.log 2>&1
	grep -q 'search depth too small\|out of memory\|MEMLIM bound' pan.log && { cat pan.log; exit 1; }
	grep -q '^State-vector.*errors: 0$' pan.log || return 1
}

words()
{
	sed -n "1,/\*\/$/s/^ \* $1: //p" "$model"
}

how=(-DSAFETY) options=()
[ "$(words check)" != liveness ] || how=(-DNFAIR=3) options=(-a -f)
for variant in "" $(words variants); do
	if check "$variant" -O2; then
		echo "$model ${variant:-as it is}: $(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log) states"
	else
		echo "$model ${variant:-as it is}: an error"
		cat pan.log
		spin ${variant:+$(tr , '\n' <<<"$variant" | sed 's/^/-D/')} -t -p -g -l "$model" | tail -n 60
		bad=1
	fi
done
for fault in $(words faults); do # found soon: it takes longer to compile well than to run
	check "$fault" -O0 && { echo "$model with $fault: not noticed"; bad=1; }
	# shellcheck disable=SC2015
	grep -q 'errors: [1-9]' pan.log && echo "$model with $fault: noticed" || bad=1
done
exit "$bad"
