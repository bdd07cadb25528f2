#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# exports.sh LIBRARY HEADER: the library exports exactly the functions that the header declares.
set -eu
have=$(nm -D --defined-only "$1" | awk '{ print $3 }' | sort)
want=$(grep -o '^MM_API .*' "$2" | grep -o 'mm_[a-z_]*(' | tr -d '(' | sort -u)
if [ "$have" != "$want" ]; then
	echo "$1 exports:" $have
	echo "$2 declares:" $want
	exit 1
fi
