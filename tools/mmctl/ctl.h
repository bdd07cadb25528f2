/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl - what the subcommands of mmctl share
 *
 * Concept:   a subcommand sends mmd one request (mmctl_request()) and prints the answer as text, or
 *            with --json as mmd sent it: one object with "schema": 1. Data goes to stdout,
 *            diagnostics go to stderr.
 * Ownership: JSON that a function returns through a pointer belongs to the caller
 *            (mmctl_json_done()).
 * Threading: one thread.
 * Errors:    enum mm_exit, the same for all our programs; the sentence has been printed already.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "libclient/base/base.h"
#include "libclient/support/options.h"

struct mmctl {
	const char *socket; /* "": none was named and there is no default */
	bool json;
	bool quiet;          /* print nothing when mmd cannot be reached */
	json_int_t device;   /* ordinal; -1: all devices, or the one that uuid names */
	const char *uuid;    /* GPU-…, MIG-…, or the beginning of one; NULL: none was given */
	uint64_t timeout_ns; /* for an answer; 0: 30 s */
	int *ret_error;      /* gets the errno for which mmd was not reached; may be NULL */
};

struct mmctl_command {
	const char *name; /* one or two words */
	const char *args;
	const char *summary;
	/* Runs the command; @argv does not contain the words of its name. Return: enum mm_exit. */
	int (*run)(const struct mmctl *ctl, int argc, char **argv);
};

int mmctl_status_run(const struct mmctl *ctl, int argc, char **argv);
int mmctl_pool_show_run(const struct mmctl *ctl, int argc, char **argv);
int mmctl_plan_show_run(const struct mmctl *ctl, int argc, char **argv);
int mmctl_plan_set_run(const struct mmctl *ctl, int argc, char **argv);
int mmctl_footprint_run(const struct mmctl *ctl, int argc, char **argv);
int mmctl_devices_run(const struct mmctl *ctl, int argc, char **argv);
int mmctl_quota_show_run(const struct mmctl *ctl, int argc, char **argv);
int mmctl_quota_set_run(const struct mmctl *ctl, int argc, char **argv);
int mmctl_wait_run(const struct mmctl *ctl, int argc, char **argv);

/**
 * mmctl_request() - send one request to mmd and wait for its answer
 * @ctl:        which socket and device, and how long to wait
 * @method:     a method of the admin socket
 * @params:     taken over; may be NULL; the device is added if @ctl names one
 * @ret_result: belongs to the caller; written only on success
 *
 * Return: MM_EXIT_DONE; any other code after the sentence was printed.
 */
int mmctl_request(const struct mmctl *ctl, const char *method, json_t *params, json_t **ret_result);

/* Calls @print for each device of an answer, below a heading if there are several. */
void mmctl_each_device(const json_t *result, void (*print)(const json_t *device));

/* Prints a sentence to stderr and returns @code. */
int mmctl_error(int code, const char *fmt, ...) MM_PRINTF(2, 3);

/* Reports an argument that @command does not take. Return: MM_EXIT_USAGE. */
int mmctl_unexpected(const char *command, const char *word);

/* Prints @result to stdout. Return: MM_EXIT_DONE; MM_EXIT_FAILED it could not be written. */
int mmctl_print_json(const json_t *result);

/* A member of @object; 0 or "" if it has none of that name and type. */
uint64_t mmctl_u64(const json_t *object, const char *key);
const char *mmctl_text(const json_t *object, const char *key);

/* Gives a reference back: for mm_cleanup(). */
void mmctl_json_done(json_t **json);
