#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Allocated regions: messages out of and into them beyond 64 MiB, to the other node and to the same; limits of a session;
# what a program leaves when it is killed; others attach and connect while regions come and go.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes --memory 192M --adopt 16M --regions 5
for node in 1 2; do
	where=$([ $node = 1 ] && echo A || echo B)
	serve "to-$node" adopter "$where" to p$node
	adopter A from node:$node:p$node 2000 $node >"$weir_tmp/from.log" 2>&1 ||
		fail "out of a region to node $node: $(last_line from)"
	await grep -q 'end -108 after 2000' "$weir_tmp/to-$node.log" ||
		fail "into a region on node $node: $(last_line to-$node)"
	grep -h 'region of' "$weir_tmp/from.log" "$weir_tmp/to-$node.log"
done
sent=$(counter A .tx_adopted) placed=$(counter B .rx_placed)
echo "of 2000 messages $sent were sent out of a region, $placed came into one"
{ [ "$sent" -gt 500 ] && [ "$placed" -gt 300 ]; } || fail "too few without a copy: $sent sent, $placed placed"

adopter A limits 192 5 >"$weir_tmp/limits.log" 2>&1 || fail "limits: $(last_line limits)"
grep -q 'more than all: -28 .*--memory' "$weir_tmp/limits.log" || fail "more than --memory: $(log_of limits)"
grep -q 'one more byte: -28' "$weir_tmp/limits.log" || fail "a byte beyond --memory: $(log_of limits)"
grep -q '5 regions, then -24 .*--regions' "$weir_tmp/limits.log" || fail "more than --regions: $(log_of limits)"

# others attach, connect and send while regions come and go
serve echo-a probe A echo aside
run churn adopter A churn 5000
for n in 1 2 3; do
	probe A many node:1:aside 2 3 >"$weir_tmp/many.log" 2>&1 || fail "beside regions that come and go: $(last_line many)"
done
gone "${weir_pid[churn]}" || fail "regions come and go for ever"
grep -q 'regions came and went: 0' "$weir_tmp/churn.log" || fail "regions come and go: $(last_line churn)"
last_line churn

# killed with memory posted, and with a region under construction
serve doomed adopter B to d
run sender adopter A from node:2:d 100000 9
await grep -q received "$weir_tmp/doomed.log" || fail "nothing comes: $(last_line doomed)"
stop doomed KILL
gone "${weir_pid[sender]}" || fail "the sender doesn't learn that its peer died"
for n in 1 2 3; do
	run killed adopter A churn 60000
	sleep "0.$n"
	stop killed KILL
done
all_gone() { ! grep -q weir-region /proc/"${weir_pid[dataplane-A]}"/maps /proc/"${weir_pid[dataplane-B]}"/maps; }
await all_gone || fail "memory of programs that are gone is mapped still"
for node in A B; do
	shows $node qps 'all(.state == "RTS")' || fail "a QP of $node has failed: $(weirctl --instance $node show qps)"
done
