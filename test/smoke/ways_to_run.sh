#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Ways to run a data plane: two engines on one queue, several on one CPU, adaptive idle, clean stop, ordinary user.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

peers 1=10.79.0.1
weir_lcores=0@0,1@0,2@1 dataplane A 0 net_ring0 roce:net_ring0,ip=10.79.0.1/24 --idle adaptive
control A 1
up A
weirctl --instance A --json show engines | jq -e 'length == 2' >/dev/null || fail "two engines expected"
run echo probe A echo e
await 10 grep -q ready "$weir_tmp/echo.log"
probe A many node:1:e 8 20 >"$weir_tmp/many.log" 2>&1 || fail "two engines: $(tail -n 1 "$weir_tmp/many.log")"
weir-perf --instance A --loop -t lat -s 64,65536 -n 200 --verify >"$weir_tmp/perf.log" 2>&1 || fail "loop with two engines on one queue: $(tail -n 1 "$weir_tmp/perf.log")"
kill -TERM "${weir_pid[echo]}" 2>/dev/null
stop dataplane-A || fail "exit status $? on SIGTERM"
if [ -e "$WEIR_RUN_DIR/A/session.sock" ] || [ -e "$WEIR_RUN_DIR/A/control.sock" ]; then fail "sockets left behind"; fi
stop control-A || fail "control: exit status $?"
[ -z "$(find "$WEIR_RUN_DIR" -type f -o -type s)" ] || fail "files left: $(find "$WEIR_RUN_DIR" -type f -o -type s)"

if id nobody >/dev/null 2>&1; then
	mkdir -p "$weir_tmp/user"
	chmod 711 "$weir_tmp"
	chown nobody "$weir_tmp/user"
	WEIR_RUN_DIR=$weir_tmp/user run user setpriv --reuid nobody --regid nogroup --clear-groups \
		env XDG_RUNTIME_DIR="$weir_tmp/user" RUNTIME_DIRECTORY="$weir_tmp/user" HOME="$weir_tmp/user" "$WEIR_BUILD/dataplane/weir-dataplane" --in-memory --no-huge -m 256 --no-pci --lcores 0@0,1@1 --vdev net_ring0 \
		-- --instance U --nic roce:net_ring0,ip=10.80.0.1/24
	await 15 test -S "$weir_tmp/user/U/session.sock" || fail "an ordinary user's data plane did not start: $(tail -n 3 "$weir_tmp/user.log")"
	WEIR_RUN_DIR=$weir_tmp/user probe U attach || fail "attach to the user's data plane"
	stop user || fail "exit status $?"
fi
