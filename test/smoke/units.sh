#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The units of systemd: how exposed they are; and two nodes as they run them: the data plane with its bounding set,
# control as user weir without any right, with its pid file where systemd would make it a directory.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

[ "$(id -u)" = 0 ] || skip "needs root"
id nobody >/dev/null 2>&1 || skip "there is no user nobody"
units=$weir_root/docs/systemd
exposure() { # UNIT LIMIT: tenths of the level that systemd-analyze gives
	local level
	sed "s|@sbindir@|$WEIR_BUILD/$1|; s|@bindir@|$WEIR_BUILD/apps/$1|" "$units/weir-$1@.service" >"$weir_tmp/weir-$1@x.service"
	level=$(systemd-analyze security --offline=true --no-pager "$weir_tmp/weir-$1@x.service" | sed -n 's/.*exposure level for.*: \([0-9.]*\) .*/\1/p')
	[ -n "$level" ] || fail "no exposure level of weir-$1"
	[ "$(tr -d . <<<"$level")" -le "$2" ] || fail "weir-$1 is exposed by $level"
}
if command -v systemd-analyze >/dev/null; then
	exposure control 30
	exposure dataplane 50
	exposure lend 15
fi

# user weir is nobody here: for those that run in a mount namespace of this passwd
{ grep -v '^weir:' /etc/passwd; sed -n 's/^nobody:/weir:/p' /etc/passwd; } >"$weir_tmp/passwd"
user=$(id -u nobody) group=$(id -g nobody)
rights=$(sed -n 's/^CapabilityBoundingSet=//p' "$units/weir-dataplane@.service" | sed 's/.*/\L&/; s/cap_/+/g; s/ /,/g')
cat >"$weir_tmp/bounded" <<SH
#!/bin/sh
exec unshare -m sh -c 'mount --bind $weir_tmp/passwd /etc/passwd && exec setpriv --no-new-privs --bounding-set=-all,$rights "\$@"' sh "\$@"
SH
cat >"$weir_tmp/unprivileged" <<SH
#!/bin/sh
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all --reuid $user --regid $group --clear-groups "\$@"
SH
chmod 755 "$weir_tmp" "$weir_tmp/bounded" "$weir_tmp/unprivileged"

# the programs where any user may run them
mkdir -p "$weir_tmp/bin"
cp "$WEIR_BUILD/control/weir-control" "$weir_tmp/bin"
chmod -R a+rX "$weir_tmp/bin"

peers 1=10.77.0.1 2=10.77.0.2
chmod 644 "$weir_tmp/peers"
chmod 755 "$WEIR_RUN_DIR"
for n in 1 2; do
	name=$([ $n = 1 ] && echo A || echo B)
	weir_under=$weir_tmp/bounded memif_plane "$name" $n
	[ "$(stat -c '%a %u' "$WEIR_RUN_DIR/$name/control.sock")" = "600 $user" ] ||
		fail "control.sock is $(stat -c '%a %u' "$WEIR_RUN_DIR/$name/control.sock")"
	mkdir -p "$weir_tmp/own/$name"
	chown "$user" "$weir_tmp/own/$name"
	chmod 755 "$weir_tmp/own" "$weir_tmp/own/$name"
	run "control-$name" env RUNTIME_DIRECTORY="$weir_tmp/own/$name" "$weir_tmp/unprivileged" "$weir_tmp/bin/weir-control" \
		--instance "$name" --node $n --listen "127.0.0.1:${weir_port[$n]}" --peers "$weir_tmp/peers" --node-timeout 10s
done
up A B
for n in A B; do
	[ -s "$weir_tmp/own/$n/control.pid" ] || fail "no pid file of control $n"
	grep -q "^CapEff:[[:space:]]*0*\$" "/proc/$(cat "$weir_tmp/own/$n/control.pid")/status" || fail "control $n has rights"
done
serve sink probe B sink s
probe A send node:2:s 2000 24 >"$weir_tmp/send.log" 2>&1 || fail "sender: $(last_line send)"
await grep -q 'end -108 after 2000' "$weir_tmp/sink.log" || fail "sink: $(last_line sink)"
# user weir may be control, and look; operators alone change something
cp "$WEIR_BUILD/apps/weirctl" "$weir_tmp/bin"
chmod -R a+rX "$weir_tmp/bin"
"$weir_tmp/unprivileged" "$weir_tmp/bin/weirctl" --instance A show status | has serving || fail "user weir sees no status"
for words in "set log.level debug" "evict session.0" "capture net_memif0 $weir_tmp/own/A/x.pcapng"; do
	# shellcheck disable=SC2086
	refused 1 "only root and the data plane's user may do that" "$weir_tmp/unprivileged" "$weir_tmp/bin/weirctl" --instance A $words
done
weirctl --instance A set log.level debug || fail "root may not set anything"
# a second one of the instance is refused, as it would be by a file in the run directory
refused 3 "runs already as pid" env RUNTIME_DIRECTORY="$weir_tmp/own/A" "$weir_tmp/unprivileged" "$weir_tmp/bin/weir-control" \
	--instance A --node 1 --listen "127.0.0.1:$(free_port)" --peers "$weir_tmp/peers"
stop control-A
[ ! -e "$weir_tmp/own/A/control.pid" ] || fail "a stop leaves the pid file"
tools systemd-analyze
exit 0
