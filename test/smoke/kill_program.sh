#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# kill -9 of a program mid-stream: its peer learns within a second; memory, descriptors, hugepages come back.
# wires: verbs,verbs verbs,roce roce,roce
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

# Kernel rxe that retransmits in the middle of a message, for want of a CPU, sends packets that responders refuse: a long timeout.
weir_spec=""
[[ ${WEIR_WIRE:-} != *verbs* ]] || weir_spec=,timeout=2000000
two_nodes
resources() {
	local pid=${weir_pid[dataplane-$1]}
	echo "fds $(find "/proc/$pid/fd" -type l | wc -l) maps $(grep -c memfd "/proc/$pid/maps") huge $(awk '/^HugetlbPages/ {print $2}' "/proc/$pid/status")"
}
# The first connection makes the link between the nodes, which stays.
serve echo probe B echo e
probe A many node:2:e 1 1 >"$weir_tmp/many.log" 2>&1 || fail "first connection"
stop echo
weirctl --instance A wait connections:0 --timeout "$patience" || fail "connections remain"
await sh -c "weirctl --instance B --json show sessions | jq -e 'length == 0'" || fail "sessions remain"
before=$(resources A)/$(resources B)

# told WHO: it learns of the death of its peer within a second of $killed, plus the time for which it starved since $waited.
told() {
	local at status late
	await grep -q end "$weir_tmp/$1.log" || fail "$1 did not learn of its peer's death"
	read -r at _ status _ < <(grep end "$weir_tmp/$1.log")
	late=$(($(starved dataplane-A dataplane-B "$1") - waited))
	[ "$status" = -104 ] || fail "$1 got $status, expected -104 (ECONNRESET)"
	[ $((at - killed)) -le $((1000 + (late > 0 ? late : 0))) ] || fail "$1 learnt after $((at - killed)) ms, starved for $late"
	wait "${weir_pid[$1]}"
	unset "weir_pid[$1]"
}

for round in 1 2 3 4 5; do
	serve "sink$round" probe B sink "s$round"
	run "send$round" probe A send "node:2:s$round" 100000000 5
	await grep -q 'received 10000' "$weir_tmp/sink$round.log" || die "nothing arrives"
	victim=send$round survivor=sink$round
	[ "$round" -le 3 ] || victim=sink$round survivor=send$round
	waited=$(starved dataplane-A dataplane-B "$survivor")
	stop "$victim" KILL
	killed=$(now_ms)
	told "$survivor"
done
same() { [ "$(resources A)/$(resources B)" = "$before" ]; }
await same || fail "left behind: before $before, now $(resources A)/$(resources B)"
