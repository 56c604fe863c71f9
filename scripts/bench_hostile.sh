# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench.sh and _init.sh
# The set `hostile` of bench.sh: what a hostile program takes from others, for how long it holds a data plane, and how much
# memory it gets. Sourced by it.

# Users: who attacks; who has one session and no more; who may not attach; who is honest; who has 64 MiB.
HOSTILE=64001 LIMITED=64003 STRANGER=64009 HONEST=64002 SMALL=64004

# NAME MODE USER COMPUTERS ADDRESS: an attack, and so many programs that only compute in its place: as many as its processes
# where these run all the time, one where they hold something and sleep.
HOSTILE_ATTACKS=(
	"all all $HOSTILE 1 node:2:victim"
	"linger linger $HOSTILE 1 node:1:victim"
	"linger_session linger-session $HOSTILE 1 node:1:victim"
	"linger_stranger linger-session $STRANGER 1 node:1:victim"
	"linger_memory linger-memory $HOSTILE 1 node:1:victim"
	"bells bells $HOSTILE 1 node:1:victim"
	"inode inode $HOSTILE 1 node:1:victim"
	"attach attach $HOSTILE 32 node:1:victim"
	"attach_stranger attach $STRANGER 32 node:1:victim"
	"attach_limited attach $LIMITED 32 node:1:victim"
	"knock knock $HOSTILE 32 node:1:victim"
	"holes holes $HOSTILE 1 node:2:victim"
	"keys keys:64 $HOSTILE 1 node:1:victim"
	"segments segments $HOSTILE 1 node:1:victim"
	"memory memory $HOSTILE 1 node:1:victim"
	"stale stale $HOSTILE 1 node:2:victim"
	"log log $HOSTILE 8 node:1:victim"
	"pieces pieces $HOSTILE 1 node:2:courier"
	"impostor impostor $HOSTILE 1 node:2:courier"
	"begun begun $HOSTILE 1 node:2:courier"
	"locks locks $HOSTILE 1 node:2:victim"
	"opens opens $HOSTILE 1 node:2:victim"
	"fetches fetches $HOSTILE 1 node:2:victim"
	"guesses guesses $HOSTILE 1 node:2:victim"
)

# The attacker gets a CPU of its own where there are three.
own_cpu()
{
	[ "$(nproc)" -lt 3 ] || echo "taskset -c 2-$(($(nproc) - 1))"
}

hostile_nodes()
{
	local name

	two_nodes_memif "" --idle adaptive --allow "user:$HOSTILE" --allow "user:$HONEST" --allow "user:$LIMITED" --allow "user:$SMALL" \
		--max-sessions 96 --user-limit "$LIMITED:sessions=1" --user-limit "$SMALL:memory=64M"
	chmod 755 "$weir_tmp" "$WEIR_RUN_DIR" "$WEIR_RUN_DIR"/*
	run echo-a probe A echo victim
	run echo-b probe B echo victim
	run serve-b courier B serve
	run keeper-b keeper B export "$weir_tmp/key" # of what the modes about remote memory attack
	export HOSTILE_KEY=$weir_tmp/key
	run server-A weir-perf --instance A --cpu 1
	run server-B weir-perf --instance B --cpu 1
	for name in echo-a echo-b serve-b keeper-b server-A server-B; do
		await test -s "$weir_tmp/$name.log" || die "$name doesn't serve"
	done
}

# rate NODE: messages/s of an honest pair; 0 if there is none.
honest_rate()
{
	if timeout 30 weir-perf --instance A "node:$1" --cpu 0 -t rate -s 64 -D 0.4 --no-calibrate --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log"; then
		jq '.results[0].msgs_per_s' "$weir_tmp/result.json"
	else
		echo 0
	fi
}

# beside NAME MODE USER: runs the attack, or what it is compared with, from now on.
beside()
{
	local what=$1
	shift
	# shellcheck disable=SC2046
	HOSTILE_UID=$2 run "$what" $(own_cpu) hostile A "$1" 600 7 "$3"
	sleep 0.4
}

end_beside()
{
	stop "$1" KILL
	# whoever computes has others, who die with it
	await weirctl --instance A wait up --timeout 1 || true
}

# rates NAME: lines "LOCAL REMOTE" of rates so far to $weir_tmp/NAME.
rates()
{
	echo "$(honest_rate 1) $(honest_rate 2)" >>"$weir_tmp/$1"
}

# us of attaching three times a second, one a line; ten seconds for each that came to nothing.
attach_times()
{
	local n

	: >"$weir_tmp/attach.log"
	PROBE_ARENA=$((2 << 20)) timeout 30 setpriv --reuid "$HONEST" --regid "$HONEST" --clear-groups \
		env LD_LIBRARY_PATH="$weir_tmp/program" "$weir_tmp/program/probe" A attach 10 300000 >"$weir_tmp/attach.log" 2>&1
	n=$(sed -n 's/.* attached \([0-9]*\) us/\1/p' "$weir_tmp/attach.log" | tee -a "$weir_tmp/attach" | wc -l)
	[ "$n" = 10 ] || echo 10000000 >>"$weir_tmp/attach"
}

# One attack, against nodes of its own.
attack_figures()
{
	local name=$1 mode=$2 user=$3 computers=$4 address=$5 n

	rm -f "$weir_tmp"/{attacked,computed,stops,attach}
	hostile_nodes >&2
	for ((n = 0; n < runs; n++)); do
		if any_of_rates "$name"; then
			beside compute "compute:$computers" "$user" "$address"
			rates computed
			end_beside compute
		fi
		beside attack "$mode" "$user" "$address"
		! any_of_rates "$name" || rates attacked
		! part stop "$name" || scripts/stops.py 1 "${weir_pid[dataplane-A]}" >>"$weir_tmp/stops"
		! part attach "$name" || attach_times
		end_beside attack
	done
	stop_all >&2
}

# part WHAT NAME: whether this is wanted of that attack.
part()
{
	[ -z "$only" ] || [[ $only == *,$2_$1,* || $only == *,hostile_$1,* ]]
}

any_of_rates()
{
	part local "$1" || part remote "$1" || part rate "$1"
}

# tell NAME UNIT: the figure of one attack without a target, from lines on stdin, also to $worst.
tell()
{
	record "$1" "$2" - 0 pairs "scripts/bench.sh hostile --only $1"
	tail -n 1 "$figures" | jq '.value // empty' >>"$worst.${1##*_}"
}

# stops_told NAME: ms, one a run; which thread and call it was goes to stderr.
stops_told()
{
	jq -c 'max_by(.ms)' "$weir_tmp/stops" | while read -r stop; do
		echo "$1: $stop" >&2
		jq .ms <<<"$stop"
	done
}

tell_attack()
{
	local name=$1 i=0 way

	for way in local remote; do
		i=$((i + 1))
		if part $way "$name" || part rate "$name"; then
			paste -d ' ' "$weir_tmp/attacked" "$weir_tmp/computed" |
				awk -v i=$i '$(i + 2) > 0 { print 100 * $i / $(i + 2) }' | tell "${name}_$way" "% of the rate beside who computes"
		fi
	done
	! part stop "$name" || stops_told "$name" | tell "${name}_stop" ms
	! part attach "$name" ||
		echo "$name: attach in us, 10, 50, 90 %, all: $(sort -n "$weir_tmp/attach" | awk '{ us[NR] = $1 } END { print us[int(NR * 0.1) + 1], us[int(NR / 2) + 1], us[int(NR * 0.9)], us[NR] }')" >&2
	! part attach "$name" || sort -n "$weir_tmp/attach" | awk '{ us[NR] = $1 } END { print us[int((NR - 1) * 0.99) + 1] / 1000 }' |
		tell "${name}_attach" "ms, p99"
}

# worst OF NAME UNIT OP TARGET: of all attacks.
worst()
{
	local order=-n what

	[ "$4" = ">=" ] || order=-rn
	[ -z "$only" ] || [[ $only == *,$2,* ]] || return 0
	for what in $1; do cat "$worst.$what" 2>/dev/null; done | sort $order | head -n 1 |
		record "$2" "$3" "$4" "$5" worst "scripts/bench.sh hostile --only $2"
}

# KiB that programs of a user hold of the data plane: shared memory once, whoever has a descriptor of it, and what it and
# they have by themselves.
all_memory()
{
	local pid

	for pid in "$@"; do
		find "/proc/$pid/fd" -lname '/memfd:*' -exec stat -L -c '%d:%i %b' {} + 2>/dev/null
	done | sort -u | awk '{ kib += $2 / 2 } END { printf "%d\n", kib }'
	for pid in "$@"; do
		awk '/^RssAnon/ { print $2 }' "/proc/$pid/status"
	done
}

# What the data plane of A has, once nothing is made or released there any more.
settled_memory()
{
	local last='' now

	for _ in {1..50}; do
		now=$(all_memory "${weir_pid[dataplane-A]}" | jq -s add)
		[ "$now" != "$last" ] || break
		last=$now
		sleep 0.5
	done
	echo "$now"
}

memory_figure()
{
	local before n

	wanted hostile_memory || return 0
	hostile_nodes >&2
	for ((n = 0; n < runs; n++)); do
		before=$(settled_memory)
		: >"$weir_tmp/hog.log"
		HOSTILE_UID=$SMALL run hog hostile A memory 2 7 node:1:victim
		sleep 1.5
		all_memory "${weir_pid[dataplane-A]}" "${weir_pid[hog]}" | jq -s --argjson before "$before" '(add - $before) / 1024'
		gone "${weir_pid[hog]}"
		stop hog
		log_of hog >&2
	done | record hostile_memory "MiB of a user with memory=64M" '<=' 64 any "hostile A memory 2 7 node:1:victim: all memfds, and what it and the data plane have by themselves"
	stop_all >&2
}

hostile_names()
{
	local attack what

	for attack in "${HOSTILE_ATTACKS[@]}"; do
		for what in local remote stop attach; do echo "${attack%% *}_$what"; done
	done
	printf 'hostile_%s\n' rate stop attach_p99 memory
}

set_hostile()
{
	local attack name worst=$weir_tmp/worst target=90

	# shellcheck disable=SC2046
	[ "$list" = 0 ] || { any_wanted $(hostile_names); return; }
	[ "$(id -u)" = 0 ] || { echo "bench.sh: other users are needed: run as root" >&2; return; }
	[ "$(nproc)" -ge 3 ] || target=80
	only=${only/,hostile_attach_p99,/,hostile_attach,hostile_attach_p99,}
	mkdir -p "$weir_tmp/program"
	find "$WEIR_BUILD/lib" -name 'libweir.so*' -not -type d -exec cp -a {} "$weir_tmp/program" \;
	cp "$WEIR_BUILD/test/smoke/probe" "$weir_tmp/program"
	chmod -R a+rX "$weir_tmp/program"
	for attack in "${HOSTILE_ATTACKS[@]}"; do
		name=${attack%% *}
		if any_of_rates "$name" || part stop "$name" || part attach "$name"; then
			# shellcheck disable=SC2086
			attack_figures $attack
			tell_attack "$name"
		fi
	done
	worst 'local remote' hostile_rate "% of the rate beside who computes, worst of all" '>=' "$target"
	worst stop hostile_stop "ms, longest stop of main or an engine, worst of all" '<=' 1
	worst attach hostile_attach_p99 "ms, worst of all" '<=' 200
	memory_figure
}
