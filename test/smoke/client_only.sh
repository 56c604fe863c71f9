#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# libweir alone, built where nothing but the C library is known: shared and static, programs with either, and an ABI
# that is compatible with the one in lib/libweir.abi.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

build=$weir_tmp/client
clean=(env -i "PATH=/usr/bin:/bin:$(dirname "$(command -v meson)")" "HOME=$weir_tmp" LC_ALL=C.UTF-8 PKG_CONFIG_LIBDIR=/nonexistent)
"${clean[@]}" meson setup "$build" "$weir_root" -Dclient_only=true --buildtype=debug --prefix=/usr --libdir=lib \
	>"$weir_tmp/setup.log" 2>&1 || die "meson setup"
"${clean[@]}" ninja -C "$build" >"$weir_tmp/ninja.log" 2>&1 || die "ninja"
# Headers of other libraries may lie where the compiler looks without being asked.
ninja -C "$build" -t deps | grep -E '/(rte_|dpdk|infiniband|event2|openssl|curl|protobuf|jansson|cmocka|isa-l)' >"$weir_tmp/foreign"
[ ! -s "$weir_tmp/foreign" ] || fail "it includes $(head -n 1 "$weir_tmp/foreign")"
DESTDIR=$weir_tmp/dest meson install -C "$build" --no-rebuild --quiet >"$weir_tmp/install.log" 2>&1 || die "meson install"
(cd "$weir_tmp/dest/usr" && find . ! -type d | sort) >"$weir_tmp/files"
grep -vE '^\./(include/weir/[a-z]*\.h(pp)?|lib/libweir\.(a|so[.0-9]*)|lib/pkgconfig/weir\.pc)$' "$weir_tmp/files" && fail "more than the library is installed"
libdir=$weir_tmp/dest/usr/lib

# The archive has the names of the shared library and no others.
names() # FILE NM-OPTION
{
	nm "$2" --defined-only "$1" | awk '$2 ~ /[TDBR]/ { sub(/@.*/, "", $3); print $3 }' | sort -u
}
names "$libdir/libweir.so" -D | grep -v '^WEIR_' >"$weir_tmp/shared"
names "$libdir/libweir.a" -g >"$weir_tmp/static"
diff "$weir_tmp/shared" "$weir_tmp/static" >"$weir_tmp/diff" || fail "shared and static library differ: $(tr '\n' ' ' <"$weir_tmp/diff")"

# A program with names that the library uses inside, linked in three ways.
mkdir "$weir_tmp/outside"
cat >"$weir_tmp/outside/other.c" <<'C'
#include <weir/message.h>
#include <weir/stream.h>
#include <stdio.h>
int weir_gone(void);
int messenger_free(void);
int weir_gone(void) { return 3; }
int messenger_free(void) { return 4; }
int main(void)
{
	struct weir_options options = WEIR_OPTIONS_INIT;
	struct weir_messenger *m;
	struct weir *w;
	options.name = "other";
	if (weir_attach(&options, &w) || weir_messenger_open(w, NULL, &m)) {
		fprintf(stderr, "%s\n", weir_reason());
		return 1;
	}
	printf("node %d, %d\n", weir_node(w), weir_gone() + messenger_free());
	weir_messenger_close(m);
	weir_detach(w);
	return 0;
}
C
export PKG_CONFIG_PATH=$libdir/pkgconfig PKG_CONFIG_SYSROOT_DIR=$weir_tmp/dest
cflags=$(pkg-config --cflags weir) || die "weir.pc"
cd "$weir_tmp/outside" || die "no folder"
# shellcheck disable=SC2046,SC2086
{
	gcc -Wall -Wextra -Werror $cflags other.c -o shared $(pkg-config --libs weir) || die "no program with the shared library"
	gcc -Wall -Wextra -Werror $cflags other.c -o archive -Wl,-Bstatic $(pkg-config --static --libs weir) -Wl,-Bdynamic ||
		die "no program with the archive"
	gcc -static $cflags other.c -o whole $(pkg-config --static --libs weir) 2>"$weir_tmp/whole.log" || die "no static program"
}
readelf -d shared | has 'NEEDED.*\[libweir\.so\.[0-9]*\]' || fail "the shared one is not linked to the soname"
readelf -d archive | has 'NEEDED.*libweir' && fail "the one with the archive needs the shared library"
readelf -d whole | has NEEDED && fail "the static one needs a library"
one_node
for program in shared archive whole; do
	out=$(LD_LIBRARY_PATH=$libdir WEIR_INSTANCE=A "./$program") || fail "$program does not run"
	[ "$out" = "node 1, 7" ] || fail "$program says '$out'"
done

# Programs that were built with the release in lib/libweir.abi run with this library.
"$weir_root/scripts/abi.sh" "$libdir/libweir.so" >"$weir_tmp/abi.log" 2>&1 || fail "the ABI: $(cat "$weir_tmp/abi.log")"
exit $weir_failed
