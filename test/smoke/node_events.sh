#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A program that watches the nodes sees one come, go, and return with another address; both ends know their peer.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
weir_node_timeout=3

# join NAME ID [OPTION...]: a control without a peers file: a node's address is what its data plane says.
weir_port=([1]=$(free_port) [2]=$(free_port))
join() {
	run "control-$1" weir-control --instance "$1" --node "$2" --listen "127.0.0.1:${weir_port[$2]}" \
		--join "127.0.0.1:${weir_port[1]}" --node-timeout 3s "${@:3}"
}
# plane_b ADDRESS: the data plane of B, with that address.
plane_b() {
	dataplane B 1 "net_memif0,role=client,id=0,bsize=4224,socket=$weir_memif" "roce:net_memif0,ip=$1/24"
}
# sees PATTERN: the watching program, now or soon.
sees() {
	await grep -qE " node 2:$1" "$weir_tmp/watch.log" || fail "no event '$1': $(log_of watch)"
}

memif_plane A 1
join A 1
up A
run watch probe A watch
await grep -qE ' node 1: added up; state 1, status 0, at ::ffff:10.77.0.1$' "$weir_tmp/watch.log" || fail "not even the own node: $(log_of watch)"
grep -q ' node 2:' "$weir_tmp/watch.log" && fail "node 2 is not there yet: $(log_of watch)"

plane_b 10.77.0.2
join B 2
up B
sees '.* up; state 1, status 0, at ::ffff:10\.77\.0\.2$'

# who is at the other end: between nodes, and within one
for from in "A 1 0" "B 2 1"; do
	read -r node id local <<<"$from"
	serve sink probe B sink s
	await probe "$node" peer node:2:s || fail "peer, from $node: $(probe "$node" peer node:2:s 2>&1)"
	await grep -q "peer: 0, node $id, local $local\$" "$weir_tmp/sink.log" || fail "the sink, of $node: $(log_of sink)"
	gone "${weir_pid[sink]}" || fail "the sink goes on"
	unset "weir_pid[sink]"
	serve sink probe B sink s
	probe "$node" peer node:2:s >"$weir_tmp/peer.log" 2>&1
	grep -q "peer: 0, node 2, local $local\$" "$weir_tmp/peer.log" || fail "peer, from $node: $(log_of peer)"
	gone "${weir_pid[sink]}" || fail "the sink goes on"
	unset "weir_pid[sink]"
done

# the data plane ends, and another one comes with another address
stop dataplane-B KILL
sees ' down; state 3, status -112, at ::ffff:10\.77\.0\.2$'
plane_b 10.77.0.22
up B
sees '.* restart.* address; state 1, status 0, at ::ffff:10\.77\.0\.22$'
await grep -qE ' node 2:.* up' <(tac "$weir_tmp/watch.log") || fail "not up again: $(log_of watch)"
serve sink probe B sink s
await probe A peer 10.77.0.22:s || fail "the new address: $(probe A peer 10.77.0.22:s 2>&1)"

# its control falls silent: suspect, or down at once where this one was held up
kill -STOP "${weir_pid[control-B]}"
await eval "tail -n 1 '$weir_tmp/watch.log' | grep -qE ' node 2: (suspect|down|suspect down);'" || fail "silence: $(log_of watch)"
kill -CONT "${weir_pid[control-B]}"
await eval "tail -n 1 '$weir_tmp/watch.log' | grep -qE ' node 2:.* up.*; state 1'" || fail "not up after silence: $(log_of watch)"
