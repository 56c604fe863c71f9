#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Process 1 of the virtual machine, on the host's root file system under a tmpfs. Runs the script that
# run.sh has left in the folder $1; its output and its exit code leave by virtio ports.
guest=$1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8

read -r hugepages <"$guest/hugepages"
read -r kernel <"$guest/kernel"

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/pts /dev/shm /dev/hugepages /run
mount -t devpts devpts /dev/pts
ln -sfn /proc/self/fd /dev/fd
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t hugetlbfs -o pagesize=2M hugetlbfs /dev/hugepages
mkdir -p /run/lock "/lib/modules/$(uname -r)"
mount --bind "$kernel/lib/modules/$(uname -r)" "/lib/modules/$(uname -r)"
for node in /sys/devices/system/node/node[0-9]*; do
	echo "$hugepages" >"$node/hugepages/hugepages-2048kB/nr_hugepages"
done
modprobe -a virtio_console rdma_rxe ib_uverbs rdma_ucm
ip link set lo up
ulimit -l unlimited -n 65536

# port NAME: the device of a virtio port.
port()
{
	local p

	for p in /sys/class/virtio-ports/*; do
		[ "$(cat "$p/name")" = "$1" ] && echo "/dev/${p##*/}"
	done
}

control=$(port control)
echo up >"$control"
setsid bash "$guest/command" <"/dev/null" >"$(port out)" 2>"$(port err)"
code=$?
echo "exit $code" >"$control"
echo o >/proc/sysrq-trigger
sleep 60
