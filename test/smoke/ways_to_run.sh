#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Ways to run a data plane: engines that share a queue or a CPU, telemetry, stops that leave nothing, ordinary users.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

free_pages() {
	awk '/HugePages_Free/ { print $2 }' /proc/meminfo
}

# loop CPU: round trips through the port, by a program of its own; programs start on different engines.
loop() {
	weir-perf --instance A --loop -t lat -s 64,65536 -n 200 --verify --cpu "$1" --no-calibrate >"$weir_tmp/perf.log" 2>&1 ||
		fail "loop, CPU $1: $(last_line perf)"
}

peers 1=10.79.0.1
# Three engines on one CPU with one queue: what isn't the queue's engine's is handed over.
weir_lcores=0@0,1@0,2@0,3@0 dataplane A 0 net_ring0 roce:net_ring0,ip=10.79.0.1/24,queues=1 --idle adaptive
control A 1
up A
log_of dataplane-A | has '1 rx and 1 tx queues' || fail "not one queue: $(log_of dataplane-A | head -n 1)"
for what in 'frames of port' 'tables of an engine' 'arena of a session' 'total' 'at most'; do
	log_of dataplane-A | has "^  .*$what" || fail "no '$what' in the budget printed at start"
done
for i in 0 1 2; do
	loop 1
done
shows A engines 'length == 3 and all(.rx_messages > 400)' ||
	fail "not all of three engines did work: $(weirctl --instance A --json show engines | jq -c 'map(.rx_messages)')"
# On the engines' CPU: who waits there must let them run.
# A machine that is busy with others makes them wait too: that can't last.
quick() {
	weir-perf --instance A --loop -t lat -s 64 -D 0.3 --cpu 0 --no-calibrate --json >"$weir_tmp/shared.json" 2>"$weir_tmp/perf.log" ||
		fail "loop on the engines' CPU: $(last_line perf)"
	jq -e '.results[0].lat_us.p50 < 1000' "$weir_tmp/shared.json"
}
await quick || fail "loop on the engines' CPU: p50 $(jq '.results[0].lat_us.p50' "$weir_tmp/shared.json") us"
serve echo probe A echo e
probe A many node:1:e 8 20 >"$weir_tmp/many.log" 2>&1 || fail "local: $(last_line many)"

# Telemetry: busy and idle cycles, rates, sessions, ports.
ask() {
	python3 - "$weir_tmp/dpdk/weir-A/dpdk_telemetry.v2" "$1" <<-'P'
		import socket, sys
		s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
		s.connect(sys.argv[1])
		s.recv(65536)
		s.send(sys.argv[2].encode())
		print(s.recv(65536).decode())
	P
}
ask /weir/engine/list | jq -e '.[] == [0, 1, 2]' >/dev/null || fail "telemetry: $(ask /weir/engine/list)"
rates() { # of the last second
	ask /weir/engine/stats,1 | jq -e '.[] | .busy_cycles > 0 and .idle_cycles > 0 and .idle_cycles_per_s > 0 and has("busy_cycles_per_s")
	and has("rx_messages_per_s") and .rx_messages > 400'
}
await rates || fail "telemetry: $(ask /weir/engine/stats,1)"
ask /weir/session/list | jq -e '.[] | length == 1' >/dev/null || fail "telemetry: $(ask /weir/session/list)"
ask "/weir/session/info,$(ask /weir/session/list | jq '.[][0]')" | jq -e '.[] | .name == "probe" and .pid > 0' >/dev/null || fail "telemetry of a session"
ask /weir/port/stats,0 | jq -e '.[] | .rx_frames > 0 and .tx_bytes > 0' >/dev/null || fail "telemetry: $(ask /weir/port/stats,0)"
ask /weir/engine/stats,7 | jq -e '.[] == null' >/dev/null || fail "telemetry of an engine that isn't there"
ask /weir/counters | jq -e ".[] | .broker_sessions_opened > 0 and .engine_tx_messages >= 0 and .nic_rx_frames > 0" >/dev/null || fail "telemetry: $(ask /weir/counters)"

# gone_without_trace SIGNAL: a stop gives everything back.
gone_without_trace() {
	stop dataplane-A "$1" || fail "exit status $? on SIG$1"
	[ -z "$(find "$WEIR_RUN_DIR" -type s 2>/dev/null)" ] || fail "sockets left behind by SIG$1"
	[ ! -e "$weir_tmp/dpdk" ] || fail "left behind by SIG$1: $(find "$weir_tmp/dpdk")"
	[ -z "$(left_pages 'weir-Amap*')" ] || fail "hugepage files left behind by SIG$1"
}
gone_without_trace TERM
weir_lcores=0@0,1@1 dataplane A 0 net_ring0 roce:net_ring0,ip=10.79.0.1/24 --idle poll
weirctl --instance A wait up --timeout "$patience" >/dev/null || fail "control does not take up the next data plane"
loop 0
serve sink probe A sink s
run send probe A send node:1:s 100000000 1
await grep -q 'received 10000' "$weir_tmp/sink.log" || fail "nothing arrives"
gone_without_trace INT
for who in sink send; do
	await grep -q 'end -19' "$weir_tmp/$who.log" || fail "$who: $(last_line $who)"
done
stop control-A || fail "control: exit status $?"
[ -z "$(find "$WEIR_RUN_DIR" ! -type d)" ] || fail "files left: $(find "$WEIR_RUN_DIR")"
for who in echo sink send; do
	kill "${weir_pid[$who]}" 2>/dev/null
done

# ordinary_user EAL-OPTION...: a data plane of nobody's.
ordinary_user() {
	WEIR_RUN_DIR=$weir_tmp/user run user setpriv --reuid nobody --regid nogroup --clear-groups \
		env XDG_RUNTIME_DIR="$weir_tmp/user" RUNTIME_DIRECTORY="$weir_tmp/user" HOME="$weir_tmp/user" \
		"$WEIR_BUILD/dataplane/weir-dataplane" "$@" --no-pci --lcores 0@0,1@1 --vdev net_ring0 \
		-- --instance U --nic roce:net_ring0,ip=10.80.0.1/24
	await test -S "$weir_tmp/user/U/session.sock" || die "$*: an ordinary user's data plane did not start: $(tail -n 3 "$weir_tmp/user.log")"
	WEIR_RUN_DIR=$weir_tmp/user probe U attach || fail "$*: attach to the user's data plane"
	stop user || fail "$*: exit status $?"
	[ "$(find "$weir_tmp/user" -mindepth 1)" = "$weir_tmp/user/U" ] || fail "$*: left behind: $(find "$weir_tmp/user")"
}
if id nobody >/dev/null 2>&1; then
	mkdir -p "$weir_tmp/user"
	chmod 711 "$weir_tmp"
	chown nobody "$weir_tmp/user"
	ordinary_user --no-huge -m 128
	ordinary_user --in-memory --no-huge -m 128
	[ "$(free_pages)" -lt 200 ] || ordinary_user --in-memory -m 128
fi
