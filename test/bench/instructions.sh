#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# instructions.sh LOOP_BENCH [MOST]: instructions of a lone message of 64 bytes through an engine, on a loop:
# channel, engine, RoCEv2 core, DPDK port, and back up, without the programs. Exit 1: more than MOST.
set -u

messages=5000
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
# within lone_messages, and not within the programs' functions
if ! valgrind --tool=callgrind --callgrind-out-file="$tmp/callgrind" --toggle-collect=lone_messages \
	--toggle-collect=bench_send --toggle-collect=bench_receive "$1" 64 $messages >"$tmp/log" 2>&1; then
	cat "$tmp/log" >&2
	exit 1
fi
awk -v n=$messages -v most="${2:-0}" '/Collected : [0-9]/ { count = $NF / n; printf "%.0f\n", count }
	END { exit !count || (most && count > most) }' "$tmp/log"
