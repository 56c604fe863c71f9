#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Which tests a run of scripts/test.sh has: the patterns of test/gate.txt, what a commit draws, what is left out.
# shellcheck disable=SC2031,SC2034 # variables of scripts/test.sh, which is sourced in subshells
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/release
[ ! -d meson-info ] || build=$PWD # where tests of a build run
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failed=0

fail()
{
	echo "FAILED: $*"
	failed=1
}

# of COMMIT COMMAND...: COMMAND among the functions of test.sh, in a run of the gate that only lists.
of()
(
	commit=$1
	run=("${@:2}")
	git() { echo "$commit"; }
	meson() { command meson "${@/#build\/*/$build}"; }
	set -- --list
	# shellcheck source=scripts/test.sh
	. "$root/scripts/test.sh"
	build() { return 0; }
	"${run[@]}"
)

# all SUITE...: names of all tests of the suites.
all()
{
	gate=0 suites=("$@")
	list_tests
}

# chosen SUITE...: names of the gate's tests, then of those that it leaves out, which are marked.
chosen()
{
	suites=("$@")
	list_tests
	sed 's/^/left out /' "$top/left_out"
}

# gate_of NAME...: those that belong to the gate of $tmp/test/gate.txt.
gate_of()
{
	local name

	cd "$tmp" || exit 1
	for name in "$@"; do ! belongs "$name" || echo "$name"; done
}

# The last pattern that matches decides; what matches none is left out.
mkdir "$tmp/test"
printf '%s\n' '# comment' '' 'unit/*' '!unit/b*' 'unit/bc' 'smoke/[ab]' '!smoke/b' >"$tmp/test/gate.txt"
said=$(of 0 gate_of unit/a unit/b unit/bc unit/bcd smoke/a smoke/b smoke/c fuzz/a '# comment' | tr '\n' ' ')
[ "$said" = "unit/a unit/bc smoke/a " ] || fail "of these patterns came '$said'"

# Each line of the gate's own file has a test.
suites=(lint unit protocol control sanitize model smoke rxe mutate)
of 0 all "${suites[@]}" >"$tmp/all"
[ "$(wc -l <"$tmp/all")" -gt 500 ] || fail "only $(wc -l <"$tmp/all") tests"
while read -r pattern; do
	case "$pattern" in '' | '#'*) continue ;; esac
	found=0
	while [ "$found" = 0 ] && read -r name; do
		# shellcheck disable=SC2254 # a pattern
		case "$name" in ${pattern#!}) found=1 ;; esac
	done <"$tmp/all"
	[ "$found" = 1 ] || fail "no test matches '$pattern' of test/gate.txt"
done <"$root/test/gate.txt"

# A test is in the gate or told to be left out, not both. Seeds are other ones there, and sanitized only unit tests.
suites=(lint unit control model smoke rxe mutate)
of 0 all "${suites[@]}" | sort >"$tmp/all"
of 0 chosen "${suites[@]}" >"$tmp/chosen"
sed 's/^left out //' "$tmp/chosen" | sort | diff "$tmp/all" - >"$tmp/diff" || fail "told and there differ: $(cat "$tmp/diff")"
for begin in unit/ smoke/ 'left out smoke/'; do
	grep -q "^$begin" "$tmp/chosen" || fail "no '$begin' among what is chosen and left out"
done

# Ten commits in turn draw all faults, each once, and a commit always the same ones.
for i in {0..9}; do
	of "abc00$i" suite_mutate >"$tmp/tenth.$i"
	[ -s "$tmp/tenth.$i" ] || fail "commit abc00$i draws no fault"
done
of abc004 suite_mutate | cmp -s "$tmp/tenth.4" - || fail "a commit draws other faults the second time"
grep '^mutate/' "$tmp/all" >"$tmp/faults"
sort "$tmp"/tenth.* | diff "$tmp/faults" - >"$tmp/diff" || fail "ten tenths are not all faults, once each: $(cat "$tmp/diff")"

# One wire per test in the virtual machine; commits in turn draw each.
wires() { printf 'rxe/%s 400\n' a-w b-v b-w c d-u d-v d-w | one_wire | cut -d' ' -f1; }
for i in {0..5}; do
	of "$i" wires >"$tmp/wires.$i"
	[ "$(sed 's|-.*||' "$tmp/wires.$i" | tr '\n' ' ')" = "rxe/a rxe/b rxe/c rxe/d " ] || fail "wires: $(cat "$tmp/wires.$i")"
done
[ "$(sort -u "$tmp"/wires.* | wc -l)" = 7 ] || fail "six commits miss a wire: $(sort -u "$tmp"/wires.*)"

# The lines at the end name what was left out, by suite; many names are only counted.
left()
{
	printf '%s\n' smoke/b smoke/a smoke/b unit/c mutate/{1..61} >"$top/left_out"
	tell_left_out
}
of 0 left >"$tmp/said"
for line in '  smoke: 2: a b' '  unit: 1: c' '  mutate: 61'; do
	grep -qxF -- "$line" "$tmp/said" || fail "no line '$line': $(cat "$tmp/said")"
done
exit "$failed"
