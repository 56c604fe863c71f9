#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Strangers at the control ports of a cluster that is at work: a thousand half-open connections of each kind,
# slow and oversized messages, another cluster, an id that is somebody else's. They are told why, the log says
# who and why, the memory of weir-control stays, nobody is suspected and a ping-pong goes on.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

[ "$(id -u)" = 0 ] || skip "forged addresses are needed: run as root"
veth_pair 1500
# The controls talk over the same wire as the data planes, with addresses of the kernel's. Packets to
# forged addresses are lost at the other end.
ip -n "$weir_ns_a" addr add 10.99.0.1/24 dev vethA
ip -n "$weir_ns_b" addr add 10.99.0.2/24 dev vethB
ip -n "$weir_ns_b" route add 10.66.0.0/16 via 10.99.0.1
for ns in "$weir_ns_a" "$weir_ns_b"; do ip -n "$ns" link set lo up; done
printf '1 10.99.0.1:7471 10.78.0.1\n2 10.99.0.2:7471 10.78.0.2\n' >"$weir_tmp/peers"
start() { # INSTANCE NAMESPACE ID PORT OPTION...
	local name=$1 ns=$2 id=$3 port=$4
	shift 4
	run "control-$name" ip netns exec "$ns" weir-control --instance "$name" --node "$id" \
		--listen "10.99.0.$id:$port" --insecure --log-format json --node-timeout "${weir_node_timeout}s" "$@"
}
veth_plane A 1 "$weir_ns_a"
veth_plane B 2 "$weir_ns_b"
start A "$weir_ns_a" 1 7471 --peers "$weir_tmp/peers"
start B "$weir_ns_b" 2 7471 --peers "$weir_tmp/peers"
up A B
await weirctl --instance A wait node:2 --timeout 0.1 || die "the nodes don't see each other"

cat >"$weir_tmp/knock.py" <<'PY'
"""What to do, and how often, at 10.99.0.2:7471."""
import random, resource, select, socket, struct, sys, time

AT = ("10.99.0.2", 7471)
kind, count = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))

def checksum(data):
    s = sum(struct.unpack(f"!{len(data) // 2}H", data))
    s = (s >> 16) + (s & 0xffff)
    return ~(s + (s >> 16)) & 0xffff

def syn(raw):
    """A connection's first packet, from an address that nobody has."""
    here = bytes([10, 66, random.randrange(256), random.randrange(1, 255)])
    there = socket.inet_aton(AT[0])
    tcp = struct.pack("!HHIIBBHHH", random.randrange(1024, 65536), AT[1], random.getrandbits(32), 0, 5 << 4, 2, 64240, 0, 0)
    sum_ = checksum(here + there + struct.pack("!BBH", 0, 6, len(tcp)) + tcp)
    tcp = tcp[:16] + struct.pack("!H", sum_) + tcp[18:]
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0) + here + there
    raw.sendto(ip + tcp, (AT[0], 0))

def answer(data, drip=0.0):
    """What is said to this, or to its bytes one by one, and after how long the connection ends."""
    s, begin = socket.create_connection(AT, 60), time.monotonic()
    s.settimeout(60)
    said = b""
    try:
        for byte in ([data] if not drip else [data[i:i + 1] for i in range(len(data))]):
            s.sendall(byte)
            time.sleep(drip)
    except OSError:
        pass
    try:
        while more := s.recv(4096):
            said += more
    except ConnectionResetError:
        pass
    return said, time.monotonic() - begin

if kind == "syn":
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    for i in range(count):
        syn(raw)
elif kind == "silent":
    open_, seen, end = {}, 0, time.monotonic() + 120
    p = select.poll()
    while (seen < count or open_) and time.monotonic() < end:
        while seen < count and len(open_) < 200: # as many as are let in in a second
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(AT)
            open_[s.fileno()] = s
            p.register(s, select.POLLIN)
            seen += 1
        for fd, _ in p.poll(50):
            try:
                over = not open_[fd].recv(4096)
            except OSError:
                over = True
            if over:
                p.unregister(fd)
                open_.pop(fd).close()
    sys.exit(f"{len(open_)} of {count} that say nothing are still let be" if open_ else 0)
else:
    data, drip, why = {
        "oversized": (struct.pack("!I", 1 << 20) + bytes(4096), 0, b"not a control message"),
        "nonsense": (b"GET / HTTP/1.1\r\n\r\n", 0, b"not a control message"),
        "slow": (struct.pack("!I", 200) + bytes(200), 0.1, b"handshake not done within 2 s"),
    }[kind]
    said, took = answer(data, drip)
    if why not in said or took > 60:
        sys.exit(f"{kind}: after {took:.1f} s {said!r}, not {why!r}")
PY
knock() { # KIND HOW-OFTEN
	ip netns exec "$weir_ns_a" python3 "$weir_tmp/knock.py" "$1" "$2" || fail "$1"
}
memory() { # of control B, KiB
	awk '/^VmRSS/ {print $2}' "/proc/${weir_pid[control-B]}/status"
}
line() { # INSTANCE JQ-CONDITION
	grep '^{' "$weir_tmp/control-$1.log" | jq -se "any(.[]; $2)" >/dev/null
}
says() { # INSTANCE JQ-CONDITION
	await line "$1" "$2" || fail "the log of control $1 has no line with $2"
}

server B
weir-perf --instance A node:2 -t lat -s 64 -n 100 --no-calibrate >/dev/null || die "no ping-pong"
run ping weir-perf --instance A node:2 -t lat -s 64 -D 8 --verify --no-calibrate
before=$(memory)
knock oversized 1
says B '.level == "warning" and (.peer // "" | test("^10.99.0.1:[0-9]+$")) and .reason == "not a control message"'
knock nonsense 1
knock slow 1
says B '.reason == "handshake not done within 2 s"'
knock syn 1000

for name in A B; do
	line $name '.state == "suspect"' && fail "control $name suspects somebody: $(grep suspect "$weir_tmp/control-$name.log")"
done

# a member gets in while others hold the door
stop control-A
knock syn 3000 &
flood=$!
ip netns exec "$weir_ns_a" python3 "$weir_tmp/knock.py" silent 1000 &
silent=$!
start A "$weir_ns_a" 1 7471 --peers "$weir_tmp/peers"
await weirctl --instance A wait node:2 --timeout 0.1 || fail "a member isn't let in while strangers knock"
wait "$flood" "$silent" || fail "strangers hold on"
says B '.reason == "too many connections wait for their handshake"'
after=$(memory)
[ "$after" -le $((before + 8192)) ] || fail "weir-control has grown from $before to $after KiB"

# another cluster at our address; an id that is there already: either end says so
start X "$weir_ns_a" 1 7472 --peers <(printf '1 10.99.0.1:7472 10.78.0.7\n2 10.99.0.2:7471 10.78.0.2\n') --cluster other
says X '.node == 2 and .peer == "10.99.0.2:7471" and (.reason // "" | test("cluster is .default. here, .other. there; check --cluster"))'
says B '(.reason // "" | test("cluster is .default. here, .other. there"))'
stop control-X
: >"$weir_tmp/control-X.log"
start X "$weir_ns_a" 1 7472 --peers <(printf '1 10.99.0.1:7472 10.78.0.7\n2 10.99.0.2:7471 10.78.0.2\n')
says X '.node == 2 and (.reason // "" | test("node 1 is connected already; give each node its own id"))'
says B '(.reason // "" | test("node 1 is connected already"))'
stop control-X

wait "${weir_pid[ping]}" || fail "the ping-pong ended: $(log_of ping)"
unset "weir_pid[ping]"
for name in A B; do
	line $name '.state == "down"' && fail "control $name: $(grep '"down"' "$weir_tmp/control-$name.log")"
done
exit 0
