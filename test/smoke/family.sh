#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs that fork in the middle of traffic, and threads that come and go: children have nothing of
# the parent's and may attach themselves, channels are used again, what a thread left behind arrives.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes
for node in A B; do
	serve echo-$node probe $node echo e
	serve count-$node family $node count count
done
for address in node:1:e node:2:e; do
	family A fork $address 24 >"$weir_tmp/fork.log" 2>&1 || fail "fork, $address: $(last_line fork)"
	run churn family A churn $address 96
	await grep -q '^end' "$weir_tmp/churn.log"
	grep -q '^end 0' "$weir_tmp/churn.log" || fail "threads, $address: $(last_line churn)"
	weirctl --instance A --json show sessions >"$weir_tmp/sessions.json"
	stop churn
	mv "$weir_tmp/churn.log" "$weir_tmp/churn-before.log"
	# 96 threads have had the channels of 8, of the one that was there, and of those who left messages behind, until these are gone; a fourth does
	jq -e '[.[] | select(.name == "family" and .listeners == 0)][0].channels <= 20' "$weir_tmp/sessions.json" >/dev/null ||
		fail "channels were not used again: $(jq -c . "$weir_tmp/sessions.json")"
done
weirctl --instance A wait connections:0 --timeout "$patience" || fail "connections remain"

before=$(grep -c 'closed -104' "$weir_tmp/echo-B.log")
family A orphan node:2:e >"$weir_tmp/orphan.log" 2>&1
child=$(awk '/^child/ {print $2}' "$weir_tmp/orphan.log")
[ -n "$child" ] || die "no child is left behind: $(last_line orphan)"
await sh -c "[ \$(grep -c 'closed -104' $weir_tmp/echo-B.log) -gt $before ]" ||
	fail "a program's death is not noticed while a child of it lives"
kill "$child" || fail "the child has not lived on"
exit $weir_failed
