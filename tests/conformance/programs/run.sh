#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run.sh PYTHON ARGUMENTS...: pytest by that Python; skipped, with the reason, where it has none.
set -eu

"$1" -c 'import pytest' 2>/dev/null || {
	echo "skipped: $1 has no pytest"
	exit 77
}
python=$1
shift
exec "$python" -m pytest "$@"
