#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Frames that are truncated, too long, damaged or made up, sent at a node in the middle of its traffic: counted and
# dropped, nothing else.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes_veth 1500
serve sink probe A sink s

# Takes frames of the traffic as they leave vethB for node A and sends them again, spoilt, until it is killed.
cat >"$weir_tmp/spoil.py" <<'P'
import random, socket, sys, time
random.seed(int(sys.argv[1]))
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(("vethB", 0))
print("ready", flush=True)
frames = []
while len(frames) < 50:
    data, address = s.recvfrom(65536)
    # outgoing RoCEv2 only
    if address[2] == socket.PACKET_OUTGOING and len(data) > 60 and data[36:38] == b"\x12\xb7":
        frames.append(data)
n = 0
while True:
    n += 1
    f = bytearray(random.choice(frames))
    kind = n % 8
    if kind == 0:
        f = f[:random.randrange(14, len(f))]
    elif kind == 1:
        f += bytes(random.randrange(1, 1514 - len(f))) if len(f) < 1512 else b""
    elif kind == 2:
        f[random.randrange(14, len(f))] ^= 1 << random.randrange(8)
    elif kind == 3:
        f[42:] = random.randbytes(len(f) - 42)
    elif kind == 4:  # lengths that lie
        f[16:18] = random.randbytes(2)
    elif kind == 5:
        f[38:40] = random.randbytes(2)
    elif kind == 6:  # as it was: a duplicate
        pass
    else:
        f = f[:12] + random.randbytes(random.randrange(2, 1400))
    try:
        s.send(bytes(f[:1514]))
    except OSError as e:
        print(e, len(f))
    if n % 50 == 0:
        time.sleep(0.005)
P
serve spoil ip netns exec "$weir_ns_b" python3 "$weir_tmp/spoil.py" "${SEED:-1}"
run send probe B send node:1:s 20000 6 50
dropped() { # JQ-CONDITION on what the port of A has dropped
	shows A ports ".[0].drops | $1"
}
for reason in too_short bad_ip bad_icrc duplicate; do
	await dropped ".$reason > 0" || fail "no frame dropped as $reason: $(last_line spoil)"
done
await dropped '[to_entries[] | select(.key != "impaired") | .value] | add >= 1000' ||
	fail "few frames dropped: $(weirctl --instance A --json show ports | jq -c '.[0].drops')"
has_ended "${weir_pid[spoil]}" && fail "spoil.py: $(log_of spoil)"
await grep -q 'end' "$weir_tmp/send.log" || fail "the sender did not end"
grep -q 'end 0 after 20000' "$weir_tmp/send.log" || fail "sender: $(last_line send)"
stop spoil KILL
await grep -q 'end -108 after 20000' "$weir_tmp/sink.log" || fail "receiver: $(last_line sink)"
shows A nodes 'all(.state == "up")' || fail "a node is down: $(weirctl --instance A show nodes)"
shows A qps 'all(.state == "RTS")' || fail "a QP has failed: $(weirctl --instance A show qps)"
shows A counters 'map(select(.name == "broker.links_failed"))[0].value == 0' || fail "a link failed"
