#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A link that is down for a second stops traffic; up again resumes it: nothing lost, nothing reset.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes_veth 1500
serve sink probe B sink s
run send probe A send node:2:s 60000 5 20
await grep -q 'received 10000' "$weir_tmp/sink.log" || die "nothing arrives"
ip -n "$weir_ns_a" link set vethA down
read -rt 1 <> <(:) || true
before=$(grep -c received "$weir_tmp/sink.log")
ip -n "$weir_ns_a" link set vethA up
patience=200 await grep -q 'end' "$weir_tmp/sink.log" || die "did not resume; $before"
grep -q 'end -108 after 60000' "$weir_tmp/sink.log" || fail "sink: $(last_line sink)"
await grep -q 'end 0 after 60000' "$weir_tmp/send.log" || fail "sender: $(last_line send)"

# the port reports state and number of changes, and logs each
port_is() {
	weirctl --instance A --json show ports | jq -e ".[0] | .link == \"$1\" and .link_changes % 2 == $2"
}
await port_is up 0 || fail "up is not noticed: $(weirctl --instance A --json show ports)"
ip -n "$weir_ns_a" link set vethA down
await port_is down 1 || fail "down is not noticed: $(weirctl --instance A --json show ports)"
ip -n "$weir_ns_a" link set vethA up
await port_is up 0 || fail "up is not noticed again: $(weirctl --instance A --json show ports)"
changes=$(weirctl --instance A --json show ports | jq '.[0].link_changes')
for state in down up; do
	lines=$(log_of dataplane-A | grep -c "port net_af_packet0: link is $state")
	[ $((2 * lines)) = "$changes" ] || fail "$changes changes, $lines lines of the log that it is $state"
done
