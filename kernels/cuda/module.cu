/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels in one image, for nvcc; a C compiler takes each file on its own. */
#include "kernels/cuda/argmax.cu"
#include "kernels/cuda/attention.cu"
#include "kernels/cuda/checksum.cu"
#include "kernels/cuda/flat.cu"
#include "kernels/cuda/gemm.cu"
#include "kernels/cuda/norm.cu"
#include "kernels/cuda/rope.cu"
#include "kernels/cuda/rows.cu"
