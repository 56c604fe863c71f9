#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Connecting by the name of a host: /etc/hosts, names that nobody has, name servers that never answer. And a server
# that is told to stop.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
PATH=$WEIR_BUILD/apps/examples:$PATH

unshare --mount --net true 2>/dev/null || skip "namespaces can't be made here"
two_nodes_memif
WEIR_INSTANCE=B run echo example-echo
echo "hosts: files dns" >"$weir_tmp/nsswitch.conf"
# a host with two addresses, of which no node has the first
printf '%s\n' "127.0.0.1 localhost" "10.77.0.2 node-b.example b" "10.77.0.99 many" "10.77.0.2 many" >"$weir_tmp/hosts"
echo "nameserver 127.0.0.1" >"$weir_tmp/resolv.conf"
cat >"$weir_tmp/silent.py" <<'IN'
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 53))
print("ready", flush=True)
time.sleep(600)
IN
# The program's network: names as above, and a name server that says nothing. The session's socket is a file.
cat >"$weir_tmp/inside.sh" <<'IN'
set -e
cd "$1"
shift
mount --make-rprivate /
for name in hosts nsswitch.conf resolv.conf; do
	[ -e /etc/$name ] || touch /etc/$name
	mount --bind $name /etc/$name
done
ip link set lo up
rm -f silent.log
python3 silent.py >silent.log &
trap 'kill $!' EXIT
until grep -q ready silent.log; do sleep 0.05; done
"$@"
IN
inside() {
	WEIR_INSTANCE=A timeout 60 unshare --mount --net bash "$weir_tmp/inside.sh" "$weir_tmp" "$@"
}

await env WEIR_INSTANCE=A example-hello node:2:echo || fail "no echo: $(last_line echo)"
# again if the second that example-hello gives was too short on a busy machine
greets() {
	[ "$(inside example-hello "$1:echo" "by $1" 2>&1)" = "by $1" ]
}
for host in node-b.example b many; do
	await greets "$host" || fail "no connection to $host"
done
# example-hello gives a second to connect
read_uptime
start=$now
inside example-hello "nobody.example:echo" >"$weir_tmp/nobody.log" 2>&1 && fail "a host without a name server"
read_uptime
grep -q "the resolver has not found host 'nobody.example' within 1000 ms; see" "$weir_tmp/nobody.log" || fail "the reason: $(last_line nobody)"
[ $((now - start)) -lt 20 ] || fail "the name server kept the program for $((now - start)) s"
echo "hosts: files" >"$weir_tmp/nsswitch.conf"
inside example-hello "nobody.example:echo" >"$weir_tmp/nobody.log" 2>&1 && fail "a host that is not in /etc/hosts"
grep -q "host 'nobody.example': .*; see /etc/hosts" "$weir_tmp/nobody.log" || fail "the reason: $(last_line nobody)"

stop echo || fail "exit code $? of a server that was told to stop: $(last_line echo)"
run serving weir-perf --instance B
await grep -q serving "$weir_tmp/serving.log"
stop serving INT || fail "exit code $? of weir-perf: $(last_line serving)"
exit $weir_failed
