#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A hundred connections between two nodes, and several threads on one connection.
# wires: verbs,verbs verbs,roce roce,roce
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes
serve echo probe B echo e
probe A many node:2:e 100 50 >"$weir_tmp/many.log" 2>&1 || fail "many: $(last_line many)"
grep -q 'end 0 after 5000' "$weir_tmp/many.log" || fail "many: $(last_line many)"
await sh -c "[ \$(grep -c 'closed 0' $weir_tmp/echo.log) = 100 ]" || fail "the echo did not see 100 ends of stream"
weirctl --instance A wait connections:0 --timeout "$patience" || fail "connections remain"
probe A many node:1:e 1 1 >"$weir_tmp/self.log" 2>&1 && fail "a service of another node answered"
grep -q 'onnection refused' "$weir_tmp/self.log" || fail "self: $(last_line self)"
probe A many 10.77.0.2:e 3 2 >"$weir_tmp/ip.log" 2>&1 || fail "IPv4 address: $(last_line ip)"
serve sink probe B sink t
probe A threads node:2:t 4 20000 >"$weir_tmp/threads.log" 2>&1 || fail "threads: $(last_line threads)"
await grep -q 'end -108 after 20000' "$weir_tmp/sink.log" || fail "threads' order: $(last_line sink)"
