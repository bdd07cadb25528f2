/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl - what the subcommands of mmctl share
 *
 * Concept:   a subcommand sends mmd one request (mmctl_request()) and prints the answer as text, or
 *            with --json as mmd sent it: one object with "schema": 1. Data goes to stdout,
 *            diagnostics go to stderr.
 * Ownership: JSON that a function returns through a pointer belongs to the caller
 *            (mm_json_done()).
 * Threading: one thread.
 * Errors:    enum mm_exit, the same for all our programs; the sentence has been printed already.
 */
#pragma once

#include <stdbool.h>

#include "libclient/base/base.h"
#include "libclient/support/json.h"
#include "tools/mmctl/options.h"

struct mmctl {
	const struct mmctl_options *options;
	const char *socket; /* "": none was named and there is no default */
	const char *view;   /* asked instead of socket by who may not use that; NULL: nothing is */
	bool json;
	bool quiet;          /* print nothing when mmd cannot be reached */
	json_int_t device;   /* ordinal; -1: all devices, or the one that uuid names */
	const char *uuid;    /* GPU-…, MIG-…, or the beginning of one; NULL: none was given */
	uint64_t timeout_ns; /* for an answer; 0: 30 s */
	int *ret_error;      /* gets the errno for which mmd was not reached; may be NULL */
};

/* Runs a command; @argv has its arguments. Return: enum mm_exit. */
typedef int mmctl_run_fn(const struct mmctl *ctl, int argc, char **argv);

mmctl_run_fn mmctl_exporter_run;
mmctl_run_fn mmctl_status_run, mmctl_pool_show_run, mmctl_plan_show_run, mmctl_plan_why_run,
	mmctl_plan_set_run, mmctl_footprint_run, mmctl_devices_run, mmctl_quota_show_run,
	mmctl_quota_set_run, mmctl_wait_run, mmctl_doctor_run, mmctl_upgrade_run, mmctl_events_run,
	mmctl_shutdown_run, mmctl_revoke_run, mmctl_drain_run, mmctl_activate_run, mmctl_pin_run,
	mmctl_unpin_run, mmctl_plan_estimate_run, mmctl_top_run, mmctl_list_run,
	mmctl_mps_start_run, mmctl_mps_stop_run, mmctl_mps_status_run, mmctl_mps_limit_run;
mmctl_run_fn mmctl_mig_list_run, mmctl_mig_create_run, mmctl_mig_destroy_run;
mmctl_run_fn mmctl_config_show_run, mmctl_config_reload_run;

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

/* Connects to mmd, for what is no request with one answer. Return: as mmctl_request(). */
int mmctl_connect(const struct mmctl *ctl, int *ret_fd);

/*
 * The driver that a running mmd uses, or one started here would. @status: its answer; NULL: none
 * runs. Return: as mm_gpu_open() takes it.
 */
const char *mmctl_driver(const json_t *status);

/* The manager of the device with this UUID: "mmd" (of @status), "another mmd" or "nobody". */
const char *mmctl_device_manager(const json_t *status, const char *uuid);

/* Calls @print for each device of an answer, below a heading if there are several. */
void mmctl_each_device(const json_t *result, void (*print)(const json_t *device));

/* Prints a tenant's cold blocks in a line, behind @begin, if it has declared any. */
void mmctl_cold_print(const char *begin, const json_t *tenant);

/* Prints the names of the columns of accounts, and the line of one account. */
void mmctl_quota_print_head(void);
void mmctl_quota_print(const json_t *account);

/*
 * Writes keys of an account, as mmd.conf(5) has them, to the drop-in of mmd's file. Return: enum
 * mm_exit; the sentence was printed, also that of success unless ctl->json.
 */
int mmctl_config_save(const struct mmctl *ctl, const char *account, json_t *keys);

/* Prints a sentence to stderr and returns @code. */
int mmctl_error(int code, const char *fmt, ...) MM_PRINTF(2, 3);

/* Prints @result to stdout. Return: MM_EXIT_DONE; MM_EXIT_FAILED it could not be written. */
int mmctl_print_json(const json_t *result);

/* As mmctl_print_json(), of a result that was made for it, which it takes over. */
int mmctl_print_new_json(json_t *result);
