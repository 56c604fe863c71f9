# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154,SC2016
# Sourced by bench.sh: the set peers, Weir beside the message layers that programs use today. The same work
# (test/bench/peers) runs over each in turn; a figure is Weir's value against that of the best other layer.

PEER_PACKAGES=(libucx-dev ucx-utils libopenmpi-dev openmpi-bin libmpich-dev mpich libfabric-dev libzmq3-dev)
PEER_LAYERS=(weir socket zmq ucx openmpi mpich fabric)
PEER_WORK=("lat 8" "lat 64" "bw 64" "bw 4096" "bw 65536" "bw 1048576" "bw 16777216")
declare -A PEER_NAME=(["lat 8"]=lat_8 ["lat 64"]=lat_64 ["bw 64"]=rate_64 ["bw 4096"]=bw_4k ["bw 65536"]=bw_64k
	["bw 1048576"]=bw_1m ["bw 16777216"]=bw_16m)

# peer_flags LAYER: what the compiler and linker need, or nothing where the layer's package is missing.
peer_flags()
{
	case "$1" in
	weir) echo "-Ilib/include -L$WEIR_BUILD/lib -lweir -Wl,-rpath,$WEIR_BUILD/lib" ;;
	socket) echo "-pthread" ;;
	zmq) pkg-config --cflags --libs libzmq ;;
	ucx) pkg-config --cflags --libs ucx ;;
	openmpi) pkg-config --cflags --libs ompi-c ;;
	mpich) pkg-config --cflags --libs mpich ;;
	fabric) pkg-config --cflags --libs libfabric ;;
	esac 2>/dev/null
}

# Compiles peer-LAYER into $weir_tmp for each layer that is there; sets layers.
build_peers()
{
	local layer flags source

	layers=()
	for layer in "${PEER_LAYERS[@]}"; do
		source=$layer
		case "$layer" in openmpi | mpich) source=mpi ;; esac
		flags=$(peer_flags "$layer")
		# shellcheck disable=SC2086
		if [ -n "$flags" ] && cc -std=gnu11 -O2 -Itest/bench/peers -o "$weir_tmp/peer-$layer" \
			test/bench/peers/peers.c "test/bench/peers/$source.c" $flags 2>"$weir_tmp/cc.log"; then
			layers+=("$layer")
		else
			echo "peers: $layer is missing; --install installs ${PEER_PACKAGES[*]}" >&2
		fi
	done
}

# peer LAYER WHERE WORK: one run; prints microseconds, messages per second or GB/s.
peer()
{
	local layer=$1 where=$2 value
	# shellcheck disable=SC2206
	local -a work=($3) launch=() env=()

	case "$layer-$where" in
	openmpi-*)
		env=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
		launch=(mpirun.openmpi --oversubscribe -np 2)
		[ "$where" = host ] || launch+=(--mca pml ob1 --mca btl "tcp,self" --mca btl_tcp_if_include lo)
		;;
	mpich-host) launch=(mpirun.mpich -np 2) ;;
	mpich-nodes)
		env=(MPIR_CVAR_NOLOCAL=1 "UCX_TLS=tcp,self" UCX_NET_DEVICES=lo)
		launch=(mpirun.mpich -np 2)
		;;
	ucx-host) env=("UCX_TLS=posix,sysv,cma,self") ;;
	ucx-nodes) env=("UCX_TLS=tcp,self" UCX_NET_DEVICES=lo) ;;
	esac
	value='.bytes_per_s / 1e9'
	case "$3" in lat*) value=.us ;; "bw 64") value='.msgs_per_s / 1e6' ;; esac
	env "${env[@]}" timeout 60 "${launch[@]}" "$weir_tmp/peer-$layer" "${work[@]}" 0.5 "$where" 2>"$weir_tmp/perf.log" |
		jq -e "$value" || { echo "peers: $layer failed: $(tail -n 1 "$weir_tmp/perf.log")" >&2; return 1; }
}

# peer_figure WHERE WORK: as many turns as runs, all layers in each.
peer_figure()
{
	local where=$1 name=peers_$1_${PEER_NAME[$2]} best=max ratio='$weir / $best' unit=GB/s layer value turn
	local turns=$weir_tmp/turns.json target=1

	case "$1 $2" in # on one host; a round trip in 0.55 of the time is 1.82 x
	"host lat"*) target=1.82 ;;
	"host bw 64") target=4 ;;
	"host bw 4096" | "host bw 65536") target=2.5 ;;
	"host bw"*) target=1.2 ;;
	esac
	wanted "$name" || return 0
	case "$2" in lat*) best=min ratio='$best / $weir' unit=us ;; "bw 64") unit=M/s ;; esac
	: >"$turns"
	for ((turn = 0; turn < runs; turn++)); do
		for layer in "${layers[@]}"; do
			value=$(peer "$layer" "$where" "$2") || continue
			jq -nc --arg layer "$layer" --argjson turn "$turn" --argjson value "$value" '$ARGS.named' >>"$turns"
		done
	done
	jq -s "group_by(.turn)[] | ([.[] | select(.layer == \"weir\").value][0]) as \$weir
		| ([.[] | select(.layer != \"weir\").value] | $best) as \$best
		| select(\$weir and \$best) | $ratio" "$turns" |
		record "$name" "x the best other layer, by $unit" '>=' "$target" turns "peer-LAYER $2 0.5 $where"
	# the figure keeps the median of each layer
	jq -cs --arg unit "$unit" --slurpfile last <(tail -n 1 "$figures") '
		def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
		$last[0] + {layer_unit: $unit,
			layers: (group_by(.layer) | map({key: .[0].layer, value: (map(.value) | median)}) | from_entries)}' \
		"$turns" >"$weir_tmp/last.json"
	sed -i '$d' "$figures"
	cat "$weir_tmp/last.json" >>"$figures"
}

# The medians of all layers, a row per figure.
peer_table()
{
	jq -r --arg layers "${layers[*]}" '($layers / " ") as $all | select(.layers)
		| [.name + ", " + .layer_unit, (.layers as $l | $all[] | $l[.] // "-" | tostring)] | @tsv' "$figures" |
		awk -F '\t' -v layers="${layers[*]}" 'BEGIN { n = split(layers, l, " "); printf "%-28s", ""
				for (i = 1; i <= n; i++) printf "%9s", l[i]; print "" }
			{ printf "%-28s", $1; for (i = 2; i <= NF; i++) printf "%9s", $i == "-" ? "-" : sprintf("%.3g", $i); print "" }'
}

set_peers()
{
	local where work
	local -a names=() layers=()

	for where in host nodes; do
		for work in "${PEER_WORK[@]}"; do names+=("peers_${where}_${PEER_NAME[$work]}"); done
	done
	any_wanted "${names[@]}" || return 0
	build_peers
	for where in host nodes; do
		[[ -z $only || $only == *,peers_"$where"_* ]] || continue
		if [ "$where" = host ]; then one_node --idle adaptive; else two_nodes_memif "" --idle adaptive; fi
		for work in "${PEER_WORK[@]}"; do
			peer_figure "$where" "$work"
		done
		stop_all
	done
	echo
	peer_table
}
