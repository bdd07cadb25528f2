/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/http/reply.h"

#include <string.h>

#include "tools/mmserve/text/utf8.h"

size_t mm_reply_characters(const char *text, size_t bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < bytes; i++)
		n += ((unsigned char)text[i] & 0xc0) != 0x80;
	return n;
}

static bool is_chat(const struct mm_reply *reply)
{
	return reply->kind == MM_ASK_CHAT;
}

static void reply_puts_string(struct mm_buffer *b, const char *text)
{
	mm_buffer_string(b, text, strlen(text));
}

/* Puts a text that may have been cut within a character, as UTF-8 that is valid. */
static void reply_puts_cut(struct mm_buffer *b, const char *text)
{
	char clean[3 * (sizeof(((struct mm_refusal *)NULL)->message) + 4)];
	struct mm_utf8 utf8 = { 0 };
	size_t bytes = mm_utf8_push(&utf8, text, strlen(text), clean);

	bytes += mm_utf8_end(&utf8, clean + bytes);
	mm_buffer_string(b, clean, bytes);
}

/* Begins the object: everything before its choices. */
static void reply_head(struct mm_buffer *b, const struct mm_reply *reply, bool event)
{
	mm_buffer_printf(b,
			 "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", reply->id,
			 !is_chat(reply) ? "text_completion"
			 : event         ? "chat.completion.chunk"
					 : "chat.completion",
			 (long long)reply->created);
	reply_puts_string(b, reply->model);
}

static uint32_t output_id(const struct mm_reply *reply, uint32_t i)
{
	return reply->job->request.ids[reply->job->request.n_prompt + i];
}

/* Return: the bytes of the text of a token by itself, which is valid UTF-8. */
static size_t token_text(const struct mm_reply *reply, uint32_t i, char *out)
{
	char piece[MM_VOCAB_PIECE_BYTES];
	struct mm_utf8 utf8 = { 0 };
	size_t bytes = 0;

	if (reply->vocab)
		bytes = mm_vocab_piece(reply->vocab, output_id(reply, i), false, piece);
	bytes = mm_utf8_push(&utf8, piece, bytes, out);
	return bytes + mm_utf8_end(&utf8, out + bytes);
}

#define TOKEN_TEXT_BYTES (3 * (MM_VOCAB_PIECE_BYTES + 8))

static void logprobs_of_chat(struct mm_buffer *b, const struct mm_reply *reply,
			     const struct mm_part *part)
{
	char text[TOKEN_TEXT_BYTES];

	mm_buffer_puts(b, "{\"content\":[");
	for (uint32_t i = part->from; i < part->to; i++) {
		const size_t bytes = token_text(reply, i, text);

		mm_buffer_puts(b, i > part->from ? ",{\"token\":" : "{\"token\":");
		mm_buffer_string(b, text, bytes);
		mm_buffer_printf(b, ",\"logprob\":%.6f,\"bytes\":null,\"top_logprobs\":[]}",
				 (double)reply->job->logprobs[i]);
	}
	mm_buffer_puts(b, "]}");
}

static void logprobs_of_text(struct mm_buffer *b, const struct mm_reply *reply,
			     const struct mm_part *part)
{
	char text[TOKEN_TEXT_BYTES];
	size_t offset = part->offset;

	mm_buffer_puts(b, "{\"tokens\":[");
	for (uint32_t i = part->from; i < part->to; i++) {
		const size_t bytes = token_text(reply, i, text);

		mm_buffer_puts(b, i > part->from ? "," : "");
		mm_buffer_string(b, text, bytes);
	}
	mm_buffer_puts(b, "],\"token_logprobs\":[");
	for (uint32_t i = part->from; i < part->to; i++)
		mm_buffer_printf(b, i > part->from ? ",%.6f" : "%.6f",
				 (double)reply->job->logprobs[i]);
	mm_buffer_puts(b, "],\"top_logprobs\":null,\"text_offset\":[");
	for (uint32_t i = part->from; i < part->to; i++) {
		mm_buffer_printf(b, i > part->from ? ",%zu" : "%zu", offset);
		offset += mm_reply_characters(text, token_text(reply, i, text));
	}
	mm_buffer_puts(b, "]}");
}

/* Adds the members that all kinds of choices have, to the choice's end. */
static void choice_tail(struct mm_buffer *b, const struct mm_reply *reply,
			const struct mm_part *part)
{
	mm_buffer_puts(b, ",\"logprobs\":");
	if (!reply->logprobs)
		mm_buffer_puts(b, "null");
	else if (is_chat(reply))
		logprobs_of_chat(b, reply, part);
	else
		logprobs_of_text(b, reply, part);
	mm_buffer_puts(b, ",\"finish_reason\":");
	if (part->finish)
		reply_puts_string(b, part->finish);
	else
		mm_buffer_puts(b, "null");
	if (reply->ids) {
		mm_buffer_puts(b, ",\"token_ids\":[");
		for (uint32_t i = part->from; i < part->to; i++)
			mm_buffer_printf(b, i > part->from ? ",%u" : "%u", output_id(reply, i));
		mm_buffer_puts(b, "]");
	}
	mm_buffer_puts(b, "}");
}

static void usage_put(struct mm_buffer *b, const struct mm_reply *reply, uint32_t n)
{
	const uint32_t prompt = reply->job->request.n_prompt;

	mm_buffer_printf(b,
			 "\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u,"
			 "\"total_tokens\":%u}",
			 prompt, n, prompt + n);
}

void mm_reply_event(struct mm_buffer *b, const struct mm_reply *reply, const struct mm_part *part,
		    bool first)
{
	mm_buffer_puts(b, "data: ");
	reply_head(b, reply, true);
	mm_buffer_puts(b, ",\"choices\":[{\"index\":0,");
	if (is_chat(reply)) {
		mm_buffer_puts(b, first ? "\"delta\":{\"role\":\"assistant\",\"content\":"
					: "\"delta\":{\"content\":");
		mm_buffer_string(b, part->text, part->bytes);
		mm_buffer_puts(b, "}");
	} else {
		mm_buffer_puts(b, "\"text\":");
		mm_buffer_string(b, part->text, part->bytes);
	}
	choice_tail(b, reply, part);
	mm_buffer_puts(b, part->usage ? "]," : "]");
	if (part->usage)
		usage_put(b, reply, part->to);
	mm_buffer_puts(b, "}\n\n");
}

void mm_reply_usage(struct mm_buffer *b, const struct mm_reply *reply, uint32_t n)
{
	mm_buffer_puts(b, "data: ");
	reply_head(b, reply, true);
	mm_buffer_puts(b, ",\"choices\":[],");
	usage_put(b, reply, n);
	mm_buffer_puts(b, "}\n\n");
}

void mm_reply_end(struct mm_buffer *b)
{
	mm_buffer_puts(b, "data: [DONE]\n\n");
}

void mm_reply_broken(struct mm_buffer *b, const struct mm_refusal *refusal)
{
	mm_buffer_puts(b, "data: ");
	mm_reply_refusal(b, refusal);
	mm_buffer_puts(b, "\n");
}

void mm_reply_whole(struct mm_buffer *b, const struct mm_reply *reply, const struct mm_part *part)
{
	reply_head(b, reply, false);
	mm_buffer_puts(b, ",\"choices\":[{\"index\":0,");
	if (is_chat(reply)) {
		mm_buffer_puts(b, "\"message\":{\"role\":\"assistant\",\"content\":");
		mm_buffer_string(b, part->text, part->bytes);
		mm_buffer_puts(b, "}");
	} else {
		mm_buffer_puts(b, "\"text\":");
		mm_buffer_string(b, part->text, part->bytes);
	}
	choice_tail(b, reply, part);
	mm_buffer_puts(b, "],");
	usage_put(b, reply, part->to);
	mm_buffer_puts(b, "}\n");
}

void mm_reply_refusal(struct mm_buffer *b, const struct mm_refusal *refusal)
{
	mm_buffer_puts(b, "{\"error\":{\"message\":");
	reply_puts_cut(b, refusal->message);
	mm_buffer_printf(b, ",\"type\":\"%s\",\"param\":", refusal->type);
	if (refusal->param[0])
		reply_puts_cut(b, refusal->param);
	else
		mm_buffer_puts(b, "null");
	if (refusal->code)
		mm_buffer_printf(b, ",\"code\":\"%s\"}}\n", refusal->code);
	else
		mm_buffer_puts(b, ",\"code\":null}}\n");
}

void mm_reply_models(struct mm_buffer *b, const char *model, time_t created, uint32_t tokens_max)
{
	mm_buffer_puts(b, "{\"object\":\"list\",\"data\":[{\"id\":");
	reply_puts_string(b, model);
	mm_buffer_printf(b,
			 ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"mmserve\","
			 "\"max_model_len\":%u}]}\n",
			 (long long)created, tokens_max);
}

void mm_reply_tokens(struct mm_buffer *b, const uint32_t *ids, size_t n, uint32_t tokens_max)
{
	mm_buffer_printf(b, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", n, tokens_max);
	for (size_t i = 0; i < n; i++)
		mm_buffer_printf(b, i ? ",%u" : "%u", ids[i]);
	mm_buffer_puts(b, "]}\n");
}

void mm_reply_text(struct mm_buffer *b, const char *text, size_t bytes)
{
	mm_buffer_puts(b, "{\"prompt\":");
	mm_buffer_string(b, text, bytes);
	mm_buffer_puts(b, "}\n");
}
