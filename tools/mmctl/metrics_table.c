/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmctl/metrics_table.h"

#include "libclient/base/base.h"

const char *const mmctl_metric_types[MMCTL_METRIC_TYPES] = {
	[MMCTL_GAUGE] = "gauge",
	[MMCTL_COUNTER] = "counter",
	[MMCTL_HISTOGRAM] = "histogram",
};

const char *const mmctl_metric_scopes[MMCTL_SCOPES] = {
	[MMCTL_SCOPE_EXPORTER] = "exporter", [MMCTL_SCOPE_NODE] = "mmd",
	[MMCTL_SCOPE_DEVICE] = "device",     [MMCTL_SCOPE_ACCOUNT] = "account",
	[MMCTL_SCOPE_TENANT] = "tenant",
};

const char *const mmctl_metric_labels[MMCTL_SCOPES][5] = {
	[MMCTL_SCOPE_EXPORTER] = { NULL },
	[MMCTL_SCOPE_NODE] = { NULL },
	[MMCTL_SCOPE_DEVICE] = { "device", NULL },
	[MMCTL_SCOPE_ACCOUNT] = { "device", "account", NULL },
	[MMCTL_SCOPE_TENANT] = { "device", "account", "tenant", "place", NULL },
};

#define ROW(in, sort, word, text, member)                                                   \
	.scope = MMCTL_SCOPE_##in, .type = MMCTL_##sort, .name = "mmd_" word, .help = text, \
	.key = member
#define GAUGE(in, word, text, member)              \
	{                                          \
		ROW(in, GAUGE, word, text, member) \
	}
#define COUNT(in, word, text, member)                \
	{                                            \
		ROW(in, COUNTER, word, text, member) \
	}
#define BYTES(in, word, text, member)                                        \
	{                                                                    \
		ROW(in, GAUGE, word "_bytes", text, member), .unit = "bytes" \
	}
#define BYTES_COUNT(in, word, text, member)                                    \
	{                                                                      \
		ROW(in, COUNTER, word "_bytes", text, member), .unit = "bytes" \
	}
#define SECONDS(in, sort, word, text, member)                                     \
	{                                                                         \
		ROW(in, sort, word "_seconds", text, member), .unit = "seconds",  \
							      .scale = MMCTL_NANO \
	}
#define CLAIMED_SECONDS(in, sort, word, text, member)                                            \
	{                                                                                        \
		ROW(in, sort, word "_seconds", text, member), .unit = "seconds",                 \
							      .scale = MMCTL_NANO, .claim = true \
	}
#define CLAIMED(in, sort, word, text, member)                    \
	{                                                        \
		ROW(in, sort, word, text, member), .claim = true \
	}

/* The rows of a tally, which each account and each tenant has. */
#define TALLY(in, word)                                                                            \
	COUNT(in, word "_grants", "KV chunks that were granted", "grants"),                        \
		COUNT(in, word "_denials", "Demands for KV chunks that were denied", "denials"),   \
		COUNT(in, word "_reclaims", "Requests of mmd to give KV chunks back", "reclaims"), \
		COUNT(in, word "_released_chunks", "KV chunks that came back", "released"),        \
		COUNT(in, word "_layers_taken", "Layers whose pages were lent", "takes"),          \
		COUNT(in, word "_layers_returned", "Layers that came home", "returns"),            \
		COUNT(in, word "_plan_changes", "Changes of which layers are away",                \
		      "plan_changes"),                                                             \
		BYTES_COUNT(in, word "_swapped_out", "KV that was copied to host memory",          \
			    "swapped_out_bytes"),                                                  \
		BYTES_COUNT(in, word "_swapped_in", "KV that was copied back from host memory",    \
			    "swapped_in_bytes"),                                                   \
		SECONDS(in, HISTOGRAM, word "_grant_wait",                                         \
			"Time from the demand for a KV chunk to its grant", "grant_times"),        \
		CLAIMED(in, COUNTER, word "_claimed_steps", "Steps that were computed", "steps"),  \
		CLAIMED_SECONDS(in, COUNTER, word "_claimed_stall",                                \
				"Time that steps waited for layers", "stall_ns"),                  \
		CLAIMED_SECONDS(in, HISTOGRAM, word "_claimed_step",                               \
				"Length of steps, of a sample of them, with their stalls",         \
				"step_times"),                                                     \
		CLAIMED_SECONDS(in, HISTOGRAM, word "_claimed_step_stall",                         \
				"Time that a step waited for layers, of the same sample",          \
				"stall_times")

const struct mmctl_metric mmctl_metrics[] = {
	GAUGE(EXPORTER, "up", "Whether mmd has answered: 1 or 0", "up"),
	COUNT(EXPORTER, "exporter_scrapes", "Requests for metrics", "scrapes"),
	COUNT(EXPORTER, "exporter_failures", "Requests of these for which mmd did not answer",
	      "failures"),
	SECONDS(EXPORTER, GAUGE, "exporter_answer", "Time that mmd took to answer", "answer_ns"),
	SECONDS(EXPORTER, COUNTER, "exporter_cpu", "Processor time of the exporter", "cpu_ns"),
	BYTES(EXPORTER, "host_memory", "Memory of the host", "memory_bytes"),
	BYTES(EXPORTER, "host_memory_available",
	      "Memory of the host that can be had without swapping", "memory_available_bytes"),

	{ ROW(NODE, GAUGE, "build_info", "Always 1: version and policy of mmd", "info"),
	  .extra = { "version", "policy", NULL } },
	{ ROW(NODE, GAUGE, "start_time_seconds",
	      "When mmd was started, in seconds since 1970: all counters of mmd began at 0 then",
	      "started_s"),
	  .unit = "seconds" },
	COUNT(NODE, "core_restarts", "Times that core has died and another one went on",
	      "core_restarts"),
	SECONDS(NODE, COUNTER, "core_cpu", "Processor time of the core that runs", "core_cpu_ns"),
	BYTES(NODE, "host_store", "Host memory of copies of models", "host_store_bytes"),
	BYTES(NODE, "host_store_limit", "The most that it may be: --host-store-max",
	      "host_store_max_bytes"),
	BYTES(NODE, "swap_space", "Host memory of swap spaces", "swap_bytes"),
	BYTES(NODE, "swap_space_limit", "The most that it may be: --swap-max", "swap_max_bytes"),
	COUNT(NODE, "load_deaths", "Loads of models that crashed or were killed", "load_deaths"),

	{ ROW(DEVICE, GAUGE, "device_info", "Always 1: which device it is", "info"),
	  .extra = { "uuid", "name", "driver", NULL } },
	GAUGE(DEVICE, "device_up",
	      "Whether the device serves: 1, or 0 while its xfer keeps failing", "up"),
	BYTES(DEVICE, "device_memory", "Memory of the device", "memory_bytes"),
	BYTES(DEVICE, "page", "Size of a page", "page_bytes"),
	{ ROW(DEVICE, GAUGE, "pool_bytes", "Memory of the pool by the state of its pages",
	      "pool_bytes"),
	  .unit = "bytes", .spread = "state" },
	GAUGE(DEVICE, "device_layers_away", "Layers that are away, of all tenants", "layers_away"),
	COUNT(DEVICE, "device_joins", "Tenants that joined", "joins"),
	COUNT(DEVICE, "device_kicks", "Tenants whose connection mmd ended for a broken rule",
	      "kicks"),
	COUNT(DEVICE, "device_kills", "Processes that mmd killed since they kept pages", "kills"),
	COUNT(DEVICE, "device_kills_withheld", "Kills that the breaker prevented",
	      "kills_withheld"),
	GAUGE(DEVICE, "device_kill_breaker_open", "Whether the breaker prevents kills now: 1 or 0",
	      "kill_breaker_open"),
	COUNT(DEVICE, "device_overdue", "Tenants that were late to give pages back, and not killed",
	      "overdue"),
	COUNT(DEVICE, "device_denials", "Demands for KV chunks that were denied", "denials"),
	COUNT(DEVICE, "device_turns", "Turns that began", "turns"),
	COUNT(DEVICE, "device_turns_overdue", "Turns that mmd took away", "turns_overdue"),
	COUNT(DEVICE, "device_plan_changes_limited",
	      "Plan changes that waited since the plan had changed as often as it may",
	      "plan_changes_limited"),
	COUNT(DEVICE, "device_memory_errors", "Memory errors that the device reported",
	      "memory_errors"),
	GAUGE(DEVICE, "device_suspect_pages", "Pages that memory errors have marked",
	      "suspect_pages"),
	GAUGE(DEVICE, "device_xfer_up", "Whether xfer runs: 1 or 0", "xfer_up"),
	COUNT(DEVICE, "device_xfer_restarts", "Times that xfer was started again", "xfer_restarts"),
	GAUGE(DEVICE, "device_jobs", "Jobs that xfer was given and has not done", "jobs_running"),
	BYTES_COUNT(DEVICE, "device_streamed", "Weights that were streamed", "bytes_streamed"),
	BYTES_COUNT(DEVICE, "device_cold_streamed", "Cold KV blocks that were streamed",
		    "cold_bytes_streamed"),

	GAUGE(ACCOUNT, "account_tenants", "Tenants that it has", "tenants"),
	BYTES(ACCOUNT, "account_used", "Memory that it is charged", "used_bytes"),
	BYTES(ACCOUNT, "account_min", "Memory that is kept for it", "min_bytes"),
	BYTES(ACCOUNT, "account_limit", "The most that it may be charged", "max_bytes"),
	BYTES(ACCOUNT, "account_quarantined", "Memory of it that does not come free",
	      "quarantined_bytes"),
	BYTES(ACCOUNT, "account_overdue", "Memory that it had to give back and has not",
	      "overdue_bytes"),
	COUNT(ACCOUNT, "account_joins", "Tenants that joined", "joins"),
	COUNT(ACCOUNT, "account_kicks", "Tenants whose connection mmd ended", "kicks"),
	COUNT(ACCOUNT, "account_kills", "Processes that mmd killed", "kills"),
	TALLY(ACCOUNT, "account"),

	GAUGE(TENANT, "tenant_connected", "Whether its connection is open: 1 or 0", "connected"),
	BYTES(TENANT, "tenant_weights", "Memory of its weights: layers at home, and slots",
	      "weights_bytes"),
	BYTES(TENANT, "tenant_kv", "KV memory that it holds", "kv_bytes"),
	BYTES(TENANT, "tenant_kv_wanted", "KV memory that it demands in all", "kv_wanted_bytes"),
	{ ROW(TENANT, GAUGE, "tenant_claimed_kv_used_bytes",
	      "Part of the KV memory that it holds with live blocks", "kv_used_bytes"),
	  .unit = "bytes", .claim = true },
	BYTES(TENANT, "tenant_kv_limit", "Size of its KV arena", "kv_max_bytes"),
	BYTES(TENANT, "tenant_other", "Memory that it holds for other purposes", "mem_bytes"),
	BYTES(TENANT, "tenant_revoking", "Memory of it that waits for proof that it is not used",
	      "revoking_bytes"),
	BYTES(TENANT, "tenant_swap_space", "Host memory that it may swap KV to",
	      "swap_space_bytes"),
	GAUGE(TENANT, "tenant_layers", "Layers of its model", "layers"),
	GAUGE(TENANT, "tenant_layers_away", "Layers of these whose pages are lent", "layers_away"),
	GAUGE(TENANT, "tenant_layers_cycling", "Layers that are streamed in each step",
	      "layers_cycling"),
	GAUGE(TENANT, "tenant_cold_limit", "Cold KV blocks that it may have live", "cold_limit"),
	BYTES(TENANT, "tenant_cold_window", "Part of its KV memory that cold blocks are read in",
	      "cold_window_bytes"),
	GAUGE(TENANT, "tenant_model_ready", "Whether its model is in place: 1 or 0", "model_ready"),
	GAUGE(TENANT, "tenant_model_held", "Whether its layers are to stay at home: 1 or 0",
	      "model_held"),
	GAUGE(TENANT, "tenant_idle", "Whether it has no work: 1 or 0", "idle"),
	GAUGE(TENANT, "tenant_turn_waits", "Whether it waits for a turn: 1 or 0", "turn_waits"),
	COUNT(TENANT, "tenant_turns", "Turns that it had", "turns"),
	COUNT(TENANT, "tenant_turns_overdue", "Turns of these that mmd took away", "turns_overdue"),
	CLAIMED(TENANT, GAUGE, "tenant_claimed_requests_waiting", "Requests that wait for KV",
		"requests_waiting"),
	CLAIMED(TENANT, GAUGE, "tenant_claimed_requests_running", "Requests that it computes",
		"requests_running"),
	{ ROW(TENANT, GAUGE, "tenant_claimed_stall_ratio",
	      "Waits for layers in relation to computing, of late", "stall_permille"),
	  .unit = "ratio", .scale = MMCTL_PERMILLE, .claim = true },
	CLAIMED_SECONDS(TENANT, GAUGE, "tenant_claimed_compute",
			"Mean length of a step without its stalls, of late", "compute_ns"),
	BYTES_COUNT(TENANT, "tenant_streamed", "Weights that were streamed for it",
		    "bytes_streamed"),
	COUNT(TENANT, "tenant_layers_streamed", "Layers that were streamed for it",
	      "layers_streamed"),
	BYTES_COUNT(TENANT, "tenant_cold_streamed", "Cold KV blocks that were streamed for it",
		    "cold_bytes_streamed"),
	TALLY(TENANT, "tenant"),
};
const size_t mmctl_metrics_n = MM_ARRAY_SIZE(mmctl_metrics);
