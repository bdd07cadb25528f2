/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sized - structs that an engine of an older or a later version passes to the library
 *
 * Concept:   every struct of client.h that a caller fills or the library fills begins with `size`,
 *            which the caller sets to its own sizeof. Structs grow at their end only. What the
 *            caller fills is copied: a shorter struct is completed with zeros; in a longer one the
 *            part that this library does not have must be 0. What the library fills is cut to the
 *            caller's size; a part that this library does not have is set to 0. A size that lacks
 *            a field of version 1, or is larger than any struct will be, is -EINVAL: it is most
 *            likely one that was never set.
 *            Version 1 ends with the field that MM_V1_... names, whatever was added behind it.
 * Ownership: none; memory of the caller is used during a call only.
 */
#pragma once

#include <stddef.h>

#include "mm/client.h"
#include "mm/client_cold.h"
#include "mm/gpu.h"

#define MM_SIZED_MAX 4096

#define MM_END_OF(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))

#define MM_V1_CLIENT_OPTS MM_END_OF(struct mm_client_opts, flags)
#define MM_V1_CLIENT_INFO MM_END_OF(struct mm_client_info, plan_held_ns)
#define MM_V1_EVENT       MM_END_OF(struct mm_event, deadline_ns)
#define MM_V1_LOAD_HINT   MM_END_OF(struct mm_load_hint, reserved)
#define MM_V1_PACK        MM_END_OF(struct mm_pack, flags)
#define MM_V1_MODEL_OPTS  MM_END_OF(struct mm_model_opts, pack_size)
#define MM_V1_MODEL_INFO  MM_END_OF(struct mm_model_info, reserved)
#define MM_V1_TENSOR      MM_END_OF(struct mm_tensor, flags)
#define MM_V1_KV_OPTS     MM_END_OF(struct mm_kv_opts, flags)
#define MM_V1_SWAP_DONE   MM_END_OF(struct mm_swap_done, reserved)
#define MM_V1_TURN_OPTS   MM_END_OF(struct mm_turn_opts, quantum_ns)
#define MM_V1_STEP_INFO   MM_END_OF(struct mm_step_info, timed)
#define MM_V1_COLD_OPTS   MM_END_OF(struct mm_cold_opts, reserved)
#define MM_V1_COLD_STATE  MM_END_OF(struct mm_cold_state, pending)
#define MM_V1_GPU_API     MM_END_OF(struct mm_gpu_api, cuLaunchKernel)

/**
 * mm_sized_check() - whether a caller's struct has a size that can be
 * @theirs:   begins with its size; may be NULL
 * @v1_bytes: MM_V1_... of its type
 *
 * Return: 0; -EINVAL.
 */
int mm_sized_check(const void *theirs, size_t v1_bytes);

/**
 * mm_sized_copy_in() - copy what a caller filled, of which the size was checked
 * @theirs:    the caller's
 * @bytes:     of it: its size, or that of an element of its list
 * @own:       receives it; fields that the caller's version lacks become 0
 * @own_bytes: sizeof of this library's version
 *
 * Return: 0; -EINVAL a field is set that this library does not have.
 */
int mm_sized_copy_in(const void *theirs, size_t bytes, void *own, size_t own_bytes);

/**
 * mm_sized_read() - check and copy what a caller filled
 *
 * Return: as mm_sized_check() and mm_sized_copy_in(). @own is written only on success.
 */
int mm_sized_read(const void *theirs, size_t v1_bytes, void *own, size_t own_bytes);

/**
 * mm_sized_write() - fill a caller's struct, of which the size was checked
 * @theirs:    its size stays as it is
 * @own:       this library's version
 * @own_bytes: sizeof of it
 */
void mm_sized_write(void *theirs, const void *own, size_t own_bytes);
