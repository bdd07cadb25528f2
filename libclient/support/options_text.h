/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options_text - pieces of what is printed from a table of options
 *
 * Concept:   options_print.c prints help, man pages and completion, options_file.c an example of a
 *            configuration file and its man page; both say the same of an option.
 * Threading: none of its own.
 */
#pragma once

#include "libclient/support/options.h"

#define MM_OPT_TEXT_BYTES 2048

/* The help of an option with its choices, its range and its default. */
void mm_opt_text_help(const struct mm_opt *opt, char text[MM_OPT_TEXT_BYTES]);

/* Whether the choices of an option are explained, so that they are listed below it. */
bool mm_opt_text_has_choices(const struct mm_opt *opt);

/* Prints text as troff: an empty line begins a paragraph, indented lines are an example. */
void mm_opt_text_troff(FILE *out, const char *text);

/*
 * Prints an item of a man page. @dashes and @joint: "\\-\\-" and " " of an option, "" and "=" of a
 * key on the command line. @tail: one more sentence; "": none.
 */
void mm_opt_text_man(FILE *out, const struct mm_opt *opt, const char *dashes, const char *joint,
		     const char *tail);
