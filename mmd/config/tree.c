/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/config/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "libclient/support/options.h"

struct tree_reader {
	yaml_parser_t parser;
	const char *path;
	char *error;
	struct mm_tree tree;
};

static int tree_fail(const struct tree_reader *r, size_t line, const char *fmt, ...)
	MM_PRINTF(3, 4);
static int tree_fail(const struct tree_reader *r, size_t line, const char *fmt, ...)
{
	char what[MM_OPT_ERROR_BYTES / 2];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (line)
		snprintf(r->error, MM_OPT_ERROR_BYTES, "%.200s:%zu: %s", r->path, line, what);
	else
		snprintf(r->error, MM_OPT_ERROR_BYTES, "%.200s: %s", r->path, what);
	return -EINVAL;
}

static size_t event_line(const yaml_event_t *event)
{
	return event->start_mark.line + 1;
}

/* Takes the next event; the caller deletes it, also on failure. */
static int event_next(struct tree_reader *r, yaml_event_t *event)
{
	const yaml_parser_t *p = &r->parser;

	memset(event, 0, sizeof(*event));
	if (yaml_parser_parse(&r->parser, event))
		return 0;
	if (p->error == YAML_READER_ERROR)
		return tree_fail(r, 0, "byte %zu: %s", p->problem_offset,
				 p->problem ? p->problem : "cannot be read");
	return tree_fail(r, p->problem_mark.line + 1, "%s%s%s",
			 p->problem ? p->problem : "cannot be read", p->context ? ", " : "",
			 p->context ? p->context : "");
}

/* ---- values ---- */

static json_t *value_mark(struct tree_reader *r, json_t *value, size_t line)
{
	struct mm_tree *t = &r->tree;

	if (!value) {
		tree_fail(r, line, "no memory is left, or the text is no UTF-8");
		return NULL;
	}
	if (t->n == MM_TREE_VALUES_MAX) {
		tree_fail(r, line, "more than %d values", MM_TREE_VALUES_MAX);
		json_decref(value);
		return NULL;
	}
	t->mark[t->n++] = (struct mm_tree_mark){ value, (uint32_t)line };
	return value;
}

static json_t *scalar_build(struct tree_reader *r, const yaml_event_t *event)
{
	const char *text = (const char *)event->data.scalar.value;
	const size_t bytes = event->data.scalar.length, digits = strspn(text, "0123456789");
	const bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	json_t *value;

	if (strlen(text) != bytes) {
		tree_fail(r, event_line(event), "a value has a byte that is 0");
		return NULL;
	}
	if (plain && bytes && digits == bytes && bytes < 19 && (*text != '0' || bytes == 1))
		value = json_integer((json_int_t)strtoull(text, NULL, 10));
	else
		value = json_stringn(text, bytes);
	return value_mark(r, value, event_line(event));
}

static json_t *node_build(struct tree_reader *r, const yaml_event_t *event, unsigned int depth);

static json_t *list_build(struct tree_reader *r, size_t line, unsigned int depth)
{
	json_t *list = value_mark(r, json_array(), line), *value = list;
	bool more = true;

	while (value && more) {
		yaml_event_t event;

		value = event_next(r, &event) < 0 ? NULL : list;
		more = value && event.type != YAML_SEQUENCE_END_EVENT;
		if (more)
			value = node_build(r, &event, depth + 1);
		yaml_event_delete(&event);
		if (more && value && json_array_append_new(list, value) < 0)
			value = NULL;
	}
	if (!value)
		json_decref(list);
	return value ? list : NULL;
}

/* Reads the value behind a key, and puts both into @object; its line is that of the key. */
static int pair_build(struct tree_reader *r, const yaml_event_t *key, json_t *object,
		      unsigned int depth)
{
	const char *name = (const char *)key->data.scalar.value;
	const uint32_t first = r->tree.n;
	yaml_event_t event;
	json_t *value;

	if (key->type != YAML_SCALAR_EVENT)
		return tree_fail(r, event_line(key), "a key is no word");
	if (json_object_get(object, name))
		return tree_fail(r, event_line(key), "%.64s: the key is a duplicate", name);
	value = event_next(r, &event) < 0 ? NULL : node_build(r, &event, depth + 1);
	yaml_event_delete(&event);
	if (!value)
		return -EINVAL;
	r->tree.mark[first].line = (uint32_t)event_line(key);
	if (json_object_set_new(object, name, value) < 0)
		return tree_fail(r, event_line(key), "a key is no UTF-8");
	return 0;
}

static json_t *object_build(struct tree_reader *r, size_t line, unsigned int depth)
{
	json_t *object = value_mark(r, json_object(), line);
	bool more = object;
	int e = 0;

	while (more && !e) {
		yaml_event_t key;

		e = event_next(r, &key);
		more = !e && key.type != YAML_MAPPING_END_EVENT;
		if (more)
			e = pair_build(r, &key, object, depth);
		yaml_event_delete(&key);
	}
	if (!e)
		return object;
	json_decref(object);
	return NULL;
}

static bool event_is_named(const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_SCALAR_EVENT:
		return event->data.scalar.anchor || event->data.scalar.tag;
	case YAML_SEQUENCE_START_EVENT:
		return event->data.sequence_start.anchor || event->data.sequence_start.tag;
	case YAML_MAPPING_START_EVENT:
		return event->data.mapping_start.anchor || event->data.mapping_start.tag;
	default:
		return event->type == YAML_ALIAS_EVENT;
	}
}

static json_t *node_build(struct tree_reader *r, const yaml_event_t *event, unsigned int depth)
{
	const size_t line = event_line(event);

	if (event_is_named(event))
		tree_fail(r, line, "anchors, aliases and tags have no meaning here");
	else if (depth > MM_TREE_DEPTH_MAX)
		tree_fail(r, line, "values are nested too deeply");
	else if (event->type == YAML_SCALAR_EVENT)
		return scalar_build(r, event);
	else if (event->type == YAML_SEQUENCE_START_EVENT)
		return list_build(r, line, depth);
	else if (event->type == YAML_MAPPING_START_EVENT)
		return object_build(r, line, depth);
	else
		tree_fail(r, line, "a value is missing");
	return NULL;
}

/* ---- the file ---- */

/* Whether there is nothing in the document but an empty value. */
static bool event_is_empty(const yaml_event_t *event)
{
	return event->type == YAML_SCALAR_EVENT && !event->data.scalar.length &&
	       event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

/* Builds the only document; without one the root is an empty object. */
static int document_build(struct tree_reader *r)
{
	bool begun = false;
	int e = 0;

	while (!e) {
		yaml_event_t event;
		bool end;

		e = event_next(r, &event);
		end = !e && event.type == YAML_STREAM_END_EVENT;
		if (!e && event.type == YAML_DOCUMENT_START_EVENT && begun)
			e = tree_fail(r, event_line(&event), "a second document begins");
		else if (!e && event.type == YAML_DOCUMENT_START_EVENT)
			begun = true;
		else if (!e && !end && begun && !r->tree.root &&
			 event.type != YAML_DOCUMENT_END_EVENT && !event_is_empty(&event)) {
			r->tree.root = node_build(r, &event, 0);
			e = r->tree.root ? 0 : -EINVAL;
			if (!e && !json_is_object(r->tree.root))
				e = tree_fail(r, event_line(&event),
					      "is not one object: keys with values");
		}
		yaml_event_delete(&event);
		if (end)
			break;
	}
	if (!e && !r->tree.root)
		r->tree.root = json_object();
	return e;
}

/* Reads the whole file into memory. Return: 0; -ENOENT; -EINVAL. */
static int file_bytes_read(const struct tree_reader *r, char **ret_bytes, size_t *ret_n)
{
	mm_cleanup(mm_close_fd) int fd =
		open(r->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	const int error = errno;
	struct stat st;
	size_t n = 0;
	ssize_t got = 1;
	char *bytes;

	if (fd < 0) {
		tree_fail(r, 0, "%s", strerror(error));
		return error == ENOENT ? -ENOENT : -EINVAL;
	}
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return tree_fail(r, 0, "is not a regular file");
	bytes = malloc(MM_TREE_BYTES_MAX + 1);
	if (!bytes)
		return tree_fail(r, 0, "no memory is left");
	while (got > 0 && n <= MM_TREE_BYTES_MAX) {
		got = read(fd, bytes + n, MM_TREE_BYTES_MAX + 1 - n);
		n += got > 0 ? (size_t)got : 0;
	}
	if (got < 0 || n > MM_TREE_BYTES_MAX) {
		tree_fail(r, 0, "%s", got < 0 ? strerror(errno) : "is larger than 1 MiB");
		free(bytes);
		return -EINVAL;
	}
	*ret_bytes = bytes;
	*ret_n = n;
	return 0;
}

int mm_tree_read(const char *path, struct mm_tree *ret_tree, char *error)
{
	struct tree_reader r = { .path = path, .error = error };
	char *bytes = NULL;
	size_t n = 0;
	int e = file_bytes_read(&r, &bytes, &n);

	if (e)
		return e;
	r.tree.mark = calloc(MM_TREE_VALUES_MAX, sizeof(*r.tree.mark));
	if (!r.tree.mark || !yaml_parser_initialize(&r.parser)) {
		e = tree_fail(&r, 0, "no memory is left");
	} else {
		yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
		yaml_parser_set_input_string(&r.parser, (const unsigned char *)bytes, n);
		e = document_build(&r);
		yaml_parser_delete(&r.parser);
	}
	free(bytes);
	if (e)
		mm_tree_done(&r.tree);
	else
		*ret_tree = r.tree;
	return e;
}

uint32_t mm_tree_line(const struct mm_tree *tree, const json_t *value)
{
	for (uint32_t i = 0; i < tree->n; i++) {
		if (tree->mark[i].value == value)
			return tree->mark[i].line;
	}
	return 0;
}

void mm_tree_done(struct mm_tree *tree)
{
	json_decref(tree->root);
	free(tree->mark);
	*tree = MM_TREE_NULL;
}
