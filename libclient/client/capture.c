/* SPDX-License-Identifier: Apache-2.0 */
/* How captures of the engine and driver calls of the library stay out of each other's way. */
#include "libclient/client/internal.h"

struct mm_capture_mode mm_capture_relax(const struct mm_gpu_api *gpu)
{
	struct mm_capture_mode before = { NULL, CU_STREAM_CAPTURE_MODE_RELAXED };

	if (gpu && gpu->cuThreadExchangeStreamCaptureMode &&
	    !gpu->cuThreadExchangeStreamCaptureMode(&before.mode))
		before.gpu = gpu;
	return before;
}

void mm_capture_restore(struct mm_capture_mode *before)
{
	if (before->gpu)
		before->gpu->cuThreadExchangeStreamCaptureMode(&before->mode);
}
