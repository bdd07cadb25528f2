/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pie - the policy of Pie as its paper has it, for comparison
 *
 * Concept:    Pie (arXiv 2411.09317) swaps whole layers of KV. With m of n layers away, and two
 *             buffers on the device, KV for K(m) = B n / (n - m + 2) blocks fits where B did. m
 *             begins with 0; 3 is the least that gains anything. It rises when blocks ran out and
 *             the link was idle for a layer's part of each of the last steps, and falls after two
 *             steps in a row that waited; a setting with less throughput than the one before it is
 *             left. The paper gives no constants: those of pie.c are ours. With --pie-layers m is
 *             given from the first step on.
 *             It is played with cold blocks: (K(m) - B) n / (n - classes) of them occupy as much of
 *             the device and of the link as m layers of K(m) blocks, within two parts of n; as Pie
 *             does, and nothing else here, each layer's rows go back to the host before others come
 *             (xfer.c). Everything else is as under elastic, with engines that swap.
 * Limits:     one model on a device, as in the paper.
 * Threading:  one thread.
 */
#pragma once

#include "tools/lab/mmsim/sim.h"

/* Is @t's number of cold blocks Pie's matter? */
bool ms_pie_is_on(const struct ms_tenant *t);
/* Return: the cold blocks of the largest m. */
uint32_t ms_pie_entries(const struct ms_tenant *t);
/* A step has ended: chooses m for the next one. */
void ms_pie_stepped(struct ms_tenant *t);
