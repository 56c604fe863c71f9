#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weirctl in scripts: JSON that is whole whatever programs are called, exit codes, one line an error; and top
# when its data plane dies.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

one_node
export WEIR_INSTANCE=A
json() { # JQ-CONDITION WEIRCTL-ARGUMENT...: all that it prints, as one array of documents
	local is=$1
	shift
	weirctl --json "$@" >"$weir_tmp/out" || fail "weirctl --json $*: exit $?"
	jq -se "$is" <"$weir_tmp/out" >/dev/null || fail "weirctl --json $*: $(head -c 600 "$weir_tmp/out")"
}
says() { # CODE PATTERN COMMAND...
	local code=$1 pattern=$2 got
	shift 2
	"$@" >"$weir_tmp/out" 2>"$weir_tmp/err"
	got=$?
	[ $got = "$code" ] || fail "$*: exit $got, not $code: $(cat "$weir_tmp/err")"
	[ "$(grep -c . "$weir_tmp/err")" = 1 ] || fail "$*: not one line: $(cat "$weir_tmp/err")"
	grep -qE "^weirctl: .*($pattern)" "$weir_tmp/err" || fail "$*: it says '$(cat "$weir_tmp/err")'"
}

# a program whose name could end a string or steer a terminal
PROBE_NAME=$'o"d\\d\e[1m\xff' serve odd probe A echo odd
server A
run load weir-perf node:1 --loop -t rate -s 64 -D 600 --no-calibrate
await weirctl wait connections:2 --timeout 0.1 || die "no traffic"

json '.[0][0] | .id == 1 and .state == "up" and .incarnation > 0 and .address == "10.79.0.1"' show nodes
json '.[0][0] | has("lcore") and .busy_cycles > 0 and has("idle_cycles")' show engines
json '.[0] | length == 3 and any(.[]; .name | startswith("o\"d\\d"))' show sessions
json '.[0] | any(.[]; (.vqpn | type) == "number" and has("peer") and .state == "open" and has("window") and
	has("outstanding") and has("returned") and (.by_primitive | type) == "object")' show connections
json '.[0] | length > 0 and all(.[]; has("qpn") and has("peer_node"))' show qps
json '.[0][0] | .name == "net_ring0" and has("rx_frames") and has("tx_frames") and has("rx_bytes") and
	has("tx_bytes") and (.drops | type) == "object"' show ports
json '.[0] | all(.[]; (.value | type) == "number" and (.help | length) > 0)' show counters
json '.[0] | any(.[]; .key == "log.level" and .value == "info") and any(.[]; .key == "user.*.memory" and (.value | test("^[0-9]+$")))' show settings
json 'length == 2 and all(.[]; has("time") and (.engines | length) == 1)' top --interval 0.1 --count 2
json '. == [{"changed": 0}]' set program.nobody.weight 3
json '. == [{"changed": 3}]' set user.root.sessions 100
json '.[0] | any(.[]; .key == "user.root.sessions" and .value == "100")' show settings
json '. == [{"changed": 3}]' set user.root.sessions none
json '.[0].frames == 3 and .[0].error == null' capture net_ring0 "$weir_tmp/x.pcapng" --packets 3 2>/dev/null
json '. == []' wait up
if weirctl show sessions | has $'[\x01-\x09\x0b-\x1f\x7f-\xff]'; then fail "a name steers the terminal"; fi

# exit codes
says 2 "cannot show 'elephants'; give nodes" weirctl show elephants
says 2 "'evict vqpn.N|session.ID'; see help evict" weirctl evict
says 2 "cannot evict 'x'; give" weirctl --json evict x
says 1 'refuses: there is no session 77; see' weirctl evict session.77
says 1 'refuses: there is no such node; see' weirctl drain 77
says 1 'user 0.*or none|refuses: invalid value .x. for user.0.memory .expected' weirctl set user.0.memory x
says 4 'does not hold after 0.1 s' weirctl wait node:9 --timeout 0.1
says 1 'no data plane for instance .absent. behind .*; start weir-dataplane' weirctl --instance absent show nodes
says 1 'line 2: no data plane for instance' weirctl --instance absent < <(printf '# first\nshow nodes\n')
says 1 'cannot write to stdout; check its target' bash -c 'weirctl --json show counters >/dev/full'
if [ "$(id -u)" = 0 ] && id nobody >/dev/null 2>&1; then
	chmod 711 "$weir_tmp" "$WEIR_RUN_DIR" "$WEIR_RUN_DIR/A"
	says 3 'Permission denied; run as root' setpriv --reuid nobody --regid nogroup --clear-groups "$(command -v weirctl)" show nodes
fi

# draining is told in JSON too; Ctrl-C says how it is undone
interrupted() { # COMMAND...: by Ctrl-C, when it has said something
	local pid
	env --default-signal=INT "$@" >"$weir_tmp/begun" &
	pid=$!
	await test -s "$weir_tmp/begun"
	kill -INT "$pid"
	wait "$pid"
}
says 1 "it goes on draining; 'drain self off' undoes that" interrupted weirctl --json drain self
jq -se 'length >= 1 and all(.[]; .programs == 3 and .connections >= 2)' <"$weir_tmp/begun" >/dev/null || fail "drain says $(cat "$weir_tmp/begun")"
json '. == [{"changed": 1}]' drain self off

# top, to a file and on a terminal, when its data plane dies
weirctl top --interval 0.2 >"$weir_tmp/top.out" 2>"$weir_tmp/top.err" &
top=$!
cat >"$weir_tmp/terminal.py" <<'PY'
import os, pty, select, sys, termios, time
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "vt100"
    os.execvp("weirctl", ["weirctl", "top", "--interval", "0.2"])
seen, end = b"", time.monotonic() + 300
while time.monotonic() < end:
    if select.select([fd], [], [], 0.1)[0]:
        try:
            more = os.read(fd, 65536)
        except OSError: # nobody has the other end any more
            break
        seen += more
        if b"ENGINE" in seen:
            print("shown", flush=True)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
if not termios.tcgetattr(fd)[3] & termios.ECHO:
    sys.exit("the terminal is left without echo")
if code != 1 or b"weirctl: data plane" not in seen or not seen.rstrip().endswith(b"\x1b[?7h\x1b[?25h"):
    sys.exit(f"exit {code}, {seen[-300:]!r}")
PY
run terminal python3 "$weir_tmp/terminal.py"
await grep -q shown "$weir_tmp/terminal.log" || die "top shows nothing on a terminal"
await grep -q ENGINE "$weir_tmp/top.out" || die "top shows nothing"
stop dataplane-A KILL
await has_ended "$top" || fail "top goes on without its data plane"
wait "$top"
[ $? = 1 ] || fail "top ends with another exit code"
grep -qE '^weirctl: data plane (closed the connection|is gone).*; .*' "$weir_tmp/top.err" || fail "top says $(cat "$weir_tmp/top.err")"
await has_ended "${weir_pid[terminal]}" || fail "top on a terminal goes on"
wait "${weir_pid[terminal]}" || fail "on a terminal: $(log_of terminal)"
unset "weir_pid[terminal]"
exit 0
