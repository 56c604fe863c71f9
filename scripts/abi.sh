#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# abi.sh LIBRARY: compares a libweir.so that was built with -g with the ABI in lib/libweir.abi. New symbols are
# permitted, and new fields at the end of struct weir_message and of structures whose first field is `size`.
# abi.sh --write LIBRARY: writes lib/libweir.abi. A break is refused as long as the soname is that of the file.
# Exit: 0 compatible, 1 not, 2 usage, 3 a tool is missing. docs/abi.md has the rules.
set -u
abi=$(dirname "$0")/../lib/libweir.abi

write=0
[ "${1:-}" != --write ] || { write=1; shift; }
library=${1:-}
if [ $# != 1 ] || [ ! -f "$library" ]; then
	echo "abi.sh: give a libweir.so; usage: abi.sh [--write] LIBRARY" >&2
	exit 2
fi
for tool in abidiff abidw readelf; do
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

# What the public headers declare, without places and names that change with every build.
new=$(mktemp) && growing=$(mktemp) || exit 1
trap 'rm -f "$new" "$growing"' EXIT
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
elif [ "$write" = 0 ]; then
	echo "abi.sh: the library is $soname, $abi has ${known:-none}; run: scripts/abi.sh --write $library"
	exit 1
fi
if [ "$write" = 1 ]; then
	cp "$new" "$abi"
	chmod 644 "$abi"
fi
