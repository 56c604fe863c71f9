# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench.sh and _init.sh
# The set `connections` of bench.sh: many connections, programs and nodes. Sourced by it.

set_connections()
{
	: # its figures come with what they measure
}
