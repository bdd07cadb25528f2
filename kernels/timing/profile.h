/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile - what a device can do, as numbers: the ground under the timed software GPU and mmsim
 *
 * Concept:    a data file, "key = value" lines with # comments that say where each number is from.
 *             Documentation/timing.md says what the numbers mean and what is left out.
 * Ownership:  a plain value.
 * Invariants: from mm_profile_load(): every number is finite and within the limits of its key, so
 *             times computed from it neither divide by zero nor overflow.
 * Threading:  pure, but for reading the file.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MM_PROFILE_ERROR_BYTES 512u

struct mm_profile {
	char name[64]; /* file name without .conf */
	uint64_t memory_bytes;
	double hbm_bps; /* bytes/s, as the data sheet says */
	double h2d_bps; /* bytes/s as measured: there is no efficiency on top */
	double d2h_bps;
	double duplex_loss; /* part of each direction's rate that is lost while both are busy */
	double f16_flops;   /* FLOP/s of dense fp16 products, as the data sheet says */
	double mem_efficiency,
		flop_efficiency; /* parts of hbm_bps and f16_flops that kernels reach */
	uint64_t kernel_ns;      /* least time that a kernel occupies the device */
	uint64_t copy_ns;        /* least time that a copy occupies its engine */
	uint64_t launch_ns; /* of the calling thread, for each piece of work put into a stream */
	uint64_t create_ns, map_ns, set_access_ns, unmap_ns; /* calls, per handle or mapping */
	uint64_t release_ns, import_ns, export_ns;
};

/**
 * mm_profile_load() - read and check a profile
 * @spec: NAME, or a path (it contains a '/'); then, optionally, ",key=value" that replace what the
 *        file says, for sensitivity runs: "gh200-96,h2d_gbps=300"
 * @ret:  written only on success
 * @err:  gets one sentence that names what and where
 * @err_bytes: MM_PROFILE_ERROR_BYTES is enough
 *
 * A NAME is looked for as NAME.conf in ../share/mmd/profiles, as seen from the program or library
 * that this is linked into. Return: 0; -EBADMSG not such a file, or a bad override; -ENOENT, and
 * what profiles there are; other negative errno of the file.
 */
int mm_profile_load(const char *spec, struct mm_profile *ret, char *err, size_t err_bytes);

/**
 * mm_profile_share() - a part of a device, as MIG gives
 * @profile: changed: memory, rates of memory, links and computation become @part of what they were
 * @part:    above 0, at most 1
 */
void mm_profile_share(struct mm_profile *profile, double part);
