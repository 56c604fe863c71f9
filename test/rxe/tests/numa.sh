#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two engines on two NUMA nodes: the kernel says (move_pages) that what each driver keeps for an engine,
# pools, rings, tables, queues, lies on the engine's own node, and in an arena each engine's receive blocks;
# DPDK's memory is there on both.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/../../smoke/_init.sh"

[ -d /sys/devices/system/node/node1 ] || skip "one NUMA node; run it by test/rxe/run.sh"
PATH=$WEIR_BUILD/test/rxe:$PATH

# either driver, with the engines on two nodes and, so that it is no chance, on one
ip link add vethA mtu 1500 type veth peer name vethB mtu 1500 || die "cannot make a veth pair"
undo "ip link del vethA"
ip link set vethA up && ip link set vethB up && ip addr add 10.77.0.1/24 dev vethA
rdma link add rxeA type rxe netdev vethA || skip "no kernel with Soft-RoCE; run it by test/rxe/run.sh"
undo "rdma link del rxeA"
for node in 1 0; do
	numa_probe --lcores 0@0,1@1 --no-pci --in-memory --socket-mem 64,64 --vdev net_ring0 -- $node roce:net_ring0,ip=10.82.0.1/24 verbs:rxeA \
		>"$weir_tmp/numa.log" 2>&1 || fail "engines on 0 and $node: $(log_of numa)"
	grep 'looked at' "$weir_tmp/numa.log" || fail "nothing looked at: $(log_of numa)"
done

weir_lcores=0@0,1@0,2@1 dataplane A 0 "" ""
serve echo probe A echo e
cat >"$weir_tmp/nodes.py" <<'P'
# Prints the runs of 2 MiB pages by node: "0x16 1x8 0x8"
import ctypes, itertools, re, sys
pid = int(sys.argv[1])
at = [re.match(r"(\w+)-(\w+) .*memfd:weir-arena", line) for line in open(f"/proc/{pid}/maps")]
at = [int(x, 16) for m in at if m for x in m.groups()]
begin, end = min(at), max(at)  # one mapping, in pieces of different policy
page = 2 << 20
n = (end - begin) // page
pages = (ctypes.c_void_p * n)(*[begin + i * page for i in range(n)])
status = (ctypes.c_int * n)()
libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall(279, pid, ctypes.c_ulong(n), pages, None, status, 0):
    sys.exit(f"move_pages: errno {ctypes.get_errno()}")
print(" ".join(f"{node}x{len(list(run))}" for node, run in itertools.groupby(status)))
P
runs=$(python3 "$weir_tmp/nodes.py" "${weir_pid[dataplane-A]}") || die "move_pages: $runs"
echo "2 MiB pages of the arena by node: $runs"
# tables and the first engine's blocks, the second's (a quarter of 64 MiB, less a page at a border), the send heap
[[ "$runs" =~ ^0x[0-9]+\ 1x([0-9]+)\ 0x[0-9]+$ ]] || die "expected node 0, 1, 0: $runs"
((BASH_REMATCH[1] >= 7 && BASH_REMATCH[1] <= 8)) || fail "${BASH_REMATCH[1]} pages of the second engine on its node"
for node in 0 1; do
	awk -v n="N$node=" '/rtemap|\/dev\/hugepages|huge/ && index($0, n) {found = 1} END {exit !found}' "/proc/${weir_pid[dataplane-A]}/numa_maps" ||
		fail "no hugepages of the data plane on node $node"
done
