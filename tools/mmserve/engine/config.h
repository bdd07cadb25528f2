/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config - reads what a model is from its config.json
 *
 * Concept:    the Llama, Qwen 2 and OPT families as Hugging Face describes them. A model that needs
 *             arithmetic which mmserve does not have (another architecture, activation, bias, RoPE
 *             scaling) is refused by name rather than computed wrongly.
 * Ownership:  a plain value.
 * Threading:  none; the caller's.
 */
#pragma once

#include "libclient/model/arch.h"

#define MM_SERVE_ERROR_BYTES 4608 /* holds a path and a sentence */

/**
 * mm_serve_open() - open a model's file for reading
 * @path:    path of the file
 * @ret_why: written on failure: the end of a sentence, valid until the next error
 *
 * Opens regular files only, as a FIFO or a device could block for ever.
 * Return: an fd; negative errno.
 */
int mm_serve_open(const char *path, const char **ret_why);

/**
 * mm_config_load() - read and check DIR/config.json
 * @dir:      folder of the model
 * @ret_arch: written only on success
 * @err:      gets the sentence of a failure; MM_SERVE_ERROR_BYTES
 *
 * Return: 0; -ENOENT and the like; -EBADMSG malformed; -ENOTSUP a model that mmserve cannot
 * compute.
 */
int mm_config_load(const char *dir, struct mm_arch *ret_arch, char *err);
