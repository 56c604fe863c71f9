# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced. install_deps [run]: installs what is missing of the Debian packages that building, testing and
# measuring need; with "run" only what building and running the programs need. Packages that are there are left
# alone, and then nothing is downloaded.

WEIR_RUN_PACKAGES=(
	meson ninja-build gcc libc6-dev pkg-config binutils python3
	libdpdk-dev dpdk libibverbs-dev libisal-dev libnuma-dev libpcap-dev
	libprotobuf-c-dev protobuf-c-compiler libevent-dev libssl-dev libjansson-dev libedit-dev libcurl4-openssl-dev
	liblz4-dev libzstd-dev libxxhash-dev
	iproute2 procps util-linux
)
WEIR_PACKAGES=(
	"${WEIR_RUN_PACKAGES[@]}"
	# tests
	g++ rdma-core libcmocka-dev debhelper dpkg-dev doxygen abigail-tools clang libclang-rt-14-dev clang-format shellcheck gcovr valgrind patch jq curl spin etcd-server etcd-client
	tcpdump tshark ethtool mount numactl passwd systemd
	# Soft-RoCE in a virtual machine: test/rxe/run.sh
	qemu-system-x86 busybox-static cpio kmod ibverbs-utils perftest
	# documents and figures
	man-db gnuplot-nox
)

packages_missing() # PACKAGE...
{
	local p

	for p in "$@"; do
		[ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || echo "$p"
	done
}

# No package starts a service (etcd would), unless a policy of this host exists.
apt_quietly() (
	policy=/usr/sbin/policy-rc.d
	if [ ! -e "$policy" ]; then
		trap 'rm -f "$policy"' EXIT
		trap 'exit 130' INT TERM
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
	fi
	DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true \
		apt-get -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 \
		-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold \
		-y -q "$@" </dev/null
)

# Retry while a mirror is being renewed or another apt holds the lists.
patiently()
{
	local pause

	for pause in 20 40 0; do
		"$@" && return
		sleep "$pause"
	done
	return 1
}

# Lists that could not be fetched are no error if those of before will do.
fetch_and_install()
{
	apt_quietly update
	apt_quietly --no-install-recommends install "$@"
}

# Returns 0 when everything is there, else 3 after one line that says what is missing.
install_deps()
{
	local missing log
	local -a wanted=("${WEIR_PACKAGES[@]}")

	[ "${1:-all}" = all ] || wanted=("${WEIR_RUN_PACKAGES[@]}")
	mapfile -t missing < <(packages_missing "${wanted[@]}")
	[ "${#missing[@]}" -gt 0 ] || return 0
	if [ "$(id -u)" -ne 0 ]; then
		echo "${0##*/}: packages are missing; as root: apt-get install ${missing[*]}" >&2
		return 3
	fi
	log=$(mktemp)
	echo "installing ${#missing[@]} packages: ${missing[*]}"
	if patiently fetch_and_install "${missing[@]}" >"$log" 2>&1; then
		rm -f "$log"
		return 0
	fi
	tail -n 20 "$log" >&2
	rm -f "$log"
	echo "${0##*/}: apt could not install what is missing; see its messages above" >&2
	return 3
}

# In the directory it is run in. Nothing is called VERSION before it is whole.
fetch_kernel()
{
	local package version

	[ "$(id -u)" -ne 0 ] || apt_quietly update
	package=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)
	version=${package#linux-image-}
	rm -rf "$version.new" "$package"_*.deb
	[ -n "$package" ] && apt-get -q -o Acquire::Retries=3 download "$package" &&
		dpkg-deb -x "$package"_*.deb "$version.new" && depmod -b "$version.new" "$version" &&
		mv "$version.new" "$version" && rm -f "$package"_*.deb
}

# unpack_kernel DIR: Debian's own kernel package, the one that linux-image-amd64 depends on, in
# DIR/VERSION: unpacked there, not installed, so that this machine's boot stays as it is. Prints
# VERSION. Once it is there nothing is downloaded.
unpack_kernel()
{
	local dir=$1 log version

	for version in "$dir"/*/boot/vmlinuz-*; do
		version=${version##*/vmlinuz-}
		[ -f "$dir/$version/boot/vmlinuz-$version" ] && echo "$version" && return 0
	done
	log=$(mktemp)
	mkdir -p "$dir"
	if (cd "$dir" && patiently fetch_kernel) >"$log" 2>&1; then
		rm -f "$log"
		unpack_kernel "$dir"
		return
	fi
	tail -n 20 "$log" >&2
	rm -f "$log"
	echo "${0##*/}: no kernel to boot; see the messages of apt above, and run scripts/deps.sh's packages in first" >&2
	return 3
}
