#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Nodes in two networks, and a router of the kernel between them, over IPv4 and over IPv6: ARP and neighbour discovery
# find the gateway, the router finds the nodes, and each frame goes to, or comes from, the router's MAC.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

command -v tcpdump >/dev/null || skip "tcpdump is not installed"
# NODE -> its namespace, number, and network of each family
declare -A ns=([A]=weir-a-$$ [B]=weir-b-$$) number=([A]=1 [B]=2)
declare -A own=([four-A]=10.78.1.1 [four-B]=10.78.2.1 [six-A]=fd00:78:1::1 [six-B]=fd00:78:2::1)
declare -A hop=([four-A]=10.78.1.254 [four-B]=10.78.2.254 [six-A]=fd00:78:1::fe [six-B]=fd00:78:2::fe)
declare -A bits=([four]=24 [six]=64)
router=weir-r-$$
families=(four)
[ ! -d /proc/sys/net/ipv6 ] || families+=(six)

# mac NODE: of the node's end of its wire; router_mac NODE: of the router's.
mac() {
	echo "02:00:00:00:0${number[$1]}:01"
}
router_mac() {
	echo "02:00:00:00:0${number[$1]}:fe"
}

in_router() {
	ip netns exec "$router" "$@"
}

# wire NODE: vethNODE in the node's namespace, toNODE in the router's, which has an address of each family there.
wire() {
	local family
	ip netns add "${ns[$1]}" || die "cannot make a namespace for node $1"
	undo "ip netns del ${ns[$1]}"
	ip link add "veth$1" netns "${ns[$1]}" mtu 1500 type veth peer name "to$1" netns "$router" mtu 1500 ||
		die "cannot make a veth pair"
	ip netns exec "${ns[$1]}" sysctl -qw "net.ipv6.conf.veth$1.disable_ipv6=1"
	ip -n "${ns[$1]}" link set "veth$1" address "$(mac "$1")" up
	ip -n "$router" link set "to$1" address "$(router_mac "$1")" up
	for family in "${families[@]}"; do
		ip -n "$router" addr add "${hop[$family-$1]}/${bits[$family]}" dev "to$1" ||
			die "the router gets no address ${hop[$family-$1]}"
	done
}

sweep_netns
ip netns add "$router" || skip "network namespaces can't be made here"
undo "ip netns del $router"
ip -n "$router" link set lo up
in_router sysctl -qw net.ipv4.ip_forward=1 || die "the router does not forward"
if [[ " ${families[*]} " == *" six "* ]]; then
	# its addresses are used at once, also the link-local ones, from which it asks for nodes
	in_router sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.forwarding=1 ||
		die "the router does not forward IPv6"
fi
wire A
wire B

# node NODE FAMILY GATEWAY-OPTION: its data plane.
node() {
	weir_netns=${ns[$1]} dataplane "$1" $((number[$1] - 1)) \
		"net_af_packet0,iface=veth$1,qdisc_bypass=0,blocksz=65536,framesz=2048,framecnt=512" \
		"roce:net_af_packet0,ip=${own[$2-$1]}/${bits[$2]},$3"
}

# watch_wire NODE: its frames of RoCE, into NODE.pcap.
watch_wire() {
	rm -f "$weir_tmp/tcpdump-$1.log"
	run "tcpdump-$1" ip netns exec "${ns[$1]}" tcpdump -i "veth$1" -s 128 -U -w "$weir_tmp/$1.pcap" udp port 4791
	await grep -q listening "$weir_tmp/tcpdump-$1.log" || die "tcpdump does not listen: $(last_line "tcpdump-$1")"
}

# all_by FRAMES FROM TO MAC MAC: there are frames from one address to the other, all with these MACs.
all_by() {
	local way=" ${2//./\\.}\.[0-9]+ > ${3//./\\.}\.4791: " macs=" $4 > $5, "
	grep -E "$way" "$1" >"$weir_tmp/way.txt" || fail "no frame from $2 to $3: $(head -n 2 "$1")"
	grep -vF "$macs" "$weir_tmp/way.txt" >"$weir_tmp/others.txt" &&
		fail "$(wc -l <"$weir_tmp/others.txt") frames not by$macs: $(head -n 1 "$weir_tmp/others.txt")"
}

# routed NODE OTHER FAMILY: what has passed the node's wire.
routed() {
	local frames=$weir_tmp/$1.txt
	tcpdump -enn -r "$weir_tmp/$1.pcap" >"$frames" 2>"$weir_tmp/$1-read.log" || fail "tcpdump reads nothing: $(last_line "$1-read")"
	all_by "$frames" "${own[$3-$1]}" "${own[$3-$2]}" "$(mac "$1")" "$(router_mac "$1")"
	all_by "$frames" "${own[$3-$2]}" "${own[$3-$1]}" "$(router_mac "$1")" "$(mac "$1")"
	ip -n "$router" neigh show to "${own[$3-$1]}" dev "to$1" | has -F "lladdr $(mac "$1") " ||
		fail "the router does not know node $1: $(ip -n "$router" neigh show dev "to$1" | tr '\n' ';')"
}

for family in "${families[@]}"; do
	peers 1="${own[$family-A]}" 2="${own[$family-B]}"
	watch_wire A
	watch_wire B
	# one has a way to everywhere, the other to this network alone
	network=${own[$family-A]%1}
	[ "$family" = six ] || network=${network}0
	node A "$family" "gw=${hop[$family-A]}"
	node B "$family" "route=$network/${bits[$family]}@${hop[$family-B]}"
	control A 1
	control B 2
	up A B
	for name in A B; do
		rm -f "$weir_tmp/server-$name.log"
		server "$name"
	done
	measured '.verified == true' --instance A node:2 -t lat -s 64,4000,100000 -n 100 --no-calibrate --verify
	measured '.verified == true' --instance B node:1 -t lat -s 64,4000,100000 -n 100 --no-calibrate --verify
	for name in A B; do
		shows $name nodes 'all(.[]; .link != "no way")' || fail "$family: $(weirctl --instance $name show nodes)"
		stop "server-$name"
		stop "control-$name"
		stop "tcpdump-$name" INT
	done
	routed A B "$family"
	routed B A "$family"
	stop dataplane-A
	stop dataplane-B
done
[ "${#families[@]}" = 2 ] || skip "all but IPv6, which this kernel does not have"
exit $weir_failed
