/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate - whether layers away would pay for one model on a device that need not be there
 *
 * Concept:   One model alone, with more requests than its KV cache holds. What a step computes
 *            comes from the device's profile (kernels/timing, tools/lab/stepcost), what it is with
 *            layers away from the controller's own arithmetic (mmd/core/plan/plan.h), and how many
 *            are to be away from the market's choice (mmd/core/market/value.h).
 * Ownership: plain values.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/timing/profile.h"
#include "libclient/model/arch.h"

struct mmctl_estimate {
	struct mm_arch arch;
	struct mm_profile profile;
	uint64_t pool_bytes, page_bytes;
	uint32_t context; /* tokens of a request */

	/* Follows from these. */
	uint64_t layer_bytes, resident_bytes, weight_bytes, request_bytes;
	uint64_t layer_pages, weight_pages, pool_pages;
	uint64_t transfer_ns;        /* of a layer */
	uint32_t away_one, away_two; /* the most layers that can be away, with one slot, with two */
};

/* A number of layers away, at the requests that then fit. */
struct mmctl_estimate_point {
	uint32_t away, slots;
	uint32_t requests; /* at once */
	uint64_t step_ns;
	double tokens; /* per second */
	double link;   /* part of the link's time */
};

struct mmctl_estimate_row {
	uint32_t batch;                     /* requests that want to run at once */
	struct mmctl_estimate_point home;   /* none away */
	struct mmctl_estimate_point chosen; /* as mmd would choose */
	uint32_t hidden;    /* the most layers away that make no step longer, at home's requests */
	double hidden_gbps; /* of the link: one layer away would make no step longer */
};

/* Fills in what follows. Returns NULL; else a sentence why nothing can be said. */
const char *mmctl_estimate_begin(struct mmctl_estimate *e);
/* @batch: at least 1. */
void mmctl_estimate_row(const struct mmctl_estimate *e, uint32_t batch,
			struct mmctl_estimate_row *ret_row);
