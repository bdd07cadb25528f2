#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run.sh PROGRAM: runs it on the software GPU under the name of libcuda.so.1, with a device of its
# own; with MM_DRIVER=cuda on whatever libcuda.so.1 this machine has.
set -eu

case "${MM_DRIVER:-software}" in
cuda)
	ldconfig -p | grep -q 'libcuda\.so\.1' || {
		echo "skipped: no libcuda.so.1"
		exit 77
	}
	case "$1" in *-management)
		ldconfig -p | grep -q 'libnvidia-ml\.so\.1' || {
			echo "skipped: no libnvidia-ml.so.1"
			exit 77
		}
		;;
	esac
	exec timeout --kill-after=10 120 "$1"
	;;
esac

dir=$(mktemp -d /dev/shm/mm-foreign-XXXXXX)
trap 'rm -rf "$dir"' EXIT
status=0
MM_SOFTGPU_DIR=$dir MM_SOFTGPU_MEMORY=64M LD_LIBRARY_PATH=$MM_SOFTGPU_CUDA_DIR "$1" || status=$?
[ "$status" = 0 ] || exit "$status"
left=$(find "$dir" -path "*/pages/*" -type f | wc -l)
[ "$left" = 0 ] || {
	echo "run.sh: $left pages left behind"
	exit 1
}
