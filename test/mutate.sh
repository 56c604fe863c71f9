#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# mutate.sh [--jobs N] [NAME ...]: applies the faults of test/mutations/ one at a time to a copy of the
# sources under build/mutate, builds the tests that a fault names and runs them. A fault that no test
# notices has survived. Exit: 0 none survived, 1 one did (or a patch no longer applies), 2 usage.
#
# Head of a patch:  # fault: what is wrong now, in one line
#                   # tests: unit tests (as in test/unit), or sim:FROM-TO[:OPTIONS] for seeds of test-sim
set -u
cd "$(dirname "$0")/.." || exit 1

work=$PWD/build/mutate
jobs=$(nproc)
limit=60 # seconds that one test may take

usage()
{
	echo "usage: mutate.sh [--jobs N] [NAME ...]" >&2
	exit 2
}

field() # PATCH NAME
{
	sed -n "s/^# $2: *//p" "$1" | head -n 1
}

# A copy of what git knows and of new files, with times kept so that ninja builds only what changed.
copy_sources() # TO
{
	mkdir -p "$1"
	git ls-files -z --cached --others --exclude-standard |
		while IFS= read -r -d '' f; do [ ! -f "$f" ] || printf '%s\0' "$f"; done |
		tar --null -T - -cf - | tar -xf - -C "$1"
}

program_of() # TEST
{
	case $1 in
	sim:*) echo test/sim/test-sim ;;
	*) echo "test/unit/${1}_test" ;;
	esac
}

run_test() # BUILD TEST LOG
{
	local range options=''

	case $2 in
	sim:*)
		range=${2#sim:}
		[ "$range" = "${range#*:}" ] || options=${range#*:}
		range=${range%%:*}
		# shellcheck disable=SC2086
		timeout "$limit" "$1/test/sim/test-sim" --from "${range%-*}" --to "${range#*-}" $options
		;;
	*)
		WEIR_TEST_DATA=$PWD/test/data timeout "$limit" "$1/$(program_of "$2")"
		;;
	esac >"$3" 2>&1
}

# Tries one fault; a line of the table: name, verdict, what killed it, seconds.
try() # DIR PATCH
{
	local dir=$1 patch=$2 name tests t begin=$SECONDS verdict=SURVIVED by=- programs=()

	name=$(basename "$patch" .patch)
	tests=$(field "$patch" tests)
	for t in $tests; do
		programs+=("$(program_of "$t")")
	done
	if [ ${#programs[@]} -eq 0 ]; then
		verdict='NO TESTS'
	elif ! patch -s -p1 -F0 --dry-run -d "$dir/src" <"$patch" >"$dir/log" 2>&1; then
		verdict='STALE PATCH'
	else
		patch -s -p1 -F0 -d "$dir/src" <"$patch" >/dev/null
		if ! ninja -C "$dir/build" "${programs[@]}" >"$dir/log" 2>&1; then
			verdict='NOT BUILT'
		else
			for t in $tests; do
				run_test "$dir/build" "$t" "$dir/log" && continue
				verdict=killed by=$t
				break
			done
		fi
		patch -s -R -p1 -d "$dir/src" <"$patch" >/dev/null
	fi
	printf '%-34s %-12s %-22s %3d s  %s\n' "$name" "$verdict" "$by" $((SECONDS - begin)) \
		"$(field "$patch" fault)"
	[ "$verdict" = killed ]
}

# The tests must pass without a fault, or their failing says nothing.
sound() # DIR PATCH...
{
	local dir=$1 tests t programs=()

	shift
	tests=$(for p in "$@"; do field "$p" tests; done | tr ' ' '\n' | sort -u)
	for t in $tests; do
		programs+=("$(program_of "$t")")
	done
	ninja -C "$dir/build" "${programs[@]}" >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; return 1; }
	for t in $tests; do
		run_test "$dir/build" "$t" "$dir/log" && continue
		echo "mutate.sh: $t fails without a fault; mend it first"
		tail -n 5 "$dir/log"
		return 1
	done
}

# One worker: its own copy and build, every jobs-th patch.
worker() # NUMBER PATCH...
{
	local dir=$work/$1 bad=0 mine=() i

	for ((i = $1 + 2; i <= $#; i += jobs)); do
		mine+=("${!i}")
	done
	[ ${#mine[@]} -gt 0 ] || return 0
	copy_sources "$dir/src"
	# an earlier run left objects with faults that are newer than their sources
	sed -n 's|^+++ b/||p' test/mutations/*.patch | sort -u | sed "s|^|$dir/src/|" | xargs touch -c
	if [ ! -f "$dir/build/build.ninja" ]; then
		meson setup "$dir/build" "$dir/src" -Dbuildtype=debugoptimized -Ddebug=false >"$dir/log" 2>&1 ||
			{ cat "$dir/log"; return 1; }
	fi
	sound "$dir" "${mine[@]}" || return 1
	for i in "${mine[@]}"; do
		try "$dir" "$i" || bad=1
	done
	return $bad
}

names=()
while [ $# -gt 0 ]; do
	case $1 in
	--jobs) [ $# -ge 2 ] || usage; jobs=$2; shift ;;
	-*) usage ;;
	*) names+=("$1") ;;
	esac
	shift
done

patches=()
for p in test/mutations/*.patch; do
	n=$(basename "$p" .patch)
	if [ ${#names[@]} -eq 0 ] || printf '%s\n' "${names[@]}" | grep -qxF -- "$n"; then
		patches+=("$PWD/$p")
	fi
done
[ ${#patches[@]} -gt 0 ] || { echo "mutate.sh: no such fault; see test/mutations" >&2; exit 2; }

rm -rf "$work"/*/src
pids=()
for ((w = 0; w < jobs; w++)); do
	worker "$w" "${patches[@]}" &
	pids+=($!)
done
trap 'kill "${pids[@]}" 2>/dev/null' INT TERM
status=0
for pid in "${pids[@]}"; do
	wait "$pid" || status=1
done
[ $status -eq 0 ] && echo "${#patches[@]} faults, none survived" || echo "a fault survived or could not be tried"
exit $status
