/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile - a device's capabilities as numbers: the basis of the timed software GPU and of mmsim
 *
 * Concept:    a data file, "key = value" lines with # comments that give the source of each number.
 *             Documentation/timing.md explains the numbers and what they leave out.
 * Ownership:  a plain value.
 * Invariants: from mm_profile_load(): every number is finite and within the limits of its key, so
 *             times computed from it neither divide by zero nor overflow.
 * Threading:  pure, but for reading the file.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MM_PROFILE_ERROR_BYTES 512u
#define MM_PROFILE_RHO         0.5 /* where a profile does not state it */

struct mm_profile {
	char name[64]; /* file name without .conf */
	uint64_t memory_bytes;
	double hbm_bps; /* bytes/s of the data sheet */
	double h2d_bps; /* bytes/s as measured; no efficiency is applied */
	double d2h_bps;
	double duplex_loss; /* part of each direction's rate that is lost while both are busy */
	/* Parts by which kernels are longer while the link brings something in, takes it out. */
	double link_slows_in, link_slows_out;
	double rho;       /* part of one tenant's stalls that others do not make use of */
	double f16_flops; /* FLOP/s of dense fp16 products in the data sheet */
	double mem_efficiency,
		flop_efficiency; /* parts of hbm_bps and f16_flops that kernels reach */
	uint64_t kernel_ns;      /* least time that a kernel occupies the device */
	uint64_t copy_ns;        /* least time that a copy occupies its engine */
	uint64_t launch_ns;      /* of the calling thread, per piece of work put into a stream */
	/* Times of calls, per handle or mapping. */
	uint64_t create_ns, map_ns, set_access_ns, unmap_ns;
	uint64_t release_ns, import_ns, export_ns;
};

/**
 * mm_profile_load() - read and check a profile
 * @spec: NAME, or a path (it contains a '/'); then, optionally, ",key=value" that replace values of
 *        the file, for sensitivity runs: "gh200-96,h2d_gbps=300"
 * @ret:  written only on success
 * @err:  gets one sentence with the fault and its place
 * @err_bytes: MM_PROFILE_ERROR_BYTES is enough
 *
 * NAME.conf is looked up in ../share/mmd/profiles, relative to the program or library that contains
 * this code. Return: 0; -EBADMSG not such a file, or a bad override; -ENOENT, and @err lists the
 * profiles that exist; other negative errno of the file.
 */
int mm_profile_load(const char *spec, struct mm_profile *ret, char *err, size_t err_bytes);

/**
 * mm_profile_share() - reduce a profile to a part of the device, like a MIG instance
 * @profile: changed: memory, rates of memory, links and computation are multiplied by @part
 * @part:    above 0, at most 1
 */
void mm_profile_share(struct mm_profile *profile, double part);
