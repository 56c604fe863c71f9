#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# scripts/bench_onesided.sh: as many pairs and runs as --runs says, or no figure. The functions of bench.sh and the programs that measure are the test's own.
# shellcheck disable=SC2034,SC2154 # variables of bench.sh
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
weir_tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$weir_tmp"' EXIT
# shellcheck source=scripts/bench_onesided.sh
. "$root/scripts/bench_onesided.sh"
failed=0 list=0 WEIR_BUILD=$weir_tmp/build

wanted() { true; }
record() { tr '\n' ' ' | sed "s/^/$1 /; s/ *\$/\n/" >>"$weir_tmp/figures"; }

expect() { # LINE: a figure that was recorded, with all its runs
	grep -qxF "$1" "$weir_tmp/figures" || { echo "FAILED: no '$1' in: $(cat "$weir_tmp/figures")"; failed=1; }
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

# ---- memory ----
mkdir -p "$WEIR_BUILD/test/unit"
printf '#!/bin/sh\necho "[ RUN ] x"; echo memory a 32 100; echo memory a 1024 110; echo memory b 32 10; echo memory b 1024 12\n' \
	>"$WEIR_BUILD/test/unit/window_memory_test"
chmod +x "$WEIR_BUILD/test/unit/window_memory_test"
memory_figure
expect "os_memory_p 1.2"
exit $failed
