/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl - what the subcommands of mmctl share
 *
 * Concept: a subcommand asks mmd one question (mm_ask()) and prints the answer for a person, or
 *          with --json as it came: one object with "schema": 1. Data goes to stdout, diagnostics to
 *          stderr.
 * Exit:    enum mm_exit; the same for all our programs.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "libclient/base/base.h"

enum mm_exit { MM_EXIT_DONE, MM_EXIT_FAILED, MM_EXIT_USAGE, MM_EXIT_UNREACHABLE };

struct mm_ctl {
	const char *socket; /* "": none was named and there is no default */
	bool json;
	bool quiet;          /* nothing is said about a mmd that is not there */
	json_int_t device;   /* ordinal; -1: all, or uuid says it */
	const char *uuid;    /* GPU-…, MIG-…, or the beginning of one; NULL: not named so */
	uint64_t timeout_ns; /* of an answer; 0: 30 s */
	int *ret_error; /* what kept mmd from being reached, as an errno; NULL: not asked for */
};

struct mm_command {
	const char *name; /* one or two words */
	const char *args;
	const char *summary;
	/* Without the words of the name. Return: enum mm_exit. */
	int (*run)(const struct mm_ctl *ctl, int argc, char **argv);
};

int mm_status_run(const struct mm_ctl *ctl, int argc, char **argv);
int mm_pool_show_run(const struct mm_ctl *ctl, int argc, char **argv);
int mm_plan_show_run(const struct mm_ctl *ctl, int argc, char **argv);
int mm_plan_set_run(const struct mm_ctl *ctl, int argc, char **argv);
int mm_footprint_run(const struct mm_ctl *ctl, int argc, char **argv);
int mm_devices_run(const struct mm_ctl *ctl, int argc, char **argv);
int mm_quota_show_run(const struct mm_ctl *ctl, int argc, char **argv);
int mm_quota_set_run(const struct mm_ctl *ctl, int argc, char **argv);
int mm_wait_run(const struct mm_ctl *ctl, int argc, char **argv);

/**
 * mm_ask() - one request, one answer
 * @ctl:        whom
 * @method:     of the admin socket
 * @params:     taken over; may be NULL; the device is added where one was named
 * @ret_result: the caller's; written only on success
 *
 * Return: MM_EXIT_DONE; else the sentence was printed.
 */
int mm_ask(const struct mm_ctl *ctl, const char *method, json_t *params, json_t **ret_result);

/*
 * Calls @print for each device of an answer; a heading goes between them where there are several.
 */
void mm_each_device(const json_t *result, void (*print)(const json_t *device));

/* Prints a sentence to stderr; returns @code. */
int mm_complain(int code, const char *fmt, ...) MM_PRINTF(2, 3);

/* An argument that the command does not take. */
int mm_unexpected(const char *command, const char *word);

int mm_print_json(const json_t *result);

/* Members of an object; 0, "" or false where there is none. */
uint64_t mm_u64(const json_t *object, const char *key);
const char *mm_text(const json_t *object, const char *key);

void mm_json_done(json_t **json);
