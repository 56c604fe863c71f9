#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# shuffle_cost.sh ROUNDS INSTANCES "TRANSPORT..." [OPTION...]: what it costs 32 threads of 8 processes on these instances
# to send records to each other, in turn by each of these transports: weir, thread and process (TCP, one socket per pair of
# them), none. OPTION: of weir-shuffle-cost. Prints a JSON line per round: by transport, what
# weir-shuffle-cost reports, and as cpu_all_s the CPU time (s) of everything: programs, data planes, controls, switch.
# SHUFFLE_DAEMONS: ids of the daemons; unset: the children of the parent, as below scripts/cluster.sh. All processes are on
# this machine, so TCP uses its loopback, which costs less than the network that the nodes of Weir use.
set -u

rounds=$1 instances=$2 transports=$3
shift 3
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
daemons=${SHUFFLE_DAEMONS:-$(tr ' ' '\n' <"/proc/$PPID/task/$PPID/children" | grep -vx "$$")}

# Clock ticks that the daemons have run.
ticks()
{
	local pid sum=0 line

	for pid in $daemons; do
		line=$(cat "/proc/$pid/stat" 2>/dev/null) || continue
		line=${line##*) }
		# shellcheck disable=SC2086
		set -- $line
		sum=$((sum + ${12} + ${13}))
	done
	echo "$sum"
}

# one TRANSPORT OPTION...: its JSON.
one()
{
	local name=$1 before after
	local -a way
	shift

	case "$name" in
	thread | process) way=(--transport tcp --sockets "$name") ;;
	*) way=(--transport "$name") ;;
	esac
	before=$(ticks)
	timeout "${SHUFFLE_TIMEOUT:-120}" weir-run -n 8 -t 4 --instances "$instances" -- weir-shuffle-cost -t 4 "${way[@]}" --json "$@" >"$tmp/one" 2>"$tmp/log" ||
		{ echo "weir-shuffle-cost ${way[*]} $*: $(head -n 1 "$tmp/log")" >&2; return 1; }
	after=$(ticks)
	sed -n 's/^0: {/{/p' "$tmp/one" | jq -c --arg name "$name" --argjson ticks "$((after - before))" --argjson hz "$(getconf CLK_TCK)" \
		'{($name): (. + {cpu_all_s: (.cpu_s + $ticks / $hz)})}'
}

for ((round = 0; round < rounds; round++)); do
	: >"$tmp/round"
	for name in $transports; do
		one "$name" "$@" >>"$tmp/round" || exit 1
	done
	jq -cs add "$tmp/round"
done
