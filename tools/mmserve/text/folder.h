/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder - what a model's folder says about its outputs, besides its tokenizer
 *
 * Concept:    the tokens that end an output, as generation_config.json has them, else config.json;
 *             and whether the model has a template for chats, which is a program in Jinja.
 * Ownership:  plain values.
 * Threading:  none; the caller's.
 * Trust:      the files may say anything; what is no token id is left out.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Reads the end tokens below @vocab into @ret_ids, @max at most. Return: how many. */
uint32_t mm_folder_ends(const char *dir, uint32_t vocab, uint32_t *ret_ids, uint32_t max);

bool mm_folder_has_template(const char *dir);

/* Return: the last part of the path, without slashes at its end; it is in @out. */
const char *mm_folder_name(const char *dir, char *out, uint32_t out_bytes);
