#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Loss, duplication, reordering on memif: every byte arrives, once, in order.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes_memif ,loss=1,dup=1,reorder=1,seed=7
run sink probe B sink s
await grep -q ready "$weir_tmp/sink.log"
probe A send node:2:s 100000 11 >"$weir_tmp/send.log" 2>&1 || fail "sender: $(tail -n 1 "$weir_tmp/send.log")"
await grep -q 'end -108 after 100000' "$weir_tmp/sink.log" || fail "sink: $(tail -n 1 "$weir_tmp/sink.log")"
weirctl --instance A --json show ports | jq -e '.[0].drops.impaired > 0' >/dev/null || fail "nothing was dropped: the impairment does not work"
