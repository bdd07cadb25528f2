#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# exports.sh LIBRARY HEADER MAP [HEADER...]: what an engine takes on with libmm-client.
#  - The library exports exactly the functions that the version script MAP lists, sorted, each under its version, and
#    the header declares these. MAP is the only list.
#  - The last version of MAP is the header's MM_CLIENT_ABI_MAJOR and _MINOR, and the soname has that major number.
#  - It needs libc and libjansson and no other library; the loader itself (ld-linux) is in each process.
#  - Its code and constants are smaller than TEXT_MAX bytes.
set -eu
export LC_ALL=C
library=$1 header=$2 map=$3
shift 3
TEXT_MAX=150000
place=$(mktemp -d)
trap 'rm -r "$place"' EXIT
wrong=0

same() { # same WHAT: the two files have and want in $place
	if ! diff -u --label "wanted" --label "$1" "$place/want" "$place/have"; then
		wrong=1
	fi
}

number() { sed -n "s/^#define $1 *\([0-9]*\).*/\1/p" "$header"; }

# name@@VERSION for each line "<tab>name;" of the map.
awk '/^LIBMM_/ { node = $1 } /^\tmm_[a-z0-9_]*;$/ { gsub(/[\t;]/, ""); print $0 "@@" node }' "$map" >"$place/listed"
for node in $(sed 's/.*@@//' "$place/listed" | sort -u); do
	grep "@@$node\$" "$place/listed" | sort -c -u
done

sort "$place/listed" >"$place/want"
nm -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { print $3 }' | sort >"$place/have"
same "exported by $library"

sed 's/@@.*//' "$place/listed" | sort >"$place/want"
cat "$header" "$@" | grep -o '^MM_API .*' | grep -o 'mm_[a-z_]*(' | tr -d '(' | sort -u >"$place/have"
same "declared in $header $*"

major=$(number MM_CLIENT_ABI_MAJOR)
{
	echo "LIBMM_CLIENT_$major.$(number MM_CLIENT_ABI_MINOR)"
	echo "libmm-client.so.$major"
} >"$place/want"
{
	sed -n 's/^\(LIBMM_[^ ]*\) {$/\1/p' "$map" | tail -n 1
	readelf -dW "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p'
} >"$place/have"
same "version and soname of $library"

printf '%s\n' libc libjansson >"$place/want"
readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\.so.*\]/\1/p' | grep -v '^ld-linux' | sort >"$place/have"
same "needed by $library"

text=$(size "$library" | awk 'NR == 2 { print $1 }')
if [ "$text" -ge $TEXT_MAX ]; then
	echo "$library: $text bytes of code and constants; the limit is $TEXT_MAX"
	wrong=1
fi
exit $wrong
