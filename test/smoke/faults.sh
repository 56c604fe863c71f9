#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Queue pairs of both nodes fail all the time, or keys of rings are revoked: streams deliver every
# message, once, in order, and no connection ends.
# wires: verbs,verbs
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

# In the virtual machine a silent fault is noticed after a second. The next one must come later than
# that, or no message gets through.
every=250 messages=12000 least=10
[ -z "${WEIR_WIRE:-}" ] || every=3000 messages=3000 least=3
weir_spec=,fault=$every
two_nodes
server B
serve echo probe B echo e
for name in A B; do
	serve "sink$name" probe "$name" sink s
done
run sendA probe A send node:2:s $messages 11 500
run sendB probe B send node:1:s $messages 12 500
for size in 200000 3000; do
	measured '.verified == true and .count > 0' --instance A node:2 -t bw -s "$size" -D 3 --no-calibrate --verify
done
# connections are made meanwhile
timeout 180 probe A many node:2:e 20 20 >"$weir_tmp/many.log" 2>&1 || fail "many: $(last_line many)"
grep -q 'end 0 after 400' "$weir_tmp/many.log" || fail "many: $(last_line many)"
for name in A B; do
	await grep -q "end -108 after $messages" "$weir_tmp/sink$name.log" || fail "sink $name: $(last_line sink$name)"
	[ "$(counter $name broker.links_repaired)" -ge "$least" ] || fail "$name: $(counter $name broker.links_repaired) repairs: the test tests nothing"
	[ "$(counter $name broker.links_failed)" = 0 ] || fail "$name: $(counter $name broker.links_failed) links failed"
	[ "$(counter $name broker.nodes_down)" = 0 ] || fail "$name: a node counted as lost"
done
