#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Control stopped for a whole run, killed, restarted: traffic goes on.
# wires: verbs,roce
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

# messages, in ten thousands as the sink tells them: until control has stopped, until it has gone, in all; on a wire the machine is an emulated one
read -r stopped ended all <<<"60000 100000 150000"
[ -z "${WEIR_WIRE:-}" ] || read -r stopped ended all <<<"20000 30000 40000"

weir_node_timeout=3 # which they are stopped for
two_nodes
serve sink probe B sink s
run send probe A send node:2:s "$all" 9 10
await grep -q 'received 10000' "$weir_tmp/sink.log" || die "nothing arrives"
kill -STOP "${weir_pid[control-A]}" "${weir_pid[control-B]}"
patience=200 await grep -q "received $stopped" "$weir_tmp/sink.log" || fail "traffic stopped with control"
kill -CONT "${weir_pid[control-A]}" "${weir_pid[control-B]}"
stop control-A KILL
stop control-B KILL
patience=200 await grep -q "received $ended" "$weir_tmp/sink.log" || fail "traffic died with control"
# New connections over the existing link need no control.
serve echo probe B echo e
probe A many node:2:e 3 3 >"$weir_tmp/many.log" 2>&1 || fail "connecting without control: $(last_line many)"
control A 1
control B 2
up A B
patience=200 await grep -q end "$weir_tmp/sink.log" || fail "the stream did not end"
grep -q "end -108 after $all" "$weir_tmp/sink.log" || fail "sink: $(last_line sink)"
probe A many node:2:e 3 3 >"$weir_tmp/many.log" 2>&1 || fail "after the restart: $(last_line many)"
