/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_safetensors - the header of a .safetensors file, with every field checked
 *
 * Concept:   8 bytes little-endian header length, then that much JSON: tensor name -> dtype, shape,
 *            data_offsets relative to the end of the header. Files are not trusted: a header may be
 *            truncated, state a wrong length, overlap, overflow or leave holes; all of these are
 *            refused with a sentence that names tensor and reason.
 * Ownership: the table owns its tensors; mm_safetensors_done() accepts zeroed and half-built ones.
 * Threading: none shared.
 * Limits:    header <= 100 MB (as the reference implementation), MM_TENSORS_MAX tensors, rank <= 4,
 *            name < MM_TENSOR_NAME_BYTES, dtypes of libclient/base/dtype.h.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mm/abi.h"

struct mm_st_tensor {
	char name[MM_TENSOR_NAME_BYTES];
	uint32_t dtype; /* enum mm_dtype */
	uint32_t rank;
	uint64_t shape[4];
	uint64_t file_offset; /* from the start of the file */
	uint64_t bytes;
};

struct mm_safetensors {
	struct mm_st_tensor *tensors; /* sorted by name */
	size_t n_tensors;
	uint64_t file_bytes;
};

/**
 * mm_safetensors_read() - parse and check the header of @fd
 * @fd:      a regular file, at any position (pread is used)
 * @ret_st:  written only on success; undo with mm_safetensors_done()
 * @err:     gets the sentence on failure ("tensor x: ends at byte 90, the file has 80")
 *
 * Return: 0; -EBADMSG malformed; -ENOTSUP well-formed, but a dtype or rank that mmd does not serve;
 * -EIO; -ENOMEM.
 */
int mm_safetensors_read(int fd, struct mm_safetensors *ret_st, char *err, size_t err_bytes);
void mm_safetensors_done(struct mm_safetensors *st);

/* The same for the JSON in a buffer; for fuzzers. */
int mm_safetensors_parse(const char *json, size_t json_bytes, uint64_t data_offset,
			 uint64_t file_bytes, struct mm_safetensors *ret_st, char *err,
			 size_t err_bytes);
