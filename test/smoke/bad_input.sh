#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Bad input: one line with cause and remedy, the right exit code, nothing hangs, nobody else disturbed.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

eal=(--no-huge -m 128 --no-pci --lcores "0@0,1@1")
refused 2 'bogus' weir-dataplane "${eal[@]}" -- --instance X --bogus
refused 2 'idle' weir-dataplane "${eal[@]}" -- --instance X --idle sometimes
refused 2 'max-connections' weir-dataplane "${eal[@]}" -- --instance X --max-connections 0
refused 2 'session-connections' weir-dataplane "${eal[@]}" -- --instance X --session-connections 0
refused 2 'window' weir-dataplane "${eal[@]}" -- --instance X --window 8K
refused 2 'arena' weir-dataplane "${eal[@]}" -- --instance X --arena 1M
refused 2 'ip' weir-dataplane "${eal[@]}" -- --instance X --nic roce:net_null0,ip=10.0.0.300/24
refused 2 'ip' weir-dataplane "${eal[@]}" -- --instance X --nic roce:net_null0
refused 2 'colour' weir-dataplane "${eal[@]}" -- --instance X --nic roce:net_null0,ip=10.0.0.1/24,colour=red
WEIR_ICRC=md5 refused 2 'WEIR_ICRC' weir-dataplane "${eal[@]}" --vdev net_null0 -- --instance X --nic roce:net_null0,ip=10.0.0.1/24
refused 3 'net_absent0' weir-dataplane "${eal[@]}" -- --instance X --nic roce:net_absent0,ip=10.0.0.1/24
refused 3 'no such device' weir-dataplane "${eal[@]}" --vdev net_af_packet0,iface=nosuch -- --instance X --nic roce:net_af_packet0,ip=10.0.0.1/24
refused 3 'needs CAP_NET_RAW' setpriv --inh-caps=-net_raw --bounding-set=-net_raw weir-dataplane "${eal[@]}" --vdev net_af_packet0,iface=lo -- --instance X --nic roce:net_af_packet0,ip=10.0.0.1/24
for files in 8 16 63; do
	refused 3 "$files open files are allowed" bash -c "ulimit -n $files; exec \"\$@\"" - weir-dataplane "${eal[@]}" -- --instance X
done
refused 3 'unknown role' weir-dataplane "${eal[@]}" --vdev net_memif0,role=frog -- --instance X --nic roce:net_memif0,ip=10.0.0.1/24
refused 3 'less memory' weir-dataplane --no-huge -m 99999999 --no-pci --lcores 0@0,1@1 -- --instance X
refused 3 'run directory' weir-dataplane "${eal[@]}" -- --instance X --run-dir /proc/nothing
refused 2 'among the EAL options' weir-dataplane --instance X
refused 2 'stand before' weir-dataplane "${eal[@]}" -- --instance X --no-huge
refused 2 'a number from 1 to 4096' weir-dataplane "${eal[@]}" -- --instance X --links 4097
refused 3 'hugepage' weir-dataplane -m 900000 --no-pci --lcores 0@0,1@1 -- --instance X
refused 2 'lcore' weir-dataplane --no-huge -m 128 --no-pci --lcores 0@0 -- --instance X
refused 2 'bogus' weir-control --bogus
refused 2 'peers' weir-control --instance X --node 1 --listen 127.0.0.1:1
echo '1 10.1.2.3:7000 10.0.0.1' >"$weir_tmp/remote"
refused 2 'insecure|tls' weir-control --instance X --node 1 --listen 10.1.2.3:7000 --peers "$weir_tmp/remote"
printf '1 127.0.0.1:7001 10.0.0.1\n2 127.0.0.1 10.0.0.2\n' >"$weir_tmp/broken"
refused 2 'broken:2:|line 2' weir-control --instance X --node 1 --listen 127.0.0.1:7001 --peers "$weir_tmp/broken"
refused 2 '65534' weir-control --instance X --node 65535 --listen 127.0.0.1:7001 --peers "$weir_tmp/remote"
echo '65535 127.0.0.1:7001 10.0.0.1' >"$weir_tmp/many"
refused 2 'many:1:.*65534' weir-control --instance X --node 1 --listen 127.0.0.1:7001 --peers "$weir_tmp/many"
refused 2 'bogus' weir-perf --bogus
refused 2 'bogus' weirctl --bogus
refused 2 'elephants' weirctl --instance X show elephants
refused 1 'data plane' weirctl --instance X show nodes
refused 1 'data plane' weir-perf --instance X node:1 -t lat

two_nodes_memif
server B
await grep -q '; 1 peer$' "$weir_tmp/control-A.log" || fail "one peer: $(last_line control-A)"
refused 2 'address' weir-perf --instance A nowhere:at:all:0 -t lat
refused 1 'node|reach|member' weir-perf --instance A node:77 -t lat
refused 2 'address' weir-perf --instance A node:65535 -t lat
refused 1 'reach|member' weir-perf --instance A lid:12 -t lat
refused 2 'service name' weir-perf --instance A --service bad/name
refused 1 'net_ring' weir-perf --instance A --loop -t lat
refused 1 'refused|service' weir-perf --instance A node:2:nobody -t lat
refused 1 'node|reach|member' weir-perf --instance A 10.9.9.9 -t lat
refused 3 'runs|instance' weir-dataplane "${eal[@]}" -- --instance A
refused 3 'runs|instance' weir-control --instance A --node 1 --listen 127.0.0.1:1 --peers "$weir_tmp/peers"
if id nobody >/dev/null 2>&1; then
	refused 3 '(permission denied; run as root, or add|hugepage)' setpriv --reuid nobody --regid nogroup --clear-groups \
		env XDG_RUNTIME_DIR=/tmp RUNTIME_DIRECTORY=/tmp "$(command -v weir-dataplane)" --file-prefix "weir-bad-$$" --no-pci --lcores 0@0,1@1 -- --instance X --run-dir /tmp/weir-bad-$$
	rm -rf "/tmp/dpdk/weir-bad-$$" "/tmp/weir-bad-$$"
	rmdir /tmp/dpdk 2>/dev/null
	chmod 711 "$weir_tmp" "$WEIR_RUN_DIR" "$WEIR_RUN_DIR/A"
	chmod 600 "$weir_tmp/peers"
	refused 3 'let this user read it' setpriv --reuid nobody --regid nogroup --clear-groups "$(command -v weir-control)" --instance X --node 1 --listen 127.0.0.1:1 --peers "$weir_tmp/peers"
	refused 3 'permi' setpriv --reuid nobody --regid nogroup --clear-groups env LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}" weir-perf --instance A node:2 -t lat
fi
# Nonsense on the control port, from many at once.
for _ in $(seq 1 20); do
	{ exec 9<>"/dev/tcp/127.0.0.1/${weir_port[1]}" && head -c 20000 /dev/urandom >&9; exec 9>&-; } 2>/dev/null
done
exec 9<>"/dev/tcp/127.0.0.1/${weir_port[2]}" && printf '\xff\xff\xff\x7f' >&9
weir-perf --instance A node:2 -t lat -s 64 -n 100 --verify >/dev/null 2>"$weir_tmp/perf.log" || fail "after nonsense on the control port: $(cat "$weir_tmp/perf.log")"
weirctl --instance A wait up --timeout "$patience" >/dev/null || fail "control did not survive nonsense"
exec 9>&-
