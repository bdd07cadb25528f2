/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config - what a model is, from its config.json
 *
 * Concept:    the Llama, Qwen 2 and OPT families as Hugging Face describes them. Whatever would
 *             need arithmetic that we do not have (another architecture, activation, bias, RoPE
 *             scaling) is refused by name rather than computed wrongly.
 * Ownership:  a plain value.
 */
#pragma once

#include "libclient/model/arch.h"

#define MM_SERVE_ERROR_BYTES 4608 /* holds a path and a sentence */

/**
 * mm_serve_open() - open a model's file
 * @path:    to be read
 * @ret_why: written where it cannot be: the end of a sentence, valid until the next error
 *
 * Regular files only: to open a FIFO, or a device, could wait for ever.
 * Return: an fd; negative errno.
 */
int mm_serve_open(const char *path, const char **ret_why);

/**
 * mm_config_load() - read and check DIR/config.json
 * @dir:      of the model
 * @ret_arch: written only on success
 * @err:      gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * Return: 0; -ENOENT and the like; -EBADMSG malformed; -ENOTSUP a model that we cannot compute.
 */
int mm_config_load(const char *dir, struct mm_arch *ret_arch, char *err);
