/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - small models in Hugging Face's layout, and core and tenant of one load
 *
 * Concept:   A test describes tensors; files are written to a folder of its own, every word of
 *            every tensor a function of the tensor's name and the word's index, so that a store can
 *            be checked without keeping a copy. load runs as a process of its own (this program
 *            again).
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "libclient/ipc/region.h"
#include "libclient/base/base.h"
#include "mmd/common/proto.h"

#define WAIT_S 180 /* generous, for sanitizers on a busy machine */

struct tensor {
	const char *name;
	const char *dtype;
	uint32_t rank;
	uint64_t shape[4];
	uint32_t file; /* 0 .. 9: model-<n>.safetensors */
};

/* A model of three layers in three files. */
#define LLAMA_CONFIG "{\"model_type\":\"llama\",\"architectures\":[\"X\"],\"num_hidden_layers\":3}"
#define LLAMA_FILES  3
extern const struct tensor llama[10];

extern char model_dir[64];

/* Makes model_dir, empty, in @folder. */
void model_dir_make(const char *folder);
/* Removes model_dir with all that is in it; a teardown of cmocka. */
int model_dir_remove(void **state);

/* Limits that the child sets itself before it becomes load. */
#define MODE_PLAIN     "plain"
#define MODE_NO_URING  "no-uring"  /* io_uring is forbidden, as by containers */
#define MODE_NO_DIRECT "no-direct" /* O_DIRECT is refused, as by some file systems */

/* Runs the role instead of the tests if this is the process that load_start() made. */
void model_main(int argc, char **argv);

void model_write_config(const char *text);
/* Writes the files; @pad spaces at the end of each header shift the alignment of the data. */
void model_write(const struct tensor *tensors, size_t n, size_t pad);
/* Writes the index of the files that model_write() makes of @tensors. */
void model_write_index(const struct tensor *tensors, size_t n);
uint64_t tensor_bytes(const struct tensor *tensor);

struct load {
	pid_t pid;
	int core, tenant;
	struct mm_lmsg ident;                    /* the last message of load to core */
	uint64_t group_bytes[MM_LAYERS_MAX + 1]; /* sizes that came with the last IDENT */
	struct mm_load_key key;                  /* that came with the last KEY */
	struct mm_load_status status;            /* the last status to the tenant */
	/* head: only for a store on disk, until load_join() */
	struct mm_region store, head;
	/* file of a store on disk; -1: the store is in memory */
	int file;
};
#define LOAD_NULL                                \
	((struct load){ .core = -1,              \
			.tenant = -1,            \
			.store = MM_REGION_NULL, \
			.head = MM_REGION_NULL,  \
			.file = -1 })

void load_start(struct load *load, const char *mode);
/* Passes an fd (-1: none) under a name, and closes it. Failures are for the test to see. */
int load_pass(struct load *load, uint32_t kind, const char *name, int fd);
/* Passes config.json and the first @n_files files. */
void load_pass_files(struct load *load, uint32_t n_files);
/* As load_pass_files(), and MM_LOAD_END. */
void load_pass_model(struct load *load, uint32_t n_files);
void load_pass_index(struct load *load);
/* A rule with up to four members, NULL behind the last. */
struct mm_load_pack pack_rule(uint32_t flags, const char *name, const char *const member[4]);
void load_pass_rule(struct load *load, const struct mm_load_pack *rule);
/* Receives the next message to core; false: load has gone. */
bool load_receive(struct load *load);
void load_answer(struct load *load, enum mm_lop op, int result, const char *text);
/* Creates the memory and answers ALLOC. */
void load_alloc(struct load *load);
/* The same on disk: memory for the head, a file for the rest. */
void load_alloc_disk(struct load *load);
/* Maps head and file of a store on disk as one store. */
void load_join(struct load *load);
/* Reads status messages up to the last, reaps load. Return: its exit status. */
int load_end(struct load *load);
/*
 * Expects that load's next message refuses the model with the error @want and a text
 * with @needle in it, that the tenant gets the same, and that load ends. @what names the
 * case in a failure. Ends @load.
 */
void load_expect_refusal(struct load *load, const char *what, int want, const char *needle);
void load_done(struct load *load);

/*
 * Checks every tensor of the store: its place as the directory has it, and each word; packs are
 * left out.
 */
void store_check(const struct load *load, const struct tensor *tensors, size_t n);
/* An entry of the store's directory, and its bytes. */
const struct mm_dir_tensor *store_find(const struct load *load, const char *name,
				       const void **ret_bytes);
