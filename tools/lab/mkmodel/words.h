/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words - a tokenizer for models that have no language: each token is a word, t0, t1, t2, ...
 *
 * Concept:    tokenizer.json of type WordLevel and tokenizer_config.json, which Hugging Face's
 *             libraries and mmserve read. Text and ids stand for each other exactly, so that load
 *             generators that send text can be used. A word that is none of these is t0; BOS and
 *             EOS are t1 and t2, as config.json has them.
 * Ownership:  the caller frees what is returned.
 * Threading:  any.
 */
#pragma once

#include <jansson.h>

#include "libclient/model/arch.h"

#define MK_WORDS_MAX (1u << 20) /* larger vocabularies get no tokenizer */

/* Return: what tokenizer.json and tokenizer_config.json hold; NULL: no memory. */
json_t *mk_words_json(const struct mm_arch *arch);
json_t *mk_words_config_json(const struct mm_arch *arch);
