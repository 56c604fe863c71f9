#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# mutate.sh [--jobs N] [--passed FILE] [NAME ...]: applies the faults of test/mutations/ one at a time to a copy of the
# sources and of build/faults under build/mutate, builds the tests that a fault names and runs them. A
# fault that no test notices has survived. Exit: 0 none survived, 1 one did (or a patch no longer applies),
# 2 usage. Tests named in FILE, with the seconds that they took, have passed on this build: they are not run
# without a fault again. A test that stands still has noticed the fault: its time limit follows from those seconds.
#
# Head of a patch:  # fault: what is wrong now, in one line
#                   # tests: one or more of
#                       NAME                     a unit test (as in test/unit)
#                       tsan:NAME                the same under ThreadSanitizer
#                       control:NAME             a test of test/control
#                       sim:FROM-TO[:OPTIONS]    seeds of test-sim
#                       members:FROM-TO          seeds of test-membership
#                       setup:FROM-TO            seeds of test-setup
#                       groups:FROM-TO           seeds of test-collectives
#                       messages:FROM-TO         seeds of test-messages
#                       ordinary:FROM-TO         the same where there are no huge pages
#                       rma:FROM-TO[:OPTIONS]    seeds of test-rma
set -u
cd "$(dirname "$0")/.." || exit 1

work=$PWD/build/mutate
jobs=$(nproc)
fixed='setarch -R' # ThreadSanitizer knows only some of the addresses that a program may get
$fixed true 2>/dev/null || fixed=

usage()
{
	echo "usage: mutate.sh [--jobs N] [--passed FILE] [NAME ...]" >&2
	exit 2
}

field() # PATCH NAME
{
	sed -n "s/^# $2: *//p" "$1" | head -n 1
}

# Copies the files of git, new files and the builds. All times are kept, and the builds lie
# where they lie here, so that ninja builds only what changes (and what is compiled as one file, once).
copy_tree() # TO BUILD...
{
	local to=$1

	shift
	mkdir -p "$to"
	{
		git ls-files -z --cached --others --exclude-standard |
			while IFS= read -r -d '' f; do [ ! -f "$f" ] || printf '%s\0' "$f"; done
		printf '%s\0' "${@/#/build/}"
	} | tar --format=posix --null -T - -cf - | tar -xf - -C "$to"
	# meson's unity files name sources by their whole path: here they would be those without the fault
	find "$to/build" -name '*-unity*.c' -exec sed -i "s|$PWD/|$to/|" {} +
}

# The build that a test is of, and what is built there.
build_of() # TEST
{
	case $1 in
	tsan:*) echo tsan ;;
	*) echo faults ;;
	esac
}

programs_of() # TEST
{
	case $1 in
	sim:*) echo test/sim/test-sim ;;
	members:*) echo test/sim/test-membership ;;
	setup:*) echo test/sim/test-setup ;;
	groups:*) echo test/sim/test-collectives ;;
	messages:*) echo test/sim/test-messages ;;
	ordinary:*) echo test/sim/test-messages-ordinary ;;
	rma:*) echo test/sim/test-rma ;;
	control:*) echo "test/control/control_${1#*:}_test control/weir-control" ;;
	*) echo "test/unit/${1#tsan:}_test" ;;
	esac
}

build_tests() # ROOT LOG TEST...
{
	local root=$1 log=$2 b t programs

	shift 2
	for b in faults tsan; do
		programs=$(for t in "$@"; do [ "$(build_of "$t")" != $b ] || programs_of "$t"; done)
		# shellcheck disable=SC2086
		[ -z "$programs" ] || ninja -C "$root/build/$b" $programs >"$log" 2>&1 || return 1
	done
}

# Seconds that a test has with a fault: many times those that it took without one, since the machine is busy.
# One fault in ten stops its test for good, so each second here costs a run of all of them half a minute.
limit_of() # TEST
{
	local seconds=$((15 + 6 * ${took[$1]:-17}))

	echo $((seconds < 120 ? seconds : 120))
}

run_test() # DIR TEST SECONDS: the log is in DIR/log
{
	local dir=$1 limit=$3 what=${2#*:} programs before='' options=''
	local -a args=()

	programs=$(programs_of "$2")
	case $2 in
	sim:* | members:* | setup:* | groups:* | messages:* | ordinary:* | rma:*)
		[ "$what" = "${what#*:}" ] || options=${what#*:}
		what=${what%%:*}
		# shellcheck disable=SC2206
		args=(--from "${what%-*}" --to "${what#*-}" $options)
		;;
	control:*) args=("$dir/tree/build/faults/control/weir-control") ;;
	tsan:*) before=$fixed ;;
	esac
	{
		# shellcheck disable=SC2086
		TSAN_OPTIONS=halt_on_error=1 WEIR_TEST_DATA=$PWD/test/data timeout "$limit" $before \
			"$dir/tree/build/$(build_of "$2")/${programs%% *}" "${args[@]}"
	} >"$dir/log" 2>&1
}

# Tries one fault; a line of the table: name, verdict, what killed it, seconds, fault.
try() # DIR PATCH
{
	local dir=$1 patch=$2 begin=$SECONDS verdict=SURVIVED by=- line t
	local -a tests

	read -ra tests <<<"$(field "$patch" tests)"
	if [ ${#tests[@]} -eq 0 ]; then
		verdict='NO TESTS'
	elif printf '%s\n' "${tests[@]}" | grep -qxFf "$work/unsound"; then
		verdict=UNSOUND
		echo "a test of it fails without the fault" >"$dir/log"
	elif ! patch -s -p1 -F0 --dry-run -d "$dir/tree" <"$patch" >"$dir/log" 2>&1; then
		verdict='STALE PATCH'
	else
		patch -s -p1 -F0 -d "$dir/tree" <"$patch" >/dev/null
		if ! build_tests "$dir/tree" "$dir/log" "${tests[@]}"; then
			verdict='NOT BUILT'
		else
			for t in "${tests[@]}"; do
				run_test "$dir" "$t" "$(limit_of "$t")" && continue
				verdict=killed by=$t
				break
			done
		fi
		patch -s -R -p1 -d "$dir/tree" <"$patch" >/dev/null
	fi
	# In one write: other workers write there too.
	line=$(printf '%-26s %-11s %-34s %3d s  %s' "$(basename "$patch" .patch)" "$verdict" "$by" \
		$((SECONDS - begin)) "$(field "$patch" fault)")
	case $verdict in
	killed | SURVIVED) ;;
	*) line+=$'\n'$(tail -n 12 "$dir/log" | tr -d '\000' | sed 's/^/  | /') ;;
	esac
	printf '%s\n' "$line" | tee "$work/verdicts/$(basename "$patch" .patch)"
	[ "$verdict" = killed ]
}

# Runs the tests on the sources without a fault. A test that fails then says nothing of faults: it is named
# in $work/unsound, and those that need it aren't tried.
sound() # TEST...
{
	local i t seconds
	local -a pids=() again

	: >"$work/unsound"
	: >"$work/took"
	for ((i = 0; i < jobs; i++)); do
		mkdir -p "$work/sound/$i"
		ln -sfn "$PWD" "$work/sound/$i/tree"
		sound_share "$work/sound/$i" "$i" "$@" &
		pids+=($!)
	done
	wait "${pids[@]}"
	# Again alone: a test that starved beside the others is tried too.
	mapfile -t again <"$work/unsound"
	: >"$work/unsound"
	for t in "${again[@]}"; do
		run_test "$work/sound/0" "$t" 600 && continue
		echo "mutate.sh: $t fails without a fault, alone too; fix it first"
		echo "$t" >>"$work/unsound"
	done
	while read -r t seconds; do took[$t]=$seconds; done <"$work/took"
}

sound_share() # DIR NUMBER TEST...: every $jobs-th of them, from NUMBER on
{
	local dir=$1 i begin

	for ((i = 3 + $2; i <= $#; i += jobs)); do
		begin=$SECONDS
		if run_test "$dir" "${!i}" 600; then
			echo "${!i} $((SECONDS - begin))" >>"$work/took"
			continue
		fi
		printf '%s\n' "mutate.sh: ${!i} fails without a fault; it is run once more alone" \
			"$({ grep -a 'ERROR\|LINE\|Assert' "$dir/log"; tail -n 8 "$dir/log"; } | tr -d '\000' | sed 's/^/  | /')"
		echo "${!i}" >>"$work/unsound"
	done
}

configure() # BUILD MESON-OPTION...
{
	local b=$1

	shift
	[ -f "build/$b/build.ninja" ] || meson setup "build/$b" "$@" >"$work/log" 2>&1 || {
		cat "$work/log"
		return 1
	}
}

tests_of() # PATCH...
{
	local p

	for p in "$@"; do field "$p" tests; done | tr ' ' '\n' | sort -u
}

# The patches as lines of a queue: those of one source file side by side, so that it is compiled once for each,
# before all those that need another build. Tests of control wait more than they work: a queue of their own.
fill_queues() # PATCH...
{
	local p tests rank

	for p in "$@"; do
		tests=$(field "$p" tests) rank=2
		[[ $tests != *control:* ]] || rank=1
		[[ $tests != *tsan:* ]] || rank=0
		echo "$rank $(sed -n 's|^--- a/||p' "$p" | head -n 1) $p"
	done | sort -s -k1,2 >"$work/ordered"
	grep '^1' "$work/ordered" | awk '{ print $3 }' >"$work/waiting"
	grep -v '^1' "$work/ordered" |
		awk '{ printf "%s%s", NR == 1 ? "" : $1 $2 == last ? " " : "\n", $3; last = $1 $2 } END { print "" }' >"$work/working"
}

# Takes the next line of the first queue that has one: patches of one file.
take() # QUEUE... into `mine`
{
	local queue

	exec 7>"$work/queue.lock"
	flock 7
	for queue in "$@"; do
		read -ra mine <"$work/$queue" || continue
		sed -i 1d "$work/$queue"
		break
	done
	exec 7>&-
	[ ${#mine[@]} -gt 0 ]
}

# One worker: its own copy.
worker() # NUMBER BUILD...
{
	local dir=$work/$1 bad=0 p
	local -a mine queues=(waiting working)

	[ $(($1 % 2)) -eq 0 ] || queues=(working waiting)
	copy_tree "$dir/tree" "${@:2}"
	while mine=() && take "${queues[@]}"; do
		for p in "${mine[@]}"; do
			try "$dir" "$p" || bad=1
		done
	done
	return $bad
}

names=() passed=/dev/null
declare -A took=() # seconds of a test without a fault
while [ $# -gt 0 ]; do
	case $1 in
	--jobs) [ $# -ge 2 ] || usage; jobs=$2; shift ;;
	--passed) [ -r "${2:-}" ] || usage; passed=$2; shift ;;
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

rm -rf "${work:?}"/*
mkdir -p "$work/verdicts"
mapfile -t tests < <(tests_of "${patches[@]}")
# A fault is compiled in half the time; its warnings say nothing.
configure faults --buildtype=release -Doptimization=1 -Dwerror=false || exit 1
[[ " ${tests[*]}" != *" tsan:"* ]] ||
	configure tsan -Dbuildtype=debugoptimized -Db_sanitize=thread || exit 1
build_tests . "$work/log" "${tests[@]}" || { tail -n 20 "$work/log"; exit 1; }
while read -r t seconds; do took[$t]=$seconds; done <"$passed"
mapfile -t unproven < <(for t in "${tests[@]}"; do [ -n "${took[$t]:-}" ] || echo "$t"; done)
sound "${unproven[@]}"
fill_queues "${patches[@]}"
mapfile -t builds < <(for p in "${tests[@]}"; do build_of "$p"; done | sort -u)
pids=()
for ((w = 0; w < jobs; w++)); do
	worker "$w" "${builds[@]}" &
	pids+=($!)
done
trap 'kill "${pids[@]}" 2>/dev/null' INT TERM
status=0
for pid in "${pids[@]}"; do
	wait "$pid" || status=1
done
# A worker that a test has killed leaves patches untried.
for p in "${patches[@]}"; do
	[ ! -s "$work/verdicts/$(basename "$p" .patch)" ] || continue
	[ -d "$work/again" ] || copy_tree "$work/again/tree" "${builds[@]}"
	try "$work/again" "$p" || status=1
done
if [ $status -eq 0 ]; then
	echo "${#patches[@]} faults, none survived"
else
	echo "a fault survived or could not be tried"
fi
exit $status
