#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# lane: control
# scripts/bench.sh --against compares two builds: 3 % less of a rate, or more of a latency, is too much.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

# build NAME RATE LATENCY: a build whose weir-nicperf always measures these.
build() {
	local dir=$weir_tmp/$1
	mkdir -p "$dir/dataplane/tools"
	printf '#!/bin/sh\n' >"$dir/dataplane/weir-dataplane"
	cat >"$dir/dataplane/tools/weir-nicperf" <<-END
		#!/bin/sh
		echo $1 >>$weir_tmp/order
		jq -n '{label: "steady", copy_gbps: 65.536} as \$c | {results: [
			{test: "lat", calibration: \$c, msgs_per_s: $2, bytes_per_s: 1e18, lat_us: {p50: $3, p99: 1}}, {test: "bare", calibration: \$c, lat_us: {p50: 1}}]}'
	END
	chmod +x "$dir/dataplane/weir-dataplane" "$dir/dataplane/tools/weir-nicperf"
}

# compare CODE NEW RUNS FIGURES JQ: what bench.sh records and returns.
compare() {
	WEIR_NO_DEPS=1 WEIR_BUILD=$weir_tmp/$2 "$weir_root/scripts/bench.sh" nics --only "$4" --against "$weir_tmp/old" --runs "$3" \
		--json "$weir_tmp/figures" >"$weir_tmp/bench.log" 2>&1
	[ $? = "$1" ] || fail "$2, $4: exit code is not $1: $(log_of bench)"
	jq -e "def is(\$value; \$met): .met == \$met and (.runs | length == $3) and (.value - \$value | fabs < 1e-9); $5" "$weir_tmp/figures" >/dev/null ||
		fail "$2, $4: $(cat "$weir_tmp/figures")"
}

build old 1000000 1
build good 980000 1.02
build bad 960000 1.04
compare 0 good 2 nic_write_64 'length == 1 and (.[0] | is(0.98; true))'
[ "$(tr '\n' ' ' <"$weir_tmp/order")" = "good old good old " ] || fail "not in turn: $(cat "$weir_tmp/order")"
compare 0 good 1 nic_memif_lat 'length == 1 and (.[0] | is(1.02; true))'
# without a target a rate is one all the same; a difference of 0 or less is as good as another
compare 1 bad 1 nic_qps_16,nic_beside_64 'length == 2 and (map(select(.name == "nic_qps_16"))[0] | is(0.96; false)) and
	(map(select(.name == "nic_beside_64"))[0] | is(1; true))'
compare 1 bad 1 nic_write_64,nic_memif_lat 'length == 2 and (.[0] | is(0.96; false)) and (.[1] | is(1.04; false))'
printf '#!/bin/sh\nexit 1\n' >"$weir_tmp/good/dataplane/tools/weir-nicperf"
compare 3 good 1 nic_write_64 'length == 1 and .[0].value == null and .[0].met == null'
"$weir_root/scripts/bench.sh" nics --against "$weir_tmp" >"$weir_tmp/bench.log" 2>&1
[ $? = 2 ] || fail "a directory without a build is taken: $(log_of bench)"
