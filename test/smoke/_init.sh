# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Shared by smoke tests, quickstart and benchmarks: nodes on this machine, started and stopped by process id, in a
# run directory of their own. Sourced, not run.
#
#   WEIR_BUILD   build directory (default: build/release of this tree)
#   INTERACTIVE  =1: stop before the cleanup, with a shell in the test's environment
#   weir_logs    =no: a failure shows no logs
#   WEIR_EAL     more EAL arguments for every data plane (default: --no-huge when no hugepages are free)

set -u -o pipefail
weir_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
WEIR_BUILD=${WEIR_BUILD:-$weir_root/build/release}
weir_tmp=$(mktemp -d "${TMPDIR:-/tmp}/weir-smoke.XXXXXX")
export WEIR_RUN_DIR=${WEIR_SMOKE_RUN_DIR:-$weir_tmp/run}
# where DPDK keeps its files: not shared with another test at the same time
export XDG_RUNTIME_DIR=$weir_tmp RUNTIME_DIRECTORY=$weir_tmp
mkdir -p "$WEIR_RUN_DIR"
patience=60 # seconds until await() gives up: long, because a busy machine may take most of it
# seconds after which a silent node counts as lost; empty: the default. Daemons on a busy machine may be silent for a second.
weir_node_timeout=10
PATH=$WEIR_BUILD/dataplane:$WEIR_BUILD/control:$WEIR_BUILD/apps:$WEIR_BUILD/apps/perf:$WEIR_BUILD/test/smoke:$WEIR_BUILD/test/hostile:$WEIR_BUILD/test/rma:$PATH

declare -A weir_pid=()  # name -> pid of what runs
declare -a weir_undo=() # commands, last first
weir_failed=0

# Prints a line and marks the test as failed.
fail() {
	echo "FAIL: $*" >&2
	weir_failed=1
}

# Stops the test at once.
die() {
	fail "$@"
	exit 1
}

# Skips the test, or what is left of it: what has failed before counts.
skip() {
	[ "$weir_failed" = 0 ] || exit 1
	echo "SKIP: $*"
	exit 77
}

# tools TOOL...: at the end of a test that has left out the checks of missing tools.
tools() {
	local tool
	for tool in "$@"; do
		command -v "$tool" >/dev/null || skip "all but the checks with $tool, which is missing; run scripts/test.sh once as root"
	done
}

undo() {
	weir_undo+=("$*")
}

# The end of each log, all together 60 lines or so: without the budget that data planes print at their start.
last_words() {
	local log n=0
	for log in "$weir_tmp"/*.log; do [ ! -s "$log" ] || n=$((n + 1)); done
	for log in "$weir_tmp"/*.log; do
		[ ! -s "$log" ] || { echo "--- ${log##*/}" && grep -av '^   *[a-z].*  *[0-9]' "$log" | tail -n $((60 / n + 2)); }
	done
}

weir_cleanup() {
	local code=$? name i
	trap - EXIT INT TERM
	if [ "${INTERACTIVE:-0}" = 1 ]; then
		echo "run directory $WEIR_RUN_DIR; exit the shell to clean up"
		bash -i || true
	fi
	for name in "${!weir_pid[@]}"; do
		kill -CONT "${weir_pid[$name]}" 2>/dev/null
		kill -TERM "${weir_pid[$name]}" 2>/dev/null
	done
	patience=10
	for name in "${!weir_pid[@]}"; do
		gone "${weir_pid[$name]}" || kill -KILL "${weir_pid[$name]}" 2>/dev/null
		wait "${weir_pid[$name]}" 2>/dev/null
	done
	for ((i = ${#weir_undo[@]} - 1; i >= 0; i--)); do
		eval "${weir_undo[i]}"
	done
	if grep -aEl 'ERROR: (Address|Leak)Sanitizer|: runtime error: ' "$weir_tmp"/*.log 2>/dev/null; then fail "a sanitizer has found something"; fi
	[ "$code" = 0 ] && [ "$weir_failed" != 0 ] && code=1
	if [ "$code" != 0 ] && [ "$code" != 77 ] && [ "${weir_logs:-yes}" = yes ]; then
		last_words >&2
	fi
	rm -rf "$weir_tmp"
	exit "$code"
}
trap weir_cleanup EXIT
trap 'exit 130' INT TERM

# read_uptime: sets now to the seconds since the machine has started. Nobody sets that clock.
read_uptime() {
	read -r now _ </proc/uptime
	now=${now%.*}
}

# await COMMAND...: repeats a quiet command until it succeeds, for $patience seconds; and once more after that, since
# the machine may have held up the last try.
await() {
	local now end last=0
	read_uptime
	end=$((now + patience))
	until "$@" >/dev/null 2>&1; do
		[ "$last" = 0 ] || return 1
		read_uptime
		[ "$now" -lt "$end" ] || last=1
		read -rt 0.05 <> <(:) || true
	done
}

# A zombie of ours counts as ended.
has_ended() {
	[ ! -d "/proc/$1" ] || grep -q '^State:[[:space:]]Z' "/proc/$1/status"
}

# gone PID: waits until the process has ended.
gone() {
	await has_ended "$1"
}

# run NAME COMMAND...: in the background, output in NAME.log, stopped at the end, and when the test is killed.
run() {
	local name=$1
	shift
	[ "$(type -t "$1")" != file ] || set -- setpriv --pdeathsig KILL "$@"
	"$@" >>"$weir_tmp/$name.log" 2>&1 </dev/null &
	weir_pid[$name]=$!
}

# stop NAME [SIGNAL]: ends what run() started and waits for it; returns its exit status.
stop() {
	local pid=${weir_pid[$1]}
	kill -"${2:-TERM}" "$pid" 2>/dev/null
	gone "$pid" || fail "$1 (pid $pid) did not end within $patience s of SIG${2:-TERM}: $(grep State "/proc/$pid/status")"
	unset "weir_pid[$1]"
	wait "$pid" 2>/dev/null
}

# COMMAND | has PATTERN: as `grep -q`, but reads all: `grep -q` would end the writer by SIGPIPE.
has() {
	grep "$@" | cat >/dev/null
}

log_of() {
	cat "$weir_tmp/$1.log"
}

last_line() {
	tail -n 1 "$weir_tmp/$1.log"
}

# serve NAME COMMAND...: as run(), with a new log, until that says "ready".
serve() {
	: >"$weir_tmp/$1.log"
	run "$@"
	await grep -q ready "$weir_tmp/$1.log" || die "$1 is not ready: $(last_line "$1")"
}

# shows INSTANCE WHAT JQ-CONDITION: whether the rows of `weirctl show WHAT` meet it.
shows() {
	weirctl --instance "$1" --json show "$2" | jq -e "$3" >/dev/null
}

# counter INSTANCE NAME: the sum of the counters whose names end with NAME.
counter() {
	weirctl --instance "$1" --json show counters | jq --arg name "$2" '[.[] | select(.name | endswith($name)) | .value] | add // 0'
}

# refused CODE PATTERN COMMAND...: it exits with CODE and prints one line, 'PROGRAM: cause; remedy' or '... (expected X)'.
refused() {
	local code=$1 pattern=$2 got
	shift 2
	timeout "$patience" "$@" >"$weir_tmp/out" 2>"$weir_tmp/err" </dev/null
	got=$?
	[ $got = "$code" ] || fail "exit $got instead of $code: $*: $(head -n 2 "$weir_tmp/err")"
	[ "$(wc -l <"$weir_tmp/err")" = 1 ] || fail "$(wc -l <"$weir_tmp/err") lines instead of one: $*: $(cat "$weir_tmp/err")"
	grep -qE "^[a-z.-]+: .*(; |\(expected ).*" "$weir_tmp/err" || fail "no cause and remedy: $*: $(cat "$weir_tmp/err")"
	grep -qiE "$pattern" "$weir_tmp/err" || fail "does not name the cause ($pattern): $(cat "$weir_tmp/err")"
}

# measured JQ-CONDITION ARGUMENT...: a run of weir-perf in which no result has an error and each meets the condition; its
# JSON is in result.json.
measured() {
	local condition=$1
	shift
	weir-perf "$@" --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log" || {
		fail "weir-perf $*: exit $?, $(last_line perf)"
		return
	}
	jq -e ".results | length > 0 and all(.errors == 0 and ($condition))" "$weir_tmp/result.json" >/dev/null ||
		fail "weir-perf $*: $(jq -c .results "$weir_tmp/result.json")"
}

# target_stopped: a program in which weir-perf exports memory on B is stopped.
target_stopped() {
	local pid
	for pid in $(weirctl --instance B --json show sessions | jq '.[] | select(.name == "weir-perf-target") | .pid'); do
		grep -q '^State:[[:space:]]T' "/proc/$pid/status" && return 0
	done
	return 1
}

# copy_programs NAME...: programs of this folder, and the library, in $weir_tmp/program where every user can run them.
copy_programs() {
	mkdir -p "$weir_tmp/program"
	find "$WEIR_BUILD/lib" -name 'libweir.so*' -not -type d -exec cp -a {} "$weir_tmp/program" \;
	cp "${@/#/$WEIR_BUILD/test/smoke/}" "$weir_tmp/program"
	chmod -R a+rX "$weir_tmp/program"
}

# A hundred of the ports 20000 to 29999 for this run alone. The lock lives until the test and its daemons have ended.
hold_ports() {
	local dir=/tmp/weir-ports-$UID fd
	mkdir -p "$dir" || exit 1
	for ((weir_port0 = 20000; weir_port0 < 30000; weir_port0 += 100)); do
		exec {fd}>>"$dir/$weir_port0"
		flock -n "$fd" && break
		exec {fd}>&-
	done
	[ "$weir_port0" -lt 30000 ] || weir_port0=20000
	echo 0 >"$weir_tmp/ports"
}
hold_ports

# An unused TCP port of 127.0.0.1, another one each time.
free_port() {
	local port n
	for n in {1..100}; do
		read -r n <"$weir_tmp/ports"
		echo $((n + 1)) >"$weir_tmp/ports"
		port=$((weir_port0 + n % 100))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
	done
	echo "$port"
}

eal_memory() {
	if [ -n "${WEIR_EAL:-}" ]; then
		echo "$WEIR_EAL"
	elif [ "$(awk '/HugePages_Free/ {print $2}' /proc/meminfo)" -ge 300 ]; then
		echo "-m 256"
	else
		echo "--no-huge -m 256"
	fi
}

# started NAME: how often that data plane has come up.
started() {
	touch "$weir_tmp/dataplane-$1.log"
	grep -c "instance '$1' is up" "$weir_tmp/dataplane-$1.log" || true
}

# dataplane NAME CPU VDEV SPEC [OPTION...]: one engine on CPU beside the main lcore.
# Variables: weir_netns (run inside this namespace), weir_lcores (EAL --lcores instead of the default), weir_under (a program
# that runs it).
dataplane() {
	local name=$1 cpu=$2 vdev=$3 spec=$4 starts
	shift 4
	starts=$(started "$name")
	# shellcheck disable=SC2046
	run "dataplane-$name" ${weir_netns:+ip netns exec "$weir_netns"} ${weir_under:+"$weir_under"} weir-dataplane \
		--lcores "${weir_lcores:-0@$cpu,1@$cpu}" --no-pci $(eal_memory) ${vdev:+--vdev="$vdev"} \
		-- --instance "$name" ${spec:+--nic "$spec"} ${weir_node_timeout:+--node-timeout "${weir_node_timeout}000"} "$@"
	await eval "[ \$(started $name) -gt $starts ] || has_ended ${weir_pid[dataplane-$name]}"
	[ "$(started "$name")" -gt "$starts" ] || die "data plane $name did not come up: $(tail -n 1 "$weir_tmp/dataplane-$name.log")"
}

# control NAME ID [OPTION...]: with the peers file of this test.
control() {
	local name=$1 id=$2
	shift 2
	run "control-$name" weir-control --instance "$name" --node "$id" --listen "127.0.0.1:${weir_port[$id]}" \
		--peers "$weir_tmp/peers" ${weir_node_timeout:+--node-timeout "${weir_node_timeout}s"} "$@"
}

declare -A weir_port=()

# peers ID=ADDRESS...: writes the peers file and chooses ports.
peers() {
	local entry
	: >"$weir_tmp/peers"
	for entry in "$@"; do
		weir_port[${entry%%=*}]=$(free_port)
		echo "${entry%%=*} 127.0.0.1:${weir_port[${entry%%=*}]} ${entry#*=}" >>"$weir_tmp/peers"
	done
}

up() {
	local name
	for name in "$@"; do
		weirctl --instance "$name" wait up --timeout "$patience" >/dev/null || die "node $name is not up"
	done
}

# An abstract socket: a data plane that is killed leaves no file in its successor's way.
weir_memif=weir-memif-$$

# memif_plane NAME NUMBER [SPEC-OPTIONS [DATAPLANE-OPTION...]]: node 1 or 2 of a pair over memif; node 1 is the server.
memif_plane() {
	local role=client
	[ "$2" != 1 ] || role=server
	dataplane "$1" $(($2 - 1)) "net_memif0,role=$role,id=0,bsize=4224,socket=$weir_memif" \
		"roce:net_memif0,ip=10.77.0.$2/24${3:-}" "${@:4}"
}

# two_nodes_memif [SPEC-OPTIONS [DATAPLANE-OPTION...]]: nodes A (1) and B (2), one CPU each.
two_nodes_memif() {
	peers 1=10.77.0.1 2=10.77.0.2
	memif_plane A 1 "$@"
	memif_plane B 2 "$@"
	control A 1
	control B 2
	up A B
}

# Namespaces of runs that were killed, one of which may have had our process id.
sweep_netns() {
	local ns
	for ns in /run/netns/weir-*-*; do
		[[ -e $ns && (${ns##*-} = "$$" || ! -d /proc/${ns##*-}) ]] && ip netns del "${ns##*/}"
	done
}

# veth_pair MTU: namespaces $weir_ns_a and $weir_ns_b joined by vethA - vethB.
veth_pair() {
	weir_ns_a=weir-a-$$
	weir_ns_b=weir-b-$$
	sweep_netns
	ip netns add "$weir_ns_a" || skip "network namespaces can't be made here"
	undo "ip netns del $weir_ns_a"
	ip netns add "$weir_ns_b" || die "cannot make a second namespace"
	undo "ip netns del $weir_ns_b"
	ip link add vethA netns "$weir_ns_a" mtu "$1" type veth peer name vethB netns "$weir_ns_b" mtu "$1" ||
		die "cannot make a veth pair"
	ip -n "$weir_ns_a" link set vethA up
	ip -n "$weir_ns_b" link set vethB up
	ip netns exec "$weir_ns_a" sysctl -qw net.ipv6.conf.vethA.disable_ipv6=1
	ip netns exec "$weir_ns_b" sysctl -qw net.ipv6.conf.vethB.disable_ipv6=1
}

# veth_plane NAME NUMBER NAMESPACE [FRAME-SIZE [SPEC-OPTIONS [DATAPLANE-OPTION...]]]: a node at that end of veth_pair().
veth_plane() {
	weir_netns=$3 dataplane "$1" $(($2 - 1)) "net_af_packet0,iface=veth$1,qdisc_bypass=0,blocksz=65536,framesz=${4:-2048},framecnt=512" \
		"roce:net_af_packet0,ip=10.78.0.$2/24${5:-}" "${@:6}"
}

# two_nodes_veth [MTU [SPEC-OPTIONS [DATAPLANE-OPTION...]]]
two_nodes_veth() {
	local mtu=${1:-1500} options=${2:-} frame=2048
	shift $(($# < 2 ? $# : 2))
	[ "$mtu" -gt 1500 ] && frame=16384
	veth_pair "$mtu"
	peers 1=10.78.0.1 2=10.78.0.2
	veth_plane A 1 "$weir_ns_a" "$frame" "$options" "$@"
	veth_plane B 2 "$weir_ns_b" "$frame" "$options" "$@"
	control A 1
	control B 2
	up A B
}

# A veth pair in this namespace. DPDK's af_packet makes a number of its own from process id and index of
# the interface, which no two ports may share: with these indices no two processes of a small machine do.
wire_pair() {
	ip link add vethA index 200 mtu "$wire_mtu" type veth peer name vethB index $((200 + 32768)) mtu "$wire_mtu" ||
		die "cannot make a veth pair"
}

# wire_end NAME NUMBER verbs|roce: what one end of the wire is: its interface vethNAME in this namespace
# with kernel Soft-RoCE on it, or a DPDK port. Sets wire_vdev and wire_spec. WEIR_WIRE_NET=six, vlan or
# six,vlan: with IPv6 addresses, in a VLAN.
wire_end() {
	local name=$1 number=$2 frame=2048 address=10.77.0.$2/24 at=veth$1 tag=""

	[ "$wire_mtu" -gt 1500 ] && frame=8192
	sysctl -qw "net.ipv6.conf.veth$name.disable_ipv6=1" "net.ipv4.conf.veth$name.accept_local=1"
	ip link set "veth$name" up
	[[ ${WEIR_WIRE_NET:-} == *six* ]] && address=fd00:77::$number/64
	[[ ${WEIR_WIRE_NET:-} == *vlan* ]] && at=veth$name.77 tag=,vlan=77,pcp=3
	case "$3" in
	verbs)
		if [ -n "$tag" ]; then
			ip link add link "veth$name" name "$at" type vlan id 77 || die "cannot make a VLAN"
			ip link set "$at" up
			sysctl -qw "net.ipv4.conf.${at/./\/}.accept_local=1"
		fi
		if [[ $address == *:* ]]; then
			sysctl -qw "net.ipv6.conf.${at/./\/}.disable_ipv6=0"
			ip addr add "$address" dev "$at" nodad
		else
			ip addr add "$address" dev "$at"
		fi
		rdma link add "rxe$name" type rxe netdev "veth$name" || skip "no kernel with Soft-RoCE; run it by test/rxe/run.sh"
		undo "rdma link del rxe$name 2>/dev/null"
		wire_vdev="" wire_spec=verbs:rxe$name${WEIR_WIRE_NET:+,ip=$address}
		;;
	roce)
		wire_vdev=net_af_packet0,iface=veth$name,qdisc_bypass=0,blocksz=65536,framesz=$frame,framecnt=512
		wire_spec=roce:net_af_packet0,ip=$address$tag
		;;
	*) die "no such end of a wire: $3" ;;
	esac
}

declare -A weir_again=()

# again NAME [DATAPLANE-OPTION...]: that node's data plane, as two_nodes() started it.
again() {
	local name=$1 number vdev spec
	shift
	read -r number vdev spec <<<"${weir_again[$name]}"
	[ "$vdev" = - ] && vdev=""
	dataplane "$name" "$number" "$vdev" "$spec" "$@"
}

# two_nodes [DATAPLANE-OPTION...]: nodes A (1) and B (2), one CPU each, over memif; with
# WEIR_WIRE=END,END, each verbs or roce, over a veth pair: kernel Soft-RoCE or a DPDK port at each end.
# Variable: weir_spec (",KEY=VALUE..." for every --nic).
two_nodes() {
	local wire=${WEIR_WIRE:-} vdev spec
	wire_mtu=${WEIR_WIRE_MTU:-1500}
	if [[ ${WEIR_WIRE_NET:-} == *six* ]]; then
		peers 1=fd00:77::1 2=fd00:77::2
	else
		peers 1=10.77.0.1 2=10.77.0.2
	fi
	if [ -z "$wire" ]; then
		weir_again[A]="0 net_memif0,role=server,id=0,bsize=4224,socket=$weir_memif roce:net_memif0,ip=10.77.0.1/24${weir_spec:-}"
		weir_again[B]="1 net_memif0,role=client,id=0,bsize=4224,socket=$weir_memif roce:net_memif0,ip=10.77.0.2/24${weir_spec:-}"
	else
		wire_pair
		undo "ip link del vethA"
		wire_end A 1 "${wire%,*}"
		weir_again[A]="0 ${wire_vdev:--} $wire_spec${weir_spec:-}"
		wire_end B 2 "${wire#*,}"
		weir_again[B]="1 ${wire_vdev:--} $wire_spec${weir_spec:-}"
	fi
	again A "$@"
	again B "$@"
	control A 1
	control B 2
	up A B
}

# start_etcd [OPTION...]: at $etcd_url, the same each time; its data stay in etcd/ of the test.
start_etcd() {
	etcd_url=${etcd_url:-http://127.0.0.1:$(free_port)} etcd_peer=${etcd_peer:-http://127.0.0.1:$(free_port)}
	run etcd etcd --name c --data-dir "$weir_tmp/etcd" --unsafe-no-fsync --listen-client-urls "$etcd_url" --advertise-client-urls "$etcd_url" \
		--listen-peer-urls "$etcd_peer" --initial-advertise-peer-urls "$etcd_peer" --initial-cluster "c=$etcd_peer" "$@"
}

# one_node [DATAPLANE-OPTION...]: node A (1) with a loop port.
one_node() {
	peers 1=10.79.0.1
	dataplane A 0 "net_ring0" "roce:net_ring0,ip=10.79.0.1/24" "$@"
	control A 1
	up A
}

# server NAME: weir-perf that serves on an instance.
server() {
	run "server-$1" weir-perf --instance "$1"
	await grep -q . "$weir_tmp/server-$1.log" || die "weir-perf on $1 doesn't serve: $(log_of "server-$1")"
}

# starved NAME...: milliseconds for which threads of these have wanted a CPU that others had, so far and all together.
starved() {
	local name
	for name in "$@"; do
		cat "/proc/${weir_pid[$name]}/task/"*/schedstat
	done 2>/dev/null | awk '{ ns += $2 } END { printf "%d\n", ns / 1e6 }'
}

# left_pages PATTERN: hugepage files that no process holds. Tests that run at the same time have such names too.
left_pages() {
	local file
	for file in $(compgen -G "/dev/hugepages/$1"); do
		! flock -xn "$file" true || echo "$file"
	done
}

# now_ms: monotonic milliseconds.
now_ms() {
	awk '{printf "%d\n", $1 * 1000}' /proc/uptime
}

# Makes what a reader has cloned, of this tree, and this build as build/release: prints the folder.
readers_clone() {
	local clone=$weir_tmp/weir entry

	mkdir -p "$clone/build"
	for entry in "$weir_root"/* "$weir_root"/.git; do
		[[ ${entry##*/} == build* ]] || ln -s "$entry" "$clone/"
	done
	ln -s "$WEIR_BUILD" "$clone/build/release"
	echo "$clone"
}
