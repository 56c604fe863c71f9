#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# 32 nodes, all to all, for a minute: nobody takes anybody for lost, no message is, all end well. Silence counts after
# ten seconds: 97 processes are slow enough on a machine that they share with others.
#   MANY_SECONDS  how long [60]; scripts/bench.sh control takes ten minutes (ctl_alltoall)
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

export WEIR_BUILD CLUSTER_NODE_TIMEOUT=$weir_node_timeout
"$weir_root/scripts/cluster.sh" 32 --join --report "$weir_tmp/report" -- weir-perf --alltoall -t rate -s 64 -D "${MANY_SECONDS:-60}" \
	--wait sleep --no-calibrate --verify --patience 120 --json >"$weir_tmp/perf.json" 2>"$weir_tmp/cluster.log" || fail "cluster: $(tail -n 5 "$weir_tmp/cluster.log")"
jq -e '.results[0] | .errors == 0 and .verified and .shares.count == 32 and .shares.min > 0' "$weir_tmp/perf.json" >/dev/null ||
	fail "weir-perf: $(jq -c '.results[0]' "$weir_tmp/perf.json")"
jq -e '.nodes == 32 and .nodes_down == 0 and .failed == [] and .command_exit == 0' "$weir_tmp/report" >/dev/null ||
	fail "the cluster: $(jq -c 'del(.switch)' "$weir_tmp/report")"
jq -r '"32 nodes up after \(.up_s) s, \(.nodes_down) of them lost"' "$weir_tmp/report"
jq -r '.results[0] | "\(.count) messages, \(.msgs_per_s | round) a second"' "$weir_tmp/perf.json"
