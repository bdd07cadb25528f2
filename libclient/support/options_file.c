/* SPDX-License-Identifier: Apache-2.0 */
/* options_file - what is printed of a configuration file: an example, and its man page */
#include <ctype.h>
#include <string.h>

#include "libclient/support/options.h"
#include "libclient/support/options_text.h"

#define COMMENT_COLUMNS 79

static const char *live_sentence(const struct mm_opt *o)
{
	return o->live ? "A change counts at a reload." : "A change needs a restart.";
}

static bool key_is_shown(const struct mm_opt *o)
{
	return o->help && !o->line_only;
}

/* ---- example ---- */

/* Prints text as lines of a comment; lines that begin with white space as they are. */
static void comment_print(FILE *out, const char *text)
{
	size_t column = 0;

	while (*text) {
		const size_t n = strcspn(text, " \n");
		const bool breaks = *text == '\n' || (column && column + 1 + n > COMMENT_COLUMNS);

		if (column == 0 && *text == ' ') {
			const size_t line = strcspn(text, "\n");

			fprintf(out, "#%.*s\n", (int)line, text);
			text += line + (text[line] != '\0');
			continue;
		}
		if (column == 0) {
			column = n + 2;
			fprintf(out, n ? "# %.*s" : "#%.*s", (int)n, text);
		} else if (breaks) {
			fputc('\n', out);
			column = 0;
			text += *text == '\n';
			continue;
		} else {
			fprintf(out, " %.*s", (int)n, text);
			column += n + 1;
		}
		text += n;
		if (*text == '\n') {
			fputc('\n', out);
			column = 0;
			text++;
		} else {
			text += strspn(text, " ");
		}
	}
	if (column)
		fputc('\n', out);
}

/* The text of an option as a sentence: a capital letter, and a full stop. */
static void sentence_make(char text[MM_OPT_TEXT_BYTES])
{
	const size_t n = strlen(text);

	text[0] = (char)toupper((unsigned char)text[0]);
	if (n && n + 1 < MM_OPT_TEXT_BYTES && text[n - 1] != '.')
		strcpy(text + n, ".");
}

/* Prints the comment of a key, and the key with its default, or with the name of its value. */
static void key_print(FILE *out, const struct mm_opt *o, const char *indent)
{
	char text[MM_OPT_TEXT_BYTES];

	mm_opt_text_help(o, text);
	sentence_make(text);
	fputc('\n', out);
	comment_print(out, text);
	for (const struct mm_opt_choice *c = o->choices; c && c->name; c++) {
		if (!mm_opt_text_has_choices(o))
			break;
		snprintf(text, sizeof(text), "  %s%s%s", c->name, c->help ? ": " : "",
			 c->help ? c->help : "");
		comment_print(out, text);
	}
	comment_print(out, live_sentence(o));
	fprintf(out, "#%s%s: %s\n", indent, o->name, o->preset ? o->preset : o->value);
}

static void part_print(FILE *out, const struct mm_opt_file_part *part)
{
	const struct mm_opt *o = part->keys();
	bool first = true;

	fprintf(out, "\n# ---- %s\n#\n", part->title);
	comment_print(out, part->text);
	fprintf(out, "#%s:\n", part->key);
	for (; o->name; o++) {
		if (!key_is_shown(o))
			continue;
		key_print(out, o, part->list && first ? "  - " : part->list ? "    " : "  ");
		first = false;
	}
}

static const struct mm_opt_file_part *part_of(const struct mm_opt_file *file,
					      const struct mm_opt *o)
{
	for (const struct mm_opt_file_part *p = file->parts; p->key; p++) {
		if (strcmp(p->key, o->name) == 0)
			return p;
	}
	return NULL;
}

void mm_opt_print_file(FILE *out, const struct mm_opt_file *file)
{
	fprintf(out, "# %s - %s\n#\n", file->path, file->summary);
	comment_print(out, file->text);
	fputs("#\n# What follows is all keys with their defaults, as comments.\n", out);
	for (const struct mm_opt *o = file->keys; o->name; o++) {
		if (o->group)
			fprintf(out, "\n# ---- %s\n", o->group);
		if (key_is_shown(o) && !part_of(file, o))
			key_print(out, o, "");
	}
	for (const struct mm_opt_file_part *p = file->parts; p->key; p++)
		part_print(out, p);
}

/* ---- man page ---- */

static void file_upper(FILE *out, const char *text)
{
	for (; *text; text++)
		fputc(toupper((unsigned char)*text), out);
}

static void file_man_keys(FILE *out, const struct mm_opt_file *file, const struct mm_opt *o)
{
	for (; o->name; o++) {
		if (key_is_shown(o) && !part_of(file, o))
			mm_opt_text_man(out, o, "", ": ", live_sentence(o));
	}
}

void mm_opt_print_file_man(FILE *out, const struct mm_opt_file *file)
{
	fputs(".\\\" SPDX-License-Identifier: Apache-2.0\n.TH ", out);
	file_upper(out, file->name);
	fprintf(out, " 5 \"\" \"mmd %s\"\n.SH NAME\n%s \\- ", MM_VERSION, file->name);
	mm_opt_text_troff(out, file->summary);
	fprintf(out, ".SH SYNOPSIS\n.I %s\n.br\n.I %s.d/*.conf\n.SH DESCRIPTION\n", file->path,
		file->path);
	mm_opt_text_troff(out, file->text);
	fputs(".SH KEYS\n", out);
	file_man_keys(out, file, file->keys);
	for (const struct mm_opt_file_part *p = file->parts; p->key; p++) {
		fputs(".SH \"", out);
		file_upper(out, p->title);
		fputs("\"\n", out);
		mm_opt_text_troff(out, p->text);
		file_man_keys(out, file, p->keys());
	}
	for (const struct mm_opt_section *s = file->sections; s->title; s++) {
		fputs(".SH \"", out);
		file_upper(out, s->title);
		fputs("\"\n", out);
		mm_opt_text_troff(out, s->text);
	}
	fputs(".SH SEE ALSO\n", out);
	mm_opt_text_troff(out, file->see_also);
}
