/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer - plays mmd for libclient, over a real socket, real regions and pages of the software GPU
 *
 * Concept:   A thread accepts one connection, shakes hands as `welcome` says, takes requests off
 *            the ring into a log, and answers those that want a REPLY (unless `manual`). What else
 *            mmd does, the test does itself, step by step: pages, table, events, gates. So a test
 *            reads as the protocol does, and may break it anywhere.
 * Ownership: struct peer owns everything; peer_stop() checks nothing and frees all.
 * Threading: the test's thread; the peer's own thread shares the log and the ring under `lock`.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/ipc/region.h"
#include "libclient/ipc/ring.h"
#include "mm/client.h"
#include "mm/gpu.h"

#define PEER_PAGE_BYTES UINT64_C(65536)
#define PEER_PAGES      24
#define PEER_LOG        512
#define PEER_LAYERS     4 /* groups of the model that peer_store() makes, of one page each */

struct peer {
	struct mm_gpu_api gpu;
	CUdevice device;
	CUcontext context;
	CUmemGenericAllocationHandle page[PEER_PAGES];
	CUdeviceptr page_va[PEER_PAGES];

	/* a test may change it before the client connects */
	struct mm_welcome welcome;
	uint64_t welcome_tail[8]; /* what a later version of mmd might add */
	size_t welcome_bytes;
	int welcome_fds;
	bool welcome_silent;
	bool welcome_unsealed;
	unsigned int hang_ups; /* connections that are ended without a welcome, at first */
	bool again;            /* accepts another connection after one without a request */
	bool several;          /* several devices: a first hello without one is refused */
	uint32_t cold_classes; /* that it answers to COLD_OPEN; 0: the right ones */
	bool beats;            /* writes its beat when it looks for requests */
	bool manual;           /* no automatic replies; may be set while no request is under way */

	void (*on_request)(struct peer *peer, const struct mm_msg *msg); /* in the peer's thread */

	char dir[40];
	char path[64];
	char model_dir[64];
	int listener;
	int sock;
	int stop_fd;
	pthread_t thread;
	struct mm_region tenant_region, mmd_region, gate_region;
	struct mm_tenant_region *tenant;
	struct mm_mmd_region *mmd;
	struct mm_gate_region *gates;
	struct mm_hello hello, hello_first;
	uint64_t seq;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct mm_ring sq, cq;
	bool connected, ended;
	size_t n_log;
	struct mm_msg log[PEER_LOG];
};

/* Sets the environment of the software GPU; called first in the process. */
void peer_environment(void);
struct peer *peer_start(void);
struct peer *peer_stop(struct peer *peer);

/* Before the client connects: makes the three regions anew, of these sizes. */
void peer_regions(struct peer *peer, const size_t bytes[3]);

/* Options with which mm_client_open() connects to the peer. */
struct mm_client_opts peer_client_opts(const struct peer *peer);

/*
 * Waits for the oldest request of that kind and takes it out of the log; fails the test after 10
 * s.
 */
struct mm_msg peer_expect(struct peer *peer, enum mm_op op);
/* Fails the test if a request of that kind comes within @ms. */
void peer_absent(struct peer *peer, enum mm_op op, unsigned int ms);
void peer_event(struct peer *peer, const struct mm_msg *msg);
/* Waits until the client has handled all events so far. */
void peer_drained(struct peer *peer);
void peer_bell(struct peer *peer);
/* Waits until the handshake has ended on the peer's side too. */
void peer_await_connection(struct peer *peer);
void peer_disconnect(struct peer *peer);

/* Sends fds as one batch; peer_pages() also waits for its acknowledgement and checks it. */
void peer_batch(struct peer *peer, const struct mm_fd_batch *batch, const int *fds, size_t n_fds);
void peer_pages(struct peer *peer, const uint32_t *ids, uint32_t n);
int peer_export(struct peer *peer, uint32_t page);
void peer_map(struct peer *peer, uint32_t entry, uint32_t page_plus_1);
void peer_fill(struct peer *peer, uint32_t page, uint8_t value);
uint8_t peer_byte(struct peer *peer, uint32_t page);
/* Releases the peer's own handle of a page. */
void peer_drop_page(struct peer *peer, uint32_t page);
void peer_gate(struct peer *peer, uint32_t layer, uint64_t word);

/* A store with PEER_LAYERS layers and a resident group; an fd that the caller owns. */
int peer_store(uint64_t *ret_bytes);

/* Does mmd's part of loading a model, for a client in mm_model_load(). */
int peer_open_channel(struct peer *peer);
void peer_take_files(int channel, unsigned int *ret_files);
/* Receives one message; its fd, which all but the end have, is closed. */
void peer_take_file(int channel, struct mm_load_file *ret_file);
/* Receives the files, exactly @n rules and the end. */
void peer_take_packs(int channel, struct mm_load_pack *ret_rules, size_t n);
void peer_load_status(int channel, int result, const char *text);
/* @args are those of MM_EV_MODEL_LOADED; @fd is closed. */
void peer_send_store(struct peer *peer, const uint64_t args[3], int fd);
void peer_place_model(struct peer *peer);
/* The same, up to the first plan; MM_EV_MODEL_READY is still to be sent. */
void peer_map_model(struct peer *peer);
