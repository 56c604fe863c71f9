#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Both daemons as a service manager sees them: readiness, watchdog, stop; their logs as JSON, with fields,
# levels and the journal's priorities; what they leave in the log when they crash.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

ulimit -c 0
# the datagrams of a NOTIFY_SOCKET, a line each
cat >"$weir_tmp/manager.py" <<'PY'
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
while True:
    print(s.recv(4096).decode().replace("\n", " "), flush=True)
PY
for daemon in dataplane control; do
	run "manager-$daemon" python3 "$weir_tmp/manager.py" "$weir_tmp/notify-$daemon"
	await test -S "$weir_tmp/notify-$daemon" || die "no manager"
done
told() { # DAEMON TEXT
	grep -q "^$2" "$weir_tmp/manager-$1.log"
}
fed() { # DAEMON: how often
	grep -c '^WATCHDOG=1' "$weir_tmp/manager-$1.log"
}

peers 1=10.79.0.1
export WATCHDOG_USEC=600000
NOTIFY_SOCKET=$weir_tmp/notify-dataplane WEIR_LOG_FORMAT=json WEIR_LOG_LEVEL=debug dataplane A 0 "" ""
export NOTIFY_SOCKET=$weir_tmp/notify-control
run control-A weir-control --instance A --node 1 --listen "127.0.0.1:${weir_port[1]}" --peers "$weir_tmp/peers" \
	--log-format logfmt
unset NOTIFY_SOCKET WATCHDOG_USEC
up A
for daemon in dataplane control; do
	await told "$daemon" "READY=1" || fail "$daemon isn't ready"
	await eval "[ \$(fed $daemon) -ge 3 ]" || fail "the watchdog of $daemon isn't fed"
	# as if it hung
	kill -STOP "${weir_pid[$daemon-A]}"
	await grep -q '^State:[[:space:]]T' "/proc/${weir_pid[$daemon-A]}/status" || die "$daemon can't be stopped"
	# a mark in the queue behind its messages
	python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"STOPPED", sys.argv[1])' "$weir_tmp/notify-$daemon"
	await told "$daemon" STOPPED || die "the manager of $daemon hears nothing"
	fed=$(fed "$daemon")
	read -rt 1 <> <(:)
	[ "$(fed "$daemon")" = "$fed" ] || fail "the watchdog of $daemon is fed while it is stopped"
	kill -CONT "${weir_pid[$daemon-A]}"
	await eval "[ \$(fed $daemon) -gt $fed ]" || fail "the watchdog of $daemon isn't fed again"
done

await told control "STATUS=node 1 of cluster 'default', 0 of 0 others are up\$" ||
	fail "no status of control: $(grep STATUS "$weir_tmp/manager-control.log")"

# every line of the log is an object, and says what it is about
probe A attach >/dev/null || die "no program attaches"
weirctl --instance A set log.level error || fail "the level can't be set"
await grep -q 'msg="log level is error from now on, by weirctl"' "$weir_tmp/control-A.log" || fail "control goes on talking"
weirctl --instance A set log.level debug || fail "the level can't be set again"
await grep -q 'msg="log level is debug from now on' "$weir_tmp/control-A.log" || fail "control is silent"
stop control-A
await told control "STOPPING=1" || fail "control stops without a word"
plane=${weir_pid[dataplane-A]}
lines() {
	grep '^{' "$weir_tmp/dataplane-A.log" |
		jq -se "any(.[]; .program == \"weir-dataplane\" and .instance == \"A\" and .pid == $plane and (.time | test(\"^20[0-9-]+T[0-9:.]+Z$\")) and ($1))" >/dev/null
}
await lines '.level == "debug" and .client == "probe" and (.msg | test("is attached"))' || fail "no line of the program"
await lines '.level == "info" and .msg == "control has gone; traffic goes on"' || fail "no line of control's end"
grep -q '^time="20[^"]*" level="info" program="weir-control" pid=[0-9]* msg="data plane is up: .*" instance="A" incarnation=[0-9]*$' \
	"$weir_tmp/control-A.log" || fail "no logfmt of control"
stop dataplane-A
await told dataplane "STOPPING=1" || fail "the data plane stops without a word"
await lines ".level == \"info\" and .signal == 15 and .sender_pid == $$ and (.msg | test(\"stopping on signal 15\"))" ||
	fail "it doesn't say what stops it"
# not a line is anything else: memory at start, errors of options, what DPDK says
jq -c . <"$weir_tmp/dataplane-A.log" >/dev/null || fail "a line of the data plane is not an object"
await lines '.msg | test("receive buffers of an engine")' || fail "no memory in the log"
weir-dataplane -- --log-format json --nic nonsense 2>"$weir_tmp/err" | has . && fail "an error on stdout"
jq -se 'length == 1 and .[0].level == "error" and (.[0].msg | test("nonsense"))' <"$weir_tmp/err" >/dev/null || fail "an error of an option: $(cat "$weir_tmp/err")"
WEIR_LOG_FORMAT=json weir-control --node nonsense 2>"$weir_tmp/err" && fail "node nonsense"
jq -se 'length == 1 and (.[0].msg | test("nonsense"))' <"$weir_tmp/err" >/dev/null || fail "an error of an option of control: $(cat "$weir_tmp/err")"
WEIR_LOG_FORMAT=json weir-dataplane --no-pci --no-huge --log-level=lib.eal:debug --lcores 0@0,1@0 -m 64 --vdev=net_nonsense0 -- --instance X 2>"$weir_tmp/err" >"$weir_tmp/out" && fail "net_nonsense0 is there"
jq -c . <"$weir_tmp/err" >/dev/null || fail "a line about DPDK is not an object: $(head -n 3 "$weir_tmp/err")"

# the journal's priorities: this file is what JOURNAL_STREAM names
touch "$weir_tmp/journal.log"
journal=$(stat -c %d:%i "$weir_tmp/journal.log")
JOURNAL_STREAM=$journal weir-dataplane -- --nic nonsense 2>>"$weir_tmp/journal.log"
grep -q '^<3>weir-dataplane: .*nonsense' "$weir_tmp/journal.log" || fail "no priority: $(cat "$weir_tmp/journal.log")"

# crashes
dataplane A 0 "" ""
control A 1
up A
for daemon in control dataplane; do
	pid=${weir_pid[$daemon-A]}
	kill -SEGV "$pid"
	gone "$pid" || fail "$daemon goes on after SIGSEGV"
	unset "weir_pid[$daemon-A]"
	wait "$pid" 2>/dev/null
	[ $? = 139 ] || fail "$daemon doesn't end by its signal"
	grep -q "^20[^ ]*Z weir-$daemon: crash: SIGSEGV sent by process $$" "$weir_tmp/$daemon-A.log" || fail "$daemon says nothing"
	grep -q "weir-$daemon(.*\[0x" "$weir_tmp/$daemon-A.log" || fail "no backtrace of $daemon"
done
grep -q 'Z weir-dataplane: crash: engine 0: lcore 1, turn .* the last [A-Z]' \
	"$weir_tmp/dataplane-A.log" || fail "no state of its engine"
grep -q 'Z weir-dataplane: crash: in the broker, on the main lcore' "$weir_tmp/dataplane-A.log" || fail "not where"

# in an engine
dataplane A 0 "" ""
pid=${weir_pid[dataplane-A]}
engine=$(grep -l 'worker' /proc/"$pid"/task/*/comm | head -n 1)
engine=${engine%/comm}
python3 -c "import ctypes; ctypes.CDLL(None).syscall(234, $pid, ${engine##*/}, 11)" # tgkill
gone "$pid" || fail "an engine goes on after SIGSEGV"
unset "weir_pid[dataplane-A]"
grep -q 'Z weir-dataplane: crash: engine 0: lcore 1 (this thread), ' "$weir_tmp/dataplane-A.log" || fail "it doesn't say which engine"
exit 0
