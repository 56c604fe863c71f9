#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs, data planes, controls, etcd and the switch between the nodes die by SIGKILL at random, under traffic
# between all nodes, and are started again: first two nodes on a memif with a peers file, then three on a switch
# whose list is in etcd.
# Every message is accounted for by what a completion means; afterwards everything works, and nothing is left.
#   CHAOS_SECONDS  how long, of which a third is on the memif [60]
#   CHAOS_WHO      only whom this matches, of: sender N, receiver N, dataplane N, control N, etcd 0, switch 0
#   CHAOS_LOG      a file for who died when
#   CHAOS_SEED     who dies, and for how long [a random one, which is told]
# timeout: 600
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_books.sh
. "$(dirname "$0")/_books.sh"

seconds=${CHAOS_SECONDS:-60}
seed=${CHAOS_SEED:-$((RANDOM * 32768 + RANDOM))}
echo "seed $seed"

start_plane()
{
	local vdev=net_memif0,role=client,id=$1
	if [ "$fabric" = memif ]; then
		vdev=net_memif0,role=$([ "$1" = 1 ] && echo server || echo client),id=0
	fi
	run "dataplane-${node_name[$1]}" weir-dataplane --lcores "0@$(($1 % 2)),1@$(($1 % 2))" "${small_eal[@]}" \
		--vdev="$vdev,bsize=4224,socket=$weir_memif-$fabric" -- --instance "${node_name[$1]}" \
		--nic "roce:net_memif0,ip=10.77.0.$1/24" "${small_node[@]}"
}

start_control()
{
	local -a source=(--peers "$weir_tmp/peers")
	[ "$fabric" = memif ] || source=(--etcd "$etcd_url")
	run "control-${node_name[$1]}" weir-control --instance "${node_name[$1]}" --node "$1" \
		--listen "127.0.0.1:${weir_port[$1]}" "${source[@]}"
}

# Connects the memifs of the nodes, which connect again after it died.
start_switch()
{
	local n
	local -a vdevs=()
	for n in "${!node_name[@]}"; do
		vdevs+=(--vdev="net_memif$n,role=server,id=$n,bsize=4224,socket=$weir_memif-$fabric")
	done
	run switch weir-switch --lcores "0@(0-1)" "${small_eal[@]}" "${vdevs[@]}" --
}

# WHO NODE: its name for run() and stop().
name_of()
{
	[ "$2" = 0 ] && echo "$1" || echo "$1-${node_name[$2]}"
}

start()
{
	case $1 in
	dataplane) start_plane "$2" ;;
	control) start_control "$2" ;;
	etcd) start_etcd ;;
	switch) start_switch ;;
	*) start_program "$@" ;;
	esac
	note start "$@"
}

# Lines "WHO NODE": all at once. None may have ended by itself before.
kill_all()
{
	local who node name
	while read -r who node; do
		name=$(name_of "$who" "$node")
		note kill "$who" "$node"
		has_ended "${weir_pid[$name]}" && fail "$name had ended before it was killed: $(last_line "$name")"
		kill -KILL "${weir_pid[$name]}" 2>/dev/null
	done <<<"$1"
	while read -r who node; do
		stop "$(name_of "$who" "$node")" KILL 2>>"$weir_tmp/stop.log" # the shell tells of each
	done <<<"$1"
}

victims()
{
	local n
	{
		for n in "${!node_name[@]}"; do
			printf '%s\n' "sender $n" "receiver $n" "dataplane $n" "control $n"
		done
		[ "$fabric" = memif ] || printf '%s\n' "etcd 0" "switch 0"
	} | grep -E "${CHAOS_WHO:-.}"
}

# SECONDS: one to three at a time; each is away for up to a second and a half.
kill_at_random()
{
	local end=$((SECONDS + $1)) all who each
	all=$(victims)
	while [ "$SECONDS" -lt "$end" ]; do
		who=$(shuf -n $((1 + RANDOM % 2 + RANDOM % 3 / 2)) --random-source=<(yes "$RANDOM") <<<"$all")
		kill_all "$who"
		while read -r each; do
			pause "$((RANDOM % 4 / 3)).$((RANDOM % 6))"
			# shellcheck disable=SC2086
			start $each
		done <<<"$who"
		pause "$((RANDOM % 3 / 2)).$((RANDOM % 10))"
	done
}

prepare_memif()
{
	node_name=([1]=memif1 [2]=memif2)
	peers 1=10.77.0.1 2=10.77.0.2
}

prepare_switch()
{
	local n
	node_name=([1]=switch1 [2]=switch2 [3]=switch3)
	for n in 1 2 3; do
		weir_port[$n]=$(free_port)
	done
	start_etcd
	start_switch
}

# FABRIC SECONDS
chaos_on()
{
	local n
	fabric=$1
	RANDOM=$seed
	"prepare_$fabric"
	for n in "${!node_name[@]}"; do
		start_plane "$n"
		start_control "$n"
	done
	up "${node_name[@]}"
	start_programs
	works "$fabric, before anybody died"
	stop_programs
	resources "$weir_tmp/before"

	start_programs
	works "$fabric, once more"
	kill_at_random "$2"
	up "${node_name[@]}"
	works "$fabric, after the last death"
	stop_programs
	await nothing_left "$weir_tmp/before" ||
		fail "$fabric: left behind: $(diff "$weir_tmp/before" "$weir_tmp/left") (descriptors, hugepages or sessions, memory or connections)"
	check_logs
	for n in "${node_name[@]}"; do
		stop "control-$n" || fail "control of $n did not end well"
		stop "dataplane-$n" || fail "data plane of $n did not end well"
	done
	[ -z "$(left_pages "weir-$fabric*")" ] || fail "files of hugepages are left: $(left_pages "weir-$fabric*")"
}

chaos_on memif $((seconds / 3))
chaos_on switch $((seconds - seconds / 3))
check_books
cat "$killings" >"${CHAOS_LOG:-/dev/null}"
awk '$2 == "kill" { n[$3]++ } END { for (w in n) printf "%s%d times a %s", (m++ ? ", " : "killed: "), n[w], w; print "" }' "$killings"
