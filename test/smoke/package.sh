#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# timeout: 900
# The Debian packages: built in a copy of the tree, installed into a root of their own by dpkg --root, which checks
# what they depend on against this host's packages. The tutorial's programs are compiled against that root, and run
# between two nodes of its daemons.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_tutorial.sh
. "$(dirname "$0")/_tutorial.sh"

if ! command -v dh >/dev/null; then
	command -v apt-get >/dev/null && die "debhelper is not installed; run scripts/test.sh once as root"
	skip "no debhelper, and no apt to install it"
fi

# Everything but what is built, and debian/ where dpkg-buildpackage looks for it.
copy=$weir_tmp/package/weir
mkdir -p "$copy"
if [ -e "$weir_root/.git" ]; then
	git -C "$weir_root" ls-files --cached --others --exclude-standard
else
	(cd "$weir_root" && find . -type f -not -path './build*')
fi | (cd "$weir_root" && while IFS= read -r file; do [ ! -f "$file" ] || echo "$file"; done | tar -c -T -) | tar -x -C "$copy"
cp -r "$copy/scripts/debian" "$copy/debian"
(cd "$copy" && DEB_BUILD_OPTIONS=nocheck dpkg-buildpackage -b -us -uc) >"$weir_tmp/build.log" 2>&1 ||
	die "dpkg-buildpackage: $(grep -v 'warning: ' "$weir_tmp/build.log" | tail -n 8)"

# Every package of scripts/debian/control is there once, with the version of meson.build.
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$weir_root/meson.build")
mapfile -t packages < <(sed -n 's/^Package: //p' "$copy/debian/control")
debs=()
for package in "${packages[@]}"; do
	deb=$weir_tmp/package/${package}_${version}_$(dpkg --print-architecture).deb
	[ -f "$deb" ] || die "no ${deb##*/}; is the version of scripts/debian/changelog $version?"
	debs+=("$deb")
done

# A root with no file, and in its list of packages those of this host but for ours. Scripts of packages run outside
# it and work on it (DPKG_ROOT), since it has no shell.
root=$weir_tmp/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
awk -v RS= -v ORS='\n\n' "!/^Package: ($(IFS='|'; echo "${packages[*]}"))\n/" /var/lib/dpkg/status >"$root/var/lib/dpkg/status"
dpkg --root="$root" --force-not-root --force-script-chrootless --install "${debs[@]}" >"$weir_tmp/install.log" 2>&1 || die "dpkg --install: $(grep -v '^dpkg: warning' "$weir_tmp/install.log" | tail -n 5)"

# What belongs to which package, and that nothing was left out.
libdir=$(dirname "$(find "$root/usr/lib" -name 'libweir.so.0')")
for file in usr/sbin/weir-dataplane usr/sbin/weir-control usr/bin/weirctl usr/bin/weir-perf usr/bin/weir-nicperf usr/bin/weir-run \
	usr/lib/systemd/system/weir-dataplane@.service usr/lib/systemd/system/weir-lend@.service usr/share/man/man8/weir-dataplane.8.gz; do
	dpkg-deb -c "$weir_tmp/package/weir_"*.deb | has " \./$file\$" || fail "weir has no $file"
done
dpkg-deb -c "$weir_tmp/package/libweir0_"*.deb | has -E '/(bin|sbin|include)/|\.so$' && fail "libweir0 has more than the library"
for header in "$weir_root"/lib/include/weir/*.h; do
	cmp -s "$header" "$root/usr/include/weir/${header##*/}" || fail "libweir-dev has no ${header##*/}"
done
dpkg-deb -c "$weir_tmp/package/libweir-shuffle0_"*.deb | has -E '/(bin|sbin|include)/|\.so$' && fail "libweir-shuffle0 has more than the library"

# Every call has a man page.
grep -ohE '\bweir_[a-z_]+\(' "$weir_root"/lib/include/weir/*.h | tr -d '(' | sort -u | while read -r call; do
	[ -e "$root/usr/share/man/man3/$call.3.gz" ] || echo "$call"
done >"$weir_tmp/undocumented"
[ ! -s "$weir_tmp/undocumented" ] || fail "no man page of $(tr '\n' ' ' <"$weir_tmp/undocumented")"
man -M "$root/usr/share/man" -P cat weir_send_notify 2>/dev/null | has 'weir_flush' || fail "man weir_send_notify"
[ -f "$root/usr/share/doc/libweir-dev/html/stream_8h.html" ] || fail "libweir-dev has no HTML reference"

# A reader's programs, compiled as with the packages installed.
tutorial_programs "$weir_tmp"
export PKG_CONFIG_PATH=$libdir/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
for program in guestbook guest; do
	# shellcheck disable=SC2046
	gcc -Wall -Werror "$weir_tmp/own/$program.c" -o "$weir_tmp/own/$program" $(pkg-config --cflags --libs weir) ||
		die "own/$program.c does not compile against libweir-dev"
done
export LD_LIBRARY_PATH=$libdir
PATH=$root/usr/sbin:$root/usr/bin:$PATH
[ "$(command -v weir-dataplane)" = "$root/usr/sbin/weir-dataplane" ] || die "the packaged daemons are not those that run"
two_nodes_memif
WEIR_INSTANCE=B run guestbook "$weir_tmp/own/guestbook"
await grep -q open "$weir_tmp/guestbook.log" || die "the guest book does not open: $(log_of guestbook)"
[ "$(WEIR_INSTANCE=A "$weir_tmp/own/guest" node:2:guestbook Ada)" = "welcome Ada, visitor 1" ] || fail "own/guest"
dpkg --root="$root" --force-not-root --purge "${packages[@]}" >"$weir_tmp/purge.log" 2>&1 || fail "dpkg --purge"
# /run is empty after a boot
left=$(find "$root" -path "$root/run" -prune -o -name '*weir*' -print)
[ -z "$left" ] || fail "left behind: $(head -n 3 <<<"$left")"
exit $weir_failed
