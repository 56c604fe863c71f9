#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Loss, duplication, reordering on memif: every byte arrives, once, in order.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes_memif ,loss=1,dup=1,reorder=1,seed=7
serve sink probe B sink s
probe A send node:2:s 100000 11 >"$weir_tmp/send.log" 2>&1 || fail "sender: $(last_line send)"
await grep -q 'end -108 after 100000' "$weir_tmp/sink.log" || fail "sink: $(last_line sink)"
shows A ports '.[0].drops.impaired > 0' || fail "nothing was dropped: the impairment does not work"
