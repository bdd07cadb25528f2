/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mkmodel/words.h"

#include <stdio.h>

#include "libclient/support/json.h"

static json_t *words_vocab(uint32_t n)
{
	mm_cleanup(mm_json_done) json_t *vocab = json_object();
	char word[16];

	for (uint32_t i = 0; i < n; i++) {
		snprintf(word, sizeof(word), "t%u", i);
		if (mm_json_put(vocab, word, json_integer(i)))
			return NULL;
	}
	return mm_json_take(&vocab);
}

json_t *mk_words_json(const struct mm_arch *a)
{
	return json_pack("{s:s,s:n,s:n,s:[],s:n,s:{s:s},s:n,s:n,s:{s:s,s:o,s:s}}", "version", "1.0",
			 "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
			 "type", "WhitespaceSplit", "post_processor", "decoder", "model", "type",
			 "WordLevel", "vocab", words_vocab(a->vocab), "unk_token", "t0");
}

json_t *mk_words_config_json(const struct mm_arch *a)
{
	/* If t0 were their unknown token, Hugging Face's libraries would leave it out of text. */
	return json_pack("{s:s,s:n,s:s,s:s,s:b,s:I}", "tokenizer_class", "PreTrainedTokenizerFast",
			 "unk_token", "bos_token", "t1", "eos_token", "t2", "add_bos_token", 0,
			 "model_max_length", (json_int_t)a->max_position);
}
