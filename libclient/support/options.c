/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/support/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/support/size.h"

#define OPTION_WORD_MAX      48 /* longer words are compared by their beginning */
#define OPTION_BEGINNING_MIN 3  /* shorter beginnings of a name suggest nothing */
#define OPTION_CHOICES_BYTES 320
#define OPTIONS_REQUIRED_MAX 8 /* required options of one command */

/* ---- nearest word ---- */

static size_t options_least(size_t a, size_t b, size_t c)
{
	return MM_MIN(MM_MIN(a, b), c);
}

/* Optimal string alignment distance, by three rows of the usual table. */
static size_t word_distance(const char *a, size_t an, const char *b, size_t bn)
{
	size_t rows[3][OPTION_WORD_MAX + 1];
	size_t *before = rows[0], *above = rows[1], *row = rows[2];

	for (size_t j = 0; j <= bn; j++)
		above[j] = j;
	for (size_t i = 1; i <= an; i++) {
		size_t *reused = before;

		row[0] = i;
		for (size_t j = 1; j <= bn; j++) {
			row[j] = options_least(above[j] + 1, row[j - 1] + 1,
					       above[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = MM_MIN(row[j], before[j - 2] + 1);
		}
		before = above;
		above = row;
		row = reused;
	}
	return above[bn];
}

void mm_opt_near_offer(struct mm_opt_near *near, const char *name)
{
	const size_t an = MM_MIN(near->bytes, (size_t)OPTION_WORD_MAX);
	const size_t bn = MM_MIN(strlen(name), (size_t)OPTION_WORD_MAX);
	size_t distance = word_distance(near->word, an, name, bn);

	if (an >= OPTION_BEGINNING_MIN && an < bn && memcmp(near->word, name, an) == 0)
		distance = 1;
	if (distance > MM_MAX(an / 3, (size_t)1) || distance >= an)
		return;
	if (!near->best || distance < near->distance) {
		near->best = name;
		near->distance = distance;
	}
}

/* ---- values ---- */

static int option_value_refuse(char *why, const char *format, ...) MM_PRINTF(2, 3);
static int option_value_refuse(char *why, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, MM_OPT_ERROR_BYTES, format, args);
	va_end(args);
	return -EINVAL;
}

static uint64_t option_max(const struct mm_opt *opt)
{
	if (opt->max)
		return opt->max;
	if (opt->type == MM_OPT_SIZE || opt->each == MM_OPT_SIZE)
		return MM_OPT_SIZE_MAX;
	return opt->bytes == 4 ? UINT32_MAX : UINT64_MAX;
}

static int option_digits_parse(const char *text, uint64_t *ret)
{
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	if (*end)
		return -EINVAL;
	return errno ? -ERANGE : 0;
}

static const struct mm_opt_choice *choice_find(const struct mm_opt *opt, const char *word,
					       size_t bytes)
{
	for (const struct mm_opt_choice *c = opt->choices; c && c->name; c++) {
		if (strlen(c->name) == bytes && memcmp(c->name, word, bytes) == 0)
			return c;
	}
	return NULL;
}

/* Writes the names of all choices to @list, or as many as there is room for and "...". */
static const char *choices_list(const struct mm_opt *opt, char list[OPTION_CHOICES_BYTES])
{
	size_t at = 0;

	list[0] = '\0';
	for (const struct mm_opt_choice *c = opt->choices; c && c->name; c++) {
		if (at + strlen(c->name) + sizeof(", , ...") > OPTION_CHOICES_BYTES) {
			snprintf(list + at, OPTION_CHOICES_BYTES - at, ", ...");
			break;
		}
		at += (size_t)snprintf(list + at, OPTION_CHOICES_BYTES - at, "%s%s", at ? ", " : "",
				       c->name);
	}
	return list;
}

int mm_opt_number(const struct mm_opt *opt, const char *text, uint64_t *ret, char *why)
{
	const bool size = opt->type == MM_OPT_SIZE || opt->each == MM_OPT_SIZE;
	const struct mm_opt_choice *c = choice_find(opt, text, strlen(text));
	struct mm_opt_near near = { .word = text, .bytes = strlen(text) };
	char list[OPTION_CHOICES_BYTES];
	uint64_t number = c ? c->value : 0;
	int r = 0;

	choices_list(opt, list);
	if (!c)
		r = size ? mm_size_parse(text, &number) : option_digits_parse(text, &number);
	for (const struct mm_opt_choice *o = opt->choices; o && o->name; o++)
		mm_opt_near_offer(&near, o->name);
	if (r == -EINVAL)
		return option_value_refuse(why, "'%.64s' is not a %s%s%s%s%s%s", text,
					   size ? "size; write 65536, 512M or 2G" : "whole number",
					   *list ? ", nor one of: " : "", list,
					   near.best ? "; did you mean " : "",
					   near.best ? near.best : "", near.best ? "?" : "");
	if (!c && r == 0 && number < opt->min && option_max(opt) > MM_OPT_MAX_SHOWN)
		return option_value_refuse(why, "'%.64s' is less than %" PRIu64 "%s%s%s%s", text,
					   opt->min, opt->unit ? " " : "",
					   opt->unit ? opt->unit : "",
					   *list ? ", nor one of: " : "", list);
	if (!c && (r < 0 || number < opt->min || number > option_max(opt)))
		return option_value_refuse(
			why, "'%.64s' is not within %" PRIu64 " to %" PRIu64 "%s%s%s%s", text,
			opt->min, option_max(opt), opt->unit ? " " : "", opt->unit ? opt->unit : "",
			*list ? ", nor one of: " : "", list);
	*ret = number;
	return 0;
}

int mm_opt_real(const struct mm_opt *opt, const char *text, double *ret, char *why)
{
	const double most = opt->most > 0 ? opt->most : HUGE_VAL;
	const char *unit = opt->unit ? opt->unit : "", *space = opt->unit ? " " : "";
	char *end;
	const double real = strtod(text, &end);

	/* strtod() would also take white space, hexadecimal numbers, and words like "nan". */
	if (end == text || *end || !isfinite(real) ||
	    strspn(text, "+-.0123456789eE") != strlen(text))
		return option_value_refuse(why, "'%.64s' is not a number", text);
	if (real < opt->least && !isfinite(most))
		return option_value_refuse(why, "'%.64s' is less than %g%s%s", text, opt->least,
					   space, unit);
	if (real < opt->least || real > most)
		return option_value_refuse(why, "'%.64s' is not within %g to %g%s%s", text,
					   opt->least, most, space, unit);
	*ret = real;
	return 0;
}

int mm_opt_choice(const struct mm_opt *opt, const char *word, size_t bytes, uint64_t *ret,
		  char *why)
{
	const struct mm_opt_choice *c = choice_find(opt, word, bytes);
	struct mm_opt_near near = { .word = word, .bytes = bytes };
	char list[OPTION_CHOICES_BYTES];

	if (c) {
		*ret = c->value;
		return 0;
	}
	for (c = opt->choices; c->name; c++)
		mm_opt_near_offer(&near, c->name);
	choices_list(opt, list);
	return option_value_refuse(why, "'%.*s' is none of: %s%s%s%s",
				   (int)MM_MIN(bytes, (size_t)64), word, list,
				   near.best ? "; did you mean " : "", near.best ? near.best : "",
				   near.best ? "?" : "");
}

const char *mm_opt_choice_name(const struct mm_opt_choice *choices, uint64_t value)
{
	for (; choices->name; choices++) {
		if (choices->value == value)
			return choices->name;
	}
	return "?";
}

/* Stores an unsigned number, an enum or a bool in a field of its size. */
static void field_store(const struct mm_opt *opt, void *field, uint64_t value)
{
	const uint32_t value32 = (uint32_t)value;
	const bool truth = value != 0;

	if (opt->bytes == sizeof(value)) {
		memcpy(field, &value, sizeof(value));
	} else if (opt->bytes == sizeof(value32)) {
		memcpy(field, &value32, sizeof(value32));
	} else {
		mm_assert(opt->bytes == sizeof(truth));
		memcpy(field, &truth, sizeof(truth));
	}
}

static int text_store(const struct mm_opt *opt, char *text, void *field, char *why)
{
	if (!*text)
		return option_value_refuse(why, "is empty; give %s", opt->value);
	if (opt->type == MM_OPT_TEXT) {
		memcpy(field, &text, sizeof(text));
		return 0;
	}
	if (strlen(text) >= opt->bytes)
		return option_value_refuse(why, "longer than %zu bytes", opt->bytes - 1);
	strcpy(field, text);
	return 0;
}

static int value_store(const struct mm_opt *opt, char *text, void *into, char *why)
{
	void *field = (char *)into + opt->at;
	uint64_t number = 0;
	double real = 0;
	int r = 0;

	switch (opt->type) {
	case MM_OPT_FLAG:
		field_store(opt, field, !opt->clears);
		return 0;
	case MM_OPT_REAL:
		r = mm_opt_real(opt, text, &real, why);
		if (!r)
			memcpy(field, &real, sizeof(real));
		return r;
	case MM_OPT_TEXT:
	case MM_OPT_COPY:
		return text_store(opt, text, field, why);
	case MM_OPT_CALL:
		return opt->parse(opt, text, into, why);
	case MM_OPT_CHOICE:
		r = mm_opt_choice(opt, text, strlen(text), &number, why);
		break;
	case MM_OPT_NUMBER:
	case MM_OPT_SIZE:
		r = mm_opt_number(opt, text, &number, why);
		break;
	}
	if (!r)
		field_store(opt, field, number);
	return r;
}

int mm_opt_store(const struct mm_opt *opt, char *text, void *into, const char *where, char *error)
{
	char why[MM_OPT_ERROR_BYTES];

	if (!text != (opt->type == MM_OPT_FLAG)) {
		option_value_refuse(error, "%s%s: %s", where, opt->name,
				    text ? "takes no value" : "needs a value");
		return -EINVAL;
	}
	if (value_store(opt, text, into, why) == 0)
		return 0;
	if (opt->complete)
		return option_value_refuse(error, "%s", why);
	return option_value_refuse(error, "%s%s: %s", where, opt->name, why);
}

/* ---- tables ---- */

const struct mm_opt *mm_opt_find(const struct mm_opt *opts, const char *name, size_t bytes)
{
	for (; opts->name; opts++) {
		if (strlen(opts->name) == bytes && memcmp(opts->name, name, bytes) == 0)
			return opts;
	}
	return NULL;
}

const char *mm_opt_renamed(const struct mm_opt_renamed *renamed, const char *name, size_t bytes)
{
	for (; renamed && renamed->was; renamed++) {
		if (strlen(renamed->was) == bytes && memcmp(renamed->was, name, bytes) == 0)
			return renamed->now;
	}
	return NULL;
}

/*
 * Presets are literals; a parser may cut its text and point into it, so it gets a copy, which
 * stays. The copies are static: there may be no memory yet, and nobody to say so.
 */
static struct {
	const char *preset;
	char text[64];
} preset_copies[32];

static char *preset_text(const struct mm_opt *opt)
{
	const size_t bytes = strlen(opt->preset) + 1;
	size_t i = 0;

	if (opt->type != MM_OPT_CALL)
		return (char *)(uintptr_t)opt->preset;
	while (preset_copies[i].preset && preset_copies[i].preset != opt->preset)
		i++;
	mm_assert(i + 1 < MM_ARRAY_SIZE(preset_copies) && bytes <= sizeof(preset_copies[i].text));
	preset_copies[i].preset = opt->preset;
	return memcpy(preset_copies[i].text, opt->preset, bytes);
}

static void sets_defaults(const struct mm_opt_set *sets, size_t n, void *into)
{
	char error[MM_OPT_ERROR_BYTES];

	for (size_t s = 0; s < n && sets[s].opts; s++) {
		for (const struct mm_opt *o = sets[s].opts; o->name; o++) {
			if (o->preset)
				mm_assert(mm_opt_store(o, preset_text(o),
						       (char *)into + sets[s].base, "",
						       error) == 0);
		}
	}
}

void mm_opt_defaults(const struct mm_opt_program *program, size_t command, void *into)
{
	sets_defaults(program->shared, MM_ARRAY_SIZE(program->shared), into);
	if (command < program->n_commands)
		sets_defaults(program->commands[command].sets,
			      MM_ARRAY_SIZE(program->commands[command].sets), into);
}

/* ---- command line ---- */

/* How often the words are read; with help or the version only once, and nothing is stored. */
enum options_pass {
	PASS_WORDS, /* which command, whether help is asked for, which options there are */
	PASS_EARLY, /* stores options that are early */
	PASS_REST,  /* stores all others, and arguments */
};

struct options_parser {
	const struct mm_opt_program *program;
	size_t command; /* MM_OPT_COMMAND_NONE until its words were read */
	void *into;
	char *error;
	char **argv;
	int argc, i;
	char *word;  /* first word of a command of two; NULL: none was read */
	char **args; /* arguments, in order */
	int n_args;
	enum options_pass pass;
	bool help, version;
	enum mm_opt_help help_kind;
	const struct mm_opt *given[OPTIONS_REQUIRED_MAX]; /* required options that were given */
	size_t n_given;
};

static const struct mm_opt *sets_find(const struct mm_opt_set *sets, size_t n, const char *name,
				      size_t bytes, size_t *ret_base)
{
	for (size_t s = 0; s < n && sets[s].opts; s++) {
		const struct mm_opt *opt = mm_opt_find(sets[s].opts, name, bytes);

		if (opt && !opt->file_only) {
			*ret_base = sets[s].base;
			return opt;
		}
	}
	return NULL;
}

static void sets_offer(const struct mm_opt_set *sets, size_t n, struct mm_opt_near *near)
{
	for (size_t s = 0; s < n && sets[s].opts; s++) {
		for (const struct mm_opt *o = sets[s].opts; o->name; o++) {
			if (o->help && !o->file_only)
				mm_opt_near_offer(near, o->name);
		}
	}
}

static const struct mm_opt_command *parser_command(const struct options_parser *p)
{
	return p->command == MM_OPT_COMMAND_NONE ? NULL : &p->program->commands[p->command];
}

/* The first command other than the present one that has this option; NULL: none has. */
static const struct mm_opt_command *option_owner(const struct options_parser *p, const char *name,
						 size_t bytes)
{
	size_t base;

	for (size_t c = 0; c < p->program->n_commands; c++) {
		const struct mm_opt_command *command = &p->program->commands[c];

		if (c != p->command &&
		    sets_find(command->sets, MM_ARRAY_SIZE(command->sets), name, bytes, &base))
			return command;
	}
	return NULL;
}

static int option_unknown(struct options_parser *p, const char *name, size_t bytes)
{
	const struct mm_opt_command *command = parser_command(p), *owner;
	const char *now = mm_opt_renamed(p->program->renamed, name, bytes);
	struct mm_opt_near near = { .word = name, .bytes = bytes };
	const int shown = (int)MM_MIN(bytes, (size_t)64);

	if (now)
		return option_value_refuse(p->error, "--%.*s is now --%s", shown, name, now);
	owner = option_owner(p, name, bytes);
	if (owner && command && strcmp(owner->name, command->name) == 0)
		return option_value_refuse(
			p->error, "--%.*s: not an option of '%s %s', but of '%s %s'", shown, name,
			command->name, command->arguments, owner->name, owner->arguments);
	if (owner && !command)
		return option_value_refuse(p->error,
					   "--%.*s: an option of '%s'; give it behind that", shown,
					   name, owner->name);
	sets_offer(p->program->shared, MM_ARRAY_SIZE(p->program->shared), &near);
	for (size_t c = 0; command && c < p->program->n_commands; c++) {
		const struct mm_opt_command *other = &p->program->commands[c];

		if (strcmp(other->name, command->name) == 0)
			sets_offer(other->sets, MM_ARRAY_SIZE(other->sets), &near);
	}
	mm_opt_near_offer(&near, "help");
	mm_opt_near_offer(&near, "version");
	if (near.best)
		return option_value_refuse(p->error, "--%.*s: unknown option; did you mean --%s?",
					   shown, name, near.best);
	if (owner)
		return option_value_refuse(p->error,
					   "--%.*s: unknown option; '%s' has one of that name",
					   shown, name, owner->name);
	return option_value_refuse(p->error, "--%.*s: unknown option", shown, name);
}

static int help_option(struct options_parser *p, const char *kind)
{
	static const char *const kinds[] = { "man", "bash", "zsh", "conf", "conf-man" };

	p->help = true;
	if (!kind)
		return 0;
	for (size_t i = 0; i < (p->program->file ? 5 : 3); i++) {
		if (strcmp(kind, kinds[i]) != 0)
			continue;
		p->help_kind = (enum mm_opt_help)(MM_OPT_HELP_MAN + i);
		return 0;
	}
	return option_value_refuse(p->error, "--help: '%.64s' is none of: man, bash, zsh%s", kind,
				   p->program->file ? ", conf, conf-man" : "");
}

static bool option_was_given(const struct options_parser *p, const struct mm_opt *opt)
{
	for (size_t i = 0; i < p->n_given; i++) {
		if (p->given[i] == opt)
			return true;
	}
	return false;
}

/* Takes `--name`, `--name=value` or `--name value`. */
static int parser_option(struct options_parser *p, char *name)
{
	const struct mm_opt_command *command = parser_command(p);
	char *equals = strchr(name, '=');
	const size_t bytes = equals ? (size_t)(equals - name) : strlen(name);
	const struct mm_opt *opt;
	char *value = equals ? equals + 1 : NULL;
	size_t base = 0;

	opt = sets_find(p->program->shared, MM_ARRAY_SIZE(p->program->shared), name, bytes, &base);
	if (!opt && command)
		opt = sets_find(command->sets, MM_ARRAY_SIZE(command->sets), name, bytes, &base);
	if (!opt && bytes == 4 && memcmp(name, "help", 4) == 0)
		return help_option(p, value);
	if (!opt && bytes == 7 && memcmp(name, "version", 7) == 0) {
		p->version = true;
		return value ? option_value_refuse(p->error, "--version: takes no value") : 0;
	}
	if (!opt)
		return option_unknown(p, name, bytes);
	if (!value && opt->type != MM_OPT_FLAG && p->i + 1 < p->argc) {
		value = p->argv[++p->i];
		if (!opt->dashed && strncmp(value, "--", 2) == 0)
			return option_value_refuse(
				p->error,
				"--%s: needs a value; if '%.64s' is one, write --%s=%.64s",
				opt->name, value, opt->name, value);
	}
	if (opt->required && !option_was_given(p, opt)) {
		mm_assert(p->n_given < OPTIONS_REQUIRED_MAX);
		p->given[p->n_given++] = opt;
	}
	if (p->pass != (opt->early ? PASS_EARLY : PASS_REST))
		return 0;
	return mm_opt_store(opt, value, (char *)p->into + base, "--", p->error);
}

/* Offers the names of all commands, and their first words, to the mistyped @near. */
static const char *command_near(const struct options_parser *p, struct mm_opt_near near)
{
	char first[OPTION_WORD_MAX + 1];
	struct mm_opt_near only = near;

	for (size_t c = 0; c < p->program->n_commands; c++)
		mm_opt_near_offer(&near, p->program->commands[c].name);
	for (size_t c = 0; c < p->program->n_commands && !near.best; c++) {
		const char *name = p->program->commands[c].name;

		snprintf(first, sizeof(first), "%.*s", (int)strcspn(name, " "), name);
		mm_opt_near_offer(&only, first);
		if (only.best)
			return name;
	}
	return near.best && (!strchr(near.word, ' ') || near.distance <= 2) ? near.best : NULL;
}

/* Writes the commands that begin with the first word of @words to @list; returns whether any do. */
static bool commands_list(const struct options_parser *p, const char *words,
			  char list[OPTION_CHOICES_BYTES])
{
	const size_t n = strcspn(words, " ");
	size_t at = 0;

	list[0] = '\0';
	for (size_t c = 0; c < p->program->n_commands; c++) {
		const char *name = p->program->commands[c].name;

		if (strncmp(name, words, n) == 0 && name[n] == ' ' && at < OPTION_CHOICES_BYTES)
			at += (size_t)snprintf(list + at, OPTION_CHOICES_BYTES - at, "%s%s",
					       at ? ", " : "", name);
	}
	return at > 0;
}

/* @words are a first word, or two if the first one begins commands or is followed by another. */
static int command_unknown(const struct options_parser *p, const char *words)
{
	const char *next = p->i + 1 < p->argc ? p->argv[p->i + 1] : "", *best;
	char both[2 * 64 + 2], list[OPTION_CHOICES_BYTES];

	/* With the word behind it a mistyped first word is told from others that are near. */
	snprintf(both, sizeof(both), "%.64s %.64s", words, next);
	best = command_near(p, (struct mm_opt_near){ .word = both, .bytes = strlen(both) });
	if (!best || !*next || *next == '-' || strchr(words, ' '))
		best = command_near(p,
				    (struct mm_opt_near){ .word = words, .bytes = strlen(words) });
	if (commands_list(p, words, list) && (!best || !strchr(words, ' ')))
		return option_value_refuse(p->error, "'%.64s' is no command; there are: %s", words,
					   list);
	return option_value_refuse(p->error, "unknown command '%.64s'%s%s%s", words,
				   best ? "; did you mean " : "", best ? best : "",
				   best ? "?" : "");
}

static int command_found(struct options_parser *p, size_t c)
{
	p->command = c;
	p->word = NULL;
	if (p->pass == PASS_WORDS)
		sets_defaults(p->program->commands[c].sets,
			      MM_ARRAY_SIZE(p->program->commands[c].sets), p->into);
	return 0;
}

/* Takes a word of the command's name. */
static int parser_command_word(struct options_parser *p, char *word)
{
	char words[2 * 64 + 2];
	bool begins = false;

	snprintf(words, sizeof(words), "%.64s%s%.64s", p->word ? p->word : "", p->word ? " " : "",
		 word);
	for (size_t c = 0; c < p->program->n_commands; c++) {
		const char *name = p->program->commands[c].name;
		const size_t n = strlen(words);

		if (strcmp(name, words) == 0)
			return command_found(p, c);
		begins |= strncmp(name, words, n) == 0 && name[n] == ' ';
	}
	if (p->word || !begins)
		return command_unknown(p, words);
	p->word = word;
	return 0;
}

static int parser_word(struct options_parser *p, char *word, bool only_arguments)
{
	if (!only_arguments && strcmp(word, "-h") == 0) {
		p->help = true;
		return 0;
	}
	if (!only_arguments && word[0] == '-' && word[1] == '-')
		return parser_option(p, word + 2);
	if (!only_arguments && word[0] == '-' && word[1])
		return option_value_refuse(
			p->error, "%.64s: unknown option; options begin with two dashes", word);
	if (p->command == MM_OPT_COMMAND_NONE)
		return parser_command_word(p, word);
	/* Words may move only when they are read for the last time. */
	if (p->pass == PASS_REST)
		p->args[p->n_args] = word;
	p->n_args++;
	return 0;
}

static int sets_check_required(const struct options_parser *p, const struct mm_opt_set *sets,
			       size_t n)
{
	for (size_t s = 0; s < n && sets[s].opts; s++) {
		for (const struct mm_opt *o = sets[s].opts; o->name; o++) {
			if (o->required && !option_was_given(p, o))
				return option_value_refuse(p->error, "--%s is missing: give %s",
							   o->name, o->value);
		}
	}
	return 0;
}

static int parser_check(const struct options_parser *p)
{
	const struct mm_opt_command *command = parser_command(p);
	int r;

	if (!command)
		return p->word ? command_unknown(p, p->word)
			       : option_value_refuse(p->error, "no command was given");
	if ((uint32_t)p->n_args > command->arguments_max)
		return option_value_refuse(p->error, "unexpected argument '%.64s'",
					   p->args[command->arguments_max]);
	if ((uint32_t)p->n_args < command->arguments_min)
		return option_value_refuse(p->error, "an argument is missing: give %s",
					   command->arguments);
	r = sets_check_required(p, p->program->shared, MM_ARRAY_SIZE(p->program->shared));
	return r ? r : sets_check_required(p, command->sets, MM_ARRAY_SIZE(command->sets));
}

/* Reads all words once. */
static int parser_pass(struct options_parser *p)
{
	bool only_arguments = false;
	int r = 0;

	for (p->i = 1; p->i < p->argc && !r; p->i++) {
		if (!only_arguments && strcmp(p->argv[p->i], "--") == 0)
			only_arguments = true;
		else
			r = parser_word(p, p->argv[p->i], only_arguments);
	}
	return r;
}

/* Arguments are moved to the front of argv[1..], in order. */
static int parser_run(struct options_parser *p)
{
	const size_t command = p->command;
	int r = 0;

	for (p->pass = PASS_WORDS; p->pass <= PASS_REST && !r; p->pass++) {
		p->command = command;
		p->word = NULL;
		p->n_args = 0;
		r = parser_pass(p);
		if (p->help || p->version)
			return r;
	}
	return r ? r : parser_check(p);
}

int mm_opt_parse(const struct mm_opt_program *program, int argc, char **argv, void *into,
		 struct mm_opt_line *ret_line, char *error)
{
	struct options_parser p = {
		.program = program,
		.command = program->n_commands && !*program->commands[0].name ? 0
									      : MM_OPT_COMMAND_NONE,
		.into = into,
		.error = error,
		.argv = argv,
		.argc = argc,
		.args = argv + (argc > 0),
	};
	int r;

	mm_opt_defaults(program, p.command, into);
	r = parser_run(&p);
	ret_line->command = p.command;
	if (r)
		return r;
	ret_line->word = p.word;
	ret_line->help = p.help_kind;
	ret_line->argc = p.n_args;
	ret_line->argv = p.args;
	if (p.help)
		return MM_OPT_HELP;
	return p.version ? MM_OPT_VERSION : MM_OPT_RUN;
}

/* ---- for main() ---- */

static void refusal_print(const struct mm_opt_program *program, size_t command, const char *what)
{
	const char *name = command < program->n_commands ? program->commands[command].name : "";

	const bool asks = *what && what[strlen(what) - 1] == '?';
	char plain[MM_OPT_ERROR_BYTES];
	size_t n = 0;

	/* A word of the line may have what a terminal obeys. */
	for (; what[n] && n + 1 < sizeof(plain); n++)
		plain[n] = (unsigned char)what[n] < ' ' || what[n] == 0x7f ? '?' : what[n];
	plain[n] = '\0';
	fprintf(stderr, "%s: %s%s%s%s %s%s%s --help\n", program->name, name, *name ? ": " : "",
		plain, asks ? " See" : "; see", program->name, *name ? " " : "", name);
}

int mm_opt_refuse(const struct mm_opt_program *program, size_t command, const char *format, ...)
{
	char what[MM_OPT_ERROR_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	refusal_print(program, command, what);
	return MM_EXIT_USAGE;
}

int mm_opt_flush(const struct mm_opt_program *program, int status)
{
	const bool written = fflush(stdout) == 0 && !ferror(stdout);

	if (written || status != MM_EXIT_DONE)
		return status;
	fprintf(stderr, "%s: standard output: %s\n", program->name, strerror(errno));
	return MM_EXIT_FAILED;
}

int mm_opt_main(const struct mm_opt_program *program, int argc, char **argv, void *into,
		struct mm_opt_line *ret_line)
{
	struct mm_opt_line line = { .command = MM_OPT_COMMAND_NONE };
	char error[MM_OPT_ERROR_BYTES];
	const int r = mm_opt_parse(program, argc, argv, into, &line, error);

	if (r < 0) {
		refusal_print(program, line.command, error);
		return MM_EXIT_USAGE;
	}
	if (r == MM_OPT_RUN) {
		*ret_line = line;
		return -1;
	}
	if (r == MM_OPT_VERSION)
		printf("%s %s\n", program->name, program->version ? program->version : MM_VERSION);
	else if (line.help != MM_OPT_HELP_TEXT)
		mm_opt_print_kind(stdout, program, line.help);
	else if (line.command == MM_OPT_COMMAND_NONE)
		mm_opt_print_commands(stdout, program, line.word);
	else
		mm_opt_print_help(stdout, program, line.command);
	return mm_opt_flush(program, MM_EXIT_DONE);
}
