#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Clusters on each fabric: messages between all pairs of nodes; the switch has forwarded and dropped nothing.

# Runs in the cluster: an echo on each node, and a program on each for every other one.
pairs()
{
	local n m work bad=0
	local -a echoes=() asking=()
	work=$(mktemp -d)

	for n in $WEIR_CLUSTER; do
		probe "$n" echo e >"$work/echo-$n" 2>&1 &
		echoes+=($!)
	done
	for n in $WEIR_CLUSTER; do
		for ((m = 0; m < 600; m++)); do
			! grep -q ready "$work/echo-$n" || break
			sleep 0.1
		done
	done
	for n in $WEIR_CLUSTER; do
		for m in $WEIR_CLUSTER; do
			[ "$n" != "$m" ] || continue
			probe "$n" many "node:${m#n}:e" 4 100 >"$work/$n-$m" 2>&1 &
			asking+=($!)
		done
	done
	for n in "${asking[@]}"; do
		wait "$n" || bad=1
	done
	[ "$bad" = 0 ] || tail -n 1 "$work"/n*
	kill "${echoes[@]}"
	wait
	rm -rf "$work"
	return "$bad"
}

if [ "${1:-}" = pairs ]; then
	pairs
	exit
fi
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
export WEIR_BUILD
cluster=$weir_root/scripts/cluster.sh
ls /run/netns >"$weir_tmp/netns" 2>/dev/null

for fabric in switch:3 mesh:3 bridge:3; do
	"$cluster" "${fabric#*:}" --fabric "${fabric%:*}" --report "$weir_tmp/report" -- "$0" pairs >"$weir_tmp/$fabric.log" 2>&1
	code=$?
	if [ "$code" = 3 ] && [ "${fabric%:*}" = bridge ]; then
		echo "no bridge here: $(last_line $fabric)"
		continue
	fi
	[ "$code" = 0 ] || fail "$fabric: $(log_of "$fabric")"
	jq -e --argjson nodes "${fabric#*:}" '.nodes == $nodes and .command_exit == 0 and .failed == [] and .up_s > 0' \
		"$weir_tmp/report" >/dev/null || fail "$fabric: $(cat "$weir_tmp/report")"
	[ "$fabric" != switch:3 ] || jq -e '.switch | (.ports | length == 3 and all(.up and .rx_frames > 400 and .tx_frames > 400 and .full == 0))
		and .addresses == 3 and .moved + .crowded == 0 and .flooded > 0 and (.drops | .runt + .bad_source + .too_long == 0) and .cpu_share_last > 0' \
		"$weir_tmp/report" >/dev/null || fail "the switch: $(jq -c .switch "$weir_tmp/report")"
done

# logs stay, of a data plane that crashes too, which leaves a core dump if the kernel writes any into a file
mkdir "$weir_tmp/kept"
# shellcheck disable=SC2016 # of the cluster's shell
"$cluster" 2 --logs "$weir_tmp/kept" -- sh -c 'pwd; ulimit -c; kill -ABRT "$(cat "$WEIR_RUN_DIR/n1/dataplane.pid")"' \
	>"$weir_tmp/crash.out" 2>"$weir_tmp/crash.log"
[ $? = 1 ] || fail "a data plane that crashed: $(log_of crash)"
[ "$(head -n 1 "$weir_tmp/crash.out")" = "$PWD" ] || fail "the command runs in $(head -n 1 "$weir_tmp/crash.out")"
for name in dataplane-n0 dataplane-n1 control-n1 switch; do
	[ -s "$weir_tmp/kept/$name.log" ] || fail "no log of $name in $(ls "$weir_tmp/kept")"
done
if [ "$(tail -n 1 "$weir_tmp/crash.out")" = unlimited ] && grep -q '^core' /proc/sys/kernel/core_pattern; then
	ls "$weir_tmp/kept"/core* >/dev/null || fail "no core dump in $(ls "$weir_tmp/kept")"
fi

# without a peers file; the exit code is the command's; nothing is left
"$cluster" 3 --join -- sh -c 'exit 7' >"$weir_tmp/seven.log" 2>&1
[ $? = 7 ] || fail "exit code: $(log_of seven)"
"$cluster" 3 --etcd --auto -- weirctl --instance n2 --json show nodes >"$weir_tmp/etcd.out" 2>"$weir_tmp/etcd.log" ||
	fail "the list in etcd: $(log_of etcd)"
jq -e 'length == 3 and all(.state == "up" and (.address | startswith("10.")))' "$weir_tmp/etcd.out" >/dev/null || fail "with etcd: $(cat "$weir_tmp/etcd.out")"
# a signal ends the command, and then the nodes
"$cluster" 2 -- sh -c 'echo runs; exec sleep 600' >"$weir_tmp/signal.out" 2>"$weir_tmp/signal.log" &
ended=$!
await grep -q runs "$weir_tmp/signal.out"
kill -TERM "$ended"
wait "$ended"
[ $? = 143 ] || fail "after SIGTERM: $(log_of signal)"
# not the namespaces of tests that run at the same time
for ns in $(comm -13 "$weir_tmp/netns" <(ls /run/netns 2>/dev/null)); do
	[[ $ns == weir-* && ! -d /proc/${ns##*-} ]] && fail "a namespace is left: $ns"
done

# Bad input.
refused 2 'how many nodes' "$cluster"
refused 2 'a switch has 32 ports' "$cluster" 33
refused 2 'how many nodes' "$cluster" 1
refused 2 "no fabric 'wire'" "$cluster" 3 --fabric wire
refused 2 'mesh is for 2' "$cluster" 9 --fabric mesh
refused 2 "unknown option '--fast'" "$cluster" 3 --fast
refused 2 "no directory '/none'" "$cluster" 3 --logs /none
refused 2 'goes with --join or --etcd' "$cluster" 3 --auto
switch=$WEIR_BUILD/test/tools/weir-switch
refused 2 "weir-switch: invalid value '0' for --queue \(expected " "$switch" --no-huge -- --queue 0
refused 2 "weir-switch: unknown option '--fast'; " "$switch" -- --fast
refused 3 'weir-switch: there is no port; ' "$switch" --no-pci --in-memory --no-huge -m 64 --
refused 3 'weir-switch: no memory for .* frames' "$switch" --no-pci --in-memory --no-huge -m 64 --vdev=net_ring0 -- --queue 65536
