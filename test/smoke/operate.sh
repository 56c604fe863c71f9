#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What an operator does at a running node: weirctl from a script and at its prompt, settings, top, evict
# and drain; what programs are told.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
PATH=$WEIR_BUILD/apps/examples:$PATH

one_node
export WEIR_INSTANCE=A HOME=$weir_tmp
ctl=$weir_tmp/ctl.log
says() { # TEXT
	grep -qe "$1" "$ctl" || fail "it says '$(cat "$ctl")' and not '$1'"
}

# commands from a script: the first failure ends it, and is where it says
printf '%s\n' '# a comment' 'show settings' '  set "program.my tool.weight" 20' 'wait rain' 'set log.level debug' |
	weirctl >"$ctl" 2>&1 && fail "a script with a failure ends with 0"
[ "${PIPESTATUS[1]}" = 2 ] || fail "a script ends with ${PIPESTATUS[1]}, not its first failure"
says '^weirctl: line 4: cannot wait for .rain'
says '^limit.sessions '
[ "$(weirctl --json show settings | jq -r '.[] | select(.key == "program.my tool.weight") | .value')" = 20 ] ||
	fail "a quoted name is not set"
[ "$(weirctl --json show settings | jq -r '.[] | select(.key == "log.level") | .value')" = info ] ||
	fail "a script goes on behind a failure"

# the prompt: completion asks the data plane, the history stays
cat >"$weir_tmp/type.py" <<'PY'
import os, pty, select, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "vt100"
    os.execvp("weirctl", ["weirctl"])
seen = b""
def until(text, seconds=60):
    global seen
    end = time.monotonic() + seconds
    while text not in seen:
        if time.monotonic() > end or not select.select([fd], [], [], end - time.monotonic())[0]:
            sys.exit(f"not seen: {text!r} in {seen!r}")
        seen += os.read(fd, 4096)
    seen = seen[seen.index(text) + len(text):]
until(b"weir A> ")
os.write(fd, b"sho\t")
until(b"w ")
os.write(fd, b"cou\t\n")
until(b"engine.turns")
until(b"weir A> ")
os.write(fd, b"capture net\t")
until(b"_ring0")
os.write(fd, b"\x15wait node:\t")
until(b"1")
os.write(fd, b"\n")
until(b"weir A> ")
os.write(fd, b"top --interval 30\n")
until(b"ENGINE  LCORE")
os.write(fd, b" ")
until(b"ENGINE  LCORE")
os.write(fd, b"q")
until(b"weir A> ")
os.write(fd, b"capture net_ring0 " + os.environb[b"HOME"] + b"/x.pcapng --seconds 0.1\n")
until(b"0 dropped")
until(b"weir A> ")
if b"wait" not in open(os.environ["HOME"] + "/.weirctl_history", "rb").read():
    sys.exit("Ctrl-C would leave no history")
os.write(fd, b"sheep\n")
until(b"unknown command 'sheep'")
until(b"weir A> ")
# again and again: what is typed before libedit has taken the terminal is no end of the input
end = time.monotonic() + 60
while time.monotonic() < end:
    os.write(fd, b"\x15\x04")
    time.sleep(0.05)
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        sys.exit(os.waitstatus_to_exitcode(status))
sys.exit("the prompt doesn't end with its input")
PY
timeout 180 python3 "$weir_tmp/type.py" || fail "the prompt"
grep -q '^wait.*node:1' "$weir_tmp/.weirctl_history" || fail "no history: $(cat "$weir_tmp/.weirctl_history")"
[ "$(stat -c %a "$weir_tmp/.weirctl_history")" = 600 ] || fail "others may read the history"

# rates of what goes on
server A
run load weir-perf node:1 --loop -t rate -s 64 -D 600 --no-calibrate
busy() {
	weirctl --json top --interval 0.3 --count 1 |
		jq -e '.engines[0].tx_messages_per_s > 1000 and any(.programs[]; .tx_messages_per_s > 1000) and
			(.connections[0].messages_per_s > 1000) and
			all(.programs[], .connections[]; .messages_per_s < 1000 or .bytes_per_s > 60 * .messages_per_s)' >/dev/null
}
await busy || fail "top shows no rates: $(weirctl --json top --count 1)"
weirctl top --interval 0.2 --count 2 >"$ctl" || fail "top"
[ "$(grep -c '^ENGINE ' "$ctl")" = 2 ] || fail "top shows $(cat "$ctl")"

# payload within the host, too
run near weir-perf node:1 -t rate -s 64 -D 600 --no-calibrate
local_payload() {
	weirctl --json top --interval 0.3 --count 1 | jq -e 'any(.connections[]; .transport == "local" and
		.messages_per_s > 1000 and .bytes_per_s > 60 * .messages_per_s)' >/dev/null
}
await local_payload || fail "top shows no payload within the host: $(weirctl --json top --count 1)"
stop near INT

# a program is told why its session ended
run held probe A echo held
await eval 'weirctl --json show sessions | jq -e "any(.[]; .name == \"probe\" and .listeners == 1)"' || die "no program"
id=$(weirctl --json show sessions | jq '.[] | select(.name == "probe") | .session')
weirctl evict "session.$id" --reason 'maintenance at noon' || fail "evict session.$id"
await has_ended "${weir_pid[held]}" || fail "a program goes on without its session"
log_of held | has 'evicted by an operator: maintenance at noon' || fail "it was told $(log_of held)"

# one whose library attaches again by itself after a loss: that is none
serve kept survivor A sink kept
id=$(weirctl --json show sessions | jq '.[] | select(.name == "survivor") | .session')
weirctl evict "session.$id" --reason 'for good' || fail "evict session.$id"
await has_ended "${weir_pid[kept]}" || fail "what an operator has ended is there again: $(weirctl show sessions)"
log_of kept | has 'evicted by an operator: for good' || fail "it was told $(log_of kept)"
weirctl evict session.63 2>"$ctl" && fail "there is a session 63"
says 'there is no session 63; see'

# and why a connection did
serve echo probe A echo echo
run blocked probe A block node:1:echo
await eval 'weirctl --json show connections | jq -e "any(.[]; .transport == \"local\" and .state == \"local\")"' ||
	die "no connection"
vqpn=$(weirctl --json show connections | jq '[.[] | select(.transport == "local")][0].vqpn')
weirctl evict "vqpn.$vqpn" || fail "evict vqpn.$vqpn"
await has_ended "${weir_pid[blocked]}" || fail "a program blocks on a connection that was evicted"
log_of blocked | has 'end -103' || fail "it was told $(log_of blocked)"

# an export: whoever opened it is told, and its owner; nobody else
run board example-remote board "$weir_tmp/key"
await grep -q open "$weir_tmp/board.log" || die "no board"
example-remote post "$weir_tmp/key" 1 'a line' || fail "a line that can't be put: $(log_of board)"
export=$(weirctl --json show exports | jq '.[] | select(.state == "open" and .bytes == 4096) | .export')
[ -n "$export" ] || fail "no export: $(weirctl show exports)"
weirctl evict "export.$export" --reason 'in the way' || fail "evict export.$export"
example-remote post "$weir_tmp/key" 2 'too late' 2>"$ctl" && fail "a line of a board without an export"
says 'there is no such export'
await shows A exports '.[0].state == "evicted"' || fail "it is not evicted: $(weirctl show exports)"
weirctl evict export.4000 2>"$ctl" && fail "there is an export 4000"
says 'there is no export 4000; see'
stop board INT || true
log_of board | has 'evicted by an operator: in the way' || fail "its owner was told $(log_of board)"
shows A exports 'length == 0' || fail "it stays: $(weirctl show exports)"
[ "$(weirctl --json show sessions | jq '[.[].exports] | add')" = 0 ] || fail "it is counted: $(weirctl show sessions)"

# over the wire
conn=$(weirctl --json show connections | jq '[.[] | select(.transport == "rc" and .state == "open")][0].vqpn')
weirctl evict "vqpn.$conn" || fail "evict vqpn.$conn"
await has_ended "${weir_pid[load]}" || fail "weir-perf goes on without its connection"

# draining: nobody new comes; it is over when the last one has gone, or undone
weirctl drain self --timeout 0.5 >"$ctl" 2>&1
[ $? = 4 ] || fail "drained although programs are there"
says 'not drained after 0.5 s'
says 'programs, .* left'
probe A attach >"$ctl" 2>&1 && fail "a program attaches to a node that is drained"
says 'being drained'
stop echo
stop server-A
weirctl drain self --timeout "$patience" >"$ctl" || fail "it is not drained: $(cat "$ctl")"
weirctl drain self off || fail "draining can't be undone"
probe A attach >"$ctl" || fail "nobody attaches after draining: $(cat "$ctl")"
exit 0
