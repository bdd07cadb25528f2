/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree - a YAML file as values of jansson, each with its line
 *
 * Concept:   libyaml reads the file; what it reports becomes objects, arrays, strings and whole
 *            numbers, the types that the options know from JSON, which is YAML as well. A scalar
 *            that is not quoted and has digits only is a number, every other one is text: there is
 *            no word that turns into something else, as "off" does elsewhere.
 * Trust:     the file may be anything. It must be regular, of MM_TREE_BYTES_MAX at most; anchors,
 *            aliases, tags, several documents, keys that are there twice and values below
 *            MM_TREE_DEPTH_MAX are refused, so that its size bounds what is made of it.
 * Ownership: the tree owns its values; who keeps one of them takes a reference.
 * Threading: none of its own.
 * Errors:    one sentence: the file, the line, and what is wrong.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#define MM_TREE_BYTES_MAX  (1 << 20)
#define MM_TREE_VALUES_MAX 4096
#define MM_TREE_DEPTH_MAX  6

struct mm_tree_mark {
	const json_t *value;
	uint32_t line; /* of the key, in an object; else of the value */
};

struct mm_tree {
	json_t *root; /* an object; NULL: none was read */
	struct mm_tree_mark *mark;
	uint32_t n;
};
#define MM_TREE_NULL ((struct mm_tree){ 0 })

/**
 * mm_tree_read() - read a file
 * @path:     its name
 * @ret_tree: written only on success; undo with mm_tree_done(). A file without any value is an
 *            empty object
 * @error:    MM_OPT_ERROR_BYTES: the sentence on failure, which begins "PATH: " or "PATH:LINE: "
 *
 * Return: 0; -ENOENT; -EINVAL.
 */
int mm_tree_read(const char *path, struct mm_tree *ret_tree, char *error);

/* The line that @value of the tree began in, from 1; 0: it is none of its values. */
uint32_t mm_tree_line(const struct mm_tree *tree, const json_t *value);

void mm_tree_done(struct mm_tree *tree);
