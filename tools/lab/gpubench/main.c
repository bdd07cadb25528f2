/* SPDX-License-Identifier: Apache-2.0 */
/* gpubench - measures what the mechanism costs on the device that is there. */
#include "libclient/support/options.h"
#include "tools/lab/gpubench/gpubench.h"

int main(int argc, char **argv)
{
	struct mm_gpu_opts opts;
	int status = mm_gpu_options(argc, argv, &opts);

	if (status >= 0)
		return status;
	if (opts.list)
		mm_gpu_list();
	return mm_gpu_flush(opts.list ? MM_EXIT_DONE : mm_gpu_run(&opts));
}
