/* SPDX-License-Identifier: Apache-2.0 */
/* A program with each type of option: what its command lines do, and what is printed of it. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/support/options.h"

#define WORDS_MAX 8
#define NAME_LONG "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

struct settings {
	const char *dir;
	char name[8];
	bool json, checks;
	uint64_t layers, bytes, level;
	uint32_t small, kind;
	double seconds;
	uint64_t parts[4];
	size_t n_parts;
};

static int parts_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct settings *s = into;

	s->n_parts = 0;
	for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
		assert_true(s->n_parts < MM_ARRAY_SIZE(s->parts));
		if (mm_opt_number(opt, word, &s->parts[s->n_parts++], why) < 0)
			return -EINVAL;
	}
	return 0;
}

#define AT(field) MM_OPT_AT(struct settings, field)

static const struct mm_opt_choice autos[] = { { "auto", 999, NULL }, { .name = NULL } };
static const struct mm_opt_choice kinds[] = { { "soft", 3, "in software" },
					      { "hard", 7, NULL },
					      { .name = NULL } };
static const struct mm_opt_choice levels[] = { { "info", 0, NULL },
					       { "debug", 1, NULL },
					       { .name = NULL } };

static const struct mm_opt shared[] = {
	{ .name = "dir",
	  .value = "DIR",
	  .help = "a folder",
	  .type = MM_OPT_TEXT,
	  AT(dir),
	  .otherwise = "none" },
	{ .name = "json", .help = "as JSON", .type = MM_OPT_FLAG, AT(json) },
	{ .name = "level",
	  .value = "NAME",
	  .help = "a level",
	  .type = MM_OPT_CHOICE,
	  AT(level),
	  .choices = levels,
	  .preset = "debug" },
	{ .name = NULL },
};

static const struct mm_opt set_opts[] = {
	{ .name = "layers",
	  .value = "N|auto",
	  .help = "how many",
	  .type = MM_OPT_NUMBER,
	  AT(layers),
	  .min = 1,
	  .max = 80,
	  .unit = "layers",
	  .choices = autos,
	  .required = true },
	{ .name = "small", .value = "N", .help = "fits 32 bits", .type = MM_OPT_NUMBER, AT(small) },
	{ .name = "bytes",
	  .value = "SIZE",
	  .help = "a size",
	  .type = MM_OPT_SIZE,
	  AT(bytes),
	  .min = 1,
	  .preset = "2M" },
	{ .name = "seconds",
	  .value = "S",
	  .help = "a time",
	  .type = MM_OPT_REAL,
	  AT(seconds),
	  .least = 0.5,
	  .most = 9,
	  .unit = "s",
	  .preset = "1.5",
	  .group = "More" },
	{ .name = "kind",
	  .value = "NAME",
	  .help = "a kind",
	  .type = MM_OPT_CHOICE,
	  AT(kind),
	  .choices = kinds,
	  .preset = "hard" },
	{ .name = "name", .value = "NAME", .help = "a short text", .type = MM_OPT_COPY, AT(name) },
	{ .name = "no-checks",
	  .help = "without checks",
	  .type = MM_OPT_FLAG,
	  AT(checks),
	  .clears = true },
	{ .name = "parts",
	  .value = "SIZE,...",
	  .help = "sizes",
	  .type = MM_OPT_CALL,
	  AT(parts),
	  .parse = parts_parse,
	  .each = MM_OPT_SIZE,
	  .preset = "1K,2K" },
	{ .name = "first",
	  .value = "N",
	  .help = NULL,
	  .type = MM_OPT_NUMBER,
	  AT(layers),
	  .early = true },
	{ .name = "key",
	  .value = "N",
	  .help = "a key of files",
	  .type = MM_OPT_NUMBER,
	  AT(small),
	  .file_only = true },
	{ .name = NULL },
};

static const struct mm_opt_command commands[] = {
	{ .name = "status", .arguments = "", .summary = "all at a glance" },
	{ .name = "plan show", .arguments = "[MODEL]", .summary = "a plan", .arguments_max = 1 },
	{ .name = "plan set",
	  .arguments = "MODEL...",
	  .summary = "set a plan",
	  .text = "A paragraph.\n\n  prog plan set x\n\nThe end.",
	  .sets = { { set_opts, 0 } },
	  .arguments_min = 1,
	  .arguments_max = 3 },
};

static const struct mm_opt_renamed renamed[] = { { "folder", "dir" }, { NULL, NULL } };

static const struct mm_opt_program program = {
	.name = "prog",
	.summary = "does it",
	.shared = { { shared, 0 } },
	.commands = commands,
	.n_commands = MM_ARRAY_SIZE(commands),
	.exits = "Exit status: 0 done.",
	.man_section = "1",
	.renamed = renamed,
};

/* Parses a copy of @words, which stays until the next call; a NULL word ends them. */
static int parse(const char *const *words, struct settings *s, struct mm_opt_line *line,
		 char *error)
{
	static char texts[WORDS_MAX][128];
	static char *argv[WORDS_MAX + 2];
	int argc = 1;

	argv[0] = NULL; /* the table has the program's name */
	for (; words[argc - 1]; argc++) {
		assert_true(argc <= WORDS_MAX);
		strcpy(texts[argc - 1], words[argc - 1]);
		argv[argc] = texts[argc - 1];
	}
	*s = (struct settings){ .checks = true };
	*line = (struct mm_opt_line){ .command = 77 };
	*error = '\0';
	return mm_opt_parse(&program, argc, argv, s, line, error);
}

#define PARSE(...) parse((const char *const[]){ __VA_ARGS__, NULL }, &s, &line, error)

static void test_defaults(void **state)
{
	char error[MM_OPT_ERROR_BYTES];
	struct mm_opt_line line;
	struct settings s;

	(void)state;
	for (int again = 0; again < 2; again++) { /* a preset may not be cut for good */
		assert_int_equal(PARSE("plan", "set", "m", "--layers", "7"), MM_OPT_RUN);
		assert_int_equal(line.command, 2);
		assert_int_equal(line.argc, 1);
		assert_string_equal(line.argv[0], "m");
		assert_int_equal(s.layers, 7);
		assert_int_equal(s.bytes, 2 << 20);
		assert_true(s.seconds == 1.5 && s.kind == 7 && s.level == 1 && s.checks && !s.json);
		assert_int_equal(s.n_parts, 2);
		assert_int_equal(s.parts[1], 2048);
	}
	assert_int_equal(PARSE("status"), MM_OPT_RUN);
	assert_true(line.command == 0 && line.argc == 0 && s.bytes == 0 && s.level == 1);
}

static void test_values(void **state)
{
	char error[MM_OPT_ERROR_BYTES];
	struct mm_opt_line line;
	struct settings s;

	(void)state;
	assert_int_equal(
		PARSE("--dir=/x", "plan", "set", "--layers=auto", "a", "--json", "--", "--b"),
		MM_OPT_RUN);
	assert_string_equal(s.dir, "/x");
	assert_true(s.json && s.layers == 999 && line.argc == 2);
	assert_string_equal(line.argv[0], "a");
	assert_string_equal(line.argv[1], "--b");
	assert_int_equal(PARSE("plan", "set", "--layers=1", "x", "--no-checks", "--kind=soft",
			       "--bytes=1G", "--seconds=0.5"),
			 MM_OPT_RUN);
	assert_true(!s.checks && s.kind == 3 && s.bytes == 1 << 30 && s.seconds == 0.5);
	assert_int_equal(
		PARSE("plan", "set", "--layers=1", "x", "--name", "1234567", "--parts=5,6K,7"),
		MM_OPT_RUN);
	assert_string_equal(s.name, "1234567");
	assert_true(s.n_parts == 3 && s.parts[1] == 6144);
	/* The last one counts; a value with dashes must be joined. */
	assert_int_equal(PARSE("--dir=a", "status", "--dir", "b", "--dir=--json"), MM_OPT_RUN);
	assert_string_equal(s.dir, "--json");
	assert_false(s.json);
	/* An early option gives way wherever it stands. */
	assert_int_equal(PARSE("plan", "set", "--layers=3", "x", "--first=5"), MM_OPT_RUN);
	assert_int_equal(s.layers, 3);
}

static void test_help_outcomes(void **state)
{
	char error[MM_OPT_ERROR_BYTES];
	struct mm_opt_line line;
	struct settings s;

	(void)state;
	assert_int_equal(PARSE("--help"), MM_OPT_HELP);
	assert_true(line.command == MM_OPT_COMMAND_NONE && !line.word);
	assert_int_equal(PARSE("plan", "-h"), MM_OPT_HELP);
	assert_true(line.command == MM_OPT_COMMAND_NONE && strcmp(line.word, "plan") == 0);
	assert_int_equal(PARSE("plan", "set", "--help=man"), MM_OPT_HELP);
	assert_true(line.command == 2 && line.help == MM_OPT_HELP_MAN);
	assert_int_equal(PARSE("--help=bash"), MM_OPT_HELP);
	assert_int_equal(line.help, MM_OPT_HELP_BASH);
	assert_int_equal(PARSE("--help=zsh"), MM_OPT_HELP);
	assert_int_equal(line.help, MM_OPT_HELP_ZSH);
	assert_int_equal(PARSE("--version"), MM_OPT_VERSION);
	/* Values are of no interest then, wherever they stand; options that do not exist are. */
	assert_int_equal(PARSE("--dir=", "plan", "set", "--first=x", "--help"), MM_OPT_HELP);
	assert_int_equal(line.command, 2);
	assert_int_equal(PARSE("plan", "set", "--small=x", "--version"), MM_OPT_VERSION);
	assert_int_equal(PARSE("--help", "status", "--frobnicate"), -EINVAL);
}

static const struct {
	const char *words[WORDS_MAX];
	const char *sentence;
} refusals[] = {
	{ { NULL }, "no command was given" },
	{ { "statsu" }, "unknown command 'statsu'; did you mean status?" },
	{ { "paln", "set" }, "unknown command 'paln'; did you mean plan set?" },
	{ { "frobnicate" }, "unknown command 'frobnicate'" },
	{ { "plan" }, "'plan' is no command; there are: plan show, plan set" },
	{ { "plan", "sett" }, "unknown command 'plan sett'; did you mean plan set?" },
	{ { "plan", "frob" }, "'plan frob' is no command; there are: plan show, plan set" },
	{ { "" }, "unknown command ''" },
	{ { "status", "x" }, "unexpected argument 'x'" },
	{ { "status", "-x" }, "-x: unknown option; options begin with two dashes" },
	{ { "--layers=3" }, "--layers: an option of 'plan set'; give it behind that" },
	{ { "status", "--layers=3" }, "--layers: unknown option; 'plan set' has one of that name" },
	{ { "status", "--jsno" }, "--jsno: unknown option; did you mean --json?" },
	{ { "status", "--lev=1" }, "--lev: unknown option; did you mean --level?" },
	{ { "status", "--frobnicate" }, "--frobnicate: unknown option" },
	{ { "status", "--=5" }, "--: unknown option" },
	{ { "status", "--folder=5" }, "--folder is now --dir" },
	{ { "status", "--json=5" }, "--json: takes no value" },
	{ { "status", "--dir" }, "--dir: needs a value" },
	{ { "status", "--dir=" }, "--dir: is empty; give DIR" },
	{ { "status", "--dir", "--json" },
	  "--dir: needs a value; if '--json' is one, write --dir=--json" },
	{ { "status", "--level=of" }, "--level: 'of' is none of: info, debug" },
	{ { "status", "--level=inf" },
	  "--level: 'inf' is none of: info, debug; did you mean info?" },
	{ { "plan", "set", "x" }, "--layers is missing: give N|auto" },
	{ { "plan", "set", "--layers=3" }, "an argument is missing: give MODEL..." },
	{ { "plan", "set", "--layers=3", "a", "b", "c", "d" }, "unexpected argument 'd'" },
	{ { "plan", "set", "--layers=0" },
	  "--layers: '0' is not within 1 to 80 layers, nor one of: auto" },
	{ { "plan", "set", "--layers=0x3" },
	  "--layers: '0x3' is not a whole number, nor one of: auto" },
	{ { "plan", "set", "--layers=99999999999999999999" },
	  "--layers: '99999999999999999999' is not within 1 to 80 layers, nor one of: auto" },
	{ { "plan", "set", "--small=4294967296" },
	  "--small: '4294967296' is not within 0 to 4294967295" },
	{ { "plan", "set", "--layers=atuo" },
	  "--layers: 'atuo' is not a whole number, nor one of: auto; did you mean auto?" },
	{ { "plan", "set", "--bytes=0" }, "--bytes: '0' is less than 1" },
	{ { "plan", "set", "--bytes=1025T" },
	  "--bytes: '1025T' is not within 1 to 1125899906842624" },
	{ { "plan", "set", "--bytes=1g" }, "--bytes: '1g' is not a size; write 65536, 512M or 2G" },
	{ { "plan", "set", "--seconds=0.4" }, "--seconds: '0.4' is not within 0.5 to 9 s" },
	{ { "plan", "set", "--seconds=nan" }, "--seconds: 'nan' is not a number" },
	{ { "plan", "set", "--seconds=0x1" }, "--seconds: '0x1' is not a number" },
	{ { "plan", "set", "--seconds= 1" }, "--seconds: ' 1' is not a number" },
	{ { "plan", "set", "--name=12345678" }, "--name: longer than 7 bytes" },
	{ { "plan", "set", "--parts=1,x" }, "--parts: 'x' is not a size; write 65536, 512M or 2G" },
	{ { "plan", "set", "--key=1" }, "--key: unknown option" },
	{ { "--version=2" }, "--version: takes no value" },
	{ { "--help=html" }, "--help: 'html' is none of: man, bash, zsh" },
};

static void test_refusals(void **state)
{
	char error[MM_OPT_ERROR_BYTES];
	struct mm_opt_line line;
	struct settings s;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(refusals); i++) {
		assert_int_equal(parse(refusals[i].words, &s, &line, error), -EINVAL);
		assert_string_equal(error, refusals[i].sentence);
	}
}

/* Words of any length leave a sentence that ends within its buffer, with the suggestion. */
static void test_long_words(void **state)
{
	static struct mm_opt_choice many[64 + 2];
	static char names[64][16];
	struct mm_opt opt = { .name = "many", .value = "X", .type = MM_OPT_CHOICE, .bytes = 8 };
	char error[MM_OPT_ERROR_BYTES], word[] = "choice-numbr-63", long_word[4096];
	struct mm_opt_line line;
	struct settings s;
	uint64_t value;

	(void)state;
	assert_int_equal(PARSE("--" NAME_LONG), -EINVAL);
	assert_int_equal(PARSE(NAME_LONG), -EINVAL);
	assert_int_equal(PARSE("status", "--level", NAME_LONG), -EINVAL);
	assert_non_null(strstr(error, "info, debug"));
	for (int i = 0; i < 64; i++) {
		snprintf(names[i], sizeof(names[i]), "choice-numb-%d", i);
		many[i] = (struct mm_opt_choice){ names[i], (uint64_t)i, NULL };
	}
	opt.choices = many;
	assert_int_equal(mm_opt_store(&opt, word, &value, "--", error), -EINVAL);
	assert_non_null(strstr(error, "..."));
	assert_non_null(strstr(error, "; did you mean choice-numb-63?"));
	memset(long_word, 'y', sizeof(long_word) - 1);
	long_word[sizeof(long_word) - 1] = '\0';
	assert_int_equal(mm_opt_store(&opt, long_word, &value, "--", error), -EINVAL);
	assert_int_equal(mm_opt_store(&opt, names[5], &value, "--", error), 0);
	assert_int_equal(value, 5);
}

static void test_nearest(void **state)
{
	static const struct {
		const char *word, *name;
		bool near;
	} cases[] = {
		{ "remap", "remap", true },
		{ "rempa", "remap", true },
		{ "reamp", "remap", true },
		{ "remp", "remap", true },
		{ "rremap", "remap", true },
		{ "on", "off", false },
		{ "x", "y", false },
		{ "", "a", false },
		{ "ab", "abcdefgh", false },
		{ "abc", "abcdefgh", true },
		{ "abcdefgh", "abc", false },
		{ "on-tiemout", "on-timeout", true },
		{ "quarantine", "kill", false },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		struct mm_opt_near near = { .word = cases[i].word, .bytes = strlen(cases[i].word) };

		mm_opt_near_offer(&near, cases[i].name);
		assert_true((near.best != NULL) == cases[i].near);
	}
}

/* No arguments at all, not even the program's name. */
static void test_empty(void **state)
{
	char error[MM_OPT_ERROR_BYTES], *argv[] = { NULL };
	struct mm_opt_line line;
	struct settings s = { 0 };

	(void)state;
	assert_int_equal(mm_opt_parse(&program, 0, argv, &s, &line, error), -EINVAL);
	assert_string_equal(error, "no command was given");
}

static char *printed(void (*print)(FILE *))
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert_non_null(out);
	print(out);
	assert_int_equal(fclose(out), 0);
	return text;
}

static void print_help(FILE *out)
{
	mm_opt_print_help(out, &program, 2);
}

static void print_commands(FILE *out)
{
	mm_opt_print_commands(out, &program, "plan");
}

static void print_man(FILE *out)
{
	mm_opt_print_man(out, &program);
}

static void test_help_text(void **state)
{
	char *help = printed(print_help), *some = printed(print_commands);

	(void)state;
	assert_string_equal(
		help, "Usage: prog plan set [OPTIONS] MODEL...\n\nset a plan\n\nA paragraph.\n\n"
		      "  prog plan set x\n\nThe end.\n\nOptions:\n"
		      "  --layers N|auto           how many (1 to 80 layers; required)\n"
		      "  --small N                 fits 32 bits\n"
		      "  --bytes SIZE              a size (default: 2M)\n\nMore:\n"
		      "  --seconds S               a time (0.5 to 9 s; default: 1.5)\n"
		      "  --kind NAME               a kind (default: hard)\n"
		      "                              soft: in software\n"
		      "                              hard\n"
		      "  --name NAME               a short text\n"
		      "  --no-checks               without checks\n"
		      "  --parts SIZE,...          sizes (default: 1K,2K)\n"
		      "\nOptions of all commands:\n"
		      "  --dir DIR                 a folder (default: none)\n"
		      "  --json                    as JSON\n"
		      "  --level NAME              a level: info, debug (default: debug)\n"
		      "  -h, --help                print this help\n"
		      "  --version                 print the version\n\nExit status: 0 done.\n");
	assert_non_null(strstr(some, "plan show [MODEL]"));
	assert_null(strstr(some, "all at a glance"));
	free(help);
	free(some);
}

static void test_man_text(void **state)
{
	char *man = printed(print_man);

	(void)state;
	assert_non_null(strstr(man, ".SH COMMANDS\n.SS \"prog status\"\nall at a glance\n"));
	assert_non_null(strstr(man, "A paragraph.\n.PP\n.PP\n.EX\n  prog plan set x\n\n.EE\n.PP\n"
				    "The end.\n"));
	assert_non_null(strstr(man, ".TP\n\\fB\\-\\-no\\-checks\\fR\nwithout checks\n"));
	assert_non_null(strstr(man, ".TP\n\\fB\\-\\-kind\\fR \\fINAME\\fR\na kind (default: hard)\n"
				    ".RS\n.TP\n\\fBsoft\\fR\nin software\n"));
	assert_null(strstr(man, "first"));
	free(man);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),      cmocka_unit_test(test_values),
		cmocka_unit_test(test_help_outcomes), cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_long_words),    cmocka_unit_test(test_nearest),
		cmocka_unit_test(test_empty),         cmocka_unit_test(test_help_text),
		cmocka_unit_test(test_man_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
