/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/config/table.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libclient/support/driver.h"
#include "mmd/common/filter.h"
#include "mmd/common/host.h"
#include "mmd/config/policies.h"
#include "mmd/config/tune.h"
#include "mmd/core/knobs.h"

#define CONFIG_TIMEOUT_MAX_MS 86400000

static mm_opt_parse_fn config_driver_parse, config_list_parse, config_accounts_parse,
	config_knobs_parse;

static const struct mm_opt_choice config_policy_choices[] = { MM_POLICY_CHOICES, { .name = NULL } };
static const struct mm_opt_choice config_timeout_choices[] = {
	{ "kill", MM_ON_TIMEOUT_KILL, "SIGKILL" },
	{ "quarantine", MM_ON_TIMEOUT_QUARANTINE, "the account is charged until they are back" },
	{ .name = NULL }
};
static const struct mm_opt_choice huge_choices[] = {
	{ "auto", MM_HUGE_AUTO, "where enough are free and little is wasted" },
	{ "off", MM_HUGE_OFF, NULL },
	{ "2M", MM_HUGE_2M, NULL },
	{ "1G", MM_HUGE_1G, NULL },
	{ .name = NULL }
};
static const struct mm_opt_choice config_level_choices[] = { { "error", MM_LOG_ERROR, NULL },
							     { "warn", MM_LOG_WARN, NULL },
							     { "info", MM_LOG_INFO, NULL },
							     { "debug", MM_LOG_DEBUG, NULL },
							     { .name = NULL } };
static const struct mm_opt_choice config_slots_choices[] = {
	{ "auto", 0, "what makes the shorter step, from measured times" },
	{ "1", 1, NULL },
	{ "2", 2, NULL },
	{ .name = NULL }
};
static const struct mm_opt_choice change_choices[] = {
	{ "partial", 0, "steps go on while a plan is mapped, up to the first layer that moves" },
	{ "full", 1, "no step runs until all of it is mapped" },
	{ .name = NULL }
};
static const struct mm_opt_choice passed_choices[] = {
	{ "refuse", 0, "the kernel does, where it can (Linux 6.16)" },
	{ "discard", 1,
	  "as on older kernels, the connection is ended, and closed by a process of its own" },
	{ .name = NULL }
};
static const struct mm_opt_choice sandbox_choices[] = {
	{ "on", MM_SANDBOX_ON, "a call that its role does not need ends it" },
	{ "log", MM_SANDBOX_LOG, "it is made, and the kernel logs it" },
	{ "off", MM_SANDBOX_OFF, "it is made; and core dumps and debuggers are possible" },
	{ .name = NULL }
};
static const struct mm_opt_choice role_choices[] = { { "keeper", 0, NULL },
						     { "core", MM_ROLE_CORE, NULL },
						     { "xfer", MM_ROLE_XFER, NULL },
						     { "load", MM_ROLE_LOAD, NULL },
						     { "spool", MM_ROLE_SPOOL, NULL },
						     { "log", MM_ROLE_LOG, NULL },
						     { "preflight", MM_ROLE_PREFLIGHT, NULL },
						     { "keeper-again", MM_ROLE_KEEPER_AGAIN, NULL },
						     { .name = NULL } };
static const struct mm_opt_choice headroom_choices[] = { { "auto", MM_HEADROOM_BY_DEVICE, NULL },
							 { .name = NULL } };
static const struct mm_opt_choice node_choices[] = { { "device", MM_NUMA_BY_DEVICE, NULL },
						     { .name = NULL } };

/* Defaults that are applied elsewhere, where 0 means that the operator set none. */
static_assert(MM_TURN_QUANTUM_BOUND_NS == 2 * MM_NS_PER_S, "turn-quantum-max");
static_assert(MM_RECLAIM_TIMEOUT_NS == 10 * MM_NS_PER_S, "reclaim-timeout");
static_assert(MM_STOP_NS == 60 * MM_NS_PER_S, "stop-timeout");
static_assert(MM_KILL_MAX == 8 && MM_KILL_WINDOW_NS == 60 * MM_NS_PER_S, "kill-max, kill-window");
static_assert(MM_CHUNK_BYTES_DEFAULT == 16 << 20, "chunk");
static_assert(MM_STAGE_BUFFERS_DEFAULT == 4 && MM_STAGE_BUFFERS_MIN == 2 &&
		      MM_STAGE_BUFFERS_MAX == 64,
	      "stage");

#define CONFIG_AT(field) MM_OPT_AT(struct mm_config, field)

const struct mm_opt mm_config_options[] = {
	{ .name = "config",
	  .value = "FILE",
	  .help = "file with settings, in YAML or JSON: its keys are these options, without "
		  "dashes. Behind it the drop-ins FILE.d/*.conf are read, of which a later one "
		  "counts; options of the command line take precedence over all. mmd.conf(5) "
		  "describes it",
	  .type = MM_OPT_CALL,
	  .line_only = true,
	  .early = true,
	  .complete = true,
	  .parse = mm_config_file_parse,
	  .otherwise = MM_CONFIG_FILE_DEFAULT " for root, if there is one" },
	{ .name = "check-config",
	  .help = "read the file and its drop-ins, print that they are correct or the first "
		  "thing that is not, and start nothing. What depends on the device is not "
		  "checked",
	  .type = MM_OPT_FLAG,
	  .line_only = true,
	  CONFIG_AT(check_only) },
	{ .name = "dir",
	  .value = "DIR",
	  .help = "where the sockets and the lock are; made if it is missing, else it must "
		  "be of the user of mmd or of root, writable for nobody else, and no "
		  "symbolic link",
	  .type = MM_OPT_COPY,
	  CONFIG_AT(dir),
	  .otherwise = "/run/mmd as root, else $XDG_RUNTIME_DIR/mmd",
	  .group = "Devices and memory" },
	{ .name = "driver",
	  .value = "NAME",
	  .help = "device driver, by name or by the path of its library",
	  .type = MM_OPT_CALL,
	  CONFIG_AT(driver),
	  .choices = mm_driver_choices,
	  .parse = config_driver_parse,
	  .preset = "cuda" },
	{ .name = "device",
	  .value = "N|UUID,...",
	  .help = "ordinals by which the driver names the devices, or instead their UUIDs "
		  "(GPU-..., MIG-..., or as much as is unique; mmctl devices lists them), "
		  "at most 8. A UUID counts whatever CUDA_VISIBLE_DEVICES says; an ordinal "
		  "counts what is visible. Each device has a pool, accounts and a "
		  "controller of its own; host copies of models are shared. If one cannot "
		  "be used at the start, mmd ends. A value SIZE,... below is one value for "
		  "all devices, or one for each in this order",
	  .type = MM_OPT_CALL,
	  CONFIG_AT(device),
	  .max = 1023,
	  .preset = "0",
	  .parse = config_list_parse },
	{ .name = "pool",
	  .value = "SIZE,...",
	  .help = "how much memory to manage, of each device",
	  .type = MM_OPT_CALL,
	  CONFIG_AT(pool_bytes),
	  .each = MM_OPT_SIZE,
	  .min = 1,
	  .otherwise = "all but headroom",
	  .parse = config_list_parse },
	{ .name = "headroom",
	  .value = "SIZE|auto,...",
	  .help = "without --pool, manage all free memory but this; auto is 512M, on "
		  "devices of 24 GiB and more 1/32 of them and at least 2G. Contexts and "
		  "workspaces of the engines live in it",
	  .type = MM_OPT_CALL,
	  CONFIG_AT(headroom_bytes),
	  .each = MM_OPT_SIZE,
	  .choices = headroom_choices,
	  .preset = "auto",
	  .parse = config_list_parse },
	{ .name = "page",
	  .value = "SIZE,...",
	  .help = "unit of movement, a multiple of the granularity of the device. 0 is 16 "
		  "MiB on devices of 24 GiB and more, else 2 MiB. Each page costs a file "
		  "descriptor in core and xfer",
	  .type = MM_OPT_CALL,
	  CONFIG_AT(page_bytes),
	  .each = MM_OPT_SIZE,
	  .otherwise = "0",
	  .parse = config_list_parse },
	{ .name = "policy",
	  .value = "NAME",
	  .help = "which ways of taking and returning memory are used",
	  .type = MM_OPT_CHOICE,
	  CONFIG_AT(policy),
	  .choices = config_policy_choices,
	  .preset = "remap",
	  .group = "Lending" },
	{ .name = "slots",
	  .value = "N",
	  .help = "how many slots the cycling layers of a model share",
	  .type = MM_OPT_CHOICE,
	  CONFIG_AT(slots),
	  .choices = config_slots_choices,
	  .preset = "auto" },
	{ .name = "plan-change",
	  .value = "NAME",
	  .help = "how a plan is replaced",
	  .type = MM_OPT_CHOICE,
	  CONFIG_AT(full_drain),
	  .choices = change_choices,
	  .preset = "partial" },
	{ .name = "chunk",
	  .value = "SIZE",
	  .help = "unit of a streaming copy",
	  .type = MM_OPT_SIZE,
	  CONFIG_AT(chunk_bytes),
	  .min = 4096,
	  .otherwise = "16M" },
	{ .name = "controller",
	  .live = true,
	  .value = "KEY=VALUE,...",
	  .help = "how the controller decides: knobs, listed below",
	  .type = MM_OPT_CALL,
	  CONFIG_AT(controller),
	  .parse = config_knobs_parse,
	  .otherwise = "those of the knobs" },
	{ .name = "accounts",
	  .live = true,
	  .value = "JSON",
	  .help = "the accounts that are named: an array of objects, as in the file; "
		  "mmd.conf(5) has their keys",
	  .type = MM_OPT_CALL,
	  CONFIG_AT(accounts),
	  .parse = config_accounts_parse,
	  .otherwise = "none",
	  .group = "Accounts" },
	{ .name = "account-max",
	  .live = true,
	  .value = "SIZE",
	  .help = "most memory, on one device, of an account that is not named; 0 is the "
		  "pool",
	  .type = MM_OPT_SIZE,
	  CONFIG_AT(account_max_bytes),
	  .otherwise = "0" },
	{ .name = "turn-quantum-max",
	  .live = true,
	  .value = "MS",
	  .help = "longest turn, while others wait, that tenants may request whose account "
		  "has no setting of its own",
	  .type = MM_OPT_NUMBER,
	  CONFIG_AT(turn_quantum_max_ms),
	  .min = 1,
	  .max = MM_TURN_QUANTUM_LIMIT_NS / MM_NS_PER_MS,
	  .unit = "ms",
	  .otherwise = "2000" },
	{ .name = "turn-priority-max",
	  .live = true,
	  .value = "N",
	  .help = "highest priority among turns that they may request",
	  .type = MM_OPT_NUMBER,
	  CONFIG_AT(turn_priority_max),
	  .max = MM_TURN_PRIORITY_MAX,
	  .otherwise = "0" },
	{ .name = "on-timeout",
	  .live = true,
	  .value = "NAME",
	  .help = "what happens to processes of accounts that are not named when they do "
		  "not give pages back in time",
	  .type = MM_OPT_CHOICE,
	  CONFIG_AT(on_timeout),
	  .choices = config_timeout_choices,
	  .preset = "kill" },
	{ .name = "reclaim-timeout",
	  .live = true,
	  .value = "MS",
	  .help = "how long a tenant has to give back what its account must; then --on-"
		  "timeout",
	  .type = MM_OPT_NUMBER,
	  CONFIG_AT(reclaim_timeout_ms),
	  .min = 1,
	  .max = CONFIG_TIMEOUT_MAX_MS,
	  .unit = "ms",
	  .otherwise = "10000" },
	{ .name = "stop-timeout",
	  .live = true,
	  .value = "MS",
	  .help = "how much longer a process has that is stopped, traced or frozen",
	  .type = MM_OPT_NUMBER,
	  CONFIG_AT(stop_ms),
	  .min = 1,
	  .max = CONFIG_TIMEOUT_MAX_MS,
	  .unit = "ms",
	  .otherwise = "60000" },
	{ .name = "kill-max",
	  .live = true,
	  .value = "N",
	  .help = "most processes that are killed within --kill-window; then none",
	  .type = MM_OPT_NUMBER,
	  CONFIG_AT(kill_max),
	  .min = 1,
	  .max = MM_KILLS_MAX,
	  .otherwise = "8" },
	{ .name = "kill-window",
	  .live = true,
	  .value = "MS",
	  .help = "the time that --kill-max counts over",
	  .type = MM_OPT_NUMBER,
	  CONFIG_AT(kill_window_ms),
	  .min = 1,
	  .max = CONFIG_TIMEOUT_MAX_MS,
	  .unit = "ms",
	  .otherwise = "60000" },
	{ .name = "idle-timeout",
	  .live = true,
	  .value = "MS",
	  .help = "how long a tenant may neither load a model nor declare KV memory; then "
		  "it is ended, unless it is of the user that mmd runs as. 0 is no limit",
	  .type = MM_OPT_NUMBER,
	  CONFIG_AT(idle_ms),
	  .max = CONFIG_TIMEOUT_MAX_MS,
	  .unit = "ms",
	  .preset = "300000" },
	{ .name = "core-timeout",
	  .live = true,
	  .value = "MS",
	  .help = "how long the role core may make no progress, or be stopped; then it is "
		  "killed, and another one goes on. 0 is no limit",
	  .type = MM_OPT_NUMBER,
	  CONFIG_AT(core_timeout_ms),
	  .max = CONFIG_TIMEOUT_MAX_MS,
	  .unit = "ms",
	  .preset = "10000" },
	{ .name = "host-store-max",
	  .live = true,
	  .value = "SIZE",
	  .help = "most host memory for weights; 0 is no limit",
	  .type = MM_OPT_SIZE,
	  CONFIG_AT(host_store_max_bytes),
	  .otherwise = "0",
	  .group = "Host memory and disk" },
	{ .name = "store-dir",
	  .value = "DIR",
	  .help = "where weights go that exceed --host-store-max: an absolute path on a "
		  "disk",
	  .type = MM_OPT_COPY,
	  CONFIG_AT(store_dir),
	  .otherwise = "nowhere, such models are refused" },
	{ .name = "stage",
	  .value = "SIZE",
	  .help = "host memory, of each device, through which layers come from --store-dir;"
		  " part of --host-store-max. At least two chunks, at most 64. An error "
		  "without --store-dir",
	  .type = MM_OPT_SIZE,
	  CONFIG_AT(stage_bytes),
	  .otherwise = "four chunks" },
	{ .name = "swap-max",
	  .value = "SIZE",
	  .help = "most host memory that tenants may swap KV to, under any policy; 0 is "
		  "none",
	  .type = MM_OPT_SIZE,
	  CONFIG_AT(swap_max_bytes),
	  .otherwise = "0" },
	{ .name = "swap-account-max",
	  .value = "SIZE",
	  .help = "of it, the most of one account; 0 is all",
	  .type = MM_OPT_SIZE,
	  CONFIG_AT(swap_account_max_bytes),
	  .otherwise = "0" },
	{ .name = "numa-node",
	  .value = "N|device",
	  .help = "the NUMA node whose memory weights get; device is the node of the "
		  "device, as the driver or the PCI bus reports it",
	  .type = MM_OPT_NUMBER,
	  CONFIG_AT(numa_node),
	  .max = MM_HOST_NODES_MAX - 1,
	  .choices = node_choices,
	  .preset = "device" },
	{ .name = "hugepages",
	  .value = "NAME",
	  .help = "whether weights lie in explicit huge pages; if too few are free, usual "
		  "pages are used",
	  .type = MM_OPT_CHOICE,
	  CONFIG_AT(hugepages),
	  .choices = huge_choices,
	  .preset = "auto" },
	{ .name = "view-group",
	  .value = "GROUP",
	  .help = "whose members may look, but change nothing: by view.sock in --dir they get "
		  "status, plans and quotas. A name in /etc/group or a number; none: there is no "
		  "such socket",
	  .type = MM_OPT_COPY,
	  CONFIG_AT(view_group),
	  .otherwise = MM_VIEW_GROUP ", if mmd may give a file to it; else nobody but mmd's user",
	  .group = "Operation" },
	{ .name = "passed-fds",
	  .value = "NAME",
	  .help = "what happens to file descriptors that a client passes to mmd, which "
		  "takes none",
	  .type = MM_OPT_CHOICE,
	  CONFIG_AT(discard_fds),
	  .choices = passed_choices,
	  .preset = "refuse" },
	{ .name = "sandbox",
	  .value = "NAME",
	  .help = "what happens when a process of mmd makes a system call that it does not "
		  "need; to search for faults in mmd",
	  .type = MM_OPT_CHOICE,
	  CONFIG_AT(sandbox),
	  .choices = sandbox_choices,
	  .preset = "on" },
	{ .name = "log-level",
	  .live = true,
	  .value = "NAME",
	  .help = "least severity that is logged",
	  .type = MM_OPT_CHOICE,
	  CONFIG_AT(log_level),
	  .choices = config_level_choices,
	  .preset = "info" },
	{ .name = "audit",
	  .value = "WHERE",
	  .help = "where the audit log goes: off; stderr, between the lines of the log; or the "
		  "absolute path of a file, which is opened anew at SIGHUP",
	  .type = MM_OPT_COPY,
	  CONFIG_AT(audit),
	  .otherwise = "off" },
	{ .name = "role",
	  .value = "NAME",
	  .type = MM_OPT_CHOICE,
	  CONFIG_AT(role),
	  .choices = role_choices,
	  .preset = "keeper",
	  .line_only = true },
	{ .name = NULL },
};

static_assert(MM_ARRAY_SIZE(mm_config_options) + 1 <= MM_CONFIG_ARGS_MAX, "room for all options");

static const struct mm_opt_command config_commands[] = {
	{ .name = "", .arguments = "", .summary = "", .sets = { { mm_config_options, 0 } } },
};

static const struct mm_opt_section config_sections[] = {
	{ .title = "Values",
	  .text = "Sizes are bytes, or end in K, M, G or T: 65536, 512M, 2G.",
	  .in_help = true },
	{ .title = "Knobs of --controller",
	  .text = "Documentation/controller.md describes what they do.",
	  .in_help = true,
	  .keys = mm_tune_opts },
	{ .title = NULL },
};

/* The keys of an item of "devices". */
static const struct mm_opt *section_opts(void)
{
	static struct mm_opt opts[8];
	size_t n = 0;

	for (const struct mm_opt *o = mm_config_options; o->name; o++) {
		if (!mm_config_is_list(o))
			continue;
		mm_assert(n + 1 < MM_ARRAY_SIZE(opts));
		opts[n] = *o;
		opts[n].group = NULL;
		opts[n].preset = NULL;
		opts[n].value = mm_config_is_device(o) ? "N|UUID" : "SIZE";
		opts[n].otherwise = "that of the whole file";
		if (mm_config_is_device(o)) {
			opts[n].help = "ordinal or UUID of the device; required";
			opts[n].otherwise = NULL;
		}
		n++;
	}
	return opts;
}

static const struct mm_opt_file_part config_parts[] = {
	{ .key = "controller",
	  .title = "Knobs of the controller",
	  .text = "How the controller decides; Documentation/controller.md describes what they do. "
		  "A later file sets single knobs. KEY=VALUE,... in one string sets them all.",
	  .keys = mm_tune_opts },
	{ .key = "accounts",
	  .title = "Accounts",
	  .text = "Who is charged, and what each may have; Documentation/admin-guide.md describes "
		  "it. A process belongs to the account that matches it most closely: the longest "
		  "cgroup, then the user, then its groups. A later file sets single keys of the "
		  "account of that name, or adds one.",
	  .list = true,
	  .keys = mm_accounts_opts },
	{ .key = "devices",
	  .title = "Devices one by one",
	  .text = "Instead of the key device: an item for each device, with what differs from the "
		  "values for all.",
	  .list = true,
	  .keys = section_opts },
	{ .key = NULL },
};

static const struct mm_opt_section file_sections[] = {
	{ .title = "Reload",
	  .text = "SIGHUP, mmctl config reload and systemctl reload mmd read the files again. If "
		  "one of them is wrong, nothing changes, and the answer says what is wrong. "
		  "Else what may change while mmd runs changes at once, and the answer lists it, "
		  "and what needs a restart. An account that is no longer there stays until a "
		  "restart. What was set by mmctl quota set stays as long as the file's account "
		  "does not change." },
	{ .title = "Examples",
	  .text = "  # GPU 0 with 60 GiB, and two accounts\n"
		  "  driver: cuda\n"
		  "  pool: 60G\n"
		  "  controller:\n"
		  "    dwell-ms: 300\n"
		  "  accounts:\n"
		  "    - name: web\n"
		  "      cgroup: /serving.slice/web\n"
		  "      min: 20G\n"
		  "      weight: 300\n"
		  "    - name: batch\n"
		  "      gid: 2000\n"
		  "      max: 30G\n" },
	{ .title = NULL },
};

static const struct mm_opt_file config_file = {
	.name = "mmd.conf",
	.path = MM_CONFIG_FILE_DEFAULT,
	.summary = "settings of mmd(8)",
	.text = "The file is YAML, and so may be JSON: keys with values, and comments behind #. "
		"Each "
		"key is an option of mmd without its dashes; an option of the command line takes "
		"precedence. Only digits without quotes are a number, everything else is text as "
		"it "
		"stands. Sizes are bytes, or end in K, M, G or T: 65536, 512M, 2G. A value "
		"SIZE,... "
		"is one value for all devices, or one for each, as a list or between commas. "
		"Anchors, aliases and tags are not used.\n"
		"\n"
		"Behind the file the drop-ins *.conf of the folder beside it are read, in the "
		"order of "
		"the bytes of their names: of two that have a key, the later one counts. If "
		"there is "
		"a drop-in, the file itself may be missing. mmd --config names another file, whose "
		"folder has its name and .d at the end. A file is at most 1 MiB, and there are at "
		"most 32 drop-ins. mmctl quota set --save writes the drop-in 90-mmctl.conf.\n"
		"\n"
		"mmd --check-config reads all of it and starts nothing; mmctl config show prints "
		"each "
		"value in force and where it comes from. The first thing that is wrong is "
		"reported as "
		"FILE:LINE: and a sentence, and mmd does not start.",
	.keys = mm_config_options,
	.parts = config_parts,
	.sections = file_sections,
	.see_also = "mmd(8), mmctl(1), Documentation/admin-guide.md",
};

static const struct mm_opt_renamed config_renamed[] = {
	{ "ask-timeout", "reclaim-timeout" },
	{ NULL, NULL },
};

const struct mm_opt_program mm_config_program = {
	.name = "mmd",
	.summary = "owns the pages of GPUs and lends them to LLM serving engines",
	.commands = config_commands,
	.n_commands = MM_ARRAY_SIZE(config_commands),
	.exits = "Exit status: 0 stopped in order; 1 failed, for the reason on stderr; 2 usage.",
	.sections = config_sections,
	.man_section = "8",
	.see_also = "mmd.conf(5), mmctl(1), Documentation/admin-guide.md",
	.renamed = config_renamed,
	.file = &config_file,
};

static int table_fail(char *error, const char *fmt, ...) MM_PRINTF(2, 3);
static int table_fail(char *error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, MM_OPT_ERROR_BYTES, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

const char *mm_policy_name(enum mm_policy policy)
{
	return mm_opt_choice_name(config_policy_choices, policy);
}

const char *mm_sandbox_name(uint64_t sandbox)
{
	return mm_opt_choice_name(sandbox_choices, sandbox);
}

const char *mm_hugepages_name(uint64_t hugepages)
{
	return mm_opt_choice_name(huge_choices, hugepages);
}

/* ---- values ---- */

bool mm_config_is_list(const struct mm_opt *o)
{
	return o->parse == config_list_parse;
}

bool mm_config_is_device(const struct mm_opt *o)
{
	return o->at == offsetof(struct mm_config, device) && mm_config_is_list(o);
}

struct mm_config_list *mm_config_list(struct mm_config *c, const struct mm_opt *o)
{
	return (struct mm_config_list *)(void *)((char *)c + o->at);
}

static int config_driver_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_config *c = into;

	(void)opt;
	if (strlen(text) >= sizeof(c->driver))
		return table_fail(why, "longer than %zu bytes", sizeof(c->driver) - 1);
	if (mm_driver_check(text, why))
		return -EINVAL;
	strcpy(c->driver, text);
	return 0;
}

/* Whether @word is a UUID as nvidia-smi -L prints it (GPU-…, MIG-…), or the beginning of one. */
static bool word_is_uuid(const char *word)
{
	size_t n = strlen(word);

	return (strncmp(word, "GPU-", 4) == 0 || strncmp(word, "MIG-", 4) == 0) && n > 4 &&
	       n < MM_UUID_WORD_BYTES && strspn(word + 4, "0123456789abcdefABCDEF-") == n - 4;
}

/*
 * Parses values between commas. An empty word means "not set", if 0 is outside the option's range.
 */
static int config_list_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_config *c = into;
	struct mm_config_list list = { 0 };
	const char *at = text;
	char word[MM_UUID_WORD_BYTES + 1];
	int r = 0;

	if (mm_config_is_device(opt))
		memset(c->device_uuid, 0, sizeof(c->device_uuid));
	while (r == 0) {
		size_t bytes = strcspn(at, ",");

		if (list.n == MM_DEVICES_MAX)
			return table_fail(why, "more than %d values", MM_DEVICES_MAX);
		snprintf(word, sizeof(word), "%.*s", (int)MM_MIN(bytes, sizeof(word)), at);
		list.n++;
		if (mm_config_is_device(opt) && word_is_uuid(word)) {
			list.value[list.n - 1] = list.n - 1;
			strcpy(c->device_uuid[list.n - 1], word);
		} else if (mm_config_is_device(opt) && (*word < '0' || *word > '9')) {
			return table_fail(
				why,
				"'%s' is neither an ordinal nor a UUID (GPU-..., MIG-..., "
				"or the beginning of one)",
				word);
		} else if (bytes || !opt->min || !strchr(text, ',')) {
			r = mm_opt_number(opt, word, &list.value[list.n - 1], why);
		}
		if (!at[bytes])
			break;
		at += bytes + 1;
	}
	if (r == 0)
		*mm_config_list(c, opt) = list;
	return r;
}

static int config_accounts_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_config *c = into;

	(void)opt;
	return mm_accounts_parse_text(text, &c->accounts, why);
}

/* Stores the text as it is; it is parsed here only to report errors early. */
static int config_knobs_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_config *c = into;
	struct mm_core_opts opts = { 0 };

	(void)opt;
	if (mm_tune_parse(text, &opts, why) < 0)
		return -EINVAL;
	strcpy(c->controller, text);
	return 0;
}

bool mm_config_is_text(const struct mm_opt *o)
{
	return o->type == MM_OPT_COPY || o->parse == config_driver_parse ||
	       o->parse == config_knobs_parse;
}

bool mm_config_is_accounts(const struct mm_opt *o)
{
	return o->parse == config_accounts_parse;
}

bool mm_config_is_knobs(const struct mm_opt *o)
{
	return o->parse == config_knobs_parse;
}

struct mm_origin *mm_config_origin(struct mm_config *c, const struct mm_opt *o)
{
	return &c->sources.option[o - mm_config_options];
}
