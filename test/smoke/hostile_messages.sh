#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Streams to a messenger that break its protocol: pieces that disagree, another's name, messages that never end.
# Handlers get only whole messages, connections of others stay, and the messenger answers.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_hostile.sh
. "$(dirname "$0")/_hostile.sh"

hostile_nodes
for node in A B; do
	serve "serve-$node" courier $node serve
done
for node in 1 2; do
	run "keep-$node" courier A keep $node
	await grep -q 'asked 0' "$weir_tmp/keep-$node.log" || die "no answer of node $node"
done
answered_more() { # NODE COUNT
	[ "$(grep -c 'asked 0' "$weir_tmp/keep-$1.log")" -gt "$2" ]
}
for mode in pieces impostor begun; do
	for node in 1 2; do
		attack $mode $attacker node:$node:courier
		n=$(grep -c 'asked 0' "$weir_tmp/keep-$node.log")
		await answered_more $node "$n" || fail "node $node answers nobody beside $attacking"
		others_go_on
		[ $mode != pieces ] || attack_reaches 1 'agreed: lane stays'
		attack_ends
		if grep -h wrong "$weir_tmp"/serve-?.log; then die "handlers were misled during $attacking"; fi
		for who in serve-A serve-B keep-1 keep-2; do
			has_ended "${weir_pid[$who]}" && die "$who ended during $attacking: $(last_line $who)"
		done
		if grep -h lost "$weir_tmp"/keep-?.log; then die "others have lost their connections during $attacking"; fi
	done
done
