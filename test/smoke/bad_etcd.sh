#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-control with an etcd that is full, that answers garbage, and that is gone: the log names the remedy, members
# stay, and new nodes join when etcd works again.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

command -v etcd >/dev/null || skip "no etcd: scripts/deps.sh"
port=$(free_port)
url=http://127.0.0.1:$port
run etcd etcd --data-dir "$weir_tmp/etcd" --listen-client-urls "$url" --advertise-client-urls "$url" \
	--listen-peer-urls http://127.0.0.1:0 --quota-backend-bytes 2000000 --logger zap --log-level error
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=$url
await etcdctl endpoint health || die "no etcd"
node() { # NAME ETCD-URL
	run "control-$1" weir-control --instance "$1" --node auto --listen "127.0.0.1:$(free_port)" --etcd "$2" \
		--log-format logfmt
}
says() { # NAME TEXT
	await grep -q -- "$2" "$weir_tmp/control-$1.log" || fail "control $1 doesn't say '$2'"
}
node A "$url"
node B "$url"
says A 'msg="node id is'
says B 'msg="node id is'
two_are_there() {
	[ "$(etcdctl get --prefix --keys-only /weir/default/node/ | grep -c /weir)" = 2 ]
}
await two_are_there || fail "two nodes aren't there"

# full: nobody goes, nobody comes, and each says what to do
much=$(head -c 400000 /dev/zero | tr '\0' x)
full() {
	etcdctl put much <<<"$much"
	etcdctl alarm list | has NOSPACE
}
await full || fail "etcd isn't full"
node C "$url"
says C "etcd at $url: .*space exceeded; compact it, raise its quota and disarm its alarm"
says C "etcd=\"$url\" reason=\".*space exceeded\"" # as fields
if grep -q 'node id is' "$weir_tmp/control-C.log"; then fail "etcd isn't full after all"; fi
two_are_there || fail "a node has gone"
mended() {
	etcdctl del much
	etcdctl compact "$(etcdctl endpoint status -w json | jq '.[0].Status.header.revision')"
	etcdctl defrag
	etcdctl alarm disarm
	! etcdctl alarm list | has NOSPACE && etcdctl put little x
}
await mended || fail "etcd stays full"
says C 'msg="node id is'

# garbage, then the one that is good; nothing of it reaches the terminal
cat >"$weir_tmp/garbage.py" <<'PY'
import http.server, os
class Garbage(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"\x1b[2J\x00{[" + os.urandom(65536))
    def log_message(self, *_):
        pass
s = http.server.HTTPServer(("127.0.0.1", 0), Garbage)
print(s.server_port, flush=True)
s.serve_forever()
PY
run garbage python3 "$weir_tmp/garbage.py"
await test -s "$weir_tmp/garbage.log" || die "no garbage"
node D "http://127.0.0.1:$(cat "$weir_tmp/garbage.log")"
says D 'level="warning".*the server that answers is not an etcd; trying again; the nodes known stay'
node E "http://127.0.0.1:$(cat "$weir_tmp/garbage.log"),$url"
says E 'msg="node id is'
grep -q $'\x1b' "$weir_tmp"/control-*.log && fail "garbage comes through to the log"

# gone
stop etcd KILL
node F "$url"
says F "etcd at $url: .*trying again; the nodes known stay"
for name in A B C E; do
	has_ended "${weir_pid[control-$name]}" && fail "control $name ended with etcd"
done
[ "$(grep -c . "$weir_tmp/control-F.log")" -le 4 ] || fail "it says the same again and again: $(log_of control-F)"
exit 0
