#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs' own memory, adopted: sent out of and received into, to the other node and to the same; a program that dies
# with memory posted and writes on their way into it; one that misuses all of it.
# wires: verbs,roce
# wired: 600
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

count=3000
[ -z "${WEIR_WIRE:-}" ] || count=300 # there the machine is an emulated one
two_nodes
for node in 1 2; do
	where=$([ $node = 1 ] && echo A || echo B)
	serve "placed-$node" adopter "$where" sink p$node
	adopter A send node:$node:p$node $count $node >"$weir_tmp/adopted.log" 2>&1 ||
		fail "out of adopted memory to node $node: $(last_line adopted)"
	await grep -q "end -108 after $count" "$weir_tmp/placed-$node.log" ||
		fail "into posted memory on node $node: $(last_line placed-$node)"
done
sent=$(counter A .tx_adopted) placed=$(counter B .rx_placed)
echo "of $count messages $sent were sent out of adopted memory, $placed came into posted memory"
# a third of them are large
{ [ "$sent" -gt $((count * 4 / 15)) ] && [ "$placed" -gt $((count / 6)) ]; } || fail "too few without a copy: $sent sent, $placed placed"

serve echo-a probe A echo victim
serve echo-b probe B echo victim
serve doomed adopter B sink d
run sender adopter A send node:2:d 100000 9
await grep -q received "$weir_tmp/doomed.log" || fail "nothing comes: $(last_line doomed)"
stop doomed KILL
gone "${weir_pid[sender]}" || fail "the sender doesn't learn that its peer died"
seed=${SEED:-$RANDOM}
echo "seed $seed"
for address in node:1:victim node:2:victim; do
	hostile A adopt 1 "$seed" $address || fail "mode adopt against $address, seed $seed"
	probe A many $address 2 3 >"$weir_tmp/many.log" 2>&1 || fail "$address afterwards: $(last_line many)"
done
all_gone() { ! grep -q weir-region /proc/"${weir_pid[dataplane-A]}"/maps /proc/"${weir_pid[dataplane-B]}"/maps; }
await all_gone || fail "memory of programs that are gone is mapped still"
for node in A B; do
	shows $node qps 'all(.state == "RTS")' || fail "a QP of $node has failed: $(weirctl --instance $node show qps)"
done
