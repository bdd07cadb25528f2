/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split - how much KV each tenant may have, and what it gives back
 *
 * Concept:   What the layers at target leave is divided: first what each has and keeps, then what
 *            it is entitled to (its share, if it wants that), then what it wants, in proportion to
 *            weights, then room for what it will want next. Where that lacks, empty chunks are
 *            taken, in turns the KV of those that wait, side by side KV beyond shares for those
 *            below theirs.
 * Invariant: who waits for its turn is granted nothing, and never holds more than fits beside its
 *            own layers at its turn.
 * Threading: any.
 */
#pragma once

#include "mmd/core/market/draft.h"

/* Sets keep and level of each row; layers are decided. */
void mm_split_decide(struct mm_draft *d);
