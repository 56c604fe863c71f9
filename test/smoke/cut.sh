#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two nodes whose controls and data planes share a wire that is cut and mended, under traffic that is accounted
# for: control's way alone (suspicion only), the data's way alone (traffic waits), both, both in one direction.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_books.sh
. "$(dirname "$0")/_books.sh"

node_name=([1]=A [2]=B)
weir_node_timeout=3
declare -A ns address
# Controls have addresses of their own, which lie on no wire; routes say over which they talk: veth, or spare.
wires()
{
	local end
	veth_pair 1500
	ns=([A]=$weir_ns_a [B]=$weir_ns_b)
	address=([A]=10.79.0.1 [B]=10.79.0.2)
	ip link add spareA netns "${ns[A]}" type veth peer name spareB netns "${ns[B]}" || die "cannot make a second veth pair"
	for end in A B; do
		ip -n "${ns[$end]}" link set lo up
		ip -n "${ns[$end]}" link set "spare$end" up
		ip -n "${ns[$end]}" addr add "${address[$end]}/32" dev lo
	done
	control_over veth
}

control_over() # veth|spare|nothing
{
	local end other
	for end in A B; do
		other=$([ "$end" = A ] && echo B || echo A)
		if [ "$1" = nothing ]; then
			ip -n "${ns[$end]}" route replace blackhole "${address[$other]}/32"
		else
			ip -n "${ns[$end]}" route replace "${address[$other]}/32" dev "$1$end" src "${address[$end]}"
		fi
	done
}

node()
{
	veth_plane "$1" "$2" "${ns[$1]}" 2048 "" "${small_node[@]}"
	run "control-$1" ip netns exec "${ns[$1]}" weir-control --instance "$1" --node "$2" --listen "${address[$1]}:7471" \
		--peers "$weir_tmp/peers" --insecure --node-timeout "${weir_node_timeout}s"
}

link() # up|down
{
	ip -n "${ns[A]}" link set vethA "$1"
}

sees() # STATE: both of each other
{
	await state_is A 2 "$1" || fail "node 2 is not $1 to A: $(weirctl --instance A show nodes)"
	await state_is B 1 "$1" || fail "node 1 is not $1 to B: $(weirctl --instance B show nodes)"
}

# Both lose each other, and all that waited has ended.
sees_down() # WHEN CUT-AT STARVED-THEN
{
	local took late=-$3
	sees down
	took=$(($(now_ms) - $2))
	late=$((late + $(starved {dataplane,control}-{A,B})))
	echo "$1: both nodes down to each other after $took ms"
	[ "$took" -le $((10000 + late)) ] || fail "$1: noticed after $took ms, of which the daemons starved for $late"
}

wires
printf '%s\n' "1 ${address[A]}:7471 10.78.0.1" "2 ${address[B]}:7471 10.78.0.2" >"$weir_tmp/peers"
node A 1
node B 2
up A B
start_programs
works "at the beginning"

control_over nothing
sees suspect
pause 4
works "controls don't hear each other"
control_over veth
sees up
works "controls hear each other again"

control_over spare
sees up
link down
pause 3
sees up
link up
works "the data's way was cut for 3 s"
control_over veth
sees up
calm "one of two ways was cut"

waited=$(starved {dataplane,control}-{A,B})
cut=$(now_ms)
link down
sees_down "wire cut" "$cut" "$waited"
link up
control_over veth
sees up
works "the wire is mended"

# frames of A are lost, those of B arrive: a bucket that takes none
waited=$(starved {dataplane,control}-{A,B})
cut=$(now_ms)
ip netns exec "${ns[A]}" tc qdisc add dev vethA root tbf rate 8kbit burst 10 latency 1ms || die "tc makes no tbf"
sees_down "wire cut in one direction" "$cut" "$waited"
ip netns exec "${ns[A]}" tc qdisc del dev vethA root
sees up
works "the direction is mended"
stop_programs
check_logs
check_books
