#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# scripts/abi.sh in a made-up tree: what it has to find, and what it has to permit.
set -u

top=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failed=0
mkdir -p "$tmp/scripts" "$tmp/lib/include/weir"
cp "$top/scripts/abi.sh" "$tmp/scripts/"
cat >"$tmp/lib/include/weir/x.h" <<'C'
#include <stddef.h>
#include <stdint.h>
struct weir;
struct weir_options {
	size_t size;
	uint64_t arena;
};
struct weir_event {
	uint64_t cookie;
};
#define WEIR_X_H
#define WEIR_MOST (1u << 4)
#define WEIR_NONE (-1)
#define WEIR_OPTIONS_INIT { sizeof(struct weir_options), 7 }
#define WEIR_TWICE(n) ((n) * 2)
#define WEIR_LIST(X) X(one, "the first")
enum weir_kind { WEIR_KIND_A, /* one, first */ WEIR_KIND_B };
int weir_attach(const struct weir_options *o, struct weir **w);
int weir_poll(struct weir *w, struct weir_event *e, unsigned n);
C
cat >"$tmp/x.c" <<'C'
#include "x.h"
struct weir {
	int inner;
};
int weir_attach(const struct weir_options *o, struct weir **w) { return o->arena && *w; }
int weir_poll(struct weir *w, struct weir_event *e, unsigned n) { return w->inner + (e->cookie > n); }
C
cp -r "$tmp/lib" "$tmp/kept"
cp "$tmp/x.c" "$tmp/kept.c"

# try WANTED NAME SED-SCRIPT FILES [SONAME]: abi.sh's exit status for the library with that change.
try()
{
	local got file

	rm -rf "$tmp/lib/include"
	cp -r "$tmp/kept/include" "$tmp/lib/"
	cp "$tmp/kept.c" "$tmp/x.c"
	for file in $4; do sed -i "$3" "$tmp/$file"; done
	gcc -g -shared -fPIC -I"$tmp/lib/include/weir" "-Wl,-soname,${5:-libweir.so.0}" "$tmp/x.c" -o "$tmp/libweir.so" || exit 1
	# shellcheck disable=SC2086
	bash "$tmp/scripts/abi.sh" ${write:-} "$tmp/libweir.so" >"$tmp/out" 2>&1
	got=$?
	[ "$got" = "$1" ] || { echo "FAILED: $2: exit $got, not $1: $(cat "$tmp/out")"; failed=1; }
}

h=lib/include/weir/x.h
try 1 "no file yet" '' x.c
write=--write try 0 "written" '' x.c
if [ ! -s "$tmp/lib/libweir.abi" ] || ! grep -q '^WEIR_KIND_B 1$' "$tmp/lib/libweir.values"; then
	echo "FAILED: nothing written"
	exit 1
fi
try 0 "the same" '' x.c
try 0 "what is private may change" 's/int inner;/long more; int inner;/' x.c
# shellcheck disable=SC2016 # $a is sed's
try 0 "a new call" '$a int weir_new(void) { return 1; }' x.c
try 1 "a call that is gone" '/^int weir_poll/d' x.c
try 1 "another argument" 's/unsigned n/uint64_t n/' "x.c $h"
try 1 "a structure without a size that has grown" 's/uint64_t cookie;/&\n\tuint64_t more;/' $h
try 1 "a field before the end" 's/uint64_t arena;/uint64_t more;\n\t&/' $h
try 1 "another type of a field" 's/uint64_t arena;/uint32_t arena, more;/' $h
try 0 "a field at the end" 's/uint64_t arena;/&\n\tuint64_t more;/' $h
# values that programs are built with
try 1 "another value" 's/1u << 4/1u << 5/' $h
try 1 "a negative one" 's/(-1)/(-2)/' $h
try 0 "the same value, written otherwise" 's/(1u << 4)/16/' $h
try 1 "a macro that is gone" '/WEIR_MOST/d' $h
try 0 "a new macro" 's/^#define WEIR_NONE.*/&\n#define WEIR_MORE 5/' $h
try 1 "an enumerator before others" 's/{ WEIR_KIND_A/{ WEIR_KIND_NEW, WEIR_KIND_A/' $h
try 1 "an enumerator that is gone" 's/, WEIR_KIND_B//; s/WEIR_KIND_B//' $h
try 0 "an enumerator at the end" 's/WEIR_KIND_B/&, WEIR_KIND_C/' $h
try 1 "another default" 's/, 7 }/, 8 }/' $h
try 0 "a default at the end" 's/, 7 }/, 7, 0 }/' $h
try 1 "another computation" 's/(n) \* 2/(n) * 3/' $h
try 0 "a longer list, another text" 's/X(one, "the first")/X(one, "number 1") X(two, "the next")/' $h
try 1 "another list" 's/X(one,/X(two,/' $h
try 1 "no header that compiles" 's/(-1)/(-/' $h
write=--write try 1 "another value is not written" 's/1u << 4/1u << 5/' $h
write=--write try 1 "a break is not written" '/^int weir_poll/d' x.c
try 1 "another soname" '' x.c libweir.so.1
write=--write try 0 "written for another soname" '/^int weir_poll/d' x.c libweir.so.1
try 0 "the same for it" '/^int weir_poll/d' x.c libweir.so.1
exit $failed
