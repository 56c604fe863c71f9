#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Reserves huge pages on every NUMA node and mounts hugetlbfs for them. Running it again changes
# nothing. It reserves all pages or none.
set -u

usage()
{
	cat <<END
Usage: setup_hugepages.sh [--2m PAGES] [--1g PAGES]   at least PAGES pages on each NUMA node
       setup_hugepages.sh --status                     reserved, free and mounted pages
       setup_hugepages.sh --release                    gives free pages back, removes our mounts
       setup_hugepages.sh --save | --restore FILE      prints the counts; sets them again
Without numbers: 512 pages of 2 MiB (1 GiB) on each node. Exit: 0 done, 1 failed, 2 usage, 3 root or memory missing.
END
}

# Other places than the kernel's own are for the tests.
nodes=${WEIR_SYS_NODES:-/sys/devices/system/node}
meminfo=${WEIR_MEMINFO:-/proc/meminfo}
mount_root=${WEIR_HUGE_MOUNTS:-/dev}
me=${0##*/}

die()
{
	echo "$me: $2" >&2
	exit "$1"
}

# Lines "NODE SIZE_KB PAGES FREE" for every node and page size that the kernel offers.
pools()
{
	local d node size

	for d in "$nodes"/node[0-9]*/hugepages/hugepages-*kB; do
		[ -d "$d" ] || continue
		node=${d#"$nodes"/node}
		size=${d##*hugepages-}
		echo "${node%%/*} ${size%kB} $(cat "$d/nr_hugepages") $(cat "$d/free_hugepages")"
	done
}

pool_file()
{
	echo "$nodes/node$1/hugepages/hugepages-$2kB/nr_hugepages"
}

size_name()
{
	if [ "$1" -ge 1048576 ]; then
		echo "$(($1 / 1048576)) GiB"
	else
		echo "$(($1 / 1024)) MiB"
	fi
}

mount_point()
{
	if [ "$1" -eq 2048 ]; then
		echo "$mount_root/hugepages"
	else
		echo "$mount_root/hugepages-$1kB"
	fi
}

mounted()
{
	grep -qs " $(mount_point "$1") hugetlbfs " /proc/mounts
}

# Removes the mount for pages of $1 KiB if it is one that we made.
do_unmount()
{
	local at

	at=$(mount_point "$1")
	grep -qs "^weir-hugepages $at hugetlbfs " /proc/mounts || return 0
	umount "$at" 2>/dev/null || die 1 "$at is in use; stop what uses it"
	rmdir "$at" 2>/dev/null
	echo "unmounted: $at"
}

show_status()
{
	local node size pages free

	pools | while read -r node size pages free; do
		echo "node $node: $pages pages of $(size_name "$size"), $free free"
	done
	grep -s ' hugetlbfs ' /proc/mounts | while read -r _ where _; do
		echo "mounted: $where"
	done
	[ -n "$(pools)" ] || echo "this kernel offers no huge pages"
}

need_root()
{
	[ "$(id -u)" -eq 0 ] || die 3 "not root, nothing was changed; run it as root"
}

# Sets all pools to the lines "NODE SIZE_KB PAGES" on stdin; all or none.
apply()
{
	local before node size pages old short=""

	before=$(pools)
	while read -r node size pages; do
		old=$(awk -v n="$node" -v s="$size" '$1 == n && $2 == s { print $3 }' <<<"$before")
		[ -n "$old" ] || { short="node $node has no pages of $(size_name "$size")"; break; }
		[ "$old" -eq "$pages" ] && continue
		echo "$pages" >"$(pool_file "$node" "$size")" 2>/dev/null
		if [ "$(cat "$(pool_file "$node" "$size")")" -lt "$pages" ]; then
			short="node $node: memory for only $(cat "$(pool_file "$node" "$size")") of $pages pages of $(size_name "$size")"
			break
		fi
		echo "node $node: pages of $(size_name "$size"): $old -> $(cat "$(pool_file "$node" "$size")")"
	done
	[ -n "$short" ] || return 0
	while read -r node size pages _; do
		echo "$pages" >"$(pool_file "$node" "$size")" 2>/dev/null
	done <<<"$before"
	die 3 "$short; everything is as it was before: free memory, or ask for fewer pages"
}

do_mount()
{
	local at

	at=$(mount_point "$1")
	mounted "$1" && return 0
	if ! mkdir -p "$at" || ! mount -t hugetlbfs -o "pagesize=$(($1 / 1024))M" weir-hugepages "$at"; then
		die 1 "can't mount hugetlbfs on $at; see dmesg"
	fi
	echo "mounted: $at"
}

# Lines "NODE SIZE_KB PAGES" that $1 pages of 2 MiB and $2 of 1 GiB a node come to; never fewer than now.
wanted()
{
	pools | awk -v m="$1" -v g="$2" '
		$2 == 2048 { print $1, $2, ($3 > m ? $3 : m) }
		$2 == 1048576 { print $1, $2, ($3 > g ? $3 : g) }'
}

reserve()
{
	local plan more available

	need_root
	[ "$1" -eq 0 ] || pools | grep -q '^[0-9]* 2048 ' ||
		die 3 "this kernel offers no pages of 2 MiB, nothing was changed"
	[ "$2" -eq 0 ] || pools | grep -q '^[0-9]* 1048576 ' ||
		die 3 "this processor or kernel offers no pages of 1 GiB, nothing was changed; ask for 2 MiB ones"
	plan=$(wanted "$1" "$2")
	more=$({ pools; echo "$plan"; } | awk 'NF == 4 { k -= $2 * $3; next } NF { k += $2 * $3 } END { printf "%.0f\n", k }')
	available=$(awk '$1 == "MemAvailable:" { print $2 }' "$meminfo")
	[ "$more" -le "$available" ] ||
		die 3 "$((more / 1024)) MiB more are wanted, $((available / 1024)) MiB are available, nothing was changed; ask for fewer pages"
	apply <<<"$plan" || exit
	[ "$more" -gt 0 ] || echo "pages are there already"
	[ "$1" -eq 0 ] || [ -n "${WEIR_NO_MOUNT:-}" ] || do_mount 2048
	[ "$2" -eq 0 ] || [ -n "${WEIR_NO_MOUNT:-}" ] || do_mount 1048576
}

release()
{
	local node size pages free left=0

	need_root
	do_unmount 2048
	do_unmount 1048576
	while read -r node size pages free; do
		[ -n "$node" ] || continue
		left=$((left + pages - free))
		[ "$free" -eq 0 ] || echo "$node $size $((pages - free))"
	done < <(pools) >"$tmp"
	apply <"$tmp" || exit
	[ "$left" -eq 0 ] || echo "$left pages are in use and stay"
}

save()
{
	local size

	pools | awk '{ print $1, $2, $3 }'
	for size in 2048 1048576; do
		mounted "$size" && echo "mounted $size"
	done
	return 0
}

restore()
{
	local size

	need_root
	if ! grep -qs '^[0-9]' "$1" || grep -qvE '^([0-9]+ [0-9]+ [0-9]+|mounted [0-9]+)$' "$1"; then
		die 2 "--restore needs the file that --save wrote, nothing was changed"
	fi
	for size in 2048 1048576; do
		grep -q "^mounted $size$" "$1" || do_unmount "$size"
	done
	grep '^[0-9]' "$1" >"$tmp"
	apply <"$tmp"
}

whole()
{
	case "$1" in
	'' | *[!0-9]* | ????????*) die 2 "'$1' is not a number of pages; try --2m 512" ;;
	esac
}

pages_2m=512 pages_1g=0 action=reserve file=""
while [ $# -gt 0 ]; do
	case "$1" in
	--2m) whole "${2:-}"; pages_2m=$2; shift ;;
	--1g) whole "${2:-}"; pages_1g=$2; shift ;;
	--status | --release | --save) action=${1#--} ;;
	--restore) action=restore; file=${2:-}; shift ;;
	-h | --help) usage; exit 0 ;;
	*) die 2 "unknown option '$1'; see --help" ;;
	esac
	shift || break
done

tmp=$(mktemp) || die 1 "no temporary file"
trap 'rm -f "$tmp"' EXIT
case "$action" in
reserve) reserve "$pages_2m" "$pages_1g" ;;
status) show_status ;;
release) release ;;
save) save ;;
restore) restore "$file" ;;
esac
