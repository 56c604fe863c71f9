#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# etcd stops for longer than its leases last, is killed, forgets everything, is full: no node is lost for it, no
# connection ends, and who starts meanwhile or afterwards finds the others.
# lane: control
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_books.sh
. "$(dirname "$0")/_books.sh"

lease=10 # seconds: ETCD_LEASE
node_name=([1]=A [2]=B)
node_control()
{
	run "control-${node_name[$1]}" weir-control --instance "${node_name[$1]}" --node "$1" \
		--listen "127.0.0.1:${weir_port[$1]}" --etcd "$etcd_url"
}

still_well() # WHEN
{
	works "$1"
	calm "$1"
}

# A control that starts anew knows nobody but by etcd.
found_again() # WHEN
{
	stop control-B KILL
	node_control 2
	await state_is A 2 up || fail "$1: A does not see B's new control: $(weirctl --instance A show nodes)"
	await eval "state_is B 1 up" || fail "$1: B's new control does not find A: $(log_of control-B | tail -n 2)"
	still_well "$1"
}

start_etcd
peers 1=10.77.0.1 2=10.77.0.2
memif_plane A 1 "" "${small_node[@]}"
memif_plane B 2 "" "${small_node[@]}"
node_control 1
node_control 2
up A B
start_programs
works "at the beginning"

kill -STOP "${weir_pid[etcd]}"
pause $((lease + 2))
still_well "etcd under SIGSTOP"
kill -CONT "${weir_pid[etcd]}"
found_again "etcd runs again"

stop etcd KILL
pause 2
still_well "etcd dead"
start_etcd
found_again "etcd was dead"

stop etcd KILL
rm -rf "$weir_tmp/etcd"
start_etcd --quota-backend-bytes=2000000
found_again "etcd has forgotten everything"

# until it takes no more
head -c 300000 /dev/zero | base64 -w 0 | jq -Rc '{key: "Zm9v", value: .}' >"$weir_tmp/much"
for ((i = 0; i < 20; i++)); do
	curl -sS "$etcd_url/v3/kv/put" -d @"$weir_tmp/much" >"$weir_tmp/answer"
	! grep -q 'space exceeded' "$weir_tmp/answer" || break
done
grep -q 'space exceeded' "$weir_tmp/answer" || fail "etcd is never full: $(cat "$weir_tmp/answer")"
pause 2
still_well "etcd full"
stop_programs
check_logs
check_books
