#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds and runs the tests. A test is one meson test, one range of seeds, one fuzz target, one smoke
# script or one lint check. See docs/testing.md.
set -u
shopt -s lastpipe # run_tests at the end of a pipe keeps its results
cd "$(dirname "$0")/.." || exit 1
root=$PWD
# shellcheck source=scripts/deps.sh
. scripts/deps.sh

SUITES=(lint unit protocol control model fuzz smoke sanitize mutate coverage rxe)
DEFAULT=(lint unit protocol control sanitize model fuzz smoke rxe mutate coverage)
SEEDS=${WEIR_SEEDS:-10000}          # seeds of the protocol suite
SEEDS_SANITIZE=${WEIR_SEEDS_SANITIZE:-200}
SEED_RANGES=10
FUZZ_SECONDS=${WEIR_FUZZ_SECONDS:-10}
cores=$(nproc)

usage()
{
	cat <<END
Usage: scripts/test.sh [--list] [--no-skip] [SUITE ...]
Suites: ${SUITES[*]} (all when none is named)
  --list      names the tests and runs nothing
  --no-skip   a skipped test that test/skips.txt doesn't permit is a failure
Environment: WEIR_SEEDS, WEIR_FUZZ_SECONDS, WEIR_NO_DEPS=1 (leave apt alone)
END
}

list=0 no_skip=0 suites=()
while [ $# -gt 0 ]; do
	case "$1" in
	--list) list=1 ;;
	--no-skip) no_skip=1 ;;
	-h | --help) usage; exit 0 ;;
	-*) usage >&2; exit 2 ;;
	*)
		[[ " ${SUITES[*]} " == *" $1 "* ]] || { echo "test.sh: no suite '$1'" >&2; usage >&2; exit 2; }
		suites+=("$1")
		;;
	esac
	shift
done
[ "${#suites[@]}" -gt 0 ] || suites=("${DEFAULT[@]}")

work=$(mktemp -d) || exit 1
mkfifo "$work/ended" && exec 9<>"$work/ended" || exit 1
declare -a passed=() failed=() skipped=()
started=$SECONDS

finish()
{
	local code=$?

	trap - EXIT INT TERM
	jobs -p | while read -r pid; do kill -TERM "$pid" 2>/dev/null; done
	[ ! -f "$work/hugepages" ] || scripts/setup_hugepages.sh --restore "$work/hugepages" >/dev/null
	rm -rf "$work"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

wants()
{
	[[ " ${suites[*]} " == *" $1 "* ]]
}

# build NAME MESON-OPTION...: build/NAME is configured and compiled; with --list only configured.
# WEIR_CC chooses another compiler; WEIR_TARGETS and WEIR_FOR, suites whose programs, what is compiled.
build()
{
	local dir=build/$1
	shift

	if [ ! -f "$dir/build.ninja" ]; then
		CC=${WEIR_CC:-gcc} meson setup "$dir" "$@" >"$work/setup.log" 2>&1 || {
			tail -n 20 "$work/setup.log"
			return 1
		}
	fi
	[ "$list" = 1 ] && return 0
	# the first one sees to it that it is known what tests there are now
	# shellcheck disable=SC2046,SC2086
	{
		ninja -C "$dir" build.ninja &&
			ninja -C "$dir" ${WEIR_TARGETS:-} $(programs_of "$dir" ${WEIR_FOR:-})
	} >"$work/ninja.log" 2>&1 || {
		grep -E 'error|FAILED' -A 3 "$work/ninja.log" | head -n 60
		return 1
	}
}

# What the tests of some suites run.
programs_of() # DIR SUITE...
{
	[ $# -gt 1 ] || return 0
	meson introspect --tests --targets "$1" | jq -r --arg dir "$(realpath "$1")/" '
		[.tests[] | select(.suite | any(sub(".*:"; "") | IN($ARGS.positional[]))) | .depends[]] as $ids
		| .targets[] | select(.id | IN($ids[])) | .filename[] | ltrimstr($dir)' --args "${@:2}"
}

# Tests of build/$1 whose suites match $2: lines "$3/NAME TIMEOUT COMMAND", the command after $4.
meson_tests()
{
	meson introspect --tests "build/$1" | jq -r --arg suite "$2" --arg prefix "$3" --arg before "${4:-}" \
		--arg build "$root/build/$1" '
		.[] | select(.suite | any(. == $suite or endswith(":" + $suite)))
		| select($before == "" or (.cmd[0] | endswith(".sh") | not))
		| ((.env | to_entries | map("export \(.key)=\(.value | @sh); ") | join(""))
		   + "cd \(.workdir // $build | @sh) && "
		   + "exec " + (.cmd | map(@sh) | join(" "))) as $command
		| "\($prefix)/\(.name | gsub(" "; "_")) \(if $before == "" then .timeout else .timeout * 10 end) "
		  + "\($before) bash -c \($command | @sh)"'
}

# What the sanitizers' runtimes need: no random addresses beyond what they know, and no second chance.
SANE="setarch -R env ASAN_OPTIONS=halt_on_error=1:detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1"
setarch -R true 2>/dev/null || SANE=${SANE#setarch -R }

# note NAME RESULT SECONDS LOG: counts a test and says how it went.
note()
{
	local reason

	case "$2" in
	0) passed+=("$1"); printf 'ok    %-44s %4ds\n' "$1" "$3" ;;
	77)
		reason=$(sed -n 's/^SKIP: *//p' "$4" | tail -n 1)
		skipped+=("$1 ${reason:-gave no reason}")
		printf 'skip  %-44s %4ds  %s\n' "$1" "$3" "${reason:-gave no reason}"
		;;
	*)
		failed+=("$1")
		printf 'FAIL  %-44s %4ds  exit %s\n' "$1" "$3" "$2"
		{ grep -a '^FAIL:' "$4"; tail -n 60 "$4"; } | sed 's/^/      | /'
		;;
	esac
}

# Runs the lines "NAME TIMEOUT COMMAND..." on stdin as tests, at most $1 at a time. A test's end comes
# as a line "NUMBER EXIT-STATUS" in the pipe on fd 9.
run_tests()
{
	local name timeout command n=0 running=0
	local -a names=() since=()

	while read -r name timeout command; do
		if [ "$list" = 1 ]; then
			echo "$name"
			continue
		fi
		[ "$running" -lt "$1" ] || reap
		printf '%s\n' "$command" >"$work/$n.sh"
		names[n]=$name
		since[n]=$SECONDS
		run_test "$n" "$timeout" </dev/null &
		n=$((n + 1))
		running=$((running + 1))
	done
	while [ "$running" -gt 0 ]; do
		reap
	done
}

# In the background; when it is told to end, timeout(1) passes it on.
run_test()
{
	local child code

	trap - EXIT
	trap 'kill "$child"' TERM
	timeout -k 10 "$2" bash "$work/$1.sh" >"$work/$1.log" 2>&1 &
	child=$!
	wait "$child"
	code=$?
	[ "$code" != 124 ] || echo "its time was over" >>"$work/$1.log"
	echo "$1 $code" >&9
}

# Waits for the end of one of run_tests' tests.
reap()
{
	local i code

	read -r i code <&9
	note "${names[i]}" "$code" "$((SECONDS - since[i]))" "$work/$i.log"
	running=$((running - 1))
}

# Ranges of $1 seeds in all, as tests named $2/seeds-FROM-TO with $3 before the command of build/$4.
seed_tests()
{
	local i from to

	[ -d test/sim ] || return 0
	for ((i = 0; i < SEED_RANGES; i++)); do
		from=$(($1 * i / SEED_RANGES + 1))
		to=$(($1 * (i + 1) / SEED_RANGES))
		[ "$from" -le "$to" ] && echo "$2/seeds-$from-$to 900 $3 $root/build/$4/test/sim/test-sim --from $from --to $to"
	done
}

suite_lint()
{
	scripts/lint.sh --list | sed 's|.*|lint/& 120 scripts/lint.sh &|' | run_tests "$cores"
}

suite_unit()
{
	meson_tests release unit unit | run_tests "$cores"
}

suite_control()
{
	wants protocol || meson_tests release control control | run_tests "$cores"
}

# Tests of control wait more than they work: one more at a time then.
suite_protocol()
{
	local more=0

	! wants control || more=1
	{
		[ "$more" = 0 ] || meson_tests release control control
		meson_tests release protocol protocol
		seed_tests "$SEEDS" protocol "" release
	} | run_tests $((cores + more))
}

suite_sanitize()
{
	if WEIR_FOR="unit control" WEIR_TARGETS=test/sim/test-sim \
		build asan -Dbuildtype=debug -Doptimization=1 -Db_sanitize=address,undefined; then
		{
			meson_tests asan unit sanitize/asan "$SANE"
			meson_tests asan control sanitize/asan "$SANE"
			seed_tests "$SEEDS_SANITIZE" sanitize/asan "$SANE" asan
		} | run_tests $((cores + 1))
	else
		broken sanitize/build-asan
	fi
	if WEIR_FOR=tsan build tsan -Dbuildtype=debugoptimized -Db_sanitize=thread; then
		meson_tests tsan tsan sanitize/tsan "$SANE" | run_tests 1
	else
		broken sanitize/build-tsan
	fi
}

# Models of protocols, each with the faults that it has to find.
suite_model()
{
	local model

	for model in test/model/*.pml; do
		name=${model##*/}
		echo "model/${name%.pml} 300 $root/test/model/run.sh $root/$model"
	done | run_tests "$cores"
}

suite_fuzz()
{
	local t name seconds

	WEIR_CC=clang WEIR_TARGETS=fuzz build fuzz -Dfuzz=true -Dbuildtype=debugoptimized -Db_lundef=false \
		-Db_sanitize=address,undefined -Dwerror=false || { broken fuzz/build; return; }
	for t in $(meson introspect --targets build/fuzz | jq -r '.[] | select(.name | startswith("fuzz-")) | .filename[0]'); do
		name=${t##*/fuzz-}
		mkdir -p "$work/corpus/$name"
		seconds=$FUZZ_SECONDS
		[ "$name" != roce_input ] || seconds=$((6 * FUZZ_SECONDS)) # what strangers send to the NIC
		echo "fuzz/$name $((seconds + 120)) $SANE $t -max_total_time=$seconds -timeout=10 -rss_limit_mb=2048" \
			"-error_exitcode=1 -artifact_prefix=$root/build/fuzz/crash-$name- -print_final_stats=1 $work/corpus/$name" \
			"$([ ! -d "test/fuzz/corpus/$name" ] || echo "$root/test/fuzz/corpus/$name")"
	done | run_tests "$cores"
}

# Smoke scripts may say how long they can take: "# timeout: SECONDS" in their first ten lines.
suite_smoke()
{
	local script timeout

	for script in test/smoke/*.sh; do
		case "$script" in */_*.sh | */\*.sh) continue ;; esac
		timeout=$(sed -n '1,10s/^# timeout: *\([0-9]*\).*/\1/p' "$script")
		name=${script##*/}
		echo "smoke/${name%.sh} ${timeout:-120} WEIR_BUILD=$root/build/release $root/$script"
	done | run_tests 1
}

# One run, in which every fault that has to be noticed counts as a test.
suite_mutate()
{
	local patch name log=$work/mutate.log line=$work/line.log tried=1 seconds

	if [ "$list" = 0 ]; then
		timeout -k 10 1200 test/mutate.sh >"$log" 2>&1 &
		wait $!
	fi
	for patch in test/mutations/*.patch; do
		name=$(basename "$patch" .patch)
		if [ "$list" = 1 ]; then
			echo "mutate/$name"
			continue
		fi
		# its line of the table, and why it could not be tried
		grep -A 12 "^$name " "$log" | sed -n '1p; 2,${ /^  |/!q; p; }' >"$line"
		[ -s "$line" ] || { echo "not tried" >"$line"; tried=0; }
		seconds=$(sed -n '1s/^.* \([0-9]*\) s  .*/\1/p' "$line")
		grep -q "^$name  *killed " "$line"
		note "mutate/$name" $? "${seconds:-0}" "$line"
	done
	[ "$tried" = 1 ] || grep -v " killed " "$log" # why
}

# Which lines of lib/ and dataplane/ the unit and protocol tests run. Reported, never a failure.
suite_coverage()
{
	[ "$list" = 0 ] || return 0
	WEIR_FOR="unit protocol" WEIR_TARGETS=test/sim/test-sim \
		build coverage -Dbuildtype=debug -Db_coverage=true || { broken coverage/build; return; }
	find build/coverage -name '*.gcda' -delete
	{ meson_tests coverage unit c; meson_tests coverage protocol c; seed_tests 100 c "" coverage; } |
		while read -r _ timeout command; do
			[ "$(jobs -rp | wc -l)" -lt "$cores" ] || wait -n
			timeout "$timeout" bash -c "$command" >/dev/null 2>&1 </dev/null &
		done
	wait
	gcovr -r . --object-directory build/coverage -f 'lib/' -f 'dataplane/' --exclude '.*test.*' \
		--gcov-ignore-parse-errors -s -o build/coverage/coverage.txt 2>/dev/null |
		sed -n 's/^\(lines\|branches\)/coverage of lib and dataplane: \1/p'
	echo "by file: build/coverage/coverage.txt"
}

# Tests in the virtual machine: those of test/rxe/tests and the smoke tests that name wires in their first ten
# lines ("# wires: END,END ..."), on each of them; "NAME SECONDS WIRE SCRIPT" each. Two nodes on a wire take
# longer there: "# wired: SECONDS".
rxe_tests()
{
	local script name wire wires seconds

	for script in test/rxe/tests/*.sh test/smoke/*.sh; do
		name=${script##*/}
		seconds=$(sed -n '1,10s/^# wired: *\([0-9]*\).*/\1/p' "$script")
		seconds=${seconds:-$(sed -n '1,10s/^# timeout: *\([0-9]*\).*/\1/p' "$script")}
		wires=$(sed -n '1,10s/^# wires: *//p' "$script")
		[[ -n $wires || $script == test/rxe/* ]] || continue
		for wire in ${wires:--}; do
			echo "${name%.sh}$([ "$wire" = - ] || echo "-$wire") ${seconds:-120} $wire $root/$script"
		done
	done
}

# All of them in one machine. If it dies, or a test lets it stand, the next one begins behind that test.
suite_rxe()
{
	local name seconds wire script sum line
	local -a tests=() arguments

	mapfile -t tests < <(rxe_tests)
	if [ "$list" = 1 ]; then
		printf 'rxe/%s\n' "${tests[@]%% *}"
		return
	fi
	mkfifo "$work/rxe"
	while [ "${#tests[@]}" -gt 0 ]; do
		arguments=() sum=60
		for line in "${tests[@]}"; do
			read -r name seconds wire script <<<"$line"
			arguments+=("$name" "$seconds" "$wire" "$script")
			sum=$((sum + seconds + 15))
		done
		WEIR_NO_DEPS=1 WEIR_RXE_TIMEOUT=$sum WEIR_BUILD=$root/build/release \
			test/rxe/run.sh "$root/test/rxe/suite.sh" "${arguments[@]}" >"$work/rxe" 2>&1 &
		note_rxe
		wait $!
	done
}

# Takes from `tests` those that a machine has had, by what it says; all of them, if it hasn't come up.
note_rxe()
{
	local line name code took begun="" log=$work/rxe.log

	: >"$log"
	while IFS= read -r line; do
		if [[ $line == "weir-test begin "* ]]; then
			begun=${line##* }
			: >"$log"
		elif [[ $line == "weir-test end "* ]]; then
			read -r _ _ name code took <<<"$line"
			note "rxe/$name" "$code" "$took" "$log"
			tests=("${tests[@]:1}")
			begun=-
		else
			printf '%s\n' "$line" >>"$log"
		fi
	done <"$work/rxe"
	while [ "${#tests[@]}" -gt 0 ] && [ "$begun" != - ]; do
		note "rxe/${tests[0]%% *}" 125 0 "$log"
		tests=("${tests[@]:1}")
		[ -z "$begun" ] || break
	done
}

# The virtual machine leaves a third of this one idle: suites that no clock decides run beside it, in what it
# leaves, and fuzz for twice the time. Their tests are printed when it has ended.
suites_beside()
{
	trap - EXIT INT
	trap 'jobs -p | xargs -r kill; exit 143' TERM
	renice -n 19 -p "$BASHPID" >/dev/null
	FUZZ_SECONDS=$((2 * FUZZ_SECONDS))
	passed=() failed=() skipped=()
	for suite in "$@"; do
		"suite_$suite"
	done >"$work/beside.log" 2>&1
	declare -p passed failed skipped | sed 's/^declare -a /beside_/' >"$work/beside"
}

suite_rxe_and()
{
	local -a beside_passed=() beside_failed=("${@/%//died}") beside_skipped=()
	local pid

	suites_beside "$@" &
	pid=$!
	suite_rxe
	wait "$pid"
	cat "$work/beside.log"
	# shellcheck disable=SC1091
	[ ! -f "$work/beside" ] || . "$work/beside"
	passed+=("${beside_passed[@]}") failed+=("${beside_failed[@]}") skipped+=("${beside_skipped[@]}")
}

# A build that fails is a failed test.
broken()
{
	failed+=("$1")
	echo "FAIL  $1"
}

# Smoke tests run on hugepages where there is memory for them.
prepare_machine()
{
	wants smoke && [ "$list" = 0 ] && [ "$(id -u)" -eq 0 ] || return 0
	scripts/setup_hugepages.sh --save >"$work/hugepages"
	scripts/setup_hugepages.sh --2m 768 || echo "smoke tests go on without hugepages"
}

[ -n "${WEIR_NO_DEPS:-}" ] || install_deps || exit 3
if wants lint || wants unit || wants protocol || wants control || wants smoke || wants rxe; then
	build release --buildtype=release || { broken build; suites=(); }
fi
prepare_machine
beside=()
for suite in model fuzz coverage; do
	[ "$list" = 1 ] || ! wants rxe || ! wants "$suite" || beside+=("$suite")
done
for suite in "${suites[@]}"; do
	if [[ " ${beside[*]} " == *" $suite "* ]]; then
		continue
	elif [ "$suite" = rxe ] && [ "${#beside[@]}" -gt 0 ]; then
		suite_rxe_and "${beside[@]}"
	else
		"suite_$suite"
	fi
done
[ "$list" = 1 ] && exit 0

if [ "${#skipped[@]}" -gt 0 ]; then
	echo "skipped:"
	for s in "${skipped[@]}"; do
		echo "  $s"
		if [ "$no_skip" = 1 ] && ! grep -qs "^${s%% *}[[:space:]]" test/skips.txt; then
			echo "  ... which test/skips.txt doesn't permit"
			failed+=("${s%% *}")
		fi
	done
fi
[ "${#failed[@]}" -eq 0 ] || printf 'failed: %s\n' "${failed[@]}"
echo "$((SECONDS - started)) s"
echo "${#passed[@]} passed, ${#failed[@]} failed$([ "${#skipped[@]}" -eq 0 ] || echo ", ${#skipped[@]} skipped")"
[ "${#failed[@]}" -eq 0 ]
