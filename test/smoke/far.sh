#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# NICs in different networks: connecting is refused at once, with both addresses, and operators see why before.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

peers 1=10.91.0.1 2=10.97.0.2
dataplane A 0 "net_memif0,role=server,id=0,bsize=4224,socket=$weir_memif" roce:net_memif0,ip=10.91.0.1/24
dataplane B 1 "net_memif0,role=client,id=0,bsize=4224,socket=$weir_memif" roce:net_memif0,ip=10.97.0.2/24
control A 1
control B 2
up A B
weirctl --instance A wait node:2 --timeout "$patience" || die "node 2 is not up"
serve sink probe B sink s
why='node 2 has 10.97.0.2, which is not in 10.91.0.1/24; give both a port in one network'
await shows A nodes "any(.[]; .id == 2 and .link == \"no way\" and (.link_reason | startswith(\"$why\")))" ||
	fail "show nodes: $(weirctl --instance A show nodes)"
shows A status "any(.[]; .name == \"unreachable\" and (.value | startswith(\"$why\")))" || fail "show status: $(weirctl --instance A show status)"
began=$(now_ms)
probe A send node:2:s 1 24 >"$weir_tmp/send.log" 2>&1 && fail "it connects"
took=$(($(now_ms) - began))
grep -qF "$why" "$weir_tmp/send.log" || fail "the program is told '$(last_line send)'"
# not after the 5 s that a link may take to come up
[ "$took" -lt $((4000 + $(starved dataplane-A))) ] || fail "it is told after $took ms"
shows A links 'length == 0' || fail "a link is tried: $(weirctl --instance A show links)"
exit 0
