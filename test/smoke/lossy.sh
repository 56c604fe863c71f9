#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Loss, duplication, reordering: every byte arrives, once, in order.
# wires: verbs,roce roce,roce
# wired: 600
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

count=100000
if [ -z "${WEIR_WIRE:-}" ]; then
	weir_spec=,loss=1,dup=1,reorder=1,seed=7 two_nodes
else
	# there the machine is an emulated one; both kinds of end lose in the kernel
	count=2000
	two_nodes
	for end in A B; do
		tc qdisc add dev "veth$end" root netem loss 1% duplicate 1% delay 1ms reorder 99% limit 10000 || die "no netem"
	done
fi
serve sink probe B sink s
probe A send node:2:s $count 11 >"$weir_tmp/send.log" 2>&1 || fail "sender: $(last_line send)"
await grep -q "end -108 after $count" "$weir_tmp/sink.log" || fail "sink: $(last_line sink)"
if [ -z "${WEIR_WIRE:-}" ]; then
	shows A ports '.[0].drops.impaired > 0' || fail "nothing was dropped: the impairment does not work"
else
	for end in A B; do
		tc -s qdisc show dev "veth$end" | grep -q 'dropped [1-9]' || fail "nothing was lost at $end: the test tests nothing"
	done
fi
