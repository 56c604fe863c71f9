# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of _init.sh
# Programs that keep books of every message (chaos.c) on nodes that tests kill, stop and cut off. Sourced after
# _init.sh. The test sets node_name[ID], the instances' names; a sender on each sends to all, its own node included.
# shellcheck disable=SC2034

PATH=$WEIR_BUILD/dataplane/tools:$WEIR_BUILD/test/tools:$PATH
killings=$weir_tmp/killings
books=$weir_tmp/books
mkdir "$books"
: >"$killings"
node_name=()
last_life=0
declare -A weir_life=() # WHO-NODE -> number of the program that runs

# Options of a small weir-dataplane, and of EAL: hugepages if 300 are free.
small_node=(--idle adaptive --links 8 --recv-wrs 64 --tx-frames 1024 --ring-slots 1024 --session-connections 256
	--max-connections 4096 --max-sessions 16 --arena 8M --channels 4)
small_eal=(--no-pci --no-telemetry -m 64)
[ "$(awk '/HugePages_Free/ {print $2}' /proc/meminfo)" -ge 300 ] || small_eal+=(--no-huge)

pause()
{
	read -rt "$1" <> <(:) || true
}

# note WHAT WHO NODE: a line of the log.
note()
{
	echo "$(now_ms) $* ${weir_life[$2-$3]:-0}" >>"$killings"
}

# start_program sender|receiver NODE
start_program()
{
	local mode=send
	[ "$1" = sender ] || mode=receive
	last_life=$((last_life + 1))
	weir_life[$1-$2]=$last_life
	# shellcheck disable=SC2046
	run "$1-${node_name[$2]}" chaos "$mode" "${node_name[$2]}" "$2" "$last_life" "$books/$last_life" \
		$([ "$mode" = receive ] || echo "${!node_name[@]}")
}

start_programs()
{
	local n
	for n in "${!node_name[@]}"; do
		start_program receiver "$n"
		start_program sender "$n"
	done
}

# In order: accepted messages complete.
stop_programs()
{
	local n who name
	for who in sender receiver; do
		for n in "${!node_name[@]}"; do
			kill -TERM "${weir_pid[$who-${node_name[$n]}]}"
		done
		for n in "${!node_name[@]}"; do
			name=$who-${node_name[$n]}
			gone "${weir_pid[$name]}"
			stop "$name" || fail "$name: $(last_line "$name")"
		done
	done
}

# works WHEN: until every sender has got something to every node since now.
works()
{
	local since n
	local -a of=()
	since=$(now_ms)
	for n in "${!node_name[@]}"; do
		of+=("$books/${weir_life[sender-$n]}")
	done
	await eval "chaos fresh $since ${of[*]} >'$weir_tmp/stale'" || fail "$1: $(cat "$weir_tmp/stale")"
}

# forget: calm() looks only at later events.
calm_since=0 calm_downs=0 calm_starved=0
forget()
{
	local n
	local -a daemons=()
	calm_downs=0
	for n in "${node_name[@]}"; do
		calm_downs=$((calm_downs + $(node_downs "$n")))
		daemons+=("dataplane-$n" "control-$n")
	done
	calm_starved=$(starved "${daemons[@]}")
	calm_since=$(now_ms)
}

# calm WHEN: since it was called last no connection has ended but in order, and no data plane was told that a node is
# down. Where a daemon wanted for a CPU for half of the node timeout that says nothing, which is told.
calm()
{
	local downs=$calm_downs late=$calm_starved why=""
	chaos unbroken "$calm_since" "$books"/* >"$weir_tmp/broken" || why=$(head -n 5 "$weir_tmp/broken")
	forget
	late=$((calm_starved - late))
	[ "$downs" = "$calm_downs" ] || why+=" a node is lost: $(grep -h ' is down' "$weir_tmp"/control-*.log "$weir_tmp"/dataplane-*.log)"
	if [ -n "$why" ] && [ "$late" -ge $((weir_node_timeout * 500)) ]; then
		echo "$1: the daemons starved for $late ms, which explains: $why"
	elif [ -n "$why" ]; then
		fail "$1: daemons starved for $late ms only: $why"
	fi
}

# node_downs NAME: how often that data plane was told that a node is lost.
node_downs()
{
	counter "$1" broker.nodes_down
}

# state_is NAME NODE STATE...: what that node knows of another.
state_is()
{
	local name=$1 node=$2 is
	shift 2
	is=$(weirctl --instance "$name" --json show nodes | jq -r --argjson n "$node" '.[] | select(.id == $n) | .state')
	[[ " $* " == *" $is "* ]]
}

# resources FILE: what data planes and controls hold.
resources()
{
	local n who pid
	for n in "${node_name[@]}"; do
		for who in dataplane control; do
			pid=${weir_pid[$who-$n]}
			echo "$who-$n $(find "/proc/$pid/fd" -type l | wc -l) $(awk '/^HugetlbPages/ { print $2 }' "/proc/$pid/status") $(grep -c memfd "/proc/$pid/maps")"
		done
		echo "programs-$n 0 $(weirctl --instance "$n" --json show sessions | jq length) $(weirctl --instance "$n" --json show connections | jq length)"
	done >"$1"
}

# nothing_left FILE: as resources wrote it before. A few descriptors more are no leak: controls connect when needed,
# and stay connected.
nothing_left()
{
	resources "$weir_tmp/left"
	paste -d ' ' "$1" "$weir_tmp/left" | awk '$6 > $2 + 8 || $7 != $3 || $8 != $4 { bad = 1 } END { exit bad }'
}

# Log lines that no action of a test explains.
check_logs()
{
	local log never='crash:|closed: |by the engine|refused: |receiver not ready|remote access error|malformed|Sanitizer|runtime error'
	for log in "$weir_tmp"/dataplane-*.log "$weir_tmp"/control-*.log; do
		! grep -qE "$never" "$log" || fail "${log##*/}: $(grep -E "$never" "$log" | head -n 3)"
	done
}

check_books()
{
	chaos check "$killings" "$books"/* || fail "the books don't agree; who died when: $(tail -n 200 "$killings")"
}
