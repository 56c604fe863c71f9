#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Faults of a verbs device, or of its name: one line with cause and remedy each.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/../../smoke/_init.sh"

# expect CODE PATTERN SPEC [COMMAND...]: the data plane with that --nic, run by COMMAND.
expect() {
	refused "$1" "^weir-dataplane: .*$2" "${@:4}" weir-dataplane --no-huge -m 128 --no-pci --lcores 0@0,1@1 -- --instance X --nic "$3"
	cat "$weir_tmp/err"
}

ip link add vethA mtu 1500 type veth peer name vethB
ip link set vethA up && ip link set vethB up
undo "ip link del vethA"
expect 3 'there is no RDMA device; .* rdma link add' verbs:rxe0
rdma link add rxe0 type rxe netdev vethA || skip "no kernel with Soft-RoCE; run it by test/rxe/run.sh"
undo "rdma link del rxe0"
expect 3 'no RDMA device mlx5_0; name one of: rxe0' verbs:mlx5_0
expect 3 'no RoCE v2 GID 10.77.0.1' verbs:rxe0,ip=10.77.0.1/24
ip addr add 10.77.0.1/24 dev vethA
expect 3 'no port 2' verbs:rxe0,port=2
expect 3 'no GID index 200; .* 10.77.0.1 \(RoCE v2\)' verbs:rxe0,gid=200
expect 3 'mtu=4096 is more than the 1024' verbs:rxe0,mtu=4096
expect 2 'UC has no SRQ' verbs:rxe0,transport=uc
expect 3 'ulimit -l' verbs:rxe0 setpriv --bounding-set -ipc_lock,-sys_resource --inh-caps -ipc_lock,-sys_resource prlimit --memlock=65536:65536
ip link set vethA down
expect 3 'port 1 is down; bring its interface up' verbs:rxe0
ip link set vethA up
mv /dev/infiniband "$weir_tmp/hidden"
undo "mv \"$weir_tmp/hidden\" /dev/infiniband"
expect 3 'no /dev/infiniband; load' verbs:rxe0
