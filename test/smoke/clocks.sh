#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A host whose wall clock is an hour off, and is then set right: certificates are all that it matters for.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

clock=$WEIR_BUILD/test/smoke/wrong_clock.so
[ "$(LD_PRELOAD=$clock WRONG_CLOCK=86400 date +%j)" != "$(date +%j)" ] || die "the clock can't be made wrong"
wrong() { # SECONDS FUNCTION ARGUMENT...
	local by=$1
	shift
	LD_PRELOAD=$clock WRONG_CLOCK=$by "$@"
}
hour=3600
weir_node_timeout=3
for what in ca "node 1" "node 2"; do
	# shellcheck disable=SC2086
	weirctl pki "$weir_tmp/pki" $what >/dev/null || die "no certificates"
done
control_with_tls() { # NAME ID
	control "$1" "$2" --tls "$weir_tmp/pki/node-$2"
}
seen() { # NAME TEXT HOW-OFTEN
	[ "$(grep -c "$2" "$weir_tmp/control-$1.log")" -ge "$3" ]
}
message() { # WHEN
	probe A many node:2:e 2 2 >"$weir_tmp/many.log" 2>&1 || fail "$1: $(last_line many)"
}
node_b() {
	memif_plane B 2
	control_with_tls B 2
}
echo_on_b() {
	serve echo probe B echo e
}

peers 1=10.77.0.1 2=10.77.0.2
memif_plane A 1
control_with_tls A 1

# fast: nobody minds
wrong $hour node_b
await weirctl --instance A wait node:2 --timeout 0.1 || die "a clock that is fast keeps a node out"
up B
echo_on_b
message "with a clock an hour fast"

# set right, and all of it started anew: what is told by then seems to come from an hour ago
stop echo
stop control-B KILL
stop dataplane-B KILL
await eval '! weirctl --instance A wait node:2 --timeout 0.1' || fail "a node that was killed is up"
node_b
await weirctl --instance A wait node:2 --timeout 0.1 || fail "a clock that was set back keeps a node out"
up B
echo_on_b
message "after the clock was set back"

# control alone; it is known as one of later
ups=$(grep -c 'node 2 is up' "$weir_tmp/control-A.log")
stop control-B KILL
wrong -200 control_with_tls B 2
up B
await weirctl --instance B wait node:1 --timeout 0.1 || fail "control of a while ago is not let in"
message "after control was restarted with a slower clock"
[ "$(grep -c 'node 2 is down' "$weir_tmp/control-A.log")" -le 1 ] || fail "node 2 went for its clock"
[ "$ups" -le "$(grep -c 'node 2 is up' "$weir_tmp/control-A.log")" ] || fail "the log of A was lost"

# slow by an hour: certificates aren't valid yet. Each end says whose clock, and traffic goes on
stop control-B
wrong -$hour control_with_tls B 2
await seen B 'TLS: .*is not valid yet; set this host.s' 1 || fail "B doesn't say that its certificate is not valid yet"
await seen B "is not valid before .*by this host's clock; set the clock that is wrong" 1 ||
	fail "B says nothing of A's certificate"
await seen A 'it does not accept our certificate, valid from .*set the clock that is wrong' 1 || fail "A is told nothing"
message "while certificates are refused"
stop control-B
control_with_tls B 2
await weirctl --instance B wait node:1 --timeout 0.1 || fail "with the right clock it isn't let in again"
message "with the right clock"
exit 0
