#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# suite.sh [NAME SECONDS WIRE SCRIPT]...: inside the machine, tests one after another in one boot; WIRE "-":
# none. Before and behind each one's output a line: "weir-test begin NAME", "weir-test end NAME CODE SECONDS".

# Whatever a test that failed has left behind.
tidy()
{
	local device

	pkill -KILL -s "$1"
	for device in /sys/class/infiniband/*; do
		[ ! -e "$device" ] || rdma link del "${device##*/}"
	done
	ip link del vethA
	ip -all netns del
} 2>/dev/null

while [ $# -ge 4 ]; do
	echo "weir-test begin $1"
	since=$SECONDS
	if [ "$3" = - ]; then unset WEIR_WIRE; else export WEIR_WIRE=$3; fi
	setsid timeout -k 10 "$2" "$4" 2>&1 </dev/null &
	wait $!
	code=$?
	tidy $!
	printf '\nweir-test end %s %s %s\n' "$1" "$code" "$((SECONDS - since))"
	shift 4
done
