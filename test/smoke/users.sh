#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Who may attach and how much of it, with and without weir-control: --allow, --user-limit, weirctl set.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

[ "$(id -u)" = 0 ] || skip "other users are needed: run as root"
# An id that is not allowed, one that is by its number, one by a group that is not its first.
stranger=64001 one=64002 member=64003 club=64010
one_node --allow "user:$one" --allow "group:$club" --user-limit "$one:sessions=1,memory=8M" --user-limit "*:sessions=8"
chmod 755 "$weir_tmp" "$WEIR_RUN_DIR" "$WEIR_RUN_DIR/A"
copy_programs probe services

as() { # UID GROUPS ARENA ARGUMENT...
	local uid=$1 groups=$2 arena=$3
	shift 3
	setpriv --reuid "$uid" --regid "$uid" --groups "$groups" env PROBE_ARENA="$arena" \
		LD_LIBRARY_PATH="$weir_tmp/program" "$weir_tmp/program/probe" A "$@"
}
says() { # TEXT COMMAND...: it fails and says so
	local text=$1
	shift
	"$@" >"$weir_tmp/said" 2>&1 && fail "$* works"
	grep -qF -- "$text" "$weir_tmp/said" || fail "$*: it says '$(cat "$weir_tmp/said")', not '$text'"
}
says "user $stranger may not attach; have weir-dataplane started with --allow user:$stranger" \
	as $stranger $stranger 4194304 attach
for file in dataplane.pid control.pid control.sock; do
	says "Permission denied" setpriv --reuid $stranger --regid $stranger --clear-groups cat "$WEIR_RUN_DIR/A/$file"
done
as $one $one 4194304 attach >/dev/null || fail "an allowed user can't attach"
as $member $club 4194304 attach >/dev/null || fail "a member of an allowed group can't attach"
says "more were asked for; ask for less" as $one $one 16777216 attach
serve mine as $one $one 4194304 echo e
says "user $one has 1 sessions, its limit is 1; end a program" as $one $one 1048576 attach
# It holds while nobody controls: sessions, memory, connections, rate.
stop control-A
says "user $one has 1 sessions" as $one $one 1048576 attach
shows A settings "any(.[]; .key == \"user.$one.memory\" and .value == \"8388608\")" ||
	fail "limits aren't shown: $(weirctl --instance A --json show settings)"
weirctl --instance A set "user.$one.sessions" none || fail "a limit can't be taken away"
says "more were asked for; ask for less" as $one $one 5242880 attach
weirctl --instance A set "user.$one.connections" 1 || fail "a limit of connections can't be set"
serve other probe A echo other
says "user $one has reached its limit of 1 connections" as $one $one 1048576 many node:1:other 2 1
await as $one $one 1048576 many node:1:other 1 1 || fail "one connection is too much"
stop other
offers=(setpriv --reuid "$member" --regid "$member" --groups "$club" env LD_LIBRARY_PATH="$weir_tmp/program"
	"$weir_tmp/program/services" A offer)
weirctl --instance A set "user.*.services" 2 || fail "a limit of public services can't be set"
serve names "${offers[@]}" one two
says "user $member has 2 public services, its limit is 2; close one" "${offers[@]}" three
stop names
weirctl --instance A set user.root.rate 2M || fail "a rate can't be set"
server A
limited() {
	rate=$(weir-perf --instance A node:1 --loop -t bw -s 16384 -n 200 --no-calibrate --json | jq '.results[0].bytes_per_s | floor')
	[ "$rate" -ge 1000000 ] && [ "$rate" -le 3000000 ]
}
await limited || fail "user root sends $rate bytes/s and not 2 M"
weirctl --instance A set user.root.rate none
stop server-A
weirctl --instance A set "user.*.sessions" 1 || fail "the limit of all others can't be set"
serve theirs as $member $club 1048576 echo theirs
says "user $member has 1 sessions, its limit is 1" as $member $club 1048576 attach
weirctl --instance A set "user.$one.sessions" 2 || fail "a limit can't be set"
as $one $one 1048576 attach >/dev/null || fail "it can't attach with a higher limit"
weirctl --instance A set user.root.rate 10M >"$weir_tmp/set.log" || fail "a user can't be named: $(cat "$weir_tmp/set.log")"
says "there is no user 'no-such-user' on this host" weirctl --instance A set user.no-such-user.rate 10M
says "invalid value '0' for user.$one.sessions (expected a number from 1, or none" weirctl --instance A set "user.$one.sessions" 0
shows A sessions "any(.[]; .name == \"probe\" and .uid == $one and .user == \"$one\")" ||
	fail "show sessions: $(weirctl --instance A --json show sessions)"

# Without a list the socket's own permissions decide: group weir, where there is one.
stop dataplane-A
mkdir "$weir_tmp/bin"
{ grep -v '^weir:' /etc/group; echo "weir:x:$club:"; } >"$weir_tmp/group"
cat >"$weir_tmp/bin/weir-dataplane" <<SH
#!/bin/sh
exec unshare -m sh -c 'mount --bind $weir_tmp/group /etc/group && exec $(command -v weir-dataplane) "\$@"' sh "\$@"
SH
chmod +x "$weir_tmp/bin/weir-dataplane"
PATH=$weir_tmp/bin:$PATH
dataplane A 0 "" ""
[ "$(stat -c '%a %g' "$WEIR_RUN_DIR/A/session.sock")" = "660 $club" ] || fail "session.sock is $(stat -c '%a %g' "$WEIR_RUN_DIR/A/session.sock")"
[ "$(stat -c '%a' "$WEIR_RUN_DIR/A/control.sock")" = 600 ] || fail "control.sock is $(stat -c %a "$WEIR_RUN_DIR/A/control.sock")"
as $member $club 1048576 attach >/dev/null || fail "a member of group weir can't attach"
says "Permission denied; ask for membership of its group ($club)" as $stranger $stranger 1048576 attach
exit 0
