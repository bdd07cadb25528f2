/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/gate.h"

#include <sys/mman.h>
#include <unistd.h>

#define gpu (&conf.gpu)

void gate_keeper_begin(struct gate_keeper *k, int sock)
{
	int fd;

	*k = (struct gate_keeper){ 0 };
	conf_context();
	k->page = conf_receive_shared(sock, PAGE, &k->page_va);
	check(conf_recv(sock, &fd) == 2);
	k->mem = conf_reserve(conf.granule);
	conf_map(k->mem, conf.granule, conf_import(fd), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	k->numbers = conf_shared(PAGE, NULL);
	conf_register(k->numbers, PAGE, 0);
	k->stream = conf_stream();
}

bool gate_keeper_serve(struct gate_keeper *k, unsigned int layer)
{
	uint32_t *number = &k->numbers[layer * LINE / sizeof(*k->numbers)];
	uint64_t gate = load(line(k->page, layer));

	if ((gate & 0xffffffff) != DONE)
		return false;
	check(gate >> 32 == (uint64_t)(layer + 2) << 2);
	/* A 32-bit store: the high half is not ours. */
	__atomic_store_n((uint32_t *)line(k->page, layer), (uint32_t)EMPTY, __ATOMIC_RELEASE);
	*number = ++k->next[layer];
	ok(gpu->cuMemcpyHtoDAsync(k->mem + layer * LINE, number, 4, k->stream));
	ok(gpu->cuStreamWriteValue32(k->stream, k->page_va + layer * LINE, (cuuint32_t)READY, 0));
	return true;
}

void gate_keeper_start(const struct conf_peer *peer, void *page, int fd,
		       CUmemGenericAllocationHandle h)
{
	for (unsigned int l = 0; l < GATE_LAYERS; l++)
		store(line(page, l), (uint64_t)(l + 2) << 34 | DONE);
	conf_send(peer->sock, 1, fd);
	close(fd);
	fd = conf_export(h);
	conf_send(peer->sock, 2, fd);
	close(fd);
}
