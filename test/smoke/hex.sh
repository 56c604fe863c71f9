#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-hex: games against itself, in virtual time and against another process by HTP; what HexGui sends; bad input.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
PATH=$WEIR_BUILD/apps/hex:$PATH
cd "$weir_tmp" || die "no folder"

# bad TEXT ARGUMENT...: exit 2, and the text in its line
bad() {
	local text=$1

	shift
	weir-hex "$@" >bad.out 2>bad.log </dev/null
	[ "$?" = 2 ] || fail "weir-hex $*: not refused"
	grep -q -- "$text" bad.log || fail "weir-hex $*: $(cat bad.log)"
}

bad 'invalid command' watch
bad "'match' takes two players" match rollouts=1
bad "'htp' takes no arguments" htp x
bad "'play' takes no arguments" play x
bad 'expected --size 2 \.\.\. 5' --size 6 solve
bad 'expected' --size 20
bad 'expected' --virtual 3
bad 'expected' match rollouts=x ''
bad 'unexpected argument' match a b c
bad 'expected a number from 1' --virtual 1x1 --seconds 1 --selection-ns 0
bad 'leave --json out' --json --effort
bad 'leave --json out' --json --size 3 solve

# a game: what is printed, and as JSON
weir-hex --size 5 --rollouts 400 --effort --picture effort.svg >game.log || fail "a game: exit $?"
grep -q '^[XO] wins$' game.log || fail "nobody wins: $(tail -n 3 game.log)"
# rounded, 25 cells
awk 'NR > 1 && NR < 7 { for (i = 2; i <= NF; i++) sum += $i } END { exit !(sum > 87 && sum < 113) }' game.log ||
	fail "the effort is not 100 %: $(head -n 6 game.log)"
grep -q '^process 0: .*visits/ms, .* simulations/ms' game.log || fail "no totals: $(tail -n 2 game.log)"
grep -q '<circle' effort.svg || fail "no stones in the picture"
for file in none/effort.svg /dev/full; do
	weir-hex --size 3 --rollouts 1 --picture "$file" >picture.out 2>picture.log && fail "$file: written"
	grep -Eq "cannot write '$file': (No such file|No space).*; choose" picture.log || fail "$file: $(cat picture.log)"
done
weir-hex --size 5 --rollouts 400 --json >game.json || fail "as JSON: exit $?"
jq -e '.winner == "X" or .winner == "O"' game.json >/dev/null || fail "not JSON: $(cat game.json)"
jq -e '[.processes[].simulations] | add == 400 * 16 * '"$(jq '.moves | length' game.json)" game.json >/dev/null ||
	fail "simulations of $(jq -c .moves game.json): $(jq -c .processes game.json)"

weir-hex --size 3 --seconds 1e-10 >nothing.log || fail "no time: exit $?"
grep -q 'share of wins -$' nothing.log || fail "no rollout, but a share of wins: $(sed -n 2p nothing.log)"
weir-hex --size 2 --seconds 0.01 --json | jq -e '.rollouts == 0 and .seconds == 0.01' >/dev/null ||
	fail "other options than those given"

# in virtual time, equal seeds play equal games, and all threads work
for i in 1 2; do
	weir-hex --size 6 --rollouts 2000 --virtual 2x3 --seed 7 --json >"virtual-$i.json" || fail "virtual: exit $?"
done
cmp -s virtual-1.json virtual-2.json || fail "one seed, two games"
jq -e '[.processes[].playouts[]] | length == 6 and min > 0' virtual-1.json >/dev/null ||
	fail "idle threads: $(jq -c .processes virtual-1.json)"

# HexGui's commands, and a whole game by HTP against a process that knows less
printf '%s\n' name version hexgui-analyze_commands 'boardsize 5 5' showboard 'play black a3' showboard 'genmove white' \
	undo undo quit | weir-hex --rollouts 300 htp >htp.log || fail "htp: exit $?"
[ "$(grep -c '^= ' htp.log)" = 11 ] || fail "not 11 answers: $(cat htp.log)"
grep -q '^? ' htp.log && fail "refused: $(grep '^? ' htp.log)"
weir-hex --size 5 --json -n 6 match rollouts=400 'htp:weir-hex --rollouts 1 htp' >match.json || fail "match: exit $?"
jq -e '.games == 6 and .wins >= 3' match.json >/dev/null || fail "match: $(cat match.json)"
weir-hex --size 3 -n 1 match rollouts=1 'htp:weir-hex --rollouts 1 htp; sleep 3600' >endless.log ||
	fail "a program that does not end: exit $?"
weir-hex --size 3 -n 1 match rollouts=1 htp:false >false.log 2>&1 && fail "a program that ends: no failure"
grep -q "'htp:false' has ended (exit status 1) without an answer to 'boardsize 3 3'" false.log ||
	fail "a program that ends: $(cat false.log)"
head -c 1000000 /dev/zero | tr '\0' x | weir-hex htp >long.log || fail "a long line: exit $?"
[ "$(grep -c '^? ' long.log)" = 1 ] || fail "a long line: $(head -c 300 long.log)"

weir-hex --size 3 solve | sed 's/ *$//' >solve.log || fail "solve: exit $?"
cmp -s solve.log - <<-'END' || fail "solve: $(cat solve.log)"
	    a b c
	 1 O O X
	  2 X X X
	   3 X O O
	6046 positions: X wins in 3780, O in 2266
END

# HTP: the move is made also without its picture
echo genmove black | weir-hex --size 3 --rollouts 1 --picture none/effort.svg htp >move.log 2>picture.log || fail "htp: exit $?"
grep -q '^= [abc]' move.log || fail "no move: $(cat move.log)"
grep -q "cannot write 'none/effort.svg': No such file" picture.log || fail "no picture: $(cat picture.log)"

# output that cannot be written is a failure
for arguments in '--rollouts 1' '--json --rollouts 1' '-n 1 match rollouts=1 rollouts=1' solve htp --help --version; do
	# shellcheck disable=SC2086
	echo name | weir-hex --size 3 $arguments >/dev/full 2>full.log
	[ "$?" = 1 ] || fail "$arguments: output is lost, but that is success"
	grep -q 'cannot write to stdout' full.log || fail "$arguments: $(cat full.log)"
done
exit "$weir_failed"
