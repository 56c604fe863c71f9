#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# scripts/setup_hugepages.sh against a made-up machine: two NUMA nodes with both page sizes.
set -u

script=$(cd "$(dirname "$0")/../../scripts" && pwd)/setup_hugepages.sh
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failed=0

fail()
{
	echo "FAILED: $1"
	failed=1
}

# A machine with $1 KiB available.
machine()
{
	local node size

	rm -rf "$tmp/nodes"
	for node in 0 1; do
		for size in 2048 1048576; do
			mkdir -p "$tmp/nodes/node$node/hugepages/hugepages-${size}kB"
			echo 0 >"$tmp/nodes/node$node/hugepages/hugepages-${size}kB/nr_hugepages"
			echo 0 >"$tmp/nodes/node$node/hugepages/hugepages-${size}kB/free_hugepages"
		done
	done
	printf 'MemTotal: 9 kB\nMemAvailable: %s kB\n' "$1" >"$tmp/meminfo"
}

hugepages()
{
	WEIR_SYS_NODES=$tmp/nodes WEIR_MEMINFO=$tmp/meminfo WEIR_HUGE_MOUNTS=$tmp WEIR_NO_MOUNT=1 \
		"$script" "$@" >"$tmp/out" 2>"$tmp/err"
}

pages()
{
	cat "$tmp/nodes/node$1/hugepages/hugepages-$2kB/nr_hugepages"
}

all_pages()
{
	echo "$(pages 0 2048) $(pages 1 2048) $(pages 0 1048576) $(pages 1 1048576)"
}

expect()
{
	[ "$2" = "$3" ] || fail "$1: '$2', expected '$3'"
}

usage_errors()
{
	machine 99999999
	hugepages --nonsense
	expect "unknown option" $? 2
	expect "one line" "$(wc -l <"$tmp/err")" 1
	hugepages --2m many
	expect "not a number" $? 2
	hugepages --2m -5
	expect "negative number" $? 2
	hugepages --restore /nonexistent
	expect "no file to restore" $? 2
	echo "root:x:0:0" >"$tmp/saved"
	hugepages --restore "$tmp/saved"
	expect "not what --save wrote" $? 2
	expect "nothing changed" "$(all_pages)" "0 0 0 0"
}

reserving()
{
	machine 99999999
	hugepages --2m 64 --1g 2 || fail "reserve: $(cat "$tmp/err")"
	expect "every node has both" "$(all_pages)" "64 64 2 2"
	grep -q 'node 1: pages of 2 MiB: 0 -> 64' "$tmp/out" || fail "it doesn't say what it did"
	hugepages --2m 64 --1g 2 || fail "again"
	expect "again changes nothing" "$(all_pages)" "64 64 2 2"
	grep -q 'already' "$tmp/out" || fail "it doesn't say that all is there"
	hugepages --2m 16 || fail "fewer"
	expect "never takes away" "$(all_pages)" "64 64 2 2"
	hugepages --status || fail status
	grep -q 'node 0: 64 pages of 2 MiB' "$tmp/out" || fail "status: $(cat "$tmp/out")"
}

without_memory()
{
	machine 1000000
	hugepages --2m 512
	expect "no memory" $? 3
	expect "no memory changes nothing" "$(all_pages)" "0 0 0 0"
	expect "one line" "$(wc -l <"$tmp/err")" 1
	grep -q '2048 MiB more are wanted, 976 MiB are available' "$tmp/err" ||
		fail "what is missing: $(cat "$tmp/err")"
	hugepages --2m 9999999
	expect "no memory by far" $? 3
	expect "one line" "$(wc -l <"$tmp/err")" 1
	grep -q '39999996 MiB more are wanted' "$tmp/err" || fail "what is missing: $(cat "$tmp/err")"
	rm -rf "$tmp/nodes"/node?/hugepages/hugepages-1048576kB
	hugepages --2m 1 --1g 1
	expect "no pages of 1 GiB" $? 3
	expect "that changes nothing" "$(pages 0 2048)" 0
}

restoring()
{
	machine 99999999
	hugepages --2m 8 || fail "first"
	hugepages --save || fail save
	cp "$tmp/out" "$tmp/saved"
	hugepages --2m 100 --1g 1 || fail "more"
	hugepages --restore "$tmp/saved" || fail "restore: $(cat "$tmp/err")"
	expect "restored" "$(all_pages)" "8 8 0 0"
}

releasing()
{
	machine 99999999
	hugepages --2m 10 || fail "reserve"
	echo 10 >"$tmp/nodes/node0/hugepages/hugepages-2048kB/free_hugepages"
	echo 4 >"$tmp/nodes/node1/hugepages/hugepages-2048kB/free_hugepages"
	hugepages --release || fail "release: $(cat "$tmp/err")"
	expect "used pages stay" "$(all_pages)" "0 6 0 0"
	grep -q '6 pages are in use' "$tmp/out" || fail "it doesn't say what stays"
}

without_root()
{
	command -v setpriv >/dev/null || return 0
	machine 99999999
	chmod 755 "$tmp"
	# as nobody, who may not even read this tree
	WEIR_SYS_NODES=$tmp/nodes setpriv --reuid 65534 --clear-groups bash -s -- --2m 4 \
		<"$script" >"$tmp/out" 2>"$tmp/err"
	expect "not root" $? 3
	grep -q 'root' "$tmp/err" || fail "it doesn't name root: $(cat "$tmp/err")"
	expect "not root changes nothing" "$(all_pages)" "0 0 0 0"
}

if [ "$(id -u)" -ne 0 ]; then
	echo "SKIP: needs root"
	exit 77
fi
usage_errors
reserving
without_memory
restoring
releasing
without_root
exit "$failed"
