/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config - the operator's settings, from the command line and from files
 *
 * Concept:    One table of options (libclient/support/options.h): each is an option of the command
 *             line and a key of the file, over which the command line takes precedence. The file is
 *             YAML (tree.h), and beside it FILE.d/ has drop-ins, of which a later one counts. An
 *             option that can differ between devices is a list: one value for all, or one for each
 *             device in the order of `device`; the file may also set it per device, in "devices".
 *             keeper parses; the other roles get the outcome as options, so a file that changes
 *             while mmd runs cannot make roles disagree. Where each value comes from is kept.
 * Ownership:  plain struct, no pointers into argv.
 * Threading:  none of its own.
 * Errors:     one sentence that names the option or key, where it stood, and what would be right.
 */
#pragma once

#include <stdint.h>

#include "libclient/support/options.h"
#include "mm/abi.h"
#include "mmd/core/core.h"
#include "mmd/common/log.h"
#include "mmd/common/proto.h"
#include "mmd/config/accounts.h"
#include "mmd/config/tune.h"

/* For the directory; with a socket's name a path may have 108 bytes. */
#define MM_CONFIG_PATH_BYTES      80
#define MM_CONFIG_ERROR_BYTES     MM_OPT_ERROR_BYTES
#define MM_CONFIG_STORE_DIR_BYTES 256
#define MM_CONFIG_ARGS_MAX        48
#define MM_CONFIG_GROUP_BYTES     33
#define MM_CONFIG_FILE_BYTES      256
#define MM_CONFIG_FILES_MAX       33 /* the main file, and drop-ins */
/* The file that root's mmd reads without --config, if there is one. */
#define MM_CONFIG_FILE_DEFAULT "/etc/mmd/mmd.conf"
#define MM_CONFIG_AUDIT_BYTES  256
#define MM_VIEW_GROUP          "mmd-view"
#define MM_NUMA_BY_DEVICE      UINT64_MAX

/* Values by device. */
struct mm_config_list {
	uint64_t value[MM_DEVICES_MAX];
	uint32_t n; /* 1: value[0] is for all devices */
};

enum mm_origin_kind { MM_ORIGIN_DEFAULT, MM_ORIGIN_FILE, MM_ORIGIN_LINE };

struct mm_origin {
	uint8_t kind; /* enum mm_origin_kind */
	uint8_t file; /* in mm_config_sources.path[] */
	uint32_t line;
};

/* The files that were read, in order, and where each value stood. */
struct mm_config_sources {
	char path[MM_CONFIG_FILES_MAX][MM_CONFIG_FILE_BYTES];
	char dropins[MM_CONFIG_FILE_BYTES]; /* the folder; "": no file was read */
	uint32_t n;
	struct mm_origin option[MM_CONFIG_ARGS_MAX];
	struct mm_origin account[MM_ACCOUNTS_NAMED_MAX];
};

struct mm_config {
	char dir[MM_CONFIG_PATH_BYTES];
	char view_group[MM_CONFIG_GROUP_BYTES]; /* name, number or "none"; "" = MM_VIEW_GROUP */
	char driver[MM_TEXT_BYTES];             /* software, cuda or a path */
	struct mm_config_list device;           /* ordinals; n is how many there are */
	/*
	 * Instead of ordinals: UUIDs of all devices, or their beginnings; "": ordinals. With UUIDs
	 * the ordinals are 0, 1, …
	 */
	char device_uuid[MM_DEVICES_MAX][MM_UUID_WORD_BYTES];
	struct mm_config_list pool_bytes;     /* 0 = all but headroom */
	struct mm_config_list headroom_bytes; /* of each device; or MM_HEADROOM_BY_DEVICE */
	struct mm_config_list page_bytes;     /* 0 = default by device */
	uint64_t policy;                      /* enum mm_policy */
	uint64_t account_max_bytes;           /* of an account that is not named; 0 = the pool */
	uint64_t turn_quantum_max_ms;         /* of an account that has no setting of its own */
	uint64_t turn_priority_max;           /* likewise */
	uint64_t on_timeout; /* enum mm_on_timeout, of an account that is not named */
	struct mm_accounts accounts;
	uint64_t reclaim_timeout_ms, stop_ms; /* deadlines of the ladder; 0 = default */
	uint64_t kill_max, kill_window_ms;    /* bounds of its breaker; 0 = default */
	uint64_t core_timeout_ms;             /* time for core to go round its loop; 0 = no limit */
	uint64_t idle_ms;              /* time to load a model or declare KV memory; 0 = no limit */
	uint64_t host_store_max_bytes; /* 0 = no limit */
	/* Directory for stores that exceed host_store_max_bytes; "" = none. */
	char store_dir[MM_CONFIG_STORE_DIR_BYTES];
	uint64_t stage_bytes;            /* ring of each device; 0 = default */
	uint64_t swap_max_bytes;         /* of all tenants; 0 = no swap */
	uint64_t swap_account_max_bytes; /* of one account; 0 = swap_max_bytes */
	/* Knobs of the controller as mm_tune_parse() takes them; "" = defaults. */
	char controller[MM_TUNE_TEXT_BYTES];
	uint64_t chunk_bytes; /* 0 = default */
	uint64_t slots;       /* slots of a plan; 0 = automatic */
	uint64_t full_drain;  /* 1: all plan changes are in full */
	uint64_t numa_node;   /* for stores; or MM_NUMA_BY_DEVICE */
	uint64_t hugepages;   /* enum mm_hugepages */
	uint64_t discard_fds; /* 1: passed fds are discarded, not refused by the kernel */
	uint64_t sandbox;     /* enum mm_sandbox */
	uint64_t log_level;   /* enum mm_log_level */
	char audit[MM_CONFIG_AUDIT_BYTES]; /* "off", "stderr" or a path; "" = off */
	uint64_t role;                     /* 0 = keeper, else enum mm_role */
	bool check_only;                   /* the settings are checked, and nothing is started */
	struct mm_config_sources sources;
};

/* The command line of mmd; the struct that it fills is struct mm_config, all zero before. */
extern const struct mm_opt_program mm_config_program;

/**
 * mm_config_read() - read the command line and the files of the program mmd
 * @argc:     of main
 * @argv:     of main
 * @config:   all zero before
 * @error:    MM_CONFIG_ERROR_BYTES: on failure one sentence without the program's name
 *
 * Without --config root's mmd reads MM_CONFIG_FILE_DEFAULT, if it or its folder of drop-ins is
 * there; a role reads no file but what --config names. Return: as mm_opt_parse(); the settings are
 * complete and checked with MM_OPT_RUN.
 */
int mm_config_read(int argc, char **argv, struct mm_config *config, char *error);

/**
 * mm_config_check() - complete and check what mm_config_program has read
 * @config: its directory is filled in if no option named one
 * @error:  MM_CONFIG_ERROR_BYTES: the sentence on failure
 *
 * Return: 0; -EINVAL.
 */
int mm_config_check(struct mm_config *config, char *error);

/**
 * mm_config_args() - the settings as options for another role
 * @config:  any
 * @role:    to run
 * @ret_argv: MM_CONFIG_ARGS_MAX pointers, NULL-terminated; free with mm_config_args_free()
 *
 * Return: 0; -ENOMEM.
 */
int mm_config_args(const struct mm_config *config, enum mm_role role, char **ret_argv);
void mm_config_args_free(char **argv);

/* The number of devices. */
static inline uint32_t mm_config_devices(const struct mm_config *config)
{
	return config->device.n;
}

static inline uint64_t mm_config_at(const struct mm_config_list *list, uint32_t device)
{
	return list->value[list->n > 1 ? device : 0];
}

/* Size of each device's ring for stores on disk; 0 = there are none. */
uint64_t mm_config_stage_bytes(const struct mm_config *config);

/* Copies the settings, with the lists reduced to those of one device. */
void mm_config_one(const struct mm_config *config, uint32_t device, struct mm_config *ret_config);

const char *mm_policy_name(enum mm_policy policy);
/* The name of an enum mm_sandbox as --sandbox takes it. */
const char *mm_sandbox_name(uint64_t sandbox);
/* The value's name as --hugepages takes it. */
const char *mm_hugepages_name(uint64_t hugepages);
