/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fixture - a peer with a client connected to it, and calls of the client that block
 *
 * A test that needs a call of the client to wait runs it in a thread (struct call) and plays mmd
 * meanwhile in its own.
 */
#pragma once

#include <pthread.h>

#include "tests/unit/libclient/client/peer.h"

struct fixture {
	struct peer *peer;
	struct mm_client *client;
	struct mm_model *model;
	CUstream stream;
};

struct call {
	pthread_t thread;
	struct fixture *f;
	int (*run)(struct call *);
	int result;
	char error[320];
	/* arguments and results, per kind of call */
	struct mm_kv *kv;
	uint32_t chunks;
	uint64_t timeout_ns;
	const char *dir;
	const struct mm_model_opts *opts;
	struct mm_step_info info;
};

int fixture_setup(void **state);       /* connected */
int fixture_setup_model(void **state); /* and with a model */
int fixture_teardown(void **state);
/* Loads the model, also after another one was given back. */
void fixture_load(struct fixture *f);

void call_start(struct call *call, struct fixture *f, int (*run)(struct call *));
int call_join(struct call *call);
int call_load(struct call *call);
int call_want(struct call *call);
int call_step_begin(struct call *call);
int call_step_end(struct call *call);

/* Waits for the next event of the client; fails the test after 10 s or if it is of another kind. */
struct mm_event fixture_event(struct fixture *f, enum mm_event_kind kind);
uint8_t fixture_read(struct fixture *f, CUdeviceptr va);
/* Returns when whoever reads the memory finds the byte, in whatever stream and process. */
void fixture_write(struct fixture *f, CUdeviceptr va, uint8_t byte);

/* Reads a shared word, which the client may change at any time. */
uint64_t shared(const uint64_t *word);
void pause_ms(uint64_t ms);

/* A plan, epoch 2: layers 1 and 3 share page 2. Layer 1 is in the slot. */
void cycle_two(struct fixture *f);
/* mmd's answer to RESYNC: the same plan, layer 1 in the slot. */
void null_change(struct fixture *f, uint64_t epoch);
/* mmd's part in a step: once layer 1 was used, layer 3 is copied in. */
void bring_layer_3(struct fixture *f);
