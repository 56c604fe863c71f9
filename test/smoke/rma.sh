#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The cases of test/rma: on one host with the memory mapped and apart, with one and with two ranks on each of two
# nodes. Each data plane has two engines, so ranks of one host are served by both.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
PATH=$WEIR_BUILD/apps/lend:$PATH

# cases MODE INSTANCE...: a rank on each instance; all cases hold.
cases() {
	local mode=$1 group=cases$((++groups)) i=0 instance
	shift
	for instance in "$@"; do
		run "$group-$((i++))" rma-cases "$instance" "$group" $# "$mode"
	done
	while [ $i -gt 0 ]; do
		wait "${weir_pid[$group-$((--i))]}" || fail "$mode $*: rank $i: $(grep -v ' ok$' "$weir_tmp/$group-$i.log" | head -n 5)"
		unset "weir_pid[$group-$i]"
	done
	grep -hqE '^[1-9][0-9]* cases, 0 failed' "$weir_tmp/$group"-*.log || fail "$mode $*: no result"
	if grep -h 'no weir-lend' "$weir_tmp/$group"-*.log; then fail "$mode $*: memory is not lent"; fi
}

groups=0
weir_lcores='0@0,1@0,2@1' two_nodes
for node in A B; do serve "lend-$node" weir-lend --instance "$node" --bytes 1M; done
cases map A A A
cases apart A A A
cases apart A B
cases map A A B B
for node in A B; do
	await shows "$node" exports 'length == 0' || fail "exports are left: $(weirctl --instance "$node" show exports)"
	[ "$(counter "$node" engine.remote_operations)" -gt 1000 ] || fail "$node has executed nothing"
done
