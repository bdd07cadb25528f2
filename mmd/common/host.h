/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host - this machine's memory: NUMA nodes and explicit huge pages
 *
 * Concept:   Weights are read by one device over and over, so their pages belong on the node that
 *            the device is attached to. Explicit huge pages exist only if the operator set some
 *            aside; a store gets all of its memory in them, or none.
 * Ownership: descriptors that are returned are the caller's.
 * Threading: none of its own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Nodes are numbered below this; -1 stands for "any node" everywhere. */
#define MM_HOST_NODES_MAX 1024

/* Whether @node has memory that this process may use. */
bool mm_host_node_usable(int node);

/* The node of the PCI device that the driver calls @bus_id ("0000:3B:00.0"); -1 when not known. */
int mm_host_pci_node(const char *bus_id);

/* Prefers @node for the pages of a fresh mapping; -1 = any node. */
void mm_host_prefer(void *base, uint64_t bytes, int node);

enum mm_hugepages { MM_HUGE_AUTO, MM_HUGE_OFF, MM_HUGE_2M, MM_HUGE_1G };

/**
 * mm_host_memfd() - memory for a store, in huge pages where that is wanted and possible
 * @bytes:    not 0
 * @wanted:   AUTO: the largest that wastes at most an eighth and is there
 * @ret_fd:   a memfd that can be sealed; written only on success
 * @ret_host: what it takes of the host's memory: @bytes, rounded up to whole pages
 * @ret_huge: bytes of its huge pages, 0 = of the usual size
 *
 * Huge pages are reserved for it before this returns, so that filling it cannot run out of
 * them; if there are too few it gets usual pages. Return: 0; -ENOMEM, -EMFILE, -EFBIG.
 */
int mm_host_memfd(uint64_t bytes, enum mm_hugepages wanted, int *ret_fd, uint64_t *ret_host,
		  uint64_t *ret_huge);
