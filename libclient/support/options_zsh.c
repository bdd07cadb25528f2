/* SPDX-License-Identifier: Apache-2.0 */
/* options_zsh - the completion of a program for zsh, from its table of options */
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/options.h"

/* Writes a word of _describe: the name, and what is said of it. */
static void zsh_word(FILE *out, const char *prefix, const char *name, size_t bytes,
		     const char *text)
{
	fprintf(out, " '%s%.*s:", prefix, (int)bytes, name);
	for (; text && *text; text++) {
		if (*text == '\'')
			fputs("'\\''", out);
		else
			fputc(*text, out);
	}
	fputc('\'', out);
}

static bool zsh_is_shown(const struct mm_opt *o)
{
	return o->help && !o->file_only;
}

static void zsh_options(FILE *out, const struct mm_opt_set *sets, size_t n)
{
	for (size_t s = 0; s < n && sets[s].opts; s++) {
		for (const struct mm_opt *o = sets[s].opts; o->name; o++)
			if (zsh_is_shown(o))
				zsh_word(out, "--", o->name, strlen(o->name), o->help);
	}
}

/* A branch for the value of each option: its choices, else files. */
static void zsh_values(FILE *out, const char *command, const struct mm_opt_set *sets, size_t n)
{
	for (size_t s = 0; s < n && sets[s].opts; s++) {
		for (const struct mm_opt *o = sets[s].opts; o->name; o++) {
			if (!zsh_is_shown(o) || o->type == MM_OPT_FLAG)
				continue;
			fprintf(out, "\t%s:--%s)", command, o->name);
			if (!o->choices) {
				fputs(" _files; return ;;\n", out);
				continue;
			}
			fputs(" names=(", out);
			for (const struct mm_opt_choice *c = o->choices; c->name; c++)
				zsh_word(out, "", c->name, strlen(c->name), c->help);
			fputs(" ); _describe value names; return ;;\n", out);
		}
	}
}

/* Writes to `command` the words of the line that are those of a command, not values of options. */
static void zsh_find_command(FILE *out, const struct mm_opt_program *program)
{
	fputs("\tfor ((i = 2; i < CURRENT; i++)); do\n\t\tword=${words[i]}\n"
	      "\t\tcase $command/$word in\n",
	      out);
	for (size_t s = 0; s < MM_ARRAY_SIZE(program->shared) && program->shared[s].opts; s++) {
		for (const struct mm_opt *o = program->shared[s].opts; o->name; o++)
			if (o->type != MM_OPT_FLAG && o->help)
				fprintf(out, "\t\t*/--%s) ((i++)) ;;\n", o->name);
	}
	for (size_t c = 0; c < program->n_commands; c++) {
		const char *name = program->commands[c].name;
		const size_t n = strcspn(name, " ");

		if (!*name)
			continue;
		fprintf(out, "\t\t/%.*s) command='%.*s' ;;\n", (int)n, name, (int)n, name);
		if (name[n])
			fprintf(out, "\t\t'%.*s/%s') command='%s' ;;\n", (int)n, name, name + n + 1,
				name);
	}
	fputs("\t\tesac\n\tdone\n", out);
}

/* Whether a command before @c begins with the same word. */
static bool zsh_was_named(const struct mm_opt_program *program, size_t c)
{
	const char *name = program->commands[c].name;
	const size_t n = strcspn(name, " ");

	for (size_t before = 0; before < c; before++) {
		const char *other = program->commands[before].name;

		if (strcspn(other, " ") == n && strncmp(other, name, n) == 0)
			return true;
	}
	return false;
}

/* A branch with the second words of the commands that begin with the first word of @c. */
static void zsh_second_words(FILE *out, const struct mm_opt_program *program, size_t c)
{
	const char *name = program->commands[c].name;
	const size_t n = strcspn(name, " ");

	fprintf(out, "\t\t%.*s) names=(", (int)n, name);
	for (size_t i = c; i < program->n_commands; i++) {
		const struct mm_opt_command *other = &program->commands[i];

		if (strncmp(other->name, name, n) == 0 && other->name[n] == ' ')
			zsh_word(out, "", other->name + n + 1, strlen(other->name + n + 1),
				 other->summary);
	}
	fputs(" ) ;;\n", out);
}

static void zsh_commands(FILE *out, const struct mm_opt_program *program)
{
	fputs("\telse\n\t\tcase $command in\n\t\t'') names=(", out);
	for (size_t c = 0; c < program->n_commands; c++) {
		const struct mm_opt_command *command = &program->commands[c];
		const size_t n = strcspn(command->name, " ");

		if (n && !zsh_was_named(program, c))
			zsh_word(out, "", command->name, n,
				 command->name[n] ? "" : command->summary);
	}
	fputs(" ) ;;\n", out);
	for (size_t c = 0; c < program->n_commands; c++)
		if (strchr(program->commands[c].name, ' ') && !zsh_was_named(program, c))
			zsh_second_words(out, program, c);
	fputs("\t\t*) _files; return ;;\n\t\tesac\n"
	      "\t\t(($#names)) && _describe command names || _files\n\tfi\n",
	      out);
}

static void zsh_option_words(FILE *out, const struct mm_opt_program *program)
{
	fputs("\tif [[ ${words[CURRENT]} == -* ]]; then\n\t\tcase $command in\n", out);
	for (size_t c = 0; c < program->n_commands; c++) {
		fprintf(out, "\t\t'%s') names=('--help:' '--version:'", program->commands[c].name);
		zsh_options(out, program->commands[c].sets,
			    MM_ARRAY_SIZE(program->commands[c].sets));
		zsh_options(out, program->shared, MM_ARRAY_SIZE(program->shared));
		fputs(" ) ;;\n", out);
	}
	fputs("\t\t*) names=('--help:' '--version:'", out);
	zsh_options(out, program->shared, MM_ARRAY_SIZE(program->shared));
	fputs(" ) ;;\n\t\tesac\n\t\t_describe -o option names\n", out);
}

void mm_opt_print_zsh(FILE *out, const struct mm_opt_program *program)
{
	char command[64];

	fprintf(out,
		"#compdef %s\n# SPDX-License-Identifier: Apache-2.0\n# Completion of %s for zsh.\n"
		"_%s()\n{\n\tlocal i word command=''\n\tlocal -a names\n\n",
		program->name, program->name, program->name);
	zsh_find_command(out, program);
	fputs("\tcase $command:${words[CURRENT-1]} in\n", out);
	for (size_t c = 0; c < program->n_commands; c++) {
		snprintf(command, sizeof(command), "'%s'", program->commands[c].name);
		zsh_values(out, command, program->commands[c].sets,
			   MM_ARRAY_SIZE(program->commands[c].sets));
	}
	zsh_values(out, "*", program->shared, MM_ARRAY_SIZE(program->shared));
	fputs("\tesac\n", out);
	zsh_option_words(out, program);
	zsh_commands(out, program);
	fprintf(out, "}\n_%s \"$@\"\n", program->name);
}
