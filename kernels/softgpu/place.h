/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_place - what kind of memory an address is, as far as the driver knows when work is put in
 *
 * Concept:   addresses are looked up in the tables of sg_vm and sg_host. Device memory is any
 *            reserved range: whether it may be accessed is found out when the work runs.
 * Threading: safe from any thread; the answer may be out of date when it arrives.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum sg_place {
	SG_PAGEABLE, /* host memory of the program, or no memory at all */
	SG_DEVICE,   /* inside a reservation, mapped or not */
	SG_PINNED,
	SG_PINNED_READ_ONLY,
};

enum sg_place sg_place_of(uint64_t va, size_t bytes);
