/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmctl/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/abi.h"

#define MMCTL_AT(field)      MM_OPT_AT(struct mmctl_options, field)
#define MMCTL_WAIT_MAX_S     86400
#define MMCTL_PAGE_BYTES_MIN 4096

static mm_opt_parse_fn device_parse, pages_parse, batches_parse;

static const struct mm_opt_choice auto_choice[] = { { "auto", MMCTL_AUTO, NULL },
						    { .name = NULL } };

static const struct mm_opt_choice slots_choices[] = { { "1", 1, NULL },
						      { "2", 2, NULL },
						      { "auto", MMCTL_AUTO,
							"what makes the shorter step" },
						      { .name = NULL } };

const struct mm_opt_choice mmctl_timeout_choices[] = {
	{ "kill", 0, NULL },
	{ "quarantine", 1, NULL },
	{ .name = NULL },
};

static const struct mm_opt shared_options[] = {
	{ .name = "socket",
	  .value = "PATH",
	  .help = "socket of mmd: admin.sock, or view.sock, which is for looking only",
	  .type = MM_OPT_TEXT,
	  MMCTL_AT(socket),
	  .otherwise = "admin.sock in --dir; view.sock there for who may not use that" },
	{ .name = "dir",
	  .value = "DIR",
	  .help = "directory of mmd",
	  .type = MM_OPT_TEXT,
	  MMCTL_AT(dir),
	  .otherwise = "/run/mmd as root, else $XDG_RUNTIME_DIR/mmd; where that has no mmd and "
		       "/run/mmd one that lets others look, /run/mmd" },
	{ .name = "device",
	  .value = "N|UUID",
	  .help = "only what is on this device: the ordinal that mmd was given, or its UUID "
		  "(GPU-..., MIG-..., or the beginning of one). Needed where tenants of one name "
		  "live on several",
	  .type = MM_OPT_CALL,
	  MMCTL_AT(device),
	  .parse = device_parse,
	  .max = INT32_MAX,
	  .otherwise = "all" },
	{ .name = "json",
	  .help = "print one JSON object instead of text",
	  .type = MM_OPT_FLAG,
	  MMCTL_AT(json) },
	{ .name = NULL },
};

static const struct mm_opt plan_set_options[] = {
	{ .name = "layers",
	  .value = "N|auto",
	  .help = "so many layers are away from now on; auto hands the decision back to mmd",
	  .type = MM_OPT_NUMBER,
	  MMCTL_AT(layers),
	  .max = MM_LAYERS_MAX,
	  .choices = auto_choice,
	  .otherwise = "stays" },
	{ .name = "slots",
	  .value = "N",
	  .help = "through how many slots the layers that cycle are streamed; two need at least "
		  "two layers away",
	  .type = MM_OPT_CHOICE,
	  MMCTL_AT(slots),
	  .choices = slots_choices,
	  .preset = "auto" },
	{ .name = "cold",
	  .value = "N|auto",
	  .help = "so many of its cold blocks may be live; auto hands the decision back to mmd",
	  .type = MM_OPT_NUMBER,
	  MMCTL_AT(cold),
	  .max = MM_COLD_MAX,
	  .choices = auto_choice,
	  .otherwise = "stays" },
	{ .name = NULL },
};

#define QUOTA_SIZE(word, text, at)                                                      \
	.name = word, .value = "SIZE", .help = text, .type = MM_OPT_SIZE, MMCTL_AT(at), \
	.max = INT64_MAX, .otherwise = "stays"
#define QUOTA_NUMBER(word, unit, text, at)                                              \
	.name = word, .value = unit, .help = text, .type = MM_OPT_NUMBER, MMCTL_AT(at), \
	.max = INT64_MAX, .otherwise = "stays"

/* mmd checks the ranges: these here only keep numbers within those of JSON. */
static const struct mm_opt quota_set_options[] = {
	{ QUOTA_SIZE("min", "pages that are kept for it, of one device", min_bytes) },
	{ QUOTA_SIZE("max", "the most that it may be charged, of one device", max_bytes) },
	{ QUOTA_NUMBER("weight", "N", "its share when memory is short", weight) },
	{ QUOTA_NUMBER("priority", "N", "who is served first", priority) },
	{ .name = "on-timeout",
	  .value = "NAME",
	  .help = "what happens to a process that does not give pages back in time",
	  .type = MM_OPT_CHOICE,
	  MMCTL_AT(on_timeout),
	  .choices = mmctl_timeout_choices,
	  .otherwise = "stays" },
	{ QUOTA_NUMBER("turn-quantum-max", "MS", "longest turn that its tenants may request",
		       turn_quantum_max_ms) },
	{ QUOTA_NUMBER("turn-priority-max", "N",
		       "highest priority among turns that its tenants may request",
		       turn_priority_max) },
	{ QUOTA_NUMBER("goal-ttft", "MS",
		       "time to the first token that its requests are to reach; 0 is no goal",
		       goal_ttft_ms) },
	{ QUOTA_NUMBER("goal-tpot", "US", "the same for each further token", goal_tpot_us) },
	{ .name = "revision",
	  .value = "N",
	  .help = "change it only if this is its present revision",
	  .type = MM_OPT_NUMBER,
	  MMCTL_AT(revision),
	  .otherwise = "any" },
	{ .name = "save",
	  .help = "write what the options say to the drop-in 90-mmctl.conf of mmd's file as well, "
		  "so that it holds after a restart; mmctl itself writes it",
	  .type = MM_OPT_FLAG,
	  MMCTL_AT(save) },
	{ .name = NULL },
};

static const struct mm_opt wait_options[] = {
	{ .name = "timeout",
	  .value = "S",
	  .help = "how long to wait; 0: look once",
	  .type = MM_OPT_REAL,
	  MMCTL_AT(timeout_s),
	  .most = MMCTL_WAIT_MAX_S,
	  .unit = "s",
	  .preset = "60" },
	{ .name = NULL },
};

static const struct mm_opt doctor_options[] = {
	{ .name = "host",
	  .help = "only what needs no mmd: kernel, limits, file systems",
	  .type = MM_OPT_FLAG,
	  MMCTL_AT(host_only) },
	{ .name = NULL },
};

static const struct mm_opt exporter_options[] = {
	{ .name = "listen",
	  .value = "ADDRESS",
	  .help = "where it serves HTTP: unix:PATH, 127.0.0.1:PORT or [::1]:PORT; port 0 is a free "
		  "one. Other addresses are refused: TLS, and who may ask from outside, are a "
		  "proxy's job",
	  .type = MM_OPT_TEXT,
	  MMCTL_AT(listen),
	  .preset = "127.0.0.1:9736" },
	{ .name = "list",
	  .help = "only say which metrics there are; needs no mmd",
	  .type = MM_OPT_FLAG,
	  MMCTL_AT(list) },
	{ .name = NULL },
};

static const struct mm_opt upgrade_options[] = {
	{ .name = "check",
	  .help = "only whether it could go on",
	  .type = MM_OPT_FLAG,
	  MMCTL_AT(check) },
	{ .name = NULL },
};

static const struct mm_opt shutdown_options[] = {
	{ .name = "within",
	  .value = "S",
	  .help = "how long tenants have to leave by themselves; then their connections end, and "
		  "soon afterwards their processes are killed",
	  .type = MM_OPT_NUMBER,
	  MMCTL_AT(within_s),
	  .max = MMCTL_WAIT_MAX_S,
	  .unit = "s",
	  .preset = "30" },
	{ .name = "release",
	  .help = "look afterwards whether the devices are free, for a reset or another driver: "
		  "whoever still has memory of one is named, and the status is 1",
	  .type = MM_OPT_FLAG,
	  MMCTL_AT(release) },
	{ .name = "dry-run",
	  .help = "only say which tenants there are",
	  .type = MM_OPT_FLAG,
	  MMCTL_AT(dry_run) },
	{ .name = NULL },
};

#define NO_WAIT                                                                                    \
	{                                                                                          \
		.name = "no-wait", .help = "only begin: mmd goes on with it", .type = MM_OPT_FLAG, \
		MMCTL_AT(no_wait)                                                                  \
	}

static const struct mm_opt revoke_options[] = {
	{ .name = "dry-run",
	  .help = "only say how much it would be",
	  .type = MM_OPT_FLAG,
	  MMCTL_AT(dry_run) },
	NO_WAIT,
	{ .name = NULL },
};

static const struct mm_opt drain_options[] = {
	{ .name = "within",
	  .value = "S",
	  .help = "end its connection after so long; its process is then treated as any that does "
		  "not give its pages back",
	  .type = MM_OPT_NUMBER,
	  MMCTL_AT(drain_within_s),
	  .max = MMCTL_WAIT_MAX_S,
	  .unit = "s",
	  .otherwise = "as long as it takes" },
	{ .name = "cancel",
	  .help = "it is granted memory again",
	  .type = MM_OPT_FLAG,
	  MMCTL_AT(cancel) },
	NO_WAIT,
	{ .name = NULL },
};

static const struct mm_opt home_options[] = {
	NO_WAIT,
	{ .name = NULL },
};

static const struct mm_opt footprint_options[] = {
	{ .name = "models",
	  .value = "FILE",
	  .help = "JSON with an array \"models\": of each name, family, n_layers, and the "
		  "dimensions of its tensors in layer_tensors and other_tensors; dtype_bytes (2 or "
		  "4) is of all elements",
	  .type = MM_OPT_TEXT,
	  MMCTL_AT(models) },
	{ .name = "page",
	  .value = "SIZE,...",
	  .help = "page sizes to compare, multiples of 4096",
	  .type = MM_OPT_CALL,
	  MMCTL_AT(n_pages),
	  .parse = pages_parse,
	  .each = MM_OPT_SIZE,
	  .min = MMCTL_PAGE_BYTES_MIN,
	  .max = UINT32_MAX,
	  .preset = "2M,16M,64M" },
	{ .name = "kv",
	  .value = "SIZE",
	  .help = "size of a KV arena",
	  .type = MM_OPT_SIZE,
	  MMCTL_AT(kv_bytes),
	  .preset = "8G" },
	{ .name = NULL },
};

static const struct mm_opt estimate_options[] = {
	{ .name = "profile",
	  .value = "NAME|PATH",
	  .help = "the device: a profile of share/mmd/profiles or a file, with \",key=value\" to "
		  "replace numbers",
	  .type = MM_OPT_TEXT,
	  MMCTL_AT(profile),
	  .required = true },
	{ .name = "pool",
	  .value = "SIZE",
	  .help = "pool of the device",
	  .type = MM_OPT_SIZE,
	  MMCTL_AT(pool_bytes),
	  .min = MMCTL_PAGE_BYTES_MIN,
	  .otherwise = "its memory, but for 1G" },
	{ .name = "page",
	  .value = "SIZE",
	  .help = "page size of the pool",
	  .type = MM_OPT_SIZE,
	  MMCTL_AT(estimate_page_bytes),
	  .min = MMCTL_PAGE_BYTES_MIN,
	  .max = UINT32_MAX,
	  .preset = "2M" },
	{ .name = "context",
	  .value = "TOKENS",
	  .help = "length of a request, prompt and answer",
	  .type = MM_OPT_NUMBER,
	  MMCTL_AT(context),
	  .min = 1,
	  .max = 10000000,
	  .preset = "2048" },
	{ .name = "batch",
	  .value = "N,...",
	  .help = "requests that would run at once, if they fit",
	  .type = MM_OPT_CALL,
	  MMCTL_AT(n_batches),
	  .parse = batches_parse,
	  .each = MM_OPT_NUMBER,
	  .min = 1,
	  .max = 100000,
	  .preset = "1,8,32,128" },
	{ .name = NULL },
};

static const struct mm_opt top_options[] = {
	{ .name = "interval",
	  .value = "S",
	  .help = "time between two looks",
	  .type = MM_OPT_REAL,
	  MMCTL_AT(interval_s),
	  .least = 0.1,
	  .most = 3600,
	  .unit = "s",
	  .preset = "1" },
	{ .name = "once",
	  .help = "print one frame as text, after one interval, and end",
	  .type = MM_OPT_FLAG,
	  MMCTL_AT(once) },
	{ .name = NULL },
};

#define MPS_PIPE_DIR                                                                              \
	{                                                                                         \
		.name = "pipe-dir", .value = "DIR",                                               \
		.help = "where the daemon and its clients meet", .type = MM_OPT_TEXT,             \
		MMCTL_AT(pipe_dir), .otherwise = "$CUDA_MPS_PIPE_DIRECTORY, else /tmp/nvidia-mps" \
	}
#define MPS_PERCENT(text)                                                                        \
	.name = "percent", .value = "N", .help = text, .type = MM_OPT_NUMBER, MMCTL_AT(percent), \
	.min = 1, .max = 100

static const struct mm_opt mps_options[] = {
	MPS_PIPE_DIR,
	{ .name = NULL },
};

static const struct mm_opt mps_start_options[] = {
	MPS_PIPE_DIR,
	{ .name = "log-dir",
	  .value = "DIR",
	  .help = "where the daemon and its servers write their logs",
	  .type = MM_OPT_TEXT,
	  MMCTL_AT(log_dir),
	  .otherwise = "$CUDA_MPS_LOG_DIRECTORY, else /var/log/nvidia-mps" },
	{ MPS_PERCENT("part of the device's threads that a process may have"),
	  .otherwise = "all of them" },
	{ .name = NULL },
};

static const struct mm_opt mps_limit_options[] = {
	MPS_PIPE_DIR,
	{ MPS_PERCENT("part of the device's threads that a process may have"), .required = true },
	{ .name = NULL },
};

static const struct mm_opt mig_destroy_options[] = {
	{ .name = "yes",
	  .help = "really: what is in its memory is lost",
	  .type = MM_OPT_FLAG,
	  MMCTL_AT(yes) },
	{ .name = NULL },
};

static const char text_plan_why[] =
	"Explains the last decision of each device, which was made when something last changed,"
	" and every 50 ms while somebody has work. With MODEL only what is about it, and its "
	"device. A cost or gain of 1 % is 1 % of the tokens of one model, or 0.5 % of each of "
	"two. --json has the numbers too: what each number of layers away would cost and gain.";

static const char text_plan_set[] =
	"With --layers the pages of so many layers of the model are given away now and stay away. "
	"The change is made at the tenant's next step boundary, and as soon as the pages that"
	" it needs are free; plan show tells when.\n\n"
	"With --cold so many blocks of its KV cache, at most, are read from host memory in each "
	"step. A limit that rises counts at once. One that falls counts when the tenant has had "
	"time to take the blocks back. Who has declared no cold blocks is refused.";

static const char text_footprint[] =
	"What models take per tenant at each page size, computed with load's own layout: "
	"no daemon is needed and no weights are read. DIR is a folder with config.json "
	"and *.safetensors; if it has model.safetensors.index.json, those that it names. "
	"Give folders, --models, or both. A KV arena is added. Warnings say what a tenant"
	" could not have: entries of the map table, mappings of a process.";

static const char text_quota_set[] =
	"The answer is applied (in force), deferred (taken; pages are reclaimed, and it "
	"is in force when enough have come), stale (another revision) or conflict (with "
	"itself, the pool, or mins of other accounts). The last two changed nothing: exit"
	" status 1. Below it is the account's line of quota show. With several devices "
	"--device is needed.";

static const char text_config_show[] =
	"Each value that is in force, and where it comes from: a line of a file, the command line, "
	"or nowhere, that is the default. A value that the files have and that needs a restart "
	"stands below it. With KEY only the keys that begin with it.";

static const char text_config_reload[] =
	"mmd reads its files again. If they are wrong, nothing changes: the sentence and status 1. "
	"Else each change is printed: applied, or restart, where it needs one.";

static const char text_wait[] =
	"It is ready when it has answered, and no device that is meant is down or without"
	" its pages. Status 3, with the reason, when it is not ready in time, and at once"
	" where waiting is of no use (permission denied, not a socket of mmd). With "
	"--json it prints ready (true) and waited_s.";

static const char text_events[] =
	"A line for each event: when (UTC), how severe, its name and what it is about; "
	"Documentation/events.md has all names. mmd has the last 2048 events of its core, of which "
	"those of tenants' memory are sums of a second; who comes too late is said how many it has "
	"missed. With --json one object with events, or, with --follow, one object per line: an "
	"event (seq, time, level, event, fields), missed (how many) or restarted (another mmd).";

static const char text_doctor[] =
	"A line for each check: ok; note, where nothing is wrong, but something is not enforced or "
	"not known here; warn; fail. Behind a line stands what to do. It changes nothing. Status 1 "
	"if a check has failed; 3 where mmd cannot be reached, after the checks of the host.";

static const char text_exporter[] =
	"Serves /metrics, as OpenMetrics or as Prometheus' text, whichever is asked for, and "
	"/-/healthy. It runs until SIGTERM, asks mmd once per scrape, and sleeps in between. While "
	"mmd does not answer, mmd_up is 0.";

static const char text_upgrade[] =
	"EXE is the file of another build of mmd, which only root or mmd's user can change; by "
	"default the file from which mmd was started, as it is now. It is started with a copy of "
	"what mmd knows, and must read that; then the process core is replaced by it, and tenants "
	"stay as they are. If it ends before it stands, the build that ran goes on. Then the "
	"process keeper becomes that build, with the same pid; if it cannot, it stays what it was, "
	"and the status is 1. Processes that serve a device or a store stay what they are until "
	"they end. A line for each process says which build it runs.";

static const char text_shutdown[] =
	"Nobody new is welcomed any more. Each tenant is told by when it has to leave, if its "
	"engine can be told; when the last one is gone, or the time is over, mmd ends. The command "
	"waits for that. A service manager that starts mmd anew whenever it ends must be told as "
	"well.";

static const char text_revoke[] =
	"Takes back now what TENANT holds of KV cache beyond its share, as far as its account has "
	"more than its min. It is asked as for any quota, within reclaim-timeout; then what the "
	"account's on-timeout says follows. It is granted nothing above its share meanwhile; "
	"afterwards mmd decides again, and may grant it what nobody else needs.";

static const char text_drain[] =
	"TENANT is granted no memory any more (KV cache, a model, other memory), and told to "
	"leave, if its engine can be told. The command ends when it has gone or holds nothing. "
	"Layers that are away may still return, into memory that nobody needs. An engine that was "
	"told may leave although --cancel follows.";

static const char text_activate[] =
	"All layers of MODEL come home now, if its account and the pool have room for them; else "
	"the answer says what is missing. Afterwards mmd decides again; a plan that was set by "
	"hand has ended.";

static const char text_pin[] =
	"As activate, and its layers stay at home: mmd takes none, whoever lacks memory, and plan "
	"set has to wait. Its pages count as ever for its account. The pin ends with unpin, with "
	"the model, or with the tenant's connection; it survives restarts and upgrades of mmd's "
	"core.";

static const char text_plan_estimate[] =
	"MODEL is a folder with config.json, or a model that is built in (opt-13b, llama-3-8b, and "
	"others). Needs no mmd. One model alone, fp16, that decodes: of each number of requests it "
	"says how many fit and how long a step is with all layers at home, and the same with as "
	"many layers away as mmd would choose, by the controller's own arithmetic over the "
	"profile's numbers.";

static const char text_top[] =
	"The line help has how much KV cache there is because layers are away, and how many of "
	"the running requests live in it. BEYOND is KV cache beyond the tenant's share; STALL "
	"is the part of the time in which its steps waited for layers. Keys: k n a t s w sort by "
	"KV cache, name, layers away, step, stall, weights; / filters by name, Esc clears that; "
	"arrows scroll; q ends. With --json it prints the answer of status.";

static const char text_mps[] =
	"nvidia-cuda-mps-control comes with the driver. Tenants find it by the pipe directory; "
	"start it before them, as the user that they run as: a server serves one user.";

static const char text_mps_limit[] =
	"Without TENANT of servers that start from now on; with TENANT of the server that serves "
	"it, and of each process that begins to compute there from now on. The tenant itself keeps "
	"what it has. Limits of one process alone are in its environment: "
	"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE.";

static const char text_mig[] =
	"Here --device is a GPU: its number in nvidia-smi, or its UUID. MIG mode is switched by "
	"nvidia-smi -i N -mig 1 (or 0), as root, while nobody uses the GPU.";

static const char text_words[] =
	"MODEL and TENANT are a tenant's name or id; ids are unique on all devices, and a process "
	"that uses two devices is two tenants. ACCOUNT is a name of the configuration, or"
	" uid:N. Sizes are bytes, or end in K, M, G or T: 65536, 512M, 2G.";

static const struct mm_opt events_options[] = {
	{ .name = "follow",
	  .help = "go on with what happens, also where core dies or mmd is started anew",
	  .type = MM_OPT_FLAG,
	  MMCTL_AT(follow) },
	{ .name = "since",
	  .value = "TIME",
	  .help = "only what came later: a time in UTC (2026-01-31T12:00:00Z), or how long ago "
		  "(90s, 10m, 2h, 1d)",
	  .type = MM_OPT_TEXT,
	  MMCTL_AT(since),
	  .otherwise = "all that mmd has" },
	{ .name = "tenant",
	  .value = "MODEL",
	  .help = "only what is about this tenant",
	  .type = MM_OPT_TEXT,
	  MMCTL_AT(tenant),
	  .otherwise = "all" },
	{ .name = NULL },
};

static const struct mm_opt_command commands[] = {
	[MMCTL_STATUS] = { .name = "status",
			   .arguments = "",
			   .summary = "all at a glance: of each device its pool and xfer; tenants, "
				      "host copies of models" },
	[MMCTL_POOL_SHOW] = { .name = "pool show",
			      .arguments = "",
			      .summary = "pages by state of each device, and whether they sum up "
					 "to its pool" },
	[MMCTL_PLAN_SHOW] = { .name = "plan show",
			      .arguments = "[MODEL]",
			      .summary = "which layers are away and cycle, in which slots of which "
					 "pages",
			      .arguments_max = 1 },
	[MMCTL_PLAN_WHY] = { .name = "plan why",
			     .arguments = "[MODEL]",
			     .summary = "why memory is where it is: who lacks it, who lends it, at "
					"which price, and what mmd chose",
			     .text = text_plan_why,
			     .arguments_max = 1 },
	[MMCTL_PLAN_SET] = { .name = "plan set",
			     .arguments = "MODEL",
			     .summary = "how many layers are away, or blocks are cold, by hand",
			     .text = text_plan_set,
			     .sets = { { plan_set_options, 0 } },
			     .arguments_min = 1,
			     .arguments_max = 1 },
	[MMCTL_DEVICES] = { .name = "devices",
			    .arguments = "",
			    .summary = "GPUs and MIG instances here, and who manages them",
			    .text = "Of each: the ordinal that CUDA shows it under here, UUID, "
				    "name, memory, and who manages it (mmd: the one that answers; "
				    "another mmd; nobody). Needs no mmd. Which driver is asked: "
				    "MM_DRIVER of the environment, else that of a running mmd, "
				    "else cuda." },
	[MMCTL_FOOTPRINT] = { .name = "footprint",
			      .arguments = "[DIR...]",
			      .summary = "what models take, without a daemon",
			      .text = text_footprint,
			      .sets = { { footprint_options, 0 } },
			      .arguments_max = UINT32_MAX },
	[MMCTL_QUOTA_SHOW] = { .name = "quota show",
			       .arguments = "",
			       .summary = "of each account and device: what it uses, may have, and "
					  "whether its quota is in force" },
	[MMCTL_QUOTA_SET] = { .name = "quota set",
			      .arguments = "ACCOUNT",
			      .summary = "what an account may have, until mmd ends",
			      .text = text_quota_set,
			      .sets = { { quota_set_options, 0 } },
			      .arguments_min = 1,
			      .arguments_max = 1 },
	[MMCTL_EVENTS] = { .name = "events",
			   .arguments = "",
			   .summary = "what has happened of late, and what happens",
			   .text = text_events,
			   .sets = { { events_options, 0 } } },
	[MMCTL_CONFIG_SHOW] = { .name = "config show",
				.arguments = "[KEY]",
				.summary = "mmd's settings, and where each comes from",
				.text = text_config_show,
				.arguments_max = 1 },
	[MMCTL_CONFIG_RELOAD] = { .name = "config reload",
				  .arguments = "",
				  .summary = "mmd reads its configuration again",
				  .text = text_config_reload },
	[MMCTL_WAIT] = { .name = "wait",
			 .arguments = "",
			 .summary = "until mmd is there and ready",
			 .text = text_wait,
			 .sets = { { wait_options, 0 } } },
	[MMCTL_DOCTOR] = { .name = "doctor",
			   .arguments = "",
			   .summary = "checks mmd, its processes and this host, and says what to "
				      "do",
			   .text = text_doctor,
			   .sets = { { doctor_options, 0 } } },
	[MMCTL_EXPORTER] = { .name = "exporter",
			     .arguments = "",
			     .summary = "serves metrics over HTTP, for Prometheus",
			     .text = text_exporter,
			     .sets = { { exporter_options, 0 } } },
	[MMCTL_UPGRADE] = { .name = "upgrade",
			    .arguments = "[EXE]",
			    .summary = "another build of mmd goes on, and no tenant notices",
			    .text = text_upgrade,
			    .sets = { { upgrade_options, 0 } },
			    .arguments_max = 1 },
	[MMCTL_SHUTDOWN] = { .name = "shutdown",
			     .arguments = "",
			     .summary = "ends mmd, after its tenants",
			     .text = text_shutdown,
			     .sets = { { shutdown_options, 0 } } },
	[MMCTL_REVOKE] = { .name = "revoke",
			   .arguments = "TENANT",
			   .summary = "takes back what a tenant has beyond its share, now",
			   .text = text_revoke,
			   .sets = { { revoke_options, 0 } },
			   .arguments_min = 1,
			   .arguments_max = 1 },
	[MMCTL_DRAIN] = { .name = "drain",
			  .arguments = "TENANT",
			  .summary = "nothing new for a tenant, until it has gone or is empty",
			  .text = text_drain,
			  .sets = { { drain_options, 0 } },
			  .arguments_min = 1,
			  .arguments_max = 1 },
	[MMCTL_ACTIVATE] = { .name = "activate",
			     .arguments = "MODEL",
			     .summary = "all layers of a model come home now",
			     .text = text_activate,
			     .sets = { { home_options, 0 } },
			     .arguments_min = 1,
			     .arguments_max = 1 },
	[MMCTL_PIN] = { .name = "pin",
			.arguments = "MODEL",
			.summary = "all layers of a model come home, and stay there",
			.text = text_pin,
			.sets = { { home_options, 0 } },
			.arguments_min = 1,
			.arguments_max = 1 },
	[MMCTL_PLAN_ESTIMATE] = { .name = "plan estimate",
				  .arguments = "MODEL",
				  .summary = "whether layers away would pay on a device, without a "
					     "daemon",
				  .text = text_plan_estimate,
				  .sets = { { estimate_options, 0 } },
				  .arguments_min = 1,
				  .arguments_max = 1 },
	[MMCTL_TOP] = { .name = "top",
			.arguments = "",
			.summary = "a live view of pools and tenants",
			.text = text_top,
			.sets = { { top_options, 0 } } },
	[MMCTL_LIST] = { .name = "list",
			 .arguments = "",
			 .summary = "tenants, a line each, by name" },
	[MMCTL_MPS_START] = { .name = "mps start",
			      .arguments = "",
			      .summary = "starts NVIDIA's control daemon of MPS",
			      .text = text_mps,
			      .sets = { { mps_start_options, 0 } } },
	[MMCTL_MPS_STOP] = { .name = "mps stop",
			     .arguments = "",
			     .summary = "ends it",
			     .sets = { { mps_options, 0 } } },
	[MMCTL_MPS_STATUS] = { .name = "mps status",
			       .arguments = "",
			       .summary = "its servers, their clients, and which of them are "
					  "tenants",
			       .sets = { { mps_options, 0 } } },
	[MMCTL_MPS_LIMIT] = { .name = "mps limit",
			      .arguments = "[TENANT]",
			      .summary = "part of the threads for processes that start from now on",
			      .text = text_mps_limit,
			      .sets = { { mps_limit_options, 0 } },
			      .arguments_max = 1 },
	[MMCTL_MIG_LIST] = { .name = "mig list",
			     .arguments = "",
			     .summary = "GPUs, what MIG instances would fit, and which there are",
			     .text = text_mig },
	[MMCTL_MIG_CREATE] = { .name = "mig create",
			       .arguments = "PROFILE",
			       .summary = "makes a MIG instance of a profile that mig list has",
			       .text = text_mig,
			       .arguments_min = 1,
			       .arguments_max = 1 },
	[MMCTL_MIG_DESTROY] = { .name = "mig destroy",
				.arguments = "UUID",
				.summary = "removes a MIG instance that nobody uses",
				.text = text_mig,
				.sets = { { mig_destroy_options, 0 } },
				.arguments_min = 1,
				.arguments_max = 1 },
	[MMCTL_UNPIN] = { .name = "unpin",
			  .arguments = "MODEL",
			  .summary = "mmd decides about the layers of a model again",
			  .arguments_min = 1,
			  .arguments_max = 1 },
};
static_assert(MM_ARRAY_SIZE(commands) == MMCTL_COMMANDS, "a row for each command");

static const struct mm_opt_section mmctl_sections[] = {
	{ .title = "Words", .text = text_words, .in_help = true },
	{ .title = NULL },
};

const struct mm_opt_program mmctl_program = {
	.name = "mmctl",
	.summary = "looks into a running mmd, sets plans by hand, sizes models",
	.shared = { { shared_options, 0 } },
	.commands = commands,
	.n_commands = MMCTL_COMMANDS,
	.exits = "Exit status: 0 done; 1 refused or failed; 2 usage; 3 mmd cannot be reached, and "
		 "why, or, with wait, is not ready in time.",
	.sections = mmctl_sections,
	.man_section = "1",
	.see_also = "mmd(8)",
};

static int options_fail(char *why, const char *what, const char *text)
{
	snprintf(why, MM_OPT_ERROR_BYTES, "'%.64s' %s", text, what);
	return -EINVAL;
}

static int device_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mmctl_options *o = into;
	uint64_t number;

	if ((strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0) && text[4]) {
		o->uuid = text;
		o->device = -1;
		return 0;
	}
	o->uuid = NULL;
	if (mm_opt_number(opt, text, &number, why) < 0)
		return options_fail(why, "is neither a number nor a UUID of a device", text);
	o->device = (int64_t)number;
	return 0;
}

static int pages_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mmctl_options *o = into;
	char *save = NULL;

	o->n_pages = 0;
	for (char *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		if (o->n_pages == MMCTL_PAGE_SIZES_MAX)
			return options_fail(why, "is one size too many", word);
		if (mm_opt_number(opt, word, &o->page_bytes[o->n_pages], why) < 0)
			return -EINVAL;
		if (o->page_bytes[o->n_pages++] % MMCTL_PAGE_BYTES_MIN)
			return options_fail(why, "is not a multiple of 4096", word);
	}
	return o->n_pages ? 0 : options_fail(why, "has no size", text);
}

static int batches_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mmctl_options *o = into;
	char *save = NULL;

	o->n_batches = 0;
	for (char *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		if (o->n_batches == MMCTL_BATCHES_MAX)
			return options_fail(why, "is one number too many", word);
		if (mm_opt_number(opt, word, &o->batch[o->n_batches++], why) < 0)
			return -EINVAL;
	}
	return o->n_batches ? 0 : options_fail(why, "has no number", text);
}

int mmctl_options_parse(int argc, char **argv, struct mmctl_options *ret_options,
			struct mm_opt_line *ret_line)
{
	*ret_options = (struct mmctl_options){
		.device = -1,
		.layers = MMCTL_UNSET,
		.cold = MMCTL_UNSET,
		.min_bytes = MMCTL_UNSET,
		.max_bytes = MMCTL_UNSET,
		.weight = MMCTL_UNSET,
		.priority = MMCTL_UNSET,
		.on_timeout = MMCTL_UNSET,
		.turn_quantum_max_ms = MMCTL_UNSET,
		.turn_priority_max = MMCTL_UNSET,
		.goal_ttft_ms = MMCTL_UNSET,
		.goal_tpot_us = MMCTL_UNSET,
		.revision = MMCTL_UNSET,
		.drain_within_s = MMCTL_UNSET,
		.pool_bytes = MMCTL_UNSET,
		.percent = MMCTL_UNSET,
	};
	return mm_opt_main(&mmctl_program, argc, argv, ret_options, ret_line);
}
