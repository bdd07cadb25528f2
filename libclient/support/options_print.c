/* SPDX-License-Identifier: Apache-2.0 */
/* options_print - what is printed from a table of options: help, man page, completion */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "libclient/support/options.h"
#include "libclient/support/options_text.h"

#define HELP_COLUMNS  79
#define HELP_INDENT   28 /* column of the help texts */
#define TROFF_COLUMNS 72 /* escapes make a line longer */
#define HELP_TEXT     MM_OPT_TEXT_BYTES

/* ---- text ---- */

/* Length of the first line of @text, without its end. */
static size_t line_length(const char *text)
{
	return strcspn(text, "\n");
}

/*
 * Prints one paragraph's words up to an empty line, a line that is printed as it is, or the end.
 * Return: behind the last line that was printed.
 */
static const char *words_print(FILE *out, const char *text, size_t indent)
{
	size_t column = indent;
	bool first = true;

	while (*text && *text != '\n') {
		const size_t n = strcspn(text, " \n");

		if (n && !first && column + 1 + n > HELP_COLUMNS) {
			fprintf(out, "\n%*s", (int)indent, "");
			column = indent;
			first = true;
		}
		if (n) {
			fprintf(out, "%s%.*s", first ? "" : " ", (int)n, text);
			column += n + !first;
			first = false;
		}
		text += n + strspn(text + n, " ");
		if (*text == '\n') {
			text++;
			if (*text == ' ' || *text == '\t')
				break;
		}
	}
	fputc('\n', out);
	return text;
}

/*
 * Prints @text filled to HELP_COLUMNS, lines that begin with white space as they are. The line
 * stands at @indent already.
 */
static void wrapped_print(FILE *out, const char *text, size_t indent)
{
	if (!*text)
		fputc('\n', out);
	for (bool first = true; *text; first = false) {
		const size_t n = line_length(text);

		if (*text == ' ' || *text == '\t' || n == 0) {
			fprintf(out, "%.*s\n", (int)n, text);
			text += n + (text[n] != '\0');
			continue;
		}
		fprintf(out, "%*s", first ? 0 : (int)indent, "");
		text = words_print(out, text, indent);
	}
}

static void help_append(char *text, const char *a, const char *b, const char *c)
{
	const size_t at = strlen(text);

	snprintf(text + at, HELP_TEXT - at, "%s%s%s", a, b, c);
}

/* Appends in parentheses the range, the default, and whether the option is required. */
static void option_append_range(const struct mm_opt *o, char text[HELP_TEXT])
{
	const char *unit = o->unit ? o->unit : "", *space = o->unit ? " " : "", *opens = " (";
	char range[128];
	bool unit_said = false;

	range[0] = '\0';
	if (o->type == MM_OPT_NUMBER && o->max && o->max <= MM_OPT_MAX_SHOWN)
		snprintf(range, sizeof(range), "%" PRIu64 " to %" PRIu64 "%s%s", o->min, o->max,
			 space, unit);
	else if (o->type == MM_OPT_NUMBER && o->min)
		snprintf(range, sizeof(range), "at least %" PRIu64 "%s%s", o->min, space, unit);
	else if (o->type == MM_OPT_REAL && o->most > 0 && o->most <= MM_OPT_MAX_SHOWN)
		snprintf(range, sizeof(range), "%.10g to %.10g%s%s", o->least, o->most, space,
			 unit);
	else if (o->type == MM_OPT_REAL && o->least > 0)
		snprintf(range, sizeof(range), "at least %.10g%s%s", o->least, space, unit);
	if (*range) {
		help_append(text, opens, range, "");
		unit_said = true;
		opens = "; ";
	}
	if (o->preset || o->otherwise) {
		help_append(text, opens, "default: ", o->preset ? o->preset : o->otherwise);
		if (!unit_said && o->preset && isdigit((unsigned char)*o->preset))
			help_append(text, space, unit, "");
		opens = "; ";
	}
	if (o->required) {
		help_append(text, opens, "required", "");
		opens = "; ";
	}
	if (*opens == ';')
		help_append(text, ")", "", "");
}

bool mm_opt_text_has_choices(const struct mm_opt *o)
{
	for (const struct mm_opt_choice *c = o->choices; c && c->name; c++) {
		if (c->help)
			return true;
	}
	return false;
}

/*
 * The help of an option with its range and its default, and its choices unless these are listed
 * below it because they are explained, or stand in the name of the value beside a number.
 */
void mm_opt_text_help(const struct mm_opt *o, char text[HELP_TEXT])
{
	const bool number = o->type == MM_OPT_NUMBER || o->type == MM_OPT_SIZE || o->each;

	snprintf(text, HELP_TEXT, "%s", o->help);
	for (const struct mm_opt_choice *c = o->choices; c && c->name; c++) {
		if (number || mm_opt_text_has_choices(o))
			break;
		help_append(text, c != o->choices ? ", " : ": ", c->name, "");
	}
	option_append_range(o, text);
}

/* Prints what is described, and beside or below it the description. */
static void head_print(FILE *out, const char *head, const char *text)
{
	if (strlen(head) + 2 > HELP_INDENT)
		fprintf(out, "%s\n%*s", head, HELP_INDENT, "");
	else
		fprintf(out, "%-*s", HELP_INDENT, head);
	wrapped_print(out, text, HELP_INDENT);
}

/* @dashes and @joint: "--" and " " of an option, "" and "=" of a key. */
static void option_print(FILE *out, const struct mm_opt *o, const char *dashes, const char *joint)
{
	char head[128], text[HELP_TEXT];

	if (o->group)
		fprintf(out, "\n%s:\n", o->group);
	snprintf(head, sizeof(head), "  %s%s%s%s", dashes, o->name, o->value ? joint : "",
		 o->value ? o->value : "");
	mm_opt_text_help(o, text);
	head_print(out, head, text);
	for (const struct mm_opt_choice *c = o->choices; c && c->name; c++) {
		if (!mm_opt_text_has_choices(o))
			break;
		snprintf(text, sizeof(text), "%s%s%s", c->name, c->help ? ": " : "",
			 c->help ? c->help : "");
		fprintf(out, "%*s", HELP_INDENT + 2, "");
		wrapped_print(out, text, HELP_INDENT + 4);
	}
}

static size_t sets_print(FILE *out, const struct mm_opt_set *sets, size_t n)
{
	size_t printed = 0;

	for (size_t s = 0; s < n && sets[s].opts; s++) {
		for (const struct mm_opt *o = sets[s].opts; o->name; o++) {
			if (!o->help || o->file_only)
				continue;
			option_print(out, o, "--", " ");
			printed++;
		}
	}
	return printed;
}

static void tail_print(FILE *out, const struct mm_opt_program *program)
{
	fprintf(out, "  %-*s%s\n", HELP_INDENT - 2, "-h, --help", "print this help");
	fprintf(out, "  %-*s%s\n", HELP_INDENT - 2, "--version", "print the version");
	for (const struct mm_opt_section *s = program->sections; s && s->title; s++) {
		if (s->in_help) {
			fprintf(out, "\n%s:\n", s->title);
			wrapped_print(out, s->text, 0);
			for (const struct mm_opt *o = s->keys ? s->keys() : NULL; o && o->name; o++)
				option_print(out, o, "", "=");
		}
	}
	if (program->exits) {
		fputc('\n', out);
		wrapped_print(out, program->exits, 0);
	}
}

static bool command_begins(const struct mm_opt_command *command, const char *word)
{
	const size_t n = word ? strlen(word) : 0;

	return !word || (strncmp(command->name, word, n) == 0 && command->name[n] == ' ');
}

void mm_opt_print_commands(FILE *out, const struct mm_opt_program *program, const char *word)
{
	fprintf(out, "Usage: %s [OPTIONS] %s%sCOMMAND [ARGUMENTS]\n\n%s\n", program->name,
		word ? word : "", word ? " " : "", program->summary);
	if (program->text && !word) {
		fputc('\n', out);
		wrapped_print(out, program->text, 0);
	}
	fputs("\nCommands:\n", out);
	for (size_t c = 0; c < program->n_commands; c++) {
		const struct mm_opt_command *command = &program->commands[c];
		char head[128];

		snprintf(head, sizeof(head), "  %s%s%s", command->name,
			 *command->arguments ? " " : "", command->arguments);
		if (command_begins(command, word))
			head_print(out, head, command->summary);
	}
	fprintf(out, "\n%s COMMAND --help describes one command.\n\nOptions:\n", program->name);
	sets_print(out, program->shared, MM_ARRAY_SIZE(program->shared));
	tail_print(out, program);
}

void mm_opt_print_help(FILE *out, const struct mm_opt_program *program, size_t command)
{
	const struct mm_opt_command *c;

	if (command >= program->n_commands) {
		mm_opt_print_commands(out, program, NULL);
		return;
	}
	c = &program->commands[command];
	fprintf(out, "Usage: %s%s%s [OPTIONS]%s%s\n\n", program->name, *c->name ? " " : "", c->name,
		*c->arguments ? " " : "", c->arguments);
	wrapped_print(out, *c->name ? c->summary : program->summary, 0);
	for (int i = 0; i < 2; i++) {
		const char *text = i == 0 ? (*c->name ? NULL : program->text) : c->text;

		if (!text)
			continue;
		fputc('\n', out);
		wrapped_print(out, text, 0);
	}
	/* A table that begins with a heading needs none. */
	if (!c->sets[0].opts || !c->sets[0].opts->group)
		fputs("\nOptions:\n", out);
	if (sets_print(out, c->sets, MM_ARRAY_SIZE(c->sets)) && program->shared[0].opts)
		fputs("\nOptions of all commands:\n", out);
	sets_print(out, program->shared, MM_ARRAY_SIZE(program->shared));
	tail_print(out, program);
}

/* ---- man page ---- */

/* Prints one line so that troff shows it as it is. */
static void troff_line(FILE *out, const char *line, size_t n)
{
	if (n && (*line == '.' || *line == '\''))
		fputs("\\&", out);
	for (size_t i = 0; i < n; i++) {
		if (line[i] == '-')
			fputs("\\-", out);
		else if (line[i] == '\\')
			fputs("\\e", out);
		else
			fputc(line[i], out);
	}
	fputc('\n', out);
}

/* Prints one line as several of at most TROFF_COLUMNS, which troff fills again. */
static void troff_words(FILE *out, const char *line, size_t n)
{
	while (n > TROFF_COLUMNS) {
		size_t at = TROFF_COLUMNS;

		while (at && line[at] != ' ')
			at--;
		if (!at)
			break;
		troff_line(out, line, at);
		line += at + 1;
		n -= at + 1;
	}
	troff_line(out, line, n);
}

/* An empty line begins a paragraph; lines that begin with white space are an example. */
void mm_opt_text_troff(FILE *out, const char *text)
{
	const char *begin = text;
	bool example = false;

	while (*text) {
		const size_t n = line_length(text);
		const bool as_it_is = *text == ' ' || *text == '\t';

		if (n && as_it_is != example && text != begin)
			fputs(as_it_is ? ".PP\n.EX\n" : ".EE\n.PP\n", out);
		else if (n && as_it_is != example)
			fputs(".EX\n", out);
		example = n ? as_it_is : example;
		if (n && !example)
			troff_words(out, text, n);
		else if (n)
			troff_line(out, text, n);
		else if (!example)
			fputs(".PP\n", out);
		else
			fputc('\n', out);
		text += n + (text[n] != '\0');
	}
	if (example)
		fputs(".EE\n", out);
}

void mm_opt_text_man(FILE *out, const struct mm_opt *o, const char *dashes, const char *joint,
		     const char *tail)
{
	char text[HELP_TEXT];

	if (o->group)
		fprintf(out, ".SS \"%s\"\n", o->group);
	fprintf(out, ".TP\n\\fB%s", dashes);
	for (const char *c = o->name; *c; c++)
		fprintf(out, *c == '-' ? "\\-" : "%c", *c);
	fputs("\\fR", out);
	if (o->value)
		fprintf(out, "%s\\fI%s\\fR", joint, o->value);
	fputc('\n', out);
	mm_opt_text_help(o, text);
	mm_opt_text_troff(out, text);
	if (*tail)
		mm_opt_text_troff(out, tail);
	if (!mm_opt_text_has_choices(o))
		return;
	fputs(".RS\n", out);
	for (const struct mm_opt_choice *c = o->choices; c->name; c++) {
		fprintf(out, ".TP\n\\fB%s\\fR\n", c->name);
		mm_opt_text_troff(out, c->help ? c->help : "\\&");
	}
	fputs(".RE\n", out);
}

static void man_options(FILE *out, const struct mm_opt_set *sets, size_t n)
{
	for (size_t s = 0; s < n && sets[s].opts; s++) {
		for (const struct mm_opt *o = sets[s].opts; o->name; o++) {
			if (o->help && !o->file_only)
				mm_opt_text_man(out, o, "\\-\\-", " ", "");
		}
	}
}

static void man_tail_options(FILE *out)
{
	fputs(".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nprint a summary of the options\n"
	      ".TP\n\\fB\\-\\-version\\fR\nprint the version\n",
	      out);
}

static void man_command(FILE *out, const struct mm_opt_program *program,
			const struct mm_opt_command *c)
{
	if (*c->name) {
		fprintf(out, ".SS \"%s %s%s%s\"\n", program->name, c->name,
			*c->arguments ? " " : "", c->arguments);
		mm_opt_text_troff(out, c->summary);
	}
	if (c->text) {
		fputs(".PP\n", out);
		mm_opt_text_troff(out, c->text);
	}
	man_options(out, c->sets, MM_ARRAY_SIZE(c->sets));
}

static void print_upper(FILE *out, const char *text)
{
	for (; *text; text++)
		fputc(toupper((unsigned char)*text), out);
}

static void man_sections(FILE *out, const struct mm_opt_program *program)
{
	for (const struct mm_opt_section *s = program->sections; s && s->title; s++) {
		fputs(".SH \"", out);
		print_upper(out, s->title);
		fputs("\"\n", out);
		mm_opt_text_troff(out, s->text);
		for (const struct mm_opt *o = s->keys ? s->keys() : NULL; o && o->name; o++)
			mm_opt_text_man(out, o, "", "=", "");
	}
}

void mm_opt_print_man(FILE *out, const struct mm_opt_program *program)
{
	const bool one = program->n_commands == 1 && !*program->commands[0].name;

	fputs(".\\\" SPDX-License-Identifier: Apache-2.0\n.TH ", out);
	print_upper(out, program->name);
	fprintf(out, " %s \"\" \"mmd %s\"\n.SH NAME\n%s \\- ", program->man_section, MM_VERSION,
		program->name);
	mm_opt_text_troff(out, program->summary);
	fprintf(out, ".SH SYNOPSIS\n.B %s\n[OPTIONS]%s%s\n.SH DESCRIPTION\n", program->name,
		one && !*program->commands[0].arguments ? "" : " ",
		one ? program->commands[0].arguments : "COMMAND [ARGUMENTS]");
	mm_opt_text_troff(out, program->text ? program->text : program->summary);
	fputs(one ? ".SH OPTIONS\n" : ".SH COMMANDS\n", out);
	for (size_t c = 0; c < program->n_commands; c++)
		man_command(out, program, &program->commands[c]);
	if (!one)
		fputs(".SH OPTIONS\n", out);
	man_options(out, program->shared, MM_ARRAY_SIZE(program->shared));
	man_tail_options(out);
	man_sections(out, program);
	if (program->exits) {
		const char title[] = "Exit status: ";
		const bool titled = strncmp(program->exits, title, sizeof(title) - 1) == 0;

		fputs(".SH EXIT STATUS\n", out);
		mm_opt_text_troff(out, program->exits + (titled ? sizeof(title) - 1 : 0));
	}
	if (program->see_also) {
		fputs(".SH SEE ALSO\n", out);
		mm_opt_text_troff(out, program->see_also);
	}
}

/* ---- completion ---- */

static void bash_options(FILE *out, const struct mm_opt_set *sets, size_t n)
{
	for (size_t s = 0; s < n && sets[s].opts; s++) {
		for (const struct mm_opt *o = sets[s].opts; o->name; o++) {
			if (o->help && !o->file_only)
				fprintf(out, " --%s", o->name);
		}
	}
}

/* A branch for each option that has choices. @command: what the pattern begins with. */
static void bash_choices(FILE *out, const char *command, const struct mm_opt_set *sets, size_t n)
{
	for (size_t s = 0; s < n && sets[s].opts; s++) {
		for (const struct mm_opt *o = sets[s].opts; o->name; o++) {
			if (!o->choices || !o->help || o->file_only)
				continue;
			fprintf(out, "\t%s':--%s') words='", command, o->name);
			for (const struct mm_opt_choice *c = o->choices; c->name; c++)
				fprintf(out, "%s%s", c == o->choices ? "" : " ", c->name);
			fputs("' ;;\n", out);
		}
	}
}

/* A branch in which nothing is offered for each option with another value; files are completed. */
static void bash_values(FILE *out, const char *command, const struct mm_opt_set *sets, size_t n)
{
	for (size_t s = 0; s < n && sets[s].opts; s++) {
		for (const struct mm_opt *o = sets[s].opts; o->name; o++) {
			if (!o->choices && o->type != MM_OPT_FLAG && o->help && !o->file_only)
				fprintf(out, "\t%s':--%s') return ;;\n", command, o->name);
		}
	}
}

/* Writes to `command` the words of the line that are those of a command, not values of options. */
static void bash_find_command(FILE *out, const struct mm_opt_program *program)
{
	fputs("\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	      "\t\tcase \"$command/${COMP_WORDS[i]}\" in\n",
	      out);
	for (size_t s = 0; s < MM_ARRAY_SIZE(program->shared) && program->shared[s].opts; s++) {
		for (const struct mm_opt *o = program->shared[s].opts; o->name; o++) {
			if (o->type != MM_OPT_FLAG && o->help)
				fprintf(out,
					"\t\t*'/--%s') [[ ${COMP_WORDS[i+1]} == '=' ]] && "
					"((i++)); ((i++)) ;;\n",
					o->name);
		}
	}
	for (size_t c = 0; c < program->n_commands; c++) {
		const char *name = program->commands[c].name;
		const size_t n = strcspn(name, " ");

		if (!*name)
			continue;
		if (!c || strncmp(program->commands[c - 1].name, name, n + 1) != 0)
			fprintf(out, "\t\t'/%.*s') command='%.*s' ;;\n", (int)n, name, (int)n,
				name);
		if (name[n])
			fprintf(out, "\t\t'%.*s/%s') command='%s' ;;\n", (int)n, name, name + n + 1,
				name);
	}
	fputs("\t\tesac\n\tdone\n", out);
}

/* A branch with the second words of the commands that begin with the first word of @c. */
static void bash_second_words(FILE *out, const struct mm_opt_program *program, size_t c)
{
	const char *name = program->commands[c].name;
	const size_t n = strcspn(name, " ");

	for (size_t before = 0; before < c; before++) {
		if (strncmp(program->commands[before].name, name, n + 1) == 0)
			return;
	}
	fprintf(out, "\t\t'%.*s') words='", (int)n, name);
	for (size_t i = c; i < program->n_commands; i++) {
		const char *other = program->commands[i].name;

		if (strncmp(other, name, n + 1) == 0)
			fprintf(out, "%s%s", i == c ? "" : " ", other + n + 1);
	}
	fputs("' ;;\n", out);
}

static void bash_commands(FILE *out, const struct mm_opt_program *program)
{
	fputs("\telse\n\t\tcase \"$command\" in\n\t\t'') words='", out);
	for (size_t c = 0; c < program->n_commands; c++) {
		const char *name = program->commands[c].name;
		const size_t n = strcspn(name, " ");
		size_t before = 0;

		while (before < c && strncmp(program->commands[before].name, name, n + 1) != 0)
			before++;
		if (before == c)
			fprintf(out, "%s%.*s", c ? " " : "", (int)n, name);
	}
	fputs("' ;;\n", out);
	for (size_t c = 0; c < program->n_commands; c++) {
		if (strchr(program->commands[c].name, ' '))
			bash_second_words(out, program, c);
	}
	fputs("\t\tesac\n", out);
}

/* A branch with the options of a command, and of all others that have its name. */
static void bash_command_words(FILE *out, const struct mm_opt_program *program, size_t c)
{
	const char *name = program->commands[c].name;

	for (size_t before = 0; before < c; before++) {
		if (strcmp(program->commands[before].name, name) == 0)
			return;
	}
	fprintf(out, "\t\t'%s') words='--help --version", name);
	for (size_t i = c; i < program->n_commands; i++) {
		const struct mm_opt_command *command = &program->commands[i];

		if (strcmp(command->name, name) == 0)
			bash_options(out, command->sets, MM_ARRAY_SIZE(command->sets));
	}
	bash_options(out, program->shared, MM_ARRAY_SIZE(program->shared));
	fputs("' ;;\n", out);
}

static void bash_option_words(FILE *out, const struct mm_opt_program *program)
{
	fputs("\tif [[ -z $words && $current == -* ]]; then\n\t\tcase \"$command\" in\n", out);
	for (size_t c = 0; c < program->n_commands; c++) {
		if (*program->commands[c].name)
			bash_command_words(out, program, c);
	}
	fputs("\t\t*) words='--help --version", out);
	if (program->n_commands && !*program->commands[0].name)
		bash_options(out, program->commands[0].sets,
			     MM_ARRAY_SIZE(program->commands[0].sets));
	bash_options(out, program->shared, MM_ARRAY_SIZE(program->shared));
	fputs("' ;;\n\t\tesac\n\telif [[ -n $words ]]; then\n\t\t:\n", out);
}

void mm_opt_print_bash(FILE *out, const struct mm_opt_program *program)
{
	char command[64];

	/* "=" is a word of its own in COMP_WORDS, so `--name=value` are three. */
	fprintf(out,
		"# SPDX-License-Identifier: Apache-2.0\n# Completion of %s for bash.\n"
		"_%s()\n{\n\tlocal i command='' words=''\n"
		"\tlocal current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n\n"
		"\tCOMPREPLY=()\n"
		"\tif [[ $current == '=' ]]; then\n\t\tcurrent=''\n"
		"\telif [[ $previous == '=' ]]; then\n\t\tprevious=${COMP_WORDS[COMP_CWORD-2]}\n"
		"\tfi\n",
		program->name, program->name);
	bash_find_command(out, program);
	fputs("\tcase \"$command:$previous\" in\n", out);
	for (size_t c = 0; c < program->n_commands; c++) {
		snprintf(command, sizeof(command), "'%s'", program->commands[c].name);
		bash_choices(out, command, program->commands[c].sets,
			     MM_ARRAY_SIZE(program->commands[c].sets));
		bash_values(out, command, program->commands[c].sets,
			    MM_ARRAY_SIZE(program->commands[c].sets));
	}
	bash_choices(out, "*", program->shared, MM_ARRAY_SIZE(program->shared));
	bash_values(out, "*", program->shared, MM_ARRAY_SIZE(program->shared));
	fputs("\tesac\n", out);
	bash_option_words(out, program);
	bash_commands(out, program);
	fprintf(out,
		"\tfi\n\tif [[ -n $words ]]; then\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
		"\tfi\n}\ncomplete -o default -F _%s %s\n",
		program->name, program->name);
}

void mm_opt_print_kind(FILE *out, const struct mm_opt_program *program, enum mm_opt_help kind)
{
	if (kind == MM_OPT_HELP_MAN)
		mm_opt_print_man(out, program);
	else if (kind == MM_OPT_HELP_BASH)
		mm_opt_print_bash(out, program);
	else if (kind == MM_OPT_HELP_ZSH)
		mm_opt_print_zsh(out, program);
	else if (kind == MM_OPT_HELP_FILE)
		mm_opt_print_file(out, program->file);
	else
		mm_opt_print_file_man(out, program->file);
}
