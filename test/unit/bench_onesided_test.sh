#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# scripts/bench_onesided.sh: as many pairs and runs as --runs says, or no figure. The functions of bench.sh are the test's own.
# shellcheck disable=SC2034,SC2154 # variables of bench.sh
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
weir_tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$weir_tmp"' EXIT
# shellcheck source=scripts/bench_onesided.sh
. "$root/scripts/bench_onesided.sh"
failed=0 list=0

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

exit $failed
