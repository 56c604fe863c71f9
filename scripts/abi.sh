#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# abi.sh LIBRARY: compares a libweir.so that was built with -g with the ABI in lib/libweir.abi. New symbols are
# permitted, and new fields at the end of struct weir_message and of structures whose first field is `size`.
# The values of macros and enumerators of the public headers, which programs are built with, are compared with
# lib/libweir.values: new ones are permitted, and lists in braces that go on.
# abi.sh --write LIBRARY: writes both files. A break is refused as long as the soname is that of the file.
# Exit: 0 compatible, 1 not, 2 usage, 3 a tool is missing. docs/abi.md has the rules.
set -u
top=$(dirname "$0")/..
abi=$top/lib/libweir.abi values=$top/lib/libweir.values
cc=${CC:-cc}

write=0
[ "${1:-}" != --write ] || { write=1; shift; }
library=${1:-}
if [ $# != 1 ] || [ ! -f "$library" ]; then
	echo "abi.sh: give a libweir.so; usage: abi.sh [--write] LIBRARY" >&2
	exit 2
fi
for tool in abidiff abidw readelf "$cc"; do
	command -v "$tool" >/dev/null || { echo "abi.sh: $tool is missing; apt-get install abigail-tools binutils" >&2; exit 3; }
done
if ! readelf -S "$library" | grep '\.debug_info' >/dev/null; then
	echo "abi.sh: $library has no debug information; build it with -g" >&2
	exit 2
fi

# Lines "STRUCTURE OFFSET FIELD TYPE" of an ABI.
fields() # FILE
{
	awk -F"'" '/<class-decl / { name = $2 } /<data-member / { at = $4 } /<var-decl / { print name, at, $2, $4 }' "$1" | sort
}

# Lines "NAME VALUE" of the macros and enumerators of the public headers: numbers as the compiler computes them, else
# texts as it expands them.
header_values()
{
	local dir=$scratch/values name text

	mkdir -p "$dir"
	for name in "$top"/lib/include/weir/*.h; do printf '#include "%s"\n' "$(realpath "$name")"; done >"$dir/all.h"
	printf '#include <stdio.h>\n#include "all.h"
#define show(name, value) printf("%%s %%lld\\n", name, (long long)(value))\nint main(void) {\n' >"$dir/numbers.c"
	# macros by name, those with arguments by their definition
	cat "$top"/lib/include/weir/*.h | sed -n 's/^#define \([A-Za-z_0-9]*\)\( .*\|\)$/\1/p' | grep -v '_H$' |
		sort -u >"$dir/names"
	{ cat "$dir/all.h" && sed 's/.*/@ "&" = &/' "$dir/names"; } >"$dir/uses.h"
	"$cc" -E -P -x c "$dir/uses.h" | sed -n 's/^@ "\([^"]*\)" = */\1 /p' | while read -r name text; do
		case $text in
		*['{"']*) printf '%s %s\n' "$name" "$text" ;;
		?*) printf 'show("%s", %s);\n' "$name" "$name" >>"$dir/numbers.c" ;;
		esac
	done
	# texts among the arguments are documentation
	"$cc" -E -dM -x c "$dir/all.h" |
		sed -n 's/^#define \(\(WEIR\|weir\)_[A-Za-z_0-9]*([^)]*)\) /\1 /; t found; d; :found; s/, *"[^"]*"//g; p'
	"$cc" -E -P -x c "$dir/all.h" | tr '\n' ' ' | grep -oE '\<enum( +[a-z_0-9]+)? *\{[^}]*\}' | sed 's/^[^{]*{//' |
		tr ',}' '\n' | sed -n 's/^ *\(WEIR_[A-Z_0-9]*\).*/show("\1", \1);/p' >>"$dir/numbers.c"
	echo 'return 0; }' >>"$dir/numbers.c"
	"$cc" -w -o "$dir/numbers" "$dir/numbers.c" && "$dir/numbers"
}

# Lines of the first file that the second does not have. A list in braces may go on there, and one of X().
values_gone() # OLD NEW
{
	awk 'function list(s) { sub(/ *}$/, "", s); return s }
		NR == FNR { is[$1] = $0; next }
		!($1 in is) { print $0 " (gone)"; next }
		is[$1] == $0 { next }
		(/}$/ && index(is[$1], list($0) ",") == 1) || ($1 ~ /\(/ && index(is[$1], $0) == 1) { next }
		{ print $0 " (now: " substr(is[$1], length($1) + 2) ")" }' "$2" "$1"
}

# What the public headers declare, without places and names that change with every build.
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
new=$scratch/new growing=$scratch/growing
header_values | sed 's/[ \t]*\([][,(){}]\)[ \t]*/\1/g; s/^[A-Za-z_0-9]*\(([^)]*)\|\)/& /; s/  */ /g' | sort >"$scratch/new.values"
[ "${PIPESTATUS[0]}" = 0 ] || { echo "abi.sh: the values of the public headers cannot be compiled"; exit 1; }
abidw --exported-interfaces-only --headers-dir "$(dirname "$0")/../lib/include/weir" --drop-private-types \
	--no-architecture --no-corpus-path --no-comp-dir-path --no-show-locs --no-parameter-names --no-elf-needed \
	--no-write-default-sizes --type-id-style hash --out-file "$new" "$library" || exit 1
sed -i "s| path='[^']*/lib/| path='lib/|" "$new"
soname=$(sed -n "s/.* soname='\([^']*\)'.*/\1/p" "$new" | head -n 1)
known=$(sed -n "s/.* soname='\([^']*\)'.*/\1/p" "$abi" 2>/dev/null | head -n 1)
if [ "$known" = "$soname" ]; then
	{
		printf '[suppress_type]\nname_regexp = ^(weir_message'
		fields "$abi" | awk '$2 == 0 && $3 == "size" { printf "|%s", $1 }'
		printf ')$\ntype_kind = struct\nhas_data_member_inserted_at = end\n'
	} >"$growing"
	# abidiff overlooks all that is changed in a structure to which a field is appended
	if ! changes=$(abidiff --suppressions "$growing" --no-added-syms "$abi" "$new" 2>&1) ||
		gone=$(comm -23 <(fields "$abi") <(fields "$new") | grep .); then
		printf '%s\n' "$changes" ${gone:+"gone: $gone"}
		echo "abi.sh: $soname is not compatible with $abi; undo the change, or raise soversion in lib/meson.build"
		exit 1
	fi
	gone=$(values_gone "$values" "$scratch/new.values")
	if [ -n "$gone" ]; then
		echo "$gone"
		echo "abi.sh: programs are built with these values of $values; undo the change, or raise soversion in lib/meson.build"
		exit 1
	fi
elif [ "$write" = 0 ]; then
	echo "abi.sh: the library is $soname, $abi has ${known:-none}; run: scripts/abi.sh --write $library"
	exit 1
fi
if [ "$write" = 1 ]; then
	cp "$new" "$abi"
	cp "$scratch/new.values" "$values"
	chmod 644 "$abi" "$values"
fi
