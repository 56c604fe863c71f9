#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# scripts/bench_onesided.sh: as many pairs and runs as --runs says, or no figure; lines through points; what it asks of
# weir-perf. The functions of bench.sh and the programs that measure are the test's own.
# shellcheck disable=SC2034,SC2154 # variables of bench.sh
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
weir_tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$weir_tmp"' EXIT
if ! command -v jq >/dev/null; then
	echo "SKIP: jq is missing"
	exit 77
fi
# shellcheck source=scripts/bench_onesided.sh
. "$root/scripts/bench_onesided.sh"
failed=0 list=0 WEIR_BUILD=$weir_tmp/build

asked=" os_model_host_fence_a os_model_host_wlock_a os_model_host_lockall_a os_model_host_message_a os_model_host_partners_a \
os_model_remote_flag_a "
wanted() { [[ $1 != os_model_* || $asked == *" $1 "* ]]; }
any_wanted() { wanted "$1"; }
record() { tr '\n' ' ' | sed "s/^/$1 /; s/ *\$/\n/" >>"$weir_tmp/figures"; }

expect() { # LINE: a figure that was recorded, with all its runs
	grep -qxF "$1" "$weir_tmp/figures" || { echo "FAILED: no '$1' in: $(cat "$weir_tmp/figures")"; failed=1; }
}

near() { # NAME VALUE: the only run of a figure
	awk -v name="$1" -v is="$2" '$1 == name && NF == 2 && ($2 - is) ^ 2 < 1e-8 { n++ } END { exit n != 1 }' "$weir_tmp/figures" ||
		{ echo "FAILED: no '$1 $2' in: $(cat "$weir_tmp/figures")"; failed=1; }
}

# weir-perf's times grow with what is asked for.
weir-perf()
{
	local test="" size=0 programs=1 partners=1

	while [ $# -gt 0 ]; do
		case "$1" in
		-t) test=$2; shift ;;
		-s) size=$2; shift ;;
		--programs) programs=$2; shift ;;
		--partners) partners=$2; shift ;;
		esac
		shift
	done
	[ "$partners" -le "$programs" ] || return 2
	awk -v test="$test" -v size="$size" -v p="$programs" -v k="$partners" 'BEGIN {
		us = test == "lat" ? 10 + size / 1024 : test == "fence" ? 1 + 0.5 * log(2 * p) / log(2) : test == "pscw" ? 4 + k : test == "lock" ? 3 * p : 5
		printf "{\"results\":[{\"calibration\":{\"label\":\"steady\"},\"lat_us\":{\"mean\":%.9f},\"msgs_per_s\":%.9f,", us, 1e6 / (0.1 + 0.02 * k)
		printf "\"calls_us\":{\"post\":%.9f,\"start\":2,\"complete\":%.9f,\"wait\":3}}]}\n", 0.1 + 0.05 * k, 0.2 * k
	}'
}

# ---- pairs ----
steady_value() { echo "${*: -1}"; }
for runs in 2 12; do
	: >"$weir_tmp/figures"
	beside "pair_$runs" x - 0 .lat_us.mean -s 1 -- -s 2
	expect "pair_$runs$(for ((n = 0; n < runs; n++)); do printf ' 0.5'; done)"
done
steady_value() { :; }
beside unsteady x - 0 .lat_us.mean -s 1 -- -s 2
expect unsteady

# ---- lines ----
: >"$weir_tmp/figures"
models host --cpu 0 >/dev/null
near os_model_host_fence_16 3
near os_model_host_fence_a 1
near os_model_host_fence_b 500
near os_model_host_wlock_b 1500
near os_model_host_lockall_9 0.26
near os_model_host_lockall_b 20
near os_model_host_message_8 10.0078125
near os_model_host_message_b 500
near os_model_host_partners_8 12
near os_model_host_partners_b 1000
near os_model_host_post_a 0.1
near os_model_host_post_b 50
near os_model_host_complete_b 200
! grep -q os_model_host_put "$weir_tmp/figures" || { echo "FAILED: a model that is not wanted"; failed=1; }
: >"$weir_tmp/figures"
models remote --cpu 0 >/dev/null
near os_model_remote_flag_8 5
! grep -q lockall "$weir_tmp/figures" || { echo "FAILED: lock_all of parts that are not mapped"; failed=1; }

# ---- memory ----
mkdir -p "$WEIR_BUILD/test/unit"
printf '#!/bin/sh\necho "[ RUN ] x"; echo memory a 32 100; echo memory a 1024 110; echo memory b 32 10; echo memory b 1024 12\n' \
	>"$WEIR_BUILD/test/unit/window_memory_test"
chmod +x "$WEIR_BUILD/test/unit/window_memory_test"
memory_figure
expect "os_memory_p 1.2"
exit $failed
