/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab - a model's tokenizer: text to token ids, and a token to its text
 *
 * Concept:    of the files in the model's folder: tokenizer.model, as SentencePiece writes it,
 *             where the build has its library; else tokenizer.json of type WordLevel, whose tokens
 *             are words between white space. Other tokenizers are refused by name: their models
 *             are served by token ids. tokenizer_config.json says whether text begins with a BOS.
 * Text:       a token's bytes stand by themselves, so that an output can be written token by token;
 *             they need not be whole characters (utf8.h). A word follows a blank.
 * Ownership:  mm_vocab_open() and mm_vocab_close().
 * Threading:  constant once it is open, except that one thread at a time may encode.
 * Trust:      the files may say anything; ids are below the model's vocabulary.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/base/base.h"

#define MM_VOCAB_ERROR_BYTES 512

struct mm_vocab; /* opaque */

/**
 * mm_vocab_open() - read the tokenizer of a model
 * @dir:       the model's folder
 * @vocab:     ids must be below this
 * @ret_vocab: give back with mm_vocab_close(); written only on success
 * @err:       MM_VOCAB_ERROR_BYTES: why there is no text, in one sentence
 *
 * Return: 0; MM_E_EMPTY the model has none that can be used; negative errno: it cannot be read.
 */
int mm_vocab_open(const char *dir, uint32_t vocab, struct mm_vocab **ret_vocab, char *err);
void mm_vocab_close(struct mm_vocab *v);

/* For messages: "tokenizer.json, WordLevel" or "tokenizer.model". */
const char *mm_vocab_name(const struct mm_vocab *v);

/**
 * mm_vocab_encode() - make token ids of a text
 * @v:       any
 * @text:    UTF-8 without zero bytes
 * @special: begin with a BOS, if the model wants one
 * @ret_ids: malloc'ed; written only on success
 * @ret_n:   how many; may be 0
 * @err:     MM_VOCAB_ERROR_BYTES
 *
 * Return: 0; MM_E_RANGE a word is not in the vocabulary; negative errno.
 */
int mm_vocab_encode(struct mm_vocab *v, const char *text, bool special, uint32_t **ret_ids,
		    size_t *ret_n, char *err);

#define MM_VOCAB_PIECE_BYTES 1024 /* longer tokens are cut */

/**
 * mm_vocab_piece() - the bytes of a token
 * @v:     any
 * @id:    any; one that is unknown has none
 * @first: it begins a text: without a blank before it
 * @out:   MM_VOCAB_PIECE_BYTES
 *
 * Return: how many bytes were written; tokens that only control have none.
 */
size_t mm_vocab_piece(const struct mm_vocab *v, uint32_t id, bool first, char *out);
