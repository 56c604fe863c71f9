#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# kill -9 of a program mid-stream: its peer learns within a second; memory, descriptors, hugepages come back.
# wires: verbs,verbs verbs,roce roce,roce
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes
resources() {
	local pid=${weir_pid[dataplane-$1]}
	echo "fds $(find "/proc/$pid/fd" -type l | wc -l) maps $(grep -c memfd "/proc/$pid/maps") huge $(awk '/HugePages_Free/ {print $2}' /proc/meminfo)"
}
# The first connection makes the link between the nodes, which stays.
run echo probe B echo e
await 10 grep -q ready "$weir_tmp/echo.log"
probe A many node:2:e 1 1 >"$weir_tmp/many.log" 2>&1 || fail "first connection"
stop echo
weirctl --instance A wait connections:0 --timeout 5 || fail "connections remain"
await 5 sh -c "weirctl --instance B --json show sessions | jq -e 'length == 0'" || fail "sessions remain"
before=$(resources A)/$(resources B)

for round in 1 2 3; do
	run "sink$round" probe B sink "s$round"
	await 10 grep -q ready "$weir_tmp/sink$round.log"
	run "send$round" probe A send "node:2:s$round" 100000000 5
	await 10 grep -q 'received 10000' "$weir_tmp/sink$round.log" || die "nothing arrives"
	killed=$(now_ms)
	stop "send$round" KILL
	await 5 grep -q end "$weir_tmp/sink$round.log" || fail "the receiver did not learn of its peer's death"
	read -r at _ status _ < <(grep end "$weir_tmp/sink$round.log")
	[ "$status" = -104 ] || fail "receiver got $status, expected -104 (ECONNRESET)"
	[ $((at - killed)) -le 1000 ] || fail "it took $((at - killed)) ms"
	wait "${weir_pid[sink$round]}"
	unset "weir_pid[sink$round]"
done
for round in 4 5; do
	run "sink$round" probe B sink "s$round"
	await 10 grep -q ready "$weir_tmp/sink$round.log"
	run "send$round" probe A send "node:2:s$round" 100000000 5
	await 10 grep -q 'received 10000' "$weir_tmp/sink$round.log" || die "nothing arrives"
	killed=$(now_ms)
	stop "sink$round" KILL
	await 5 grep -q end "$weir_tmp/send$round.log" || fail "the sender did not learn of its peer's death"
	read -r at _ status _ < <(grep end "$weir_tmp/send$round.log")
	[ "$status" = -104 ] || fail "sender got $status, expected -104 (ECONNRESET)"
	[ $((at - killed)) -le 1000 ] || fail "it took $((at - killed)) ms"
	wait "${weir_pid[send$round]}"
	unset "weir_pid[send$round]"
done
same() { [ "$(resources A)/$(resources B)" = "$before" ]; }
await 5 same || fail "left behind: before $before, now $(resources A)/$(resources B)"
