/* SPDX-License-Identifier: Apache-2.0 */
/*
 * footprint - how many device pages a model's weights take, from its files' headers
 *
 * Concept:   mmbench divides what the weights leave of the pool into equal shares, as an operator
 *            with a static split would. The layout is the one that the load role will make, but
 *            only the files' headers are read.
 * Threading: any.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/**
 * mm_footprint() - count the pages of one model
 * @dir:        folder in Hugging Face layout
 * @page_bytes: page size of the pool
 * @ret_pages:  written only on success
 * @errbuf:     on failure, names the file and what is wrong with it
 *
 * Return: 0; as mm_measure_folder().
 */
int mm_footprint(const char *dir, uint64_t page_bytes, uint64_t *ret_pages, char *errbuf,
		 size_t errbuf_bytes);
