#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What is installed is whole: a program outside of the tree builds with pkg-config and runs; units and man pages are sound.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

DESTDIR=$weir_tmp/dest meson install -C "$WEIR_BUILD" --no-rebuild --quiet >"$weir_tmp/install.log" 2>&1 || die "meson install"
pc=$(find "$weir_tmp/dest" -name weir.pc)
prefix=$(sed -n 's/^prefix=//p' "$pc")
dest=$weir_tmp/dest$prefix
libdir=$(dirname "$(dirname "$pc")")

# A program of somebody else, in C and in C++.
mkdir "$weir_tmp/outside"
cat >"$weir_tmp/outside/other.c" <<'C'
#include <weir/stream.h>
#ifdef __cplusplus
#include <weir/invoke.hpp>
#endif
#include <stdio.h>
int main(void)
{
	struct weir *w;
	if (weir_attach(NULL, &w)) {
		fprintf(stderr, "%s\n", weir_reason());
		return 1;
	}
	printf("node %d\n", weir_node(w));
	weir_detach(w);
	return 0;
}
C
for compiler in "gcc -x c -std=c11" "g++ -x c++ -std=c++17"; do
	# shellcheck disable=SC2046
	(cd "$weir_tmp/outside" && PKG_CONFIG_PATH=$(dirname "$pc") PKG_CONFIG_SYSROOT_DIR=$weir_tmp/dest &&
		export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR &&
		$compiler -Wall -Wextra -Werror other.c -o other $(pkg-config --cflags --libs weir)) || die "no program with $compiler"
done
one_node
out=$(LD_LIBRARY_PATH=$libdir WEIR_INSTANCE=A "$weir_tmp/outside/other") || fail "the program does not run"
[ "$out" = "node 1" ] || fail "it says '$out'"
readelf -d "$weir_tmp/outside/other" | has 'NEEDED.*\[libweir\.so\.[0-9]*\]' || fail "not linked to the soname"
LD_LIBRARY_PATH=$libdir "$dest/bin/weirctl" --instance A show nodes | has up || fail "the installed weirctl"
for program in bin/weirctl bin/weir-perf bin/weir-lend bin/weir-run bin/weir-hex bin/weir-sort bin/weir-count bin/weir-join bin/weir-shuffle-cost sbin/weir-dataplane sbin/weir-control; do
	LD_LIBRARY_PATH=$libdir "$dest/$program" --version | has . || fail "$program --version"
	LD_LIBRARY_PATH=$libdir "$dest/$program" --help | has -- --instance || fail "$program --help"
	find "$dest/share/man" -name "${program##*/}.[168]*" | has . || fail "$program has no man page"
done

# The libraries give away what their headers name but do not define, and nothing else.
awk '/^weir_[a-z_]+\(/ { name = $0; sub(/\(.*/, "", name) } /^{/ { print name }' "$dest"/include/weir/*.h >"$weir_tmp/defined"
grep -ohE '\bweir_[a-z_]+\(' "$dest"/include/weir/*.h | tr -d '(' | sort -u | grep -vxFf "$weir_tmp/defined" >"$weir_tmp/declared"
nm -D --defined-only "$libdir"/libweir.so "$libdir"/libweir-shuffle.so | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort -u >"$weir_tmp/exported"
diff "$weir_tmp/declared" "$weir_tmp/exported" >"$weir_tmp/diff" || fail "declared and exported differ: $(tr '\n' ' ' <"$weir_tmp/diff")"

# A relative link of a document leads to a file that is installed too.
links=0
for page in "$dest"/share/doc/weir/*.md; do
	while read -r link; do
		links=$((links + 1))
		[ -f "${page%/*}/$link" ] || fail "${page##*/} links to $link, which is not installed"
	done < <(grep -oE '\]\([^)]+\)' "$page" | sed 's/^](//; s/[#)].*//' | grep -vE '^$|^[a-z]+:')
done
[ "$links" -ge 50 ] || fail "only $links links in the installed documents"

# Files of systemd, and the script that reserves hugepages.
"$dest/sbin/weir-setup-hugepages" --help | has -- --status || fail "weir-setup-hugepages"
grep -q '^u weir ' "$dest/lib/sysusers.d/weir.conf" || fail "no user for weir-control"
grep -q '^d /run/weir 0755 root root' "$dest/lib/tmpfiles.d/weir.conf" || fail "no run directory"
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers --dry-run "$dest/lib/sysusers.d/weir.conf" >"$weir_tmp/sysusers" 2>&1 || fail "sysusers: $(cat "$weir_tmp/sysusers")"
fi

# A unit's ExecStart is where the program was installed.
for unit in "$dest"/lib/systemd/system/weir-*@.service; do
	start=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$unit")
	[ -x "$weir_tmp/dest$start" ] || fail "${unit##*/} starts $start"
	if command -v systemd-analyze >/dev/null; then
		sed "s|^ExecStart=|&$weir_tmp/dest|; /^Documentation=/d; s|^EnvironmentFile=|&-|" "$unit" >"$weir_tmp/${unit##*/}"
		systemd-analyze verify "$weir_tmp/${unit##*/}" >"$weir_tmp/verify" 2>&1
		if grep -q "${unit##*/}\|weir-" "$weir_tmp/verify"; then fail "${unit##*/}: $(cat "$weir_tmp/verify")"; fi
	fi
done
if command -v man >/dev/null; then
	for page in "$dest"/share/man/man?/*; do
		[ -z "$(LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -l "$page" 2>&1 >/dev/null)" ] || fail "man page ${page##*/} has warnings"
	done
fi
tools systemd-analyze systemd-sysusers man
exit 0
