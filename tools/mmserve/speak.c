/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/speak.h"

#include <errno.h>
#include <string.h>

#include "tools/mmserve/engine/config.h"
#include "tools/mmserve/text/folder.h"
#include "tools/mmserve/text/utf8.h"

#if MM_HTTP
static int speak_listen(struct mm_speak *s, const struct mm_serve_options *o, uint32_t n_ends,
			char *err)
{
	const struct mm_http_opts opts = {
		.listen = o->listen,
		.anywhere = o->anywhere,
		.model = s->name,
		.inbox = &s->inbox,
		.vocab = s->vocab,
		.no_text = s->no_text,
		.no_chat = s->no_chat[0] ? s->no_chat : NULL,
		.ends = s->ends,
		.n_ends = n_ends,
		.keys = &s->keys,
		.connections_max = o->connections,
		.body_max = o->body_max,
		.timeout_ns = o->http_timeout_ms * MM_NS_PER_MS,
	};

	return mm_http_open(&opts, &s->http, err);
}

/* Names the model. A folder's name may be any bytes, and JSON has UTF-8. */
static void speak_name(struct mm_speak *s, const struct mm_serve_options *o)
{
	struct mm_utf8 utf8 = { 0 };
	char name[(sizeof(s->name) - 1) / 3 - 8];
	size_t n;

	if (o->served_name)
		snprintf(name, sizeof(name), "%s", o->served_name);
	else
		mm_folder_name(o->model, name, sizeof(name));
	n = mm_utf8_push(&utf8, name, strlen(name), s->name);
	n += mm_utf8_end(&utf8, s->name + n);
	s->name[n] = '\0';
}

int mm_speak_open(struct mm_speak *s, const struct mm_serve_options *o, const struct mm_arch *arch,
		  char *err)
{
	const uint32_t n_ends =
		mm_folder_ends(o->model, arch->vocab, s->ends, MM_ARRAY_SIZE(s->ends));
	int r = mm_inbox_init(&s->inbox, o->max_batch + o->queue);

	if (r) {
		snprintf(err, MM_SERVE_ERROR_BYTES, "no inbox: %s", strerror(-r));
		return r;
	}
	speak_name(s, o);
	r = mm_vocab_open(o->model, arch->vocab, &s->vocab, s->no_text);
	if (r < 0) {
		snprintf(err, MM_SERVE_ERROR_BYTES, "%s", s->no_text);
		return r;
	}
	if (mm_folder_has_template(o->model) && !o->chat_plain)
		snprintf(s->no_chat, sizeof(s->no_chat),
			 "the model's chat template is Jinja, which mmserve does not run; "
			 "--chat-plain does without");
	r = o->api_keys ? mm_keys_read(o->api_keys, &s->keys, err, MM_SERVE_ERROR_BYTES) : 0;
	return r ? r : speak_listen(s, o, n_ends, err);
}

int mm_speak_start(struct mm_speak *s, FILE *out, char *err)
{
	const int r = mm_http_start(s->http, err);

	if (r || !out)
		return r;
	fprintf(out, "serving %s at %s\n", s->name, mm_http_name(s->http));
	if (s->vocab)
		fprintf(out, "text: by %s\n", mm_vocab_name(s->vocab));
	else
		fprintf(out, "text: none: %s\n", s->no_text);
	return fflush(out) ? -errno : 0;
}
#else
int mm_speak_open(struct mm_speak *s, const struct mm_serve_options *o, const struct mm_arch *arch,
		  char *err)
{
	(void)s;
	(void)o;
	(void)arch;
	snprintf(err, MM_SERVE_ERROR_BYTES,
		 "--listen: this mmserve was built without libmicrohttpd");
	return -ENOTSUP;
}

int mm_speak_start(struct mm_speak *s, FILE *out, char *err)
{
	(void)s;
	(void)out;
	(void)err;
	return -ENOTSUP;
}
#endif

void mm_speak_close(struct mm_speak *s)
{
#if MM_HTTP
	mm_http_close(s->http);
#endif
	s->http = NULL;
	mm_vocab_close(s->vocab);
	s->vocab = NULL;
	mm_keys_done(&s->keys);
	mm_inbox_done(&s->inbox);
}
