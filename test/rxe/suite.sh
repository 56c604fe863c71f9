#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# suite.sh [NAME SECONDS WIRE SCRIPT]...: inside the machine, tests one after another in one boot; WIRE "-":
# none. Before and behind each one's output a line: "weir-test begin NAME", "weir-test end NAME CODE SECONDS".

# Removes leftovers of a failed test.
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

# EAL opens every driver that it finds, and there are a hundred: one second of emulated time per process.
few_drivers()
{
	local all few=/run/drivers name

	for all in /usr/lib/*/dpdk/pmds-*; do
		mkdir -p "$few" && chmod 755 "$few" # EAL trusts no folder that others may write to
		for name in bus_pci bus_vdev mempool_ring net_af_packet net_memif net_ring net_tap; do
			cp -a "$all/librte_$name.so"* "$few"
		done
		mount --bind "$few" "$all"
	done
}

few_drivers
export WEIR_EAL="${WEIR_EAL:--m 32}" # there is more when it is needed; hugepages take their time too
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
