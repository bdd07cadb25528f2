#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# exports.sh LIBRARY HEADER LIST: what an engine takes on with libmm-client.
#  - The library exports exactly the functions in LIST, sorted, and the header declares these.
#  - It needs libc and libjansson and no other library; the loader itself (ld-linux) is in each process.
#  - Its code and constants are smaller than TEXT_MAX bytes.
set -eu
export LC_ALL=C
library=$1 header=$2 list=$3
TEXT_MAX=150000
place=$(mktemp -d)
trap 'rm -r "$place"' EXIT
wrong=0

same() { # same WHAT: the two files have and want in $place
	if ! diff -u --label "wanted" --label "$1" "$place/want" "$place/have"; then
		wrong=1
	fi
}

grep -v '^#' "$list" >"$place/want"
sort -c -u "$place/want"
nm -D --defined-only "$library" | awk '{ print $3 }' | sort >"$place/have"
same "exported by $library"
grep -o '^MM_API .*' "$header" | grep -o 'mm_[a-z_]*(' | tr -d '(' | sort -u >"$place/have"
same "declared in $header"

printf '%s\n' libc libjansson >"$place/want"
readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\.so.*\]/\1/p' | grep -v '^ld-linux' | sort >"$place/have"
same "needed by $library"

text=$(size "$library" | awk 'NR == 2 { print $1 }')
if [ "$text" -ge $TEXT_MAX ]; then
	echo "$library: $text bytes of code and constants; the limit is $TEXT_MAX"
	wrong=1
fi
exit $wrong
