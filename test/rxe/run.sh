#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# run.sh COMMAND [ARGUMENT...]: runs COMMAND in a virtual machine with Debian's own kernel, which knows
# Soft-RoCE (rdma_rxe), on this machine's root file system: it sees what is here, and what it writes is
# gone afterwards. Emulated in software: no KVM, no root. Returns COMMAND's exit code and output; 125:
# the machine did not come up, 124: the time was over.
#   WEIR_RXE_TIMEOUT    seconds that COMMAND may take [300]
#   WEIR_RXE_HUGEPAGES  of 2 MiB on each of the two NUMA nodes [512]
#   WEIR_RXE_MEMORY     MiB of the machine, an even number [4096]
#   WEIR_RXE_KERNEL     where the kernel is unpacked [build/rxe of this tree]
#   WEIR_RXE_CONSOLE    a file that gets what the kernel says
set -u
tree=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=scripts/deps.sh
. "$tree/scripts/deps.sh"

BOOT_SECONDS=240
MODULES=(virtio_pci 9p 9pnet_virtio overlay)

if [ $# -eq 0 ] || [ "$1" = --help ]; then
	sed -n '3,/^set/s/^# \?//p' "$0"
	[ $# -gt 0 ]
	exit $(($? ? 2 : 0))
fi
[ -n "${WEIR_NO_DEPS:-}" ] || install_deps >&2 || exit 125
store=${WEIR_RXE_KERNEL:-$tree/build/rxe}
version=$(unpack_kernel "$store") || exit 125
kernel=$store/$version

work=$(mktemp -d) || exit 125
pids=()
finish()
{
	local code=$? pid

	trap - EXIT INT TERM HUP
	for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
	wait 2>/dev/null
	rm -rf "$work"
	exit "$code"
}
trap finish EXIT
for signal in INT TERM HUP; do
	# shellcheck disable=SC2064
	trap "echo 'run.sh: ended by SIG$signal' >&2; exit 130" "$signal"
done

# The initial RAM disk: busybox, the modules that mounting the root needs, init.
make_initrd()
{
	local root=$work/initrd m

	mkdir -p "$root"/{bin,proc,sys,dev,host,upper,root,modules}
	cp /bin/busybox "$root/bin/"
	for m in sh mount umount mkdir insmod switch_root cat echo poweroff; do
		ln -s busybox "$root/bin/$m"
	done
	for m in "${MODULES[@]}"; do
		modprobe -d "$kernel" -S "$version" --show-depends "$m"
	done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r m; do
		cp "$m" "$root/modules/"
		echo "${m##*/}"
	done >"$root/modules/list"
	install -m 755 "$tree/test/rxe/init" "$root/init"
	(cd "$root" && find . | cpio -o -H newc --quiet) >"$work/initrd.img"
	rm -rf "$root"
}

# The script that guest.sh runs, with its environment.
make_guest()
{
	mkdir "$work/guest"
	{
		echo "cd ${PWD@Q}"
		env -0 | while IFS= read -rd '' v; do
			case "$v" in WEIR_* | DPDK_* | INTERACTIVE=* | ASAN_* | UBSAN_*)
				printf 'export %s=%q\n' "${v%%=*}" "${v#*=}" ;;
			esac
		done
		printf 'exec'
		printf ' %q' "$@"
		echo
	} >"$work/guest/command"
	echo "${WEIR_RXE_HUGEPAGES:-512}" >"$work/guest/hugepages"
	echo "$kernel" >"$work/guest/kernel"
}

start_machine()
{
	local memory=${WEIR_RXE_MEMORY:-4096} port
	local args=(-accel "tcg,thread=multi" -cpu max -smp 2 -m "$memory" -display none -nodefaults -no-reboot
		-object "memory-backend-ram,id=m0,size=$((memory / 2))M" -numa "node,memdev=m0,cpus=0"
		-object "memory-backend-ram,id=m1,size=$((memory / 2))M" -numa "node,memdev=m1,cpus=1"
		# no_timer_check: a host that lets the machine wait for a CPU must not make it take its timer for broken
		-kernel "$kernel/boot/vmlinuz-$version" -initrd "$work/initrd.img"
		-append "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off init_on_alloc=0 weir.tree=$tree weir.guest=$work/guest"
		-serial "file:$work/console"
		-virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
		-device virtio-serial-pci)

	for port in out err control; do
		mkfifo "$work/$port"
		args+=(-chardev "file,id=$port,path=$work/$port" -device "virtserialport,chardev=$port,name=$port")
	done
	exec 8<>"$work/control"
	cat "$work/out" <&- &
	pids+=($!)
	cat "$work/err" >&2 <&- &
	pids+=($!)
	: >"$work/console"
	setpriv --pdeathsig KILL qemu-system-x86_64 "${args[@]}" </dev/null >"$work/qemu" 2>&1 8>&- &
	machine=$!
	pids+=("$machine")
}

# Reads a line of the guest into $line within $1 seconds, while the machine runs.
hear()
{
	local end=$((SECONDS + $1))

	until read -rt 0.5 -u 8 line; do
		[ "$SECONDS" -lt "$end" ] && kill -0 "$machine" 2>/dev/null || return 1
	done
}

broken()
{
	tail -n 30 "$work/console" "$work/qemu" >&2
	echo "run.sh: $1" >&2
	exit "$2"
}

make_initrd
make_guest "$@"
start_machine
hear "$BOOT_SECONDS" || broken "the virtual machine did not come up within $BOOT_SECONDS s; see its console above" 125
hear "${WEIR_RXE_TIMEOUT:-300}" ||
	broken "the command did not end within ${WEIR_RXE_TIMEOUT:-300} s, or the machine died; see its console above" 124
[ -z "${WEIR_RXE_CONSOLE:-}" ] || cp "$work/console" "$WEIR_RXE_CONSOLE"
for ((i = 0; i < 600; i++)); do
	kill -0 "$machine" 2>/dev/null || break
	sleep 0.05
done
kill -KILL "$machine" 2>/dev/null
wait "${pids[@]:0:2}" # what is still on its way
exit "${line#exit }"
