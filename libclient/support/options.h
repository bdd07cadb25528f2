/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options - one table per program: what it takes, and all that follows from it
 *
 * Concept:    A program states its options once, as data: name, value, help, unit, default,
 *             choices, range, and where in its struct the value goes. The command line, the keys of
 *             a configuration file, --help of the program and of each subcommand, the man page, the
 *             completion of a shell, and the suggestion for a mistyped word come from that table.
 *             Options are long (--name VALUE, --name=VALUE) and are never abbreviated, so that a
 *             new option cannot change the meaning of an old command line; -h is --help. Options
 *             and arguments may be mixed; behind "--" all words are arguments. If an option stands
 *             twice, the last one counts; beside --help and --version no value is looked at. A
 *             value that begins with two dashes must be written --name=VALUE, so that a forgotten
 *             value does not swallow the next option.
 * Defaults:   A default that can be written as a value (@preset) is stored by parsing it, and
 *             printed in the help; one that depends on something else is described (@otherwise),
 *             and the program fills it in itself.
 * Ownership:  tables are constant and borrowed; texts are stored as pointers into argv, or copied
 *             (MM_OPT_COPY).
 * Threading:  none of its own.
 * Errors:     one sentence: which word, where it stood, what would be right. Nothing else is
 *             printed and no other option of the line is applied to the end of it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "libclient/base/base.h"

#define MM_OPT_ERROR_BYTES  512
#define MM_OPT_SIZE_MAX     (UINT64_C(1) << 50) /* of MM_OPT_SIZE if the table gives no max */
#define MM_OPT_MAX_SHOWN    1000000000          /* help does not print a greater end of a range */
#define MM_OPT_COMMAND_NONE ((size_t)-1)

/* Exit status of all our programs. */
enum mm_exit { MM_EXIT_DONE, MM_EXIT_FAILED, MM_EXIT_USAGE, MM_EXIT_UNREACHABLE };

/* The field's size (1, 4 or 8 bytes) is that of mm_opt.bytes, except where a type is named. */
enum mm_opt_type {
	MM_OPT_FLAG = 1, /* takes no value; bool: becomes true, or false if @clears */
	MM_OPT_NUMBER,   /* a whole number, decimal, or one of @choices; unsigned of 4 or 8 bytes */
	MM_OPT_SIZE,     /* bytes, as size.h reads them, or one of @choices; unsigned of 8 bytes */
	MM_OPT_REAL,     /* double, finite */
	MM_OPT_CHOICE,   /* one of @choices; unsigned or enum of 4 or 8 bytes gets its value */
	MM_OPT_TEXT,     /* const char *, not empty; points into the command line */
	MM_OPT_COPY,     /* char[bytes], not empty; copied */
	MM_OPT_CALL,     /* @parse does it */
};

struct mm_opt_choice {
	const char *name;
	uint64_t value;
	const char *help; /* printed below the option; may be NULL */
};

struct mm_opt;

/**
 * mm_opt_parse_fn - parse the value of an option of type MM_OPT_CALL
 * @opt:  the option
 * @text: the value; may be changed, and pointed to as long as the command line lives, or for ever
 *        if it is the preset
 * @into: what mm_opt_parse() was given, with the base of the option's set added
 * @why:  MM_OPT_ERROR_BYTES: on failure the rest of a sentence that begins "--name: "
 *
 * Return: 0; -EINVAL.
 */
typedef int mm_opt_parse_fn(const struct mm_opt *opt, char *text, void *into, char *why);

struct mm_opt {
	const char *name;  /* without dashes; the key in a file is the same. NULL ends a table */
	const char *value; /* how the value is shown: "SIZE"; NULL: a flag */
	const char *help;  /* lower case, no full stop at the end; NULL: not shown (internal) */
	enum mm_opt_type type;
	size_t at, bytes;      /* MM_OPT_AT() */
	const char *preset;    /* default as a value; NULL: none */
	const char *otherwise; /* default as a description; NULL: none */
	const char *unit;      /* of a number, for messages: "ms"; NULL: none */
	uint64_t min, max;     /* of numbers and sizes; max 0: what the field can hold */
	double least, most;    /* of reals; most 0: no limit */
	/*
	 * Ends with a NULL name. With MM_OPT_NUMBER and MM_OPT_SIZE these are words beside the
	 * range, such as "auto"; MM_OPT_CALL looks them up itself.
	 */
	const struct mm_opt_choice *choices;
	mm_opt_parse_fn *parse;
	const char *group; /* heading before this option in the help; NULL: none */
	bool clears;       /* of a flag: it sets false */
	bool required;
	bool file_only; /* a key of the configuration file, no option of the command line */
	bool line_only; /* no key of the configuration file */
	bool early;     /* applied before all other options of the line: a configuration file */
	bool complete;  /* @parse writes whole sentences, which name what they are about */
	bool live;      /* the key may change while the program runs, and counts at a reload */
	bool dashed;    /* the value may begin with two dashes: options of another program */
	/* With MM_OPT_CALL: MM_OPT_SIZE if mm_opt_number() is to read sizes for this option. */
	enum mm_opt_type each;
};

#define MM_OPT_AT(type, field) .at = offsetof(type, field), .bytes = sizeof(((type *)NULL)->field)

/* A table, and where in the program's struct the part begins that its offsets count from. */
struct mm_opt_set {
	const struct mm_opt *opts; /* NULL ends a list of sets */
	size_t base;
};

struct mm_opt_command {
	const char *name;      /* one or two words; "" if the program has no subcommands */
	const char *arguments; /* as the synopsis shows them: "ACCOUNT", "[MODEL]", "DIR..." */
	const char *summary;   /* one line, lower case, no full stop */
	const char *text;      /* more paragraphs, separated by an empty line; may be NULL */
	struct mm_opt_set sets[4];
	uint32_t arguments_min, arguments_max;
};

/*
 * A section of the man page, also printed by --help if @in_help. A line of @text that begins with
 * white space is printed as it is, any other one is filled.
 */
struct mm_opt_section {
	const char *title;
	const char *text;
	bool in_help;
	const struct mm_opt *(*keys)(void); /* a table of KEY=VALUE pairs to list; may be NULL */
};

/* Keys of a file that stand below another key. */
struct mm_opt_file_part {
	const char *key;   /* NULL ends a list */
	const char *title; /* "Accounts" */
	const char *text;  /* before the keys, as in a section */
	bool list;         /* items with these keys, not one object */
	const struct mm_opt *(*keys)(void);
};

/* A configuration file in YAML, of which --help=conf prints an example, and a man page. */
struct mm_opt_file {
	const char *name, *path; /* "mmd.conf"; with its folder */
	const char *summary, *text;
	const struct mm_opt *keys;
	const struct mm_opt_file_part *parts;
	const struct mm_opt_section *sections; /* behind the keys; ends with a NULL title */
	const char *see_also;
};

struct mm_opt_renamed { /* a name that an older version had */
	const char *was, *now;
};

struct mm_opt_program {
	const char *name;
	const char *summary;
	const char *text;            /* may be NULL */
	struct mm_opt_set shared[3]; /* options that stand before or behind any subcommand */
	const struct mm_opt_command *commands;
	size_t n_commands;
	const char *exits; /* "Exit status: 0 done, 1 failed, 2 usage."; one sentence */
	const struct mm_opt_section *sections; /* ends with a NULL title; may be NULL */
	const char *man_section;               /* "1" or "8" */
	const char *see_also;                  /* "mmctl(1), mmd(8)"; may be NULL */
	const struct mm_opt_renamed *renamed;  /* ends with a NULL @was; may be NULL */
	const char *version;                   /* NULL: that of the project */
	const struct mm_opt_file *file;        /* NULL: there is none */
};

/* Which kind of help was requested: --help, or --help=man, bash, conf, conf-man. */
enum mm_opt_help {
	MM_OPT_HELP_TEXT,
	MM_OPT_HELP_MAN,
	MM_OPT_HELP_BASH,
	MM_OPT_HELP_ZSH,
	MM_OPT_HELP_FILE,
	MM_OPT_HELP_FILE_MAN
};

enum mm_opt_outcome { MM_OPT_RUN, MM_OPT_HELP, MM_OPT_VERSION };

struct mm_opt_line {    /* what a command line says, besides the options */
	size_t command; /* index; MM_OPT_COMMAND_NONE with help of several commands */
	/* With help: the first word of those commands, or NULL for all. */
	const char *word;
	enum mm_opt_help help;
	int argc;    /* arguments */
	char **argv; /* in argv of main, which is reordered */
};

/**
 * mm_opt_defaults() - store the presets of a command's options and of the shared ones
 * @program: any
 * @command: index
 * @into:    the program's struct; other fields are left as they are
 *
 * A preset that its own option refuses is a fault of the table, and an assertion.
 */
void mm_opt_defaults(const struct mm_opt_program *program, size_t command, void *into);

/**
 * mm_opt_parse() - read a command line
 * @program:  any
 * @argc:     of main
 * @argv:     of main; its words are reordered: arguments behind options
 * @into:     the program's struct; presets of the command are stored first
 * @ret_line: on failure only the command is written, if the line got so far
 * @error:    MM_OPT_ERROR_BYTES: on failure one sentence without the program's name
 *
 * Return: MM_OPT_RUN; MM_OPT_HELP, MM_OPT_VERSION if asked for; -EINVAL.
 */
int mm_opt_parse(const struct mm_opt_program *program, int argc, char **argv, void *into,
		 struct mm_opt_line *ret_line, char *error);

/**
 * mm_opt_main() - mm_opt_parse() for a program's main(): prints help, version and errors
 * @program:  any
 * @argc:     of main
 * @argv:     of main
 * @into:     as mm_opt_parse()
 * @ret_line: written only if the program is to run
 *
 * Return: -1 the program is to run; else its exit status: MM_EXIT_DONE help or version were
 * printed, MM_EXIT_FAILED they could not be, MM_EXIT_USAGE.
 */
int mm_opt_main(const struct mm_opt_program *program, int argc, char **argv, void *into,
		struct mm_opt_line *ret_line);

/**
 * mm_opt_refuse() - print on stderr that a command line is wrong, and where help is
 * @program: any
 * @command: index, or MM_OPT_COMMAND_NONE
 * @format:  the sentence without the program's name and without a full stop
 *
 * For checks that concern several options. Return: MM_EXIT_USAGE.
 */
int mm_opt_refuse(const struct mm_opt_program *program, size_t command, const char *format, ...)
	MM_PRINTF(3, 4);

/**
 * mm_opt_flush() - write what stdio still holds of the standard output, before main() returns
 * @program: any
 * @status:  that the program would end with
 *
 * Return: @status; MM_EXIT_FAILED, after a sentence, if @status was MM_EXIT_DONE and the output
 * could not be written.
 */
int mm_opt_flush(const struct mm_opt_program *program, int status);

/**
 * mm_opt_store() - parse one value and store it
 * @opt:   of type FLAG only without a value
 * @text:  the value; NULL for a flag
 * @into:  the struct that @opt's offset counts from
 * @where: what the sentence begins with: "--", or "/etc/mmd.json: "
 * @error: MM_OPT_ERROR_BYTES
 *
 * Return: 0; -EINVAL, with the sentence.
 */
int mm_opt_store(const struct mm_opt *opt, char *text, void *into, const char *where, char *error);

/**
 * mm_opt_number() - parse a whole number, a size or a real number as mm_opt_store() does
 * @opt:  of that type, or MM_OPT_CALL; its range and its choices count
 * @text: the value
 * @ret:  written only on success
 * @why:  MM_OPT_ERROR_BYTES: on failure the rest of a sentence
 *
 * For values of lists. Return: 0; -EINVAL.
 */
int mm_opt_number(const struct mm_opt *opt, const char *text, uint64_t *ret, char *why);
int mm_opt_real(const struct mm_opt *opt, const char *text, double *ret, char *why);

/**
 * mm_opt_choice() - find a word among the choices of an option
 * @opt: has choices
 * @word: not NUL-terminated: @bytes count
 * @ret: its value; written only on success
 * @why: MM_OPT_ERROR_BYTES: on failure the choices, and the nearest one if the word is mistyped
 *
 * Return: 0; -EINVAL.
 */
int mm_opt_choice(const struct mm_opt *opt, const char *word, size_t bytes, uint64_t *ret,
		  char *why);

/* The name of the choice that has this value; "?" if none has. */
const char *mm_opt_choice_name(const struct mm_opt_choice *choices, uint64_t value);

/* The option of a table that has this name; NULL if none has. */
const struct mm_opt *mm_opt_find(const struct mm_opt *opts, const char *name, size_t bytes);

/* The present name of what was called @name; NULL if nothing was. @renamed may be NULL. */
const char *mm_opt_renamed(const struct mm_opt_renamed *renamed, const char *name, size_t bytes);

/* Keeps the nearest of the words that are offered to a mistyped one. */
struct mm_opt_near {
	const char *word;
	size_t bytes;
	const char *best; /* NULL: none is near enough to be meant */
	size_t distance;
};

/**
 * mm_opt_near_offer() - compare one known word with the mistyped one
 * @near: word and bytes are set, the rest is 0 at first
 * @name: lives as long as @near
 *
 * Nearness is the number of insertions, deletions, replacements and exchanges of neighbours
 * (optimal string alignment); a third of the word's length at most, and at least 1, is near. A name
 * that begins with the word, of at least three bytes, is as near as one with one replacement. The
 * first of several equally near ones stays.
 */
void mm_opt_near_offer(struct mm_opt_near *near, const char *name);

/**
 * mm_opt_print_help() - print --help of a program or of a command
 * @out:     a stream
 * @program: any
 * @command: index, or MM_OPT_COMMAND_NONE for the whole program
 */
void mm_opt_print_help(FILE *out, const struct mm_opt_program *program, size_t command);

/* Print --help of the commands that begin with @word; NULL: of the whole program. */
void mm_opt_print_commands(FILE *out, const struct mm_opt_program *program, const char *word);

/* Print the man page (troff), and the completions for bash and zsh, of the whole program. */
void mm_opt_print_man(FILE *out, const struct mm_opt_program *program);
void mm_opt_print_bash(FILE *out, const struct mm_opt_program *program);
void mm_opt_print_zsh(FILE *out, const struct mm_opt_program *program);
/* Prints what --help=KIND is to print; not MM_OPT_HELP_TEXT. */
void mm_opt_print_kind(FILE *out, const struct mm_opt_program *program, enum mm_opt_help kind);

/* Print an example of the configuration file, all of it comments, and the file's man page. */
void mm_opt_print_file(FILE *out, const struct mm_opt_file *file);
void mm_opt_print_file_man(FILE *out, const struct mm_opt_file *file);
