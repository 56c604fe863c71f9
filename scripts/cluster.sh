#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# cluster.sh N [OPTIONS] [-- COMMAND...]: N nodes on this machine, each a data plane and a control process,
# joined by a fabric; runs COMMAND when all see each other, then stops everything. Instance n3 is node:3 (and
# 10.88.0.4, except in a mesh, where each wire is a network). COMMAND gets WEIR_CLUSTER ("n0 n1 ..."), WEIR_RUN_DIR
# and a PATH with our programs; without one the nodes stay until Ctrl-C. SIGINT and SIGTERM end COMMAND first.
# Exit: COMMAND's, 1 a node failed, 2 usage, 3 something is missing.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

nodes="" fabric=switch etcd=0 join=0 auto=0 memory="" dir="" report="" logs="" keep=0 command=() from=$PWD

usage()
{
	cat <<END
Usage: cluster.sh N [--fabric switch|bridge|mesh] [--join | --etcd] [--auto] [--memory MIB] [--dir DIR] [--report FILE] [--logs DIR] [--keep] [-- COMMAND...]
  N               nodes, 2 to 32; 64 on a bridge
  --fabric        switch: weir-switch with a memif port per node (default)
                  bridge: a veth per node on a kernel bridge, in namespaces (root)
                  mesh: memif between each two nodes; 2 to 8 nodes, an engine per wire
  --join          no peers file: the others ask n0 to n2; ids as without it
  --etcd          no peers file: the list is in an etcd that is started for it
  --auto          the nodes find their ids themselves: instance n3 is any node, with --join or --etcd
  --memory MIB    DPDK memory of each data plane
  --dir DIR       run directories of the instances lie here (default: a temporary directory)
  --report FILE   writes JSON: time to come up, memory, how often a node counted as lost, exit codes, the switch
  --logs DIR      the logs of all daemons stay here, and they leave core dumps: here, if core_pattern gives no other place
  --keep          nodes stay when COMMAND has ended, until Ctrl-C
Variables: CLUSTER_OPTIONS, more options for every data plane; CLUSTER_NODE_TIMEOUT, seconds, for both daemons.
END
}

wrong()
{
	echo "cluster.sh: $1; see --help" >&2
	exit 2
}

while [ $# -gt 0 ]; do
	case "$1" in
	--fabric) fabric=${2:-}; [[ $fabric =~ ^(switch|bridge|mesh)$ ]] || wrong "no fabric '$fabric'"; shift ;;
	--join) join=1 ;;
	--etcd) etcd=1 ;;
	--auto) auto=1 ;;
	--memory) memory=${2:-}; [[ $memory =~ ^[1-9][0-9]{0,5}$ ]] || wrong "invalid value '$memory' for --memory (expected MiB, 1 to 999999)"; shift ;;
	--dir) dir=${2:-}; [ -d "$dir" ] || wrong "no directory '$dir'"; dir=$(cd "$dir" && pwd); shift ;;
	--report) report=${2:-}; : >"$report" || wrong "'$report' can't be written"; report=$(realpath "$report"); shift ;;
	--logs) logs=${2:-}; [ -d "$logs" ] || wrong "no directory '$logs'"; logs=$(cd "$logs" && pwd); shift ;;
	--keep) keep=1 ;;
	-h | --help) usage; exit 0 ;;
	--) shift; command=("$@"); break ;;
	-*) wrong "unknown option '$1'" ;;
	*)
		[[ -z $nodes && $1 =~ ^[1-9][0-9]?$ ]] || wrong "invalid value '$1' (expected a number of nodes, 2 to 64)"
		nodes=$1
		;;
	esac
	shift
done
[[ -n $nodes && $nodes -ge 2 && $nodes -le 64 ]] || wrong "how many nodes, 2 to 32; 64 on a bridge"
[ "$nodes" -le 32 ] || [ "$fabric" = bridge ] || wrong "a switch has 32 ports; more nodes need --fabric bridge"
[ "$fabric" != mesh ] || [ "$nodes" -le 8 ] || wrong "a data plane has at most 8 ports: mesh is for 2 to 8 nodes"
[ "$fabric" != bridge ] || [ "$(id -u)" -eq 0 ] || { echo "cluster.sh: a bridge needs root; use --fabric switch" >&2; exit 3; }
[ "$auto" = 0 ] || [ "$join$etcd" != 00 ] || wrong "a peers file gives the ids: --auto goes with --join or --etcd"
[ "${#command[@]}" -gt 0 ] || keep=1

# With WEIR_BUILD set, what lies there is run as it is.
if [ -z "${WEIR_BUILD:-}" ]; then
	# shellcheck source=scripts/deps.sh
	. "$root/scripts/deps.sh"
	[ -n "${WEIR_NO_DEPS:-}" ] || install_deps || exit 3
	[ -f "$root/build/release/build.ninja" ] || meson setup "$root/build/release" "$root" --buildtype=release >/dev/null
	ninja -C "$root/build/release" >/dev/null || { echo "cluster.sh: the build failed; see scripts/test.sh" >&2; exit 1; }
fi
[ -z "${WEIR_BUILD:-}" ] || WEIR_BUILD=$(realpath "$WEIR_BUILD")
WEIR_SMOKE_RUN_DIR=$dir
# shellcheck source=test/smoke/_init.sh
. "$root/test/smoke/_init.sh"
PATH=$WEIR_BUILD/dataplane/tools:$WEIR_BUILD/test/tools:$PATH
weir_logs=no
weir_node_timeout=${CLUSTER_NODE_TIMEOUT:-}
ulimit -n "$(ulimit -Hn)" 2>/dev/null
if [ -n "$logs" ]; then
	undo "cp '$weir_tmp'/*.log '$logs'"
	cd "$logs" || exit 3
	ulimit -c unlimited 2>/dev/null || echo "cluster.sh: core dumps are limited to $(ulimit -c) KiB" >&2
fi

say()
{
	echo "cluster.sh: $*" >&2
}

# The last line of each daemon that has something to say.
give_up()
{
	local log

	say "$1"
	for log in "$weir_tmp"/*.log; do
		[ ! -s "$log" ] || echo "  ${log##*/}: $(tail -n 1 "$log")" >&2
	done
	exit 1
}

# CPUs that we may use, one a line.
cpus()
{
	local list part

	list=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
	for part in ${list//,/ }; do
		seq "${part%-*}" "${part#*-}"
	done
}

mapfile -t cpu < <(cpus)
all_cpus=$(IFS=,; echo "${cpu[*]}")

# A node has little: 32 of them fit into a few GiB. Links to all others, an eighth more for those that peers begin; short
# rings, small sessions.
node_options=(--idle adaptive --links "$((nodes * 8 / 7 + 2))" --peer-ring 64K --recv-wrs 64 --tx-frames 1024 --ring-slots 4096
	--session-connections 1024 --max-connections 4096 --max-sessions 16 ${weir_node_timeout:+--node-timeout "${weir_node_timeout}000"})
if [ "$fabric" = mesh ]; then
	memory=${memory:-$((32 + 40 * (nodes - 1 + nodes % 2)))}
	node_options+=(--arena 16M --channels 16)
else
	memory=${memory:-64}
	node_options+=(--arena 8M --channels 8)
fi

# Hugepages for the data planes and the switch, and for a session or two of each; else ordinary pages.
prepare_memory()
{
	local pages=$((nodes * (memory / 2 + 8) + 64))

	if [ "$(id -u)" -eq 0 ]; then
		"$root/scripts/setup_hugepages.sh" --save >"$weir_tmp/hugepages" 2>/dev/null &&
			undo "$root/scripts/setup_hugepages.sh --restore '$weir_tmp/hugepages' >/dev/null 2>&1"
		"$root/scripts/setup_hugepages.sh" --2m "$pages" >/dev/null 2>&1
	fi
	if [ "$(awk '/HugePages_Free/ {print $2}' /proc/meminfo)" -ge "$pages" ]; then
		huge=""
	else
		huge=--no-huge
		say "without hugepages: slower"
	fi
}

choose_ports()
{
	local i port

	: >"$weir_tmp/peers"
	for ((i = 0; i < nodes; i++)); do
		port=$(free_port)
		weir_port[$i]=$port
		echo "$i 127.0.0.1:$port $(addresses "$i")" >>"$weir_tmp/peers"
	done
}

# The line of node I in the peers file.
addresses()
{
	local j list=""

	if [ "$fabric" != mesh ]; then
		echo "10.88.0.$(($1 + 1))"
		return
	fi
	for ((j = 0; j < nodes; j++)); do
		[ "$j" = "$1" ] || list=$list${list:+,}$(wire_address "$1" "$j")
	done
	echo "$list"
}

# node I PORT IP/LEN VDEV [PORT IP/LEN VDEV...]: its data plane with an engine for each of these ports, in
# namespace $weir_netns if that is set.
node()
{
	local i=$1 at lcores n=0
	local -a vdevs=() nics=()
	shift

	at=${cpu[$((i % ${#cpu[@]}))]}
	lcores=0@$at
	for ((; $# > 0; n++)); do
		lcores=$lcores,$((n + 1))@$at
		nics+=(--nic "roce:$1,ip=$2")
		vdevs+=(--vdev="$3")
		shift 3
	done
	# shellcheck disable=SC2086
	run "dataplane-n$i" ${weir_netns:+ip netns exec "$weir_netns"} weir-dataplane --lcores "$lcores" --no-pci \
		--no-telemetry $huge -m "$memory" "${vdevs[@]}" -- --instance "n$i" "${nics[@]}" "${node_options[@]}" ${CLUSTER_OPTIONS:-}
}

fabric_switch()
{
	local i
	local -a vdevs=()

	for ((i = 0; i < nodes; i++)); do
		vdevs+=(--vdev="net_memif$i,role=server,id=$i,bsize=4224,socket=$weir_memif")
	done
	# shellcheck disable=SC2086
	run switch weir-switch --lcores "0@($all_cpus)" --no-pci --no-telemetry $huge -m $((32 + 3 * nodes)) "${vdevs[@]}" -- --json
	for ((i = 0; i < nodes; i++)); do
		node "$i" net_memif0 "10.88.0.$((i + 1))/24" "net_memif0,role=client,id=$i,bsize=4224,socket=$weir_memif"
	done
}

# Address of node I on its wire to J: each wire is a network.
wire_address()
{
	if [ "$1" -lt "$2" ]; then
		echo "10.$((89 + $1)).$2.1"
	else
		echo "10.$((89 + $2)).$1.2"
	fi
}

# Which node is at the other end of port C of node I; I itself: none. Engines that are linked have one number,
# so wires are ports of one number at both ends: rounds of a tournament, in which one rests if they are odd.
opposite()
{
	local i=$1 c=$2 odd=$((nodes - 1 + nodes % 2)) j

	if [ "$i" -eq "$odd" ]; then # the node that stays in the middle of the circle
		j=$((c % 2 ? (c + odd) / 2 : c / 2))
	else
		j=$(((c - i + odd) % odd))
		if [ "$j" -eq "$i" ]; then
			j=$((nodes % 2 ? i : odd))
		fi
	fi
	echo "$j"
}

fabric_mesh()
{
	local i j c
	local -a ports=()

	for ((i = 0; i < nodes; i++)); do
		ports=()
		for ((c = 0; c < nodes - 1 + nodes % 2; c++)); do
			j=$(opposite "$i" "$c")
			if [ "$j" -eq "$i" ]; then
				ports+=("net_ring$c" "10.99.$i.1/24" "net_ring$c")
			elif [ "$i" -lt "$j" ]; then
				ports+=("net_memif$c" "$(wire_address "$i" "$j")/24" "net_memif$c,role=server,id=$j,bsize=4224,socket=$weir_memif-$i")
			else
				ports+=("net_memif$c" "$(wire_address "$i" "$j")/24" "net_memif$c,role=client,id=$i,bsize=4224,socket=$weir_memif-$j")
			fi
		done
		node "$i" "${ports[@]}"
	done
}

# One namespace for the bridge, one for each node: af_packet numbers its ports by process and interface,
# which no two in one namespace may share by chance.
fabric_bridge()
{
	local i middle=weir-bridge-$$ ns

	sweep_netns
	ip netns add "$middle" || { say "network namespaces can't be made here; use --fabric switch"; exit 3; }
	undo "ip netns del $middle"
	ip netns exec "$middle" sysctl -qw net.ipv6.conf.default.disable_ipv6=1
	ip -n "$middle" link add br0 mtu 1500 type bridge mcast_snooping 0 || { say "the kernel makes no bridge; use --fabric switch"; exit 3; }
	ip -n "$middle" link set br0 up
	for ((i = 0; i < nodes; i++)); do
		ns=weir-n$i-$$
		ip netns add "$ns" || give_up "namespace $ns can't be made"
		undo "ip netns del $ns"
		ip netns exec "$ns" sysctl -qw net.ipv6.conf.default.disable_ipv6=1
		ip -n "$middle" link add "n$i" type veth peer name eth0 netns "$ns" || give_up "n$i can't be joined to the bridge"
		ip -n "$middle" link set "n$i" master br0 up
		ip -n "$ns" link set eth0 up
		weir_netns=$ns node "$i" net_af_packet0 "10.88.0.$((i + 1))/24" \
			"net_af_packet0,iface=eth0,qdisc_bypass=0,blocksz=65536,framesz=2048,framecnt=512"
	done
}

# Fails at once when a daemon has ended.
none_ended()
{
	local name

	for name in "${!weir_pid[@]}"; do
		! has_ended "${weir_pid[$name]}" || give_up "$name has ended: $(tail -n 1 "$weir_tmp/$name.log")"
	done
}

# await_all WHAT COMMAND...: repeats COMMAND NUMBER until it succeeds for each node.
await_all()
{
	local what=$1 i now end

	read_uptime
	end=$((now + 180))
	shift

	for ((i = 0; i < nodes; i++)); do
		until "$@" "$i"; do
			none_ended
			read_uptime
			[ "$now" -lt "$end" ] || give_up "n$i: $what not within 180 s"
			read -rt 0.05 <> <(:) || true
		done
	done
}

is_started()
{
	grep -q " is up, " "$weir_tmp/dataplane-n$1.log"
}

# A node is up for others before its control has said its addresses.
sees_all()
{
	[ "$(weirctl --instance "n$1" --json show nodes 2>/dev/null | grep -Eo '"(state": *"up"|address": *"[^"])' | wc -l)" -eq $((2 * nodes)) ]
}

# Control of node I.
start_control()
{
	local i=$1 id=$1

	[ "$auto" = 0 ] || id=auto
	if [ "$etcd" = 1 ]; then
		run "control-n$i" weir-control --instance "n$i" --node "$id" --listen "127.0.0.1:${weir_port[$i]}" --etcd "$etcd_url" ${weir_node_timeout:+--node-timeout "${weir_node_timeout}s"}
	elif [ "$join" = 1 ]; then
		run "control-n$i" weir-control --instance "n$i" --node "$id" --listen "127.0.0.1:${weir_port[$i]}" --join "$seeds" ${weir_node_timeout:+--node-timeout "${weir_node_timeout}s"}
	else
		control "n$i" "$i"
	fi
}

# Everything starts at once; a process that needs another one waits for it.
start_all()
{
	local begin i

	choose_ports
	seeds=127.0.0.1:${weir_port[0]},127.0.0.1:${weir_port[1]},127.0.0.1:${weir_port[$((nodes > 2 ? 2 : 0))]}
	begin=$(now_ms)
	[ "$etcd" = 0 ] || start_etcd
	"fabric_$fabric"
	for ((i = 0; i < nodes; i++)); do
		start_control "$i"
	done
	await_all "its data plane is up" is_started
	planes_ms=$(($(now_ms) - begin))
	await_all "it sees all nodes" sees_all
	up_ms=$(($(now_ms) - begin))
}

# The switch tells what it did since it told last.
switch_tells()
{
	local before

	[ -n "${weir_pid[switch]:-}" ] || return 0
	before=$(grep -c '^{' "$weir_tmp/switch.log")
	kill -USR1 "${weir_pid[switch]}"
	await eval "[ \"\$(grep -c '^{' '$weir_tmp/switch.log')\" -gt $before ]"
}

# KiB that all daemons hold: PSS and hugepages in use.
memory_now()
{
	local pid sum=0

	for pid in "${weir_pid[@]}"; do
		sum=$((sum + $(awk '/^Pss:/ { print $2 }' "/proc/$pid/smaps_rollup" 2>/dev/null || echo 0)))
	done
	awk -v sum="$sum" '/^HugePages_Total/ { t = $2 } /^HugePages_Free/ { f = $2 } /^Hugepagesize/ { s = $2 }
		END { print sum + (t - f) * s }' /proc/meminfo
}

# All at once; the switch last. Sets failed to those that didn't end well.
stop_cluster()
{
	local name

	failed=()
	for name in "${!weir_pid[@]}"; do
		[[ $name == switch || $name == etcd ]] || kill -TERM "${weir_pid[$name]}" 2>/dev/null
	done
	for name in "${!weir_pid[@]}"; do
		[[ $name == switch || $name == etcd ]] || stop "$name" || failed+=("$name")
	done
	[ -z "${weir_pid[switch]:-}" ] || stop switch || failed+=(switch)
	[ -z "${weir_pid[etcd]:-}" ] || stop etcd || true # it says that a signal ended it
}

# Lines of controls and data planes that say so. While nodes start, those that haven't yet are down, too.
nodes_down()
{
	cat "$weir_tmp"/control-*.log "$weir_tmp"/dataplane-*.log | grep -cE 'node [0-9]+ is down'
}

# Since all were up: sets downs.
count_downs()
{
	downs=$(($(nodes_down) - downs))
	[ "$downs" -eq 0 ] || say "nodes were taken for lost: $(grep -hoE 'node [0-9]+ is down: .*' "$weir_tmp"/control-*.log | grep -v 'does not run' |
		sort | uniq -c | sort -rn | head -n 5 | tr -s ' \n' ' ;')"
}

write_report()
{
	jq -n --argjson nodes "$nodes" --arg fabric "$fabric" --argjson planes "$planes_ms" --argjson up "$up_ms" \
		--argjson memory "$memory_kib" --argjson code "$1" --argjson down "$downs" --slurpfile switch "$weir_tmp/switch.json" \
		'{nodes: $nodes, fabric: $fabric, dataplanes_up_s: ($planes / 1000), up_s: ($up / 1000),
		memory_mib: ($memory / 1024 | round), nodes_down: $down, command_exit: $code, failed: $ARGS.positional,
		switch: ($switch[0] // null)}' --args -- "${failed[@]}" >"$report"
}

prepare_memory
start_all
memory_kib=$(memory_now)
downs=$(nodes_down)
say "$nodes nodes are up after $((up_ms / 1000)).$(printf '%03d' $((up_ms % 1000))) s, $((memory_kib / 1024)) MiB in use, $fabric"
switch_tells
names=$(seq -s ' ' -f 'n%g' 0 $((nodes - 1)))
export WEIR_CLUSTER=$names PATH
code=0
if [ "${#command[@]}" -gt 0 ]; then
	(cd "$from" && exec "${command[@]}") <&0 &
	child=$! ended=0
	trap 'ended=1; kill -TERM "$child" 2>/dev/null' INT TERM
	wait "$child"
	code=$?
	if [ "$ended" = 1 ]; then # the signal ended the wait, and will end COMMAND
		wait "$child"
		code=$?
	fi
	trap 'exit 130' INT TERM
fi
switch_tells
if [ -n "${weir_pid[switch]:-}" ]; then
	grep '^{' "$weir_tmp/switch.log" | tail -n 1 >"$weir_tmp/switch.json"
	say "$(jq -r '"switch: \(1000 * .cpu_share_last | round / 10) % of a CPU meanwhile, \(.flooded) frames flooded, \([.ports[].full] | add) dropped at full queues"' \
		"$weir_tmp/switch.json")"
else
	: >"$weir_tmp/switch.json"
fi
if [ "$keep" = 1 ]; then
	say "programs: export WEIR_RUN_DIR=$WEIR_RUN_DIR PATH=$WEIR_BUILD/apps:$WEIR_BUILD/apps/perf:\$PATH; weirctl --instance n0 show nodes"
	say "logs: $weir_tmp; Ctrl-C ends it"
	ended=0
	trap 'ended=1' INT TERM
	while [ "$ended" = 0 ]; do
		none_ended
		sleep 1
	done
	trap 'exit 130' INT TERM
fi
count_downs
stop_cluster
[ "${#failed[@]}" -eq 0 ] || { say "did not end well: ${failed[*]}"; [ "$code" -ne 0 ] || code=1; }
[ -z "$report" ] || write_report "$code"
exit "$code"
