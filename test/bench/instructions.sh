#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# instructions.sh LOOP_BENCH|BARE_BENCH|LOCAL_BENCH|ENGINE_BENCH|REMOTE_BENCH|WINDOW_BENCH|CALL_BENCH [MOST [SIZE
# [WORK]]]: instructions of a message of SIZE (64) bytes.
# LOOP_BENCH: a lone one through an engine, on a loop: channel, engine, RoCEv2 core, DPDK port, and back up, without
# the programs; SIZE 0: an idle turn. BARE_BENCH: its copies, ICRCs and port alone. LOCAL_BENCH: weir_send() and
# weir_recv() of programs on one host.
# ENGINE_BENCH: a put, addition (add) or get, of 32 per turn, in both engines. REMOTE_BENCH, WINDOW_BENCH: a call of
# the library, put or as WORK there. CALL_BENCH: a call, with WORK make_ or run_ and packed, many, eager, return: for
# its caller, or where it runs; take_return: its result; run_idle: a turn without work. Exit 1: more than MOST.
set -u

messages=5000 words=()
case "${1##*/}" in
loop_bench) toggles=(counted_turn) ;;
bare_bench) toggles=(counted_message) ;;
engine_bench) toggles=(engine_turn) messages=20000 words=(32 0 1 20000 "${4:-put}") ;;
remote_bench | window_bench) toggles=('calls_*') messages=1600 words=(1600 "${4:-put}") ;;
call_bench) toggles=("${4%%_*}_calls") messages=16384 words=(16384 "${4#*_}") ;;
*) toggles=(send_messages receive_messages) messages=5024 ;;
esac
[ "${#words[@]}" -gt 0 ] || words=("$messages")
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
if ! valgrind --tool=callgrind --callgrind-out-file="$tmp/callgrind" "${toggles[@]/#/--toggle-collect=}" \
	"$1" "${3:-64}" "${words[@]}" >"$tmp/log" 2>&1; then
	cat "$tmp/log" >&2
	exit 1
fi
awk -v n=$messages -v most="${2:-0}" '/Collected : [0-9]/ { count = $NF / n; printf "%." (count < 100) "f\n", count }
	END { exit !count || (most && count > most) }' "$tmp/log"
