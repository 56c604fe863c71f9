# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# Sourced by bench.sh: the set hex, tree search by remote invocation beside itself.

game=(--size 11) # 4,096 rollouts per thread and move

# game_of JQ COMMAND...: a number of what weir-hex prints as JSON, started by weir-run or not.
game_of()
{
	local expression=$1
	shift

	"$@" >"$weir_tmp/game.log" 2>"$weir_tmp/game.err" || { echo "$*: $(tail -n 1 "$weir_tmp/game.err")" >&2; return 1; }
	sed -n 's/^\(0: \)\?{/{/p' "$weir_tmp/game.log" | jq -e "$expression"
}

# rate PROCESSES ARGUMENT...: simulations per millisecond of a game, by processes with one thread each.
rate()
{
	local processes=$1
	shift

	game_of .simulations_per_ms weir-run -n "$processes" -t 1 --instances "$nodes" -- weir-hex --threads 1 --json "${game[@]}" "$@"
}

# playouts KIND: the same of one thread that calls nobody.
playouts() { game_of .simulations_per_ms weir-hex --json "${game[@]}" --playout "$1"; }

# cpu_per_simulation PROCESSES: ns of the CPUs, of programs and data plane. On a small board: a move takes 4,096 rollouts per
# thread, so a game of 32 processes has 16 times the work of one of 2.
cpu_per_simulation()
{
	local before after children simulations

	before=$(ticks "${weir_pid[dataplane-A]}" "${weir_pid[control-A]}")
	{ TIMEFORMAT='%U %S'; time simulations=$(game_of '[.processes[].simulations] | add' weir-run -n "$1" -t 1 --instances A -- weir-hex --threads 1 --json --size 5); } \
		2>"$weir_tmp/times"
	after=$(ticks "${weir_pid[dataplane-A]}" "${weir_pid[control-A]}")
	children=$(awk '{ print $1 + $2 }' "$weir_tmp/times")
	awk -v s="$children" -v t="$((after - before))" -v hz="$(getconf CLK_TCK)" -v n="$simulations" 'BEGIN { print (s + t / hz) / n * 1e9 }'
}

# fastest_mode: of the modes that one may choose.
fastest_mode()
{
	local mode

	for mode in eager full overflow; do
		rate 2 --mode "$mode"
	done | sort -g | tail -n 1
}

# modelled PROCESSES SIMULATION_NS: simulations per millisecond in virtual time.
modelled() { game_of .simulations_per_ms weir-hex --json "${game[@]}" --virtual "$1" --simulation-ns "$2"; }

# The step from one process to two, as the model has it, divided by the real one. A simulation takes as long as it does in
# one thread.
model_figure()
{
	local try one two usual ns
	local -a ratios=()

	wanted hex_model || return 0
	for ((try = 0; try < runs; try++)); do
		one=$(rate 1) || break
		two=$(rate 2) || break
		usual=$(modelled 1x1 130) || break
		ns=$(awk -v r="$one" -v v="$usual" 'BEGIN { ns = 130 + 1e6 / r - 1e6 / v; printf "%d", ns < 0 ? 0 : ns }')
		ratios+=("$(awk -v a="$(modelled 2x1 "$ns")" -v b="$(modelled 1x1 "$ns")" -v one="$one" -v two="$two" 'BEGIN { print a / b / (two / one) }')")
	done
	[ "${#ratios[@]}" -ge "$runs" ] || ratios=()
	printf '%s\n' "${ratios[@]}" | awk 'NF { print ($1 > 1 ? $1 : 1 / $1) }' |
		record hex_model "x or 1/x, step of the model by that of two processes" '<=' 1.15 paired "weir-hex --virtual, and weir-run -n 1 and 2"
}

# efficiency P T NS: of P processes with T threads in virtual time, by one thread.
efficiency()
{
	awk -v a="$(modelled "$1x$2" "$3")" -v b="$(modelled 1x1 "$3")" -v n="$(($1 * $2))" 'BEGIN { print a / b / n }'
}

match_figure()
{
	wanted hex_strength || return 0
	game_of '.rate * 100' weir-hex --json --size 7 -n 1000 match rollouts=4096,virtual=1x8 rollouts=4096 |
		record hex_strength "% of 1,000 games won by 8 threads, 7 x 7" '>=' 45.3 any "weir-hex -n 1000 match rollouts=4096,virtual=1x8 rollouts=4096"
}

set_hex()
{
	local nodes=A

	PATH=$WEIR_BUILD/apps/hex:$WEIR_BUILD/apps/run:$PATH
	in_turn hex_playouts "x playouts cell by cell" '>=' 6 playouts fast -- playouts flood
	if any_wanted hex_processes_2 hex_cpu_32 hex_distribution hex_mode hex_model; then
		one_node --idle adaptive
		in_turn hex_processes_2 "x simulations/ms of one process" '>=' 1.8 rate 2 -- rate 1
		in_turn hex_cpu_32 "x CPU time per simulation of 2 processes" '<=' 1.15 cpu_per_simulation 32 -- cpu_per_simulation 2
		wanted hex_distribution && game_of .playouts_maximum_to_mean weir-run -n 8 -t 1 --instances A -- weir-hex --threads 1 --json --size 7 |
			record hex_distribution "x mean, most playouts of 8 processes" '<=' 1.1 any "weir-run -n 8 -t 1 -- weir-hex --threads 1 --size 7"
		in_turn hex_mode "x the best other mode" '>=' 0.97 rate 2 -- fastest_mode
		model_figure
		stop_all
	fi
	if any_wanted hex_nodes_2; then
		two_nodes_memif "" --idle adaptive
		nodes=A,B
		in_turn hex_nodes_2 "x simulations/ms of one process" '>=' 1.4 rate 2 -- rate_of_one
		stop_all
	fi
	wanted hex_efficiency && efficiency 8 8 130 | record hex_efficiency "of 8 processes with 8 threads, virtual time" '>=' 0.8 any "weir-hex --virtual 8x8"
	wanted hex_efficiency_900 && efficiency 8 8 900 |
		record hex_efficiency_900 "of 8 processes with 8 threads, playouts of the paper" - 0 any "weir-hex --virtual 8x8 --simulation-ns 900"
	match_figure
}

rate_of_one()
{
	local nodes=A

	rate 1
}
