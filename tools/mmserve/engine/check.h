/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check - checks a model's files against its config.json, before anything is loaded
 *
 * Concept:    it finds, from the files' headers alone, everything that mm_weights_bind() would
 *             refuse, and tensors that the files have and the forward pass does not read. Such a
 *             tensor of the decoder means that the model computes something else (a bias, a norm
 *             of heads, a head beside a tied embedding), so it is refused rather than computed
 *             wrongly. Buffers that follow from config.json and heads for other tasks are ignored.
 * Threading:  none; the caller's.
 * Errors:     files that the loader refuses pass here: the loader's sentence is the better one.
 */
#pragma once

#include "libclient/model/arch.h"

/**
 * mm_serve_check_files() - check the files, with the caller's own rights
 * @dir:  folder of the model
 * @arch: from mm_config_load()
 * @err:  gets the sentence of a failure; MM_SERVE_ERROR_BYTES
 *
 * Reads weights only if a tied model has a head of its own, which may equal the embedding.
 * Return: 0, also for files that cannot be read or parsed; -EBADMSG a tensor is missing, has
 * another shape, or contradicts config.json; -ENOTSUP a tensor that the computation does not use;
 * -ENOMEM.
 */
int mm_serve_check_files(const char *dir, const struct mm_arch *arch, char *err);
