#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-hex --threads: real threads of one process, of two of a host, and of two nodes search together, in each mode; HTP
# with another size and seed; CPUs; a process that is killed ends the others, which name it; bad input.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
PATH=$WEIR_BUILD/apps/hex:$WEIR_BUILD/apps/run:$PATH

refused 2 'leave one of both out' weir-hex --threads 2 --virtual 1x2
refused 2 "'match' has no --threads" weir-hex --threads 2 match '' ''
refused 2 "'solve' has no --threads" weir-hex --threads 2 --size 3 solve
refused 2 'no threads of its own; give it virtual=' weir-hex --size 3 match threads=2 ''
refused 2 'from 1 to 64' weir-hex --threads 65
refused 2 'expected' weir-hex --threads 2 --mode never
refused 1 'start' weir-hex --instance none --threads 2

two_nodes_memif
export WEIR_INSTANCE=A

# plays PROCESSES THREADS ROLLOUTS COMMAND...: a game as JSON, in which all that was launched has returned and all threads work.
plays() {
	local processes=$1 threads=$2 rollouts=$3
	shift 3
	timeout "$patience" "$@" --size 4 --rollouts "$rollouts" --threads "$threads" --json >"$weir_tmp/out" 2>"$weir_tmp/hex.log" || {
		fail "$*: exit $?, $(last_line hex)"
		return
	}
	[ "$(wc -l <"$weir_tmp/out")" = 1 ] || fail "$*: not one line: $(cat "$weir_tmp/out")"
	sed 's/^0: //' "$weir_tmp/out" >"$weir_tmp/game.json"
	jq -e --argjson all "$((rollouts * 16))" --argjson processes "$processes" --argjson threads "$threads" \
		'(.moves | length * $all) as $n | (.winner == "X" or .winner == "O")
		and ([.processes[].visits] | length == $processes and add == $n) and ([.processes[].simulations] | add == $n)
		and ([.processes[].playouts[]] | length == $processes * $threads and min > 0)' "$weir_tmp/game.json" >/dev/null ||
		fail "$*: $(cat "$weir_tmp/game.json")"
}

plays 1 1 2000 weir-hex
plays 1 2 2000 weir-hex
plays 1 2 500 weir-hex --remote always
for mode in auto eager full overflow; do
	plays 2 1 200 weir-run -n 2 weir-hex --mode $mode
done
plays 2 2 200 weir-run -n 2 --instances A,B weir-hex
timeout "$patience" weir-run -n 2 --instances A,B weir-hex --size 3 --rollouts 50 --threads 1 >"$weir_tmp/text" ||
	fail "as text: exit $?"
grep -q '^0: [XO] wins$' "$weir_tmp/text" || fail "nobody wins: $(tail -n 3 "$weir_tmp/text")"
for process in 0 1; do
	grep -q "^0: process $process: .* simulations/ms, [1-9][0-9]* messages" "$weir_tmp/text" || fail "no totals: $(tail -n 3 "$weir_tmp/text")"
done
grep -q '^1: ' "$weir_tmp/text" && fail "process 1 prints: $(grep '^1: ' "$weir_tmp/text")"

# by HTP: the others follow process 0 to another size and seed, and end with it
printf '%s\n' 'boardsize 3 3' 'genmove black' 'param_hex seed 7' 'genmove white' 'boardsize 4 4' 'genmove black' quit |
	timeout "$patience" weir-run -n 2 --instances A,B weir-hex --rollouts 50 --threads 2 htp >"$weir_tmp/htp" 2>"$weir_tmp/hex.log" ||
	fail "htp: exit $?, $(last_line hex)"
[ "$(grep -c '^0: = ' "$weir_tmp/htp")" = 7 ] || fail "not 7 answers: $(cat "$weir_tmp/htp")"
[ "$(grep -cE '^0: = [a-d][1-4]$' "$weir_tmp/htp")" = 3 ] || fail "not 3 moves: $(cat "$weir_tmp/htp")"

# a CPU for each thread, if the process has as many
if [ "$(nproc)" -gt 1 ]; then
	run pinned weir-run -n 1 -t 2 weir-hex --threads 2 --seconds 600 --progress
	await grep -q simulations "$weir_tmp/pinned.log" || die "no search: $(log_of pinned)"
	pid=$(pgrep -P "${weir_pid[pinned]}")
	[ "$(sed -nE 's/^Cpus_allowed_list:\t([0-9]+)$/\1/p' "/proc/$pid"/task/*/status | sort -u | wc -l)" = 2 ] ||
		fail "not a CPU for each thread: $(grep -h Cpus_allowed_list "/proc/$pid"/task/*/status)"
	stop pinned
fi

# member VICTIM RANK NAME COMMAND...: a process of a group that nobody looks after.
member() {
	WEIR_GROUP=hex-$1-$$ WEIR_GROUP_SIZE=2 WEIR_GROUP_RANK=$2 run "$3" "${@:4}"
}
# kills VICTIM SURVIVOR: processes of these ranks. The survivor ends, and names the victim.
kills() {
	: >"$weir_tmp/rank-0.log"
	member "$1" 1 rank-1 weir-hex --instance B --threads 2
	member "$1" 0 rank-0 weir-hex --instance A --size 9 --seconds 600 --threads 2 --progress
	await grep -q 'simulations' "$weir_tmp/rank-0.log" || die "no search: $(log_of rank-0) $(log_of rank-1)"
	stop "rank-$1" KILL
	gone "${weir_pid[rank-$2]}" || fail "$2 goes on without $1"
	stop "rank-$2"
	[ $? = 1 ] || fail "$2 without $1: not exit 1"
	[[ $(last_line "rank-$2") == "weir-hex: "*"process $1 "*"; "* ]] || fail "$2 does not name $1: $(log_of "rank-$2")"
}
kills 1 0
kills 0 1
weirctl --instance A wait connections:0 --timeout "$patience" >/dev/null || fail "connections remain"
exit "$weir_failed"
