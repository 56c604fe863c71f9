#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The cases of test/rma over a wire (WEIR_WIRE), a rank at each end.
# wires: verbs,verbs verbs,roce roce,roce
# timeout: 900
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/../../smoke/_init.sh"
PATH=$WEIR_BUILD/apps/lend:$PATH

: "${WEIR_WIRE:=verbs,verbs}"
two_nodes
serve lend-B weir-lend --instance B --bytes 1M
run rank-A rma-cases A cases 2 apart
rma-cases B cases 2 apart || fail "the rank on B: $?"
wait "${weir_pid[rank-A]}" || fail "the rank on A: $(grep -v ' ok$' "$weir_tmp/rank-A.log" | head -n 5)"
unset "weir_pid[rank-A]"
if grep 'no weir-lend' "$weir_tmp/rank-A.log"; then fail "memory is not lent"; fi
