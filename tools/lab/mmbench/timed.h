/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timed - `mmbench serve --profile …`: the real daemon and engines on a device that keeps time
 *
 * Concept:   the same case, flags and JSON as mmsim's (tools/lab/workload), but nothing is
 *            simulated except the device: mmd, one mmserve per tenant, their rings and sockets are
 *            real. Models are sparse files, kernels and copies take the profile's time and touch
 *            nothing. A second of the device takes `dilation` seconds of the host, so that the
 *            host's own work weighs as much less; what is reported are the device's seconds, from
 *            its time stamps. Under MIG nobody shares anything, so tenants run one after the other,
 *            each with a device of its own.
 */
#pragma once

/* @argv[0] is the program. Return: the exit status. */
int mm_bench_timed(int argc, char **argv);
