/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timed - `mmbench serve --profile …`: the real daemon and engines on a device that keeps time
 *
 * Concept:   The case, flags and JSON are those of mmsim (tools/lab/workload), but nothing except
 *            the device is simulated: mmd, one mmserve per tenant, their rings and sockets are
 *            real. Models are sparse files; kernels and copies take the profile's time and touch no
 *            memory. A second of the device takes `dilation` seconds of the host, so that the
 *            host's own work weighs less by that factor. Times are reported in the device's
 *            seconds, from its time stamps. Under MIG tenants share nothing, so they run one after
 *            the other, each with a device of its own.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/workload/options.h"

struct mm_timed_opts {
	struct mm_wl_opts wl; /* settled */
	uint64_t dilation;
	const char *keep_dir; /* NULL: a temporary folder */
};

extern const struct mm_opt
	mm_timed_options[]; /* of struct mm_timed_opts, those that are not wl's */

/* Runs `mmbench serve --profile`. Return: the exit status. */
int mm_bench_timed(const struct mm_timed_opts *opts);
