#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds and runs the tests, in lanes side by side. A test is one meson test, one range of seeds, one fuzz target, one smoke
# script or one lint check. Without a suite: the gate of test/gate.txt. See docs/testing.md.
set -u
shopt -s lastpipe # run_tests at the end of a pipe is the lane itself, and ends with it
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
root=$PWD
# shellcheck source=scripts/deps.sh
. scripts/deps.sh

SUITES=(lint unit protocol control sanitize model fuzz smoke rxe mutate coverage)
SEEDS=10000 GATE_SEEDS=1000         # of the protocol suite, see below
RMA_SEEDS=80 GATE_RMA_SEEDS=8       # of test-rma there: eight in a row are one of each setting
SEEDS_SANITIZE=${WEIR_SEEDS_SANITIZE:-200}
SEED_RANGES=10
FUZZ_SECONDS=${WEIR_FUZZ_SECONDS:-20}
cores=$(nproc)
patience=1 # factor of the tests' time limits in this lane

usage()
{
	cat <<END
Usage: scripts/test.sh [--full | SUITE ...] [--list] [--no-skip]
Without a suite: the gate, that is the tests of test/gate.txt; of them a tenth of the faults, $GATE_SEEDS seeds, and in the
virtual machine one wire per test, drawn by the commit.
Suites: ${SUITES[*]}
  --full      all suites, every test
  --list      names the tests and runs nothing
  --no-skip   a skipped test that test/skips.txt doesn't permit is a failure
Environment: WEIR_SEEDS, WEIR_FIRST_SEED, WEIR_SEEDS_SANITIZE, WEIR_FUZZ_SECONDS, WEIR_NO_DEPS=1 (leave apt alone)
END
}

list=0 no_skip=0 gate=0 suites=()
while [ $# -gt 0 ]; do
	case "$1" in
	--full) suites=("${SUITES[@]}") ;;
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
[ "${#suites[@]}" -gt 0 ] || { gate=1 suites=(lint unit protocol control sanitize model smoke rxe mutate); }
# The commit id decides which seeds and faults a run draws.
draw=$((16#$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0)))
[ "$gate" = 0 ] || { SEEDS=$GATE_SEEDS RMA_SEEDS=$GATE_RMA_SEEDS SEED_RANGES=2; }
SEEDS=${WEIR_SEEDS:-$SEEDS}
FIRST_SEED=${WEIR_FIRST_SEED:-$((draw * 1000 + 1))}

top=$(mktemp -d) || exit 1 # of all lanes
work=$top                   # of this one
: >"$top/results"
exec 8>&1
started=$SECONDS

finish()
{
	local code=$?

	trap - EXIT INT TERM
	jobs -p | while read -r pid; do kill -TERM "$pid" 2>/dev/null; done
	wait
	[ ! -f "$top/hugepages" ] || scripts/setup_hugepages.sh --restore "$top/hugepages" >/dev/null
	rm -rf "$top"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

# Whether a test belongs to this run: the last line of test/gate.txt that matches its name decides.
belongs() # NAME
{
	local line in=1

	[ "$gate" = 1 ] || return 0
	while read -r line; do
		# shellcheck disable=SC2254 # patterns
		case "$line" in
		'' | '#'*) continue ;;
		'!'*) case "$1" in ${line#!}) in=1 ;; esac ;;
		*) case "$1" in $line) in=0 ;; esac ;;
		esac
	done <test/gate.txt
	return $in
}

# Lines "NAME ..." of tests: those that belong to this run; the others' names go to $top/left_out.
belonging()
{
	local line

	while IFS= read -r line; do
		if belongs "${line%% *}"; then
			printf '%s\n' "$line"
		else
			echo "${line%% *}" >>"$top/left_out"
		fi
	done
}

wants()
{
	[[ " ${suites[*]} " == *" $1 "* ]]
}

# build NAME MESON-OPTION...: build/NAME is configured and compiled; with --list only configured. If that
# fails, it is a failed test. WEIR_CC chooses another compiler; WEIR_TARGETS and WEIR_FOR, suites whose
# programs, what is compiled.
build()
{
	local dir=build/$1 log=$work/build-$1 since=$SECONDS
	shift

	# one of an older tree may have been made with other options
	if [ "$(cat "$dir/options" 2>/dev/null)" != "$*" ]; then
		[ ! -f "$dir/build.ninja" ] || set -- "$@" --reconfigure
		CC=${WEIR_CC:-gcc} meson setup "$dir" "$@" >"$log" 2>&1 || {
			note "$dir" 1 "$((SECONDS - since))" "$log"
			return 1
		}
		echo "${*% --reconfigure}" >"$dir/options"
	fi
	[ "$list" = 1 ] && return 0
	# the first one sees to it that it is known what tests there are now
	# shellcheck disable=SC2046,SC2086
	{
		ninja -C "$dir" build.ninja &&
			ninja -C "$dir" ${WEIR_TARGETS:-} $(programs_of "$dir" ${WEIR_FOR:-})
	} >"$log" 2>&1 || {
		grep -E 'error|FAILED' -A 3 "$log" | head -n 60 >"$log.errors"
		note "$dir" 1 "$((SECONDS - since))" "$log.errors"
		return 1
	}
}

# Programs of some suites' tests.
programs_of() # DIR SUITE...
{
	[ $# -gt 1 ] || return 0
	meson introspect --tests --targets "$1" | jq -r --arg dir "$(realpath "$1")/" '
		[.tests[] | select(.suite | any(sub(".*:"; "") | IN($ARGS.positional[]))) | .depends[]] as $ids
		| .targets[] | select(.id | IN($ids[])) | .filename[] | ltrimstr($dir)' --args "${@:2}"
}

# Tests of build/$1 whose suites match $2: lines "$3/NAME TIMEOUT COMMAND", the command after $4. The timeouts say
# how long a test takes on a machine of its own: here all run side by side.
meson_tests()
{
	meson introspect --tests "build/$1" | jq -r --arg suite "$2" --arg prefix "$3" --arg before "${4:-}" \
		--arg build "$root/build/$1" '
		.[] | select(.suite | any(. == $suite or endswith(":" + $suite)))
		| select($before == "" or (.cmd[0] | endswith(".sh") | not))
		| ((.env | to_entries | map("export \(.key)=\(.value | @sh); ") | join(""))
		   + "cd \(.workdir // $build | @sh) && "
		   + "exec " + (.cmd | map(@sh) | join(" "))) as $command
		| "\($prefix)/\(.name | gsub(" "; "_")) \(.timeout * 10) "
		  + "\($before) bash -c \($command | @sh)"'
}

# The sanitizers' runtimes know only some random addresses; the first finding ends a test.
SANE="setarch -R env ASAN_OPTIONS=halt_on_error=1:detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1"
setarch -R true 2>/dev/null || SANE=${SANE#setarch -R }

# note NAME RESULT SECONDS LOG: counts a test and says how it went, all of it at once.
note()
{
	local reason

	case "$2" in
	0) printf 'ok    %-44s %4ds\n' "$1" "$3" ;;
	77)
		reason=$(sed -n 's/^SKIP: *//p' "$4" | tail -n 1)
		printf 'skip  %-44s %4ds  %s\n' "$1" "$3" "${reason:-gave no reason}"
		;;
	*)
		printf 'FAIL  %-44s %4ds  exit %s\n' "$1" "$3" "$2"
		{ grep -a 'FAIL: ' "$4"; tail -n 60 "$4"; } | sed 's/^/      | /'
		;;
	esac >"$work/note.$BASHPID"
	head -n 1 "$work/note.$BASHPID" >>"$top/results"
	flock "$top/results" cat "$work/note.$BASHPID" >&8
}

# Runs the lines "NAME TIMEOUT COMMAND..." on stdin as tests, at most $1 at a time. A test's end comes
# as a line "NUMBER EXIT-STATUS" in the lane's pipe on fd 9.
run_tests()
{
	local name timeout command n=0 running=0
	local -a names=() since=()

	while read -r name timeout command; do
		belongs "$name" || { echo "$name" >>"$top/left_out"; continue; }
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
	timeout -k 60 "$(($2 * patience))" bash "$work/$1.sh" >"$work/$1.log" 2>&1 8>&- 9>&- &
	child=$!
	wait "$child"
	code=$?
	[ "$code" != 124 ] || echo "timed out" >>"$work/$1.log"
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

# Ranges of $1 seeds in all from $6 on, as tests named $2-FROM-TO with $3 before the command of program $5 of build/$4.
seed_tests()
{
	local i from to

	[ -d test/sim ] || return 0
	for ((i = 0; i < SEED_RANGES; i++)); do
		from=$(($1 * i / SEED_RANGES + $6))
		to=$(($1 * (i + 1) / SEED_RANGES + $6 - 1))
		[ "$from" -le "$to" ] && echo "$2-$from-$to 3600 $3 $root/build/$4/test/sim/$5 --from $from --to $to"
	done
}

suite_lint()
{
	scripts/lint.sh --list | sed 's|.*|lint/& 600 scripts/lint.sh &|'
}

suite_unit()
{
	meson_tests release unit unit
}

suite_protocol()
{
	meson_tests release protocol protocol
	# 25 s; its seeds beside it have up to 93 nodes
	echo "protocol/membership-1000 600 $root/build/release/test/sim/test-membership --nodes 1000"
	seed_tests "$RMA_SEEDS" protocol/rma "" release test-rma "$FIRST_SEED"
	seed_tests "$SEEDS" protocol/seeds "" release test-sim "$FIRST_SEED"
}

suite_control()
{
	meson_tests release control control
}

# Programs of the smoke tests of hostile programs, beside those of control.
HOSTILE_TARGETS="dataplane/weir-dataplane test/smoke/probe test/smoke/courier test/smoke/keeper test/smoke/member test/hostile/hostile test/hostile/older_kernel"

# All but the tests of control and smoke tests: they are in other lanes.
suite_sanitize()
{
	local what="unit protocol control" targets=$HOSTILE_TARGETS coverage=true

	[ "$gate" = 0 ] || what="unit" targets="" coverage=false
	if WEIR_FOR=$what WEIR_TARGETS=$targets build asan -Dbuildtype=debug -Doptimization=1 -Dc_args=-g1 \
		-Db_sanitize=address,undefined -Db_coverage=$coverage; then
		[ "$list" = 1 ] || find build/asan -name '*.gcda' -delete
		: >"$top/asan"
		meson_tests asan unit sanitize/asan "$SANE"
	fi
	if [ "$gate" = 0 ] && [ -e "$top/asan" ]; then
		meson_tests asan protocol sanitize/asan "$SANE"
		seed_tests "$SEEDS_SANITIZE" sanitize/asan/seeds "$SANE" asan test-sim "$FIRST_SEED"
	fi
	if WEIR_FOR=tsan build tsan -Dbuildtype=debugoptimized -Db_sanitize=thread; then
		meson_tests tsan tsan sanitize/tsan "$SANE"
	fi
}

# Waits for the sanitized build of another lane. False: there will be none.
sanitized()
{
	[ "$gate" = 0 ] || return
	until [ "$list" = 1 ] || [ -e "$top/asan" ]; do
		# it wasn't built, or its lane is the first to have died
		[ ! -e "$top/rest/done" ] && kill -0 "${pids[0]}" 2>/dev/null || return
		sleep 0.2
	done
}

suite_sanitize_control()
{
	! sanitized || meson_tests asan control sanitize/asan "$SANE"
}

# Hostile programs against sanitized data planes and victims: a dozen processes that poll, so one test at a time.
suite_sanitize_hostile()
{
	local script name

	sanitized || return
	for script in test/smoke/hostile*.sh; do
		name=${script##*/}
		echo "sanitize/asan/${name%.sh} 900 $SANE WEIR_BUILD=$root/build/asan $root/$script"
	done
}

# Models of protocols, each with the faults that it has to find.
suite_model()
{
	local model name

	for model in test/model/*.pml; do
		name=${model##*/}
		echo "model/${name%.pml} 1800 $root/test/model/run.sh $root/$model"
	done
}

# The one that takes longest begins: what strangers send to the NIC. An input's time limit is one of the wall clock,
# in a lane that may get no CPU for long.
suite_fuzz()
{
	local t name seconds

	WEIR_CC=clang WEIR_TARGETS=fuzz build fuzz -Dfuzz=true -Dbuildtype=debugoptimized -Db_lundef=false \
		-Db_sanitize=address,undefined -Dwerror=false || return
	for t in $(meson introspect --targets build/fuzz | jq -r '
		[.[] | select(.name | startswith("fuzz-"))] | sort_by(.name != "fuzz-roce_input") | .[].filename[0]'); do
		name=${t##*/fuzz-}
		mkdir -p "$work/corpus/$name"
		seconds=$FUZZ_SECONDS
		[ "$name" != roce_input ] || seconds=$((6 * FUZZ_SECONDS))
		echo "fuzz/$name $((seconds + 900)) $SANE $t -max_total_time=$seconds -timeout=240 -rss_limit_mb=2048" \
			"-error_exitcode=1 -artifact_prefix=$root/build/fuzz/crash-$name- -print_final_stats=1 $work/corpus/$name" \
			"$([ ! -d "test/fuzz/corpus/$name" ] || echo "$root/test/fuzz/corpus/$name")"
	done
}

# Smoke scripts may say how long they can take, "# timeout: SECONDS" in their first ten lines, and there
# "# lane: control": they wait more than they work, and run beside the others.
suite_smoke() # [LANE]
{
	local script timeout name lane

	for script in test/smoke/*.sh; do
		case "$script" in */_*.sh | */\*.sh) continue ;; esac
		timeout=$(sed -n '1,10s/^# timeout: *\([0-9]*\).*/\1/p' "$script")
		lane=$(sed -n '1,10s/^# lane: *//p' "$script")
		name=${script##*/}
		[ "${1:-any}" = any ] || [ "$1" = "${lane:-machine}" ] || continue
		echo "smoke/${name%.sh} ${timeout:-400} WEIR_BUILD=$root/build/release $root/$script"
	done
}

# One run, in which every fault that has to be noticed counts as a test.
suite_mutate()
{
	local patch name log=$work/mutate.log line=$work/line.log tried=1 seconds i=0
	local -a names=()

	for patch in test/mutations/*.patch; do
		name=${patch##*/} name=${name%.patch}
		if [ "$gate" = 1 ] && [ $((i++ % 10)) -ne $((draw % 10)) ]; then
			echo "mutate/$name" >>"$top/left_out"
		else
			names+=("$name")
		fi
	done
	if [ "$list" = 1 ]; then
		printf 'mutate/%s\n' "${names[@]}"
		return
	fi
	sed -n 's|^ok  *unit/\([^ ]*\)  *\([0-9]*\)s.*|\1 \2|p; s|^ok  *sanitize/\(tsan\)/\([^ ]*\)  *\([0-9]*\)s.*|\1:\2 \3|p
		s|^ok  *control/\(control\)_\([^ ]*\)  *\([0-9]*\)s.*|\1:\2 \3|p' "$top/results" >"$work/passed"
	timeout -k 10 $((gate ? 3600 : 7200)) test/mutate.sh --jobs $((cores + 2)) --passed "$work/passed" "${names[@]}" >"$log" 2>&1 &
	wait $!
	for name in "${names[@]}"; do
		cat "build/mutate/verdicts/$name" >"$line" 2>/dev/null || { echo "not tried" >"$line"; tried=0; }
		seconds=$(sed -n '1s/^.* \([0-9]*\) s  .*/\1/p' "$line")
		grep -aq "^$name  *killed " "$line"
		note "mutate/$name" $? "${seconds:-0}" "$line"
	done
	[ "$tried" = 1 ] || grep -av " killed " "$log" # why
}

# Which lines the tests of the sanitize suite have run. Reported, never a failure.
suite_coverage()
{
	local part all=build/coverage/all.json

	[ "$list" = 0 ] && [ -e "$top/asan" ] || return 0
	mkdir -p build/coverage
	gcovr -r . --object-directory build/asan -f lib/ -f dataplane/ -f control/ --exclude '.*test.*' \
		-j "$cores" --gcov-ignore-parse-errors --json -o "$all" >"$work/gcovr.log" 2>&1
	for part in lib dataplane control; do
		gcovr -r . -a "$all" -f "$part/" -s -o "build/coverage/$part.txt" 2>>"$work/gcovr.log" |
			sed -n "s/^\\(lines\\|branches\\)/coverage of $part: \\1/p"
	done
	echo "by file: build/coverage/{lib,dataplane,control}.txt"
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
			echo "${name%.sh}$([ "$wire" = - ] || echo "-$wire") ${seconds:-400} $wire $root/$script"
		done
	done
}

# The gate runs a test on one of its wires, drawn by the commit.
one_wire()
{
	local line name
	local -A wires=() n=()
	local -a lines

	mapfile -t lines
	for line in "${lines[@]}"; do name=${line%% *} && wires[${name%-*}]+=1; done
	for line in "${lines[@]}"; do
		name=${line%% *}
		if [ "$gate" = 1 ] && [ $((n[${name%-*}]++)) -ne $((draw % ${#wires[${name%-*}]})) ]; then
			echo "$name" >>"$top/left_out"
		else
			printf '%s\n' "$line"
		fi
	done
}

# All of them in one machine. If it dies, or a test lets it stand, the next one begins behind that test.
suite_rxe()
{
	local name seconds wire script sum line
	local -a tests=() arguments

	mapfile -t tests < <(rxe_tests | sed 's|^|rxe/|' | belonging | one_wire | sed 's|^rxe/||')
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
		note_rxe $!
		wait $!
	done
}

# note_rxe PID: takes from `tests` those that a machine has had, by what it says; all of them, if it hasn't come up.
# A machine that stands, so that it can't end its own test, is ended.
note_rxe()
{
	local line name seconds code took begun="" log=$work/rxe.log end=$((SECONDS + 600))

	: >"$log"
	while :; do
		IFS= read -rt $((end > SECONDS ? end - SECONDS : 1)) line
		code=$?
		if [ "$code" -gt 128 ]; then
			echo "the virtual machine stands: it is ended a minute after the test's limit" >>"$log"
			kill "$1" 2>/dev/null
			end=$((SECONDS + 60))
			continue
		fi
		[ "$code" = 0 ] || break
		if [[ $line == "weir-test begin "* ]]; then
			begun=${line##* }
			read -r name seconds _ <<<"${tests[0]}"
			end=$((SECONDS + seconds + 60))
			: >"$log"
		elif [[ $line == "weir-test end "* ]]; then
			read -r _ _ name code took <<<"$line"
			note "rxe/$name" "$code" "$took" "$log"
			tests=("${tests[@]:1}")
			begun=-
			end=$((SECONDS + 60))
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

# lane NAME SUITE...: runs suites beside the other lanes, with files of its own. The first two wait for clocks
# more than they work, each in its way. The third takes what CPU they leave: no clock decides anything there.
lane()
{
	local begun=$SECONDS

	trap - EXIT INT
	trap 'jobs -p | xargs -r kill 2>/dev/null; exit 143' TERM
	work=$top/$1
	mkdir "$work" && mkfifo "$work/ended" && exec 9<>"$work/ended" || exit 1
	shift
	"lane_${work##*/}" "$@"
	[ "$begun" = "$SECONDS" ] || echo "lane ${work##*/}: $((SECONDS - begun)) s" >"$work/done"
	touch "$work/done"
}

lines_of() # SUITE...
{
	local suite

	for suite in "$@"; do
		! wants "$suite" || "suite_$suite"
	done
}

lane_control()
{
	{
		lines_of control
		! wants smoke || suite_smoke control
		! wants sanitize || suite_sanitize_control
	} | run_tests 3
}

# Gives a process and those that it has started a share of the CPUs, though a low one.
out_of_idle() # PID
{
	local pid

	chrt --all-tasks --other --pid 0 "$1"
	for pid in /proc/"$1"/task/*; do renice -n 5 -p "${pid##*/}" >/dev/null; done
	for pid in $(pgrep -P "$1"); do out_of_idle "$pid"; done
} 2>/dev/null

# The emulated machine keeps both CPUs busy for half an hour: beside it, tests in the idle class would meet limits
# of 10 s that the product has, since they get 1 % of a CPU.
lane_machine()
{
	{
		! wants smoke || suite_smoke machine
		! wants sanitize || suite_sanitize_hostile
	} | run_tests 1
	touch "$top/no_idle"
	[ ! -e "$top/idle" ] || out_of_idle "$(cat "$top/idle")"
	! wants rxe || suite_rxe
}

# Behind lint and unit in the idle class: not a low priority, since to a program that polls and yields every
# other one that wants its CPU is a time slice lost.
lane_rest()
{
	renice -n $(($(nice) + 10)) -p "$BASHPID" >/dev/null
	lines_of lint unit | run_tests "$cores"
	echo "$BASHPID" >"$top/idle"
	chrt --idle --pid 0 "$BASHPID"
	[ ! -e "$top/no_idle" ] || out_of_idle "$BASHPID"
	patience=4 # other lanes may leave it no CPU for minutes
	lines_of sanitize protocol model fuzz | run_tests $((cores + 1))
	! wants mutate || suite_mutate
}

# Smoke tests run on hugepages where there is memory for them.
prepare_machine()
{
	wants smoke && [ "$(id -u)" -eq 0 ] || return 0
	scripts/setup_hugepages.sh --save >"$top/hugepages"
	scripts/setup_hugepages.sh --2m 1024 || echo "smoke tests go on without hugepages"
}

# Twice a minute: how far it is, by the seconds that tests took on two CPUs (test/seconds.txt; 1 if it does not say).
progress()
{
	local total

	trap - EXIT INT TERM
	if [ "$gate" = 1 ]; then
		total=$(sed -n 's/^# gate //p' test/seconds.txt)
	else
		total=$(awk -v suites=" ${suites[*]} " '
			$1 != "#" { split($2, part, "/"); if (index(suites, " " part[1] " ")) sum += $1 }
			END { print sum + 60 }' test/seconds.txt)
	fi
	while sleep 30; do
		awk -v total="$total" -v elapsed=$((SECONDS - started)) '
			FNR == NR { if ($1 != "#") took[$2] = $1; next }
			{ n++; done += $2 in took ? took[$2] : 1 }
			END {
				if (done >= total) done = total * 0.99
				left = done > 0 ? elapsed * (total - done) / done : total
				printf "..... %d tests, %d %% of the work, %d s; about %d s left\n", n, 100 * done / total, elapsed, left
			}' test/seconds.txt "$top/results"
	done
}

# Tests that the gate has left out, by suite.
tell_left_out()
{
	[ -s "$top/left_out" ] || [ "$gate" = 1 ] || return
	echo "not part of this run (scripts/test.sh --full): fuzz, coverage, all but unit tests under ASan," \
		"$((10000 - GATE_SEEDS)) of 10000 seeds, $((80 - GATE_RMA_SEEDS)) of 80 of test-rma; and"
	sort -u "$top/left_out" | awk -F/ '
		{ n[$1]++; names[$1] = names[$1] " " substr($0, length($1) + 2) }
		END { for (s in n) printf "  %s: %d%s\n", s, n[s], (n[s] > 60 ? "" : ":" names[s]) }' | fold -s -w 118
}

# Names of the tests of this run.
list_tests()
{
	! wants sanitize || suites+=(sanitize_control sanitize_hostile)
	lines_of "${suites[@]}" | belonging | cut -d' ' -f1
}

# The last lines, and whether all is well.
summary()
{
	local name reason bad=()

	if grep -q '^skip' "$top/results"; then
		echo "skipped:"
		while read -r _ name _ reason; do
			echo "  $name $reason"
			[ "$no_skip" = 0 ] || grep -qs "^${name}[[:space:]]" test/skips.txt || {
				echo "  (not permitted by test/skips.txt)"
				bad+=("$name")
			}
		done < <(grep '^skip' "$top/results")
	fi
	mapfile -t -O "${#bad[@]}" bad < <(sed -n 's/^FAIL *\([^ ]*\).*/\1/p' "$top/results")
	tell_left_out
	[ "${#bad[@]}" -eq 0 ] || printf 'failed: %s\n' "${bad[@]}"
	echo "$((SECONDS - started)) s"
	printf '%d passed, %d failed' "$(grep -c '^ok' "$top/results")" "${#bad[@]}"
	! grep -q '^skip' "$top/results" || printf ', %d skipped' "$(grep -c '^skip' "$top/results")"
	echo
	[ "${#bad[@]}" -eq 0 ]
}

[ "${BASH_SOURCE[0]}" = "$0" ] || return 0 # test/unit/gate_test.sh calls the functions
[ -n "${WEIR_NO_DEPS:-}" ] || install_deps || exit 3
! wants coverage || wants sanitize || suites+=(sanitize)
if wants lint || wants unit || wants protocol || wants control || wants smoke || wants rxe; then
	build release --buildtype=release || suites=()
fi
if [ "$list" = 1 ]; then
	list_tests
	exit
fi
prepare_machine
pids=()
for name in rest control machine; do
	lane "$name" &
	pids+=($!)
done
progress >&8 &
progressing=$!
wait "${pids[@]}"
kill "$progressing"
! wants coverage || suite_coverage
for name in rest control machine; do
	cat "$top/$name/done" 2>/dev/null || note "lane/$name" 1 0 /dev/null
done
summary
