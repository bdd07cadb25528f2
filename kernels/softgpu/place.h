/* SPDX-License-Identifier: Apache-2.0 */
/* sg_place - what kind of memory an address is, as far as the driver knows when work is put in. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum sg_place {
	SG_PAGEABLE, /* host memory of the program's, or nothing at all */
	SG_DEVICE,   /* inside a reservation; whether it may be touched shows when it is */
	SG_PINNED,
	SG_PINNED_READ_ONLY,
};

enum sg_place sg_place_of(uint64_t va, size_t bytes);
