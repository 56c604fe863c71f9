#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# More 1 MiB messages at once to another node than the send heap holds: the sender must be woken again.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

[ "${WEIR_KNOWN_DEFECTS:-0}" = 1 ] || skip "known defect: a remote sender that filled its send heap is not woken; WEIR_KNOWN_DEFECTS=1 runs it"
two_nodes_memif
server B
for test in rate bw; do
	weir-perf --instance A node:2 -t $test -s 1048576 -n 300 --verify >"$weir_tmp/perf.log" 2>&1 ||
		fail "-t $test -s 1048576: $(tail -n 1 "$weir_tmp/perf.log")"
done
