#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-control --metrics: every line is what Prometheus takes, many ask at once, nobody keeps others from
# asking, and a data plane that is dead is told so.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

peers 1=10.79.0.1
dataplane A 0 "net_ring0" "roce:net_ring0,ip=10.79.0.1/24"
port=$(free_port)
run control-A weir-control --instance A --node 1 --listen "127.0.0.1:${weir_port[1]}" --peers "$weir_tmp/peers" \
	--metrics "127.0.0.1:$port" --cluster test
up A
scrape() { # FILE
	curl -sf --max-time "$patience" "http://127.0.0.1:$port/metrics" >"$1"
}
value() { # SERIES
	scrape "$weir_tmp/now" && S=$1 awk 'index($0, ENVIRON["S"] " ") == 1 {print $NF}' "$weir_tmp/now"
}

run perf weir-perf --instance A
await grep -q serving "$weir_tmp/perf.log" || die "weir-perf doesn't serve"
weir-perf --instance A node:1 --loop -t rate -s 64 -n 1000 --no-calibrate >/dev/null || fail "no traffic"

scrape "$weir_tmp/text" || die "no metrics"
awk -v q='"' '
	function bad(why) { print FILENAME ":" FNR ": " why ": " $0; failed = 1 }
	/^# HELP [a-z_0-9]+ ./ { help[$3]++; next }
	/^# TYPE [a-z_0-9]+ (counter|gauge)$/ {
		if (type[$3]) bad("a type twice")
		if (!help[$3]) bad("no help")
		if ($4 == "counter" && $3 !~ /_total$/) bad("a counter without _total")
		if ($4 == "gauge" && $3 ~ /_total$/) bad("a gauge with _total")
		family = $3; type[$3] = $4; next
	}
	{
		line = $0
		if (!match(line, /^weir_[a-z0-9_]+/)) { bad("no name"); next }
		name = substr(line, 1, RLENGTH); line = substr(line, RLENGTH + 1)
		if (name != family) bad("not in its family " family)
		if (sub(/^\{/, "", line))
			do {
				if (!match(line, /^[a-z_]+="([^"\\\n]|\\["\\n])*"/)) { bad("label"); next }
				line = substr(line, RLENGTH + 1)
				comma = sub(/^,/, "", line)
			} while (comma)
		sub(/^\}/, "", line)
		if (line !~ /^ [0-9]+(\.[0-9]+)?$/) bad("value")
		series = $0; sub(/ [^ ]*$/, "", series)
		if (seen[series]++) bad("twice")
		n++
	}
	END { if (n < 100) { print n " series are few"; failed = 1 } exit failed }
' "$weir_tmp/text" || fail "no text for Prometheus"
[ "$(value weir_up)" = 1 ] || fail "weir_up"
grep -q '^weir_session_connections{session="0",name="weir-perf"} ' "$weir_tmp/text" || fail "no programs"
[ "$(value 'weir_engine_tx_messages_total{engine="0"}')" -ge 1000 ] || fail "no messages"
[ "$(value 'weir_node_state{node="1",state="up"}')" = 1 ] || fail "node 1 isn't up"
[ "$(value 'weir_port_rx_frames_total{port="net_ring0",engine="0"}')" -gt 0 ] || fail "no frames"
grep -qF 'weir_info{cluster="test",node="1",version="' "$weir_tmp/text" || fail "weir_info"

# invalid requests
code() { # CURL-ARGUMENT...
	curl -s -o /dev/null --max-time "$patience" -w '%{http_code}' "$@"
}
[ "$(code "http://127.0.0.1:$port/")" = 404 ] || fail "/ is there"
[ "$(code -X POST -d x "http://127.0.0.1:$port/metrics")" = 405 ] || fail "POST is taken"
[ "$(code -H "X: $(printf '%05000d' 1)" "http://127.0.0.1:$port/metrics")" = 431 ] || fail "a long request is taken"
[ "$(code -I "http://127.0.0.1:$port/metrics")" = 200 ] || fail "HEAD"

# forty who connect and say nothing, and twelve who ask at once
silent=()
for _ in $(seq 40); do
	exec {fd}<>"/dev/tcp/127.0.0.1/$port" || fail "no connection"
	silent+=("$fd")
done
for i in $(seq 12); do
	scrape "$weir_tmp/many.$i" &
	asks[i]=$!
done
for i in $(seq 12); do
	wait "${asks[i]}" || fail "question $i has no answer"
	grep -q '^weir_up 1$' "$weir_tmp/many.$i" || fail "answer $i lacks weir_up"
done

[ "${#silent[@]}" = 40 ] || fail "not all were silent"
stop dataplane-A KILL
down() { [ "$(value weir_up)" = 0 ]; }
await down || fail "a dead data plane is up"
[ "$(grep -vc '^#' "$weir_tmp/now")" = 2 ] || fail "a dead data plane says $(cat "$weir_tmp/now")"
weir-control --instance B --node 1 --listen 127.0.0.1:0 --peers "$weir_tmp/peers" --metrics 0.0.0.0:9 2>"$weir_tmp/open.log"
[ $? = 2 ] || fail "metrics for everybody without --insecure"
grep -q "'0.0.0.0:9' is not a loopback address" "$weir_tmp/open.log" || fail "it says $(cat "$weir_tmp/open.log")"
exit 0
