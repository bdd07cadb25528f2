/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reach - why a socket of mmd's cannot be reached, as a sentence
 *
 * Concept:   connect() has one word for several things, and what is to be done differs: the path,
 *            its owner and its mode are looked at to tell them apart. A look after the failure may
 *            see another state than the failure did; it makes a sentence, it decides nothing.
 * Threading: any.
 */
#pragma once

#include <stddef.h>

/**
 * mm_reach_explain() - what failed, and what to do about it
 * @path:  of the socket
 * @error: errno of connect(), or of what came before it; positive
 * @text:  where "PATH: ..." goes, cut to @bytes, without a full stop
 * @bytes: size of @text, not 0
 */
void mm_reach_explain(const char *path, int error, char *text, size_t bytes);
