#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A hostile program against the data plane and against its local peers: all others go on. Its
# cost for their rates is a figure of scripts/bench.sh.
# wires: verbs,roce
# wired: 900
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_hostile.sh
. "$(dirname "$0")/_hostile.sh"

addresses="node:1:victim node:2:victim"
[ -z "${WEIR_WIRE:-}" ] || addresses=node:2:victim # the local one is on no wire
two_nodes
victims
modes='garbage cursors scribble payload punch refault junk doorbell messages segment flags descriptors requests waiters'
if grep -q 'userfaultfd: ' "$weir_tmp"/*.log; then
	echo 'no userfaultfd here: holes that the kernel fills again are not tried'
	modes=${modes/ refault/}
fi
for mode in $modes; do
	for address in $addresses; do
		hostile A "$mode" 1 "$seed" "$address" || fail "mode $mode against $address, seed $seed"
		for who in send local-send sink local-sink; do
			has_ended "${weir_pid[$who]}" && die "$who ended during $mode ($address): $(last_line $who)"
		done
		for node in 1 2; do
			probe A many node:$node:victim 2 3 >"$weir_tmp/many.log" 2>&1 || fail "victim on node $node after $mode: $(last_line many)"
		done
	done
done
go_on sink local-sink
