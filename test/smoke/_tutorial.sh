# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The blocks of docs/tutorial.md. Sourced after _init.sh.

# blocks LANGUAGE: those of the document, a line with their number before each.
# shellcheck disable=SC2154 # of _init.sh
blocks() {
	awk -v language="$1" '
		/^```/ && open { open = 0; next }
		$0 == "```" language { open = 1; print "# block " ++n; next }
		/^```/ { open = "other"; next }
		open == 1' "$weir_root/docs/tutorial.md"
}

# tutorial_programs DIR: saves the C programs in DIR under the names in their first lines.
tutorial_programs() {
	local program
	mkdir -p "$1/own"
	blocks c | awk -v dir="$1" '
		/^# block / { file = ""; next }
		file == "" { file = dir "/" $2; sub(/:$/, "", file) }
		{ print > file }'
	for program in guestbook guest; do
		[ -s "$1/own/$program.c" ] || die "the tutorial has no own/$program.c"
	done
}
