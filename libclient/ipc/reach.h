/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reach - why a socket of mmd's cannot be reached, as a sentence
 *
 * Concept:   connect() returns one error for several causes, which need different remedies; the
 *            path, its owner and its mode are looked up to distinguish them. They may have changed
 *            since the failure, so the sentence is for people and decides nothing.
 * Threading: any.
 */
#pragma once

#include <stddef.h>

/**
 * mm_reach_explain() - write what failed, and what to do about it
 * @path:  path of the socket
 * @error: errno of connect(), or of what came before it; positive
 * @text:  gets "PATH: ...", cut to @bytes, without a full stop
 * @bytes: size of @text, not 0
 */
void mm_reach_explain(const char *path, int error, char *text, size_t bytes);
