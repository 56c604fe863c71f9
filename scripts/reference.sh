#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# reference.sh DOXYFILE DIR: the library's reference by doxygen in DIR, which is made anew: html/, and man/man3/ with a
# page for each header, function, type and constant.
set -eu
rm -rf "$2"
mkdir -p "$2"
doxygen "$1"
cd "$2/man/man3"
# A header's page is named like its #include; fields of structures have pages, too, under names such as "data".
for header in *.h.3; do
	mv "$header" "weir_$header"
	sed -i "s|^\.so man3/$header\$|.so man3/weir_$header|" ./*.3
done
find . -type f ! -iname 'weir*' -delete
