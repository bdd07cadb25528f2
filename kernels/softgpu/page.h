/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_page - one piece of device memory, as this process holds it
 *
 * Concept:    "pages" in a device's directory holds one file per living page, named by its inode
 *             number. Every open file description of a page holds a shared flock on it, from before
 *             the file has a name. Duplicates, descriptors in flight and mappings share that
 *             description, so the lock goes when, and only when, the last holder in any process is
 *             gone, however it died: a page that can be locked exclusively belongs to nobody.
 * Ownership:  a page owns its descriptor; mappings of it need no descriptor.
 * Threading:  everything is safe from any thread.
 * Invariants: a page's file is never used for another page.
 */
#pragma once

#include "kernels/softgpu/device.h"

struct sg_page {
	int fd;
	unsigned int device; /* ordinal */
	uint64_t inode;
	size_t bytes;
};
#define SG_PAGE_NULL ((struct sg_page){ .fd = -1 })

/* Charges @bytes to the device, and makes a page of zeros. */
CUresult sg_page_create(unsigned int device, size_t bytes, struct sg_page *ret_page);

/* Duplicates @fd. Return: INVALID_VALUE where it is not a page of one of the open devices. */
CUresult sg_page_adopt(int fd, struct sg_page *ret_page);

/* Return: a duplicate for others to import, or -1. */
int sg_page_export(const struct sg_page *page);

/* Closes this process's descriptor; its mappings must be gone. Accepts SG_PAGE_NULL. */
void sg_page_close(struct sg_page *page);
