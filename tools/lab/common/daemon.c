/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/common/daemon.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "libclient/ipc/reach.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "tools/common/rpc_client.h"

#define POLL_MS   20
#define STOP_NS   (60 * MM_NS_PER_S)
#define END_NS    (5 * MM_NS_PER_S) /* from the end of its connections to the end of mmd */
#define FLAGS_MAX 40
#define ERR_BYTES MM_SERVE_ERROR_BYTES

static int MM_PRINTF(3, 4) daemon_fail(char *err, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(err, ERR_BYTES, format, args);
	va_end(args);
	return error;
}

int mm_bench_mmd_check(struct mm_bench_mmd *d, char *err)
{
	char how[64], words[1024];

	if (!mm_child_ended(&d->child))
		return 0;
	return daemon_fail(err, -ECHILD, "mmd ended (%s): %s",
			   mm_child_how(&d->child, how, sizeof(how)),
			   mm_child_last_words(&d->child, words, sizeof(words)));
}

int mm_bench_mmd_pause(struct mm_bench_mmd *d, int ms, char *err)
{
	struct pollfd signals = { .fd = d->signals, .events = POLLIN };

	if (poll(&signals, 1, ms) > 0)
		return daemon_fail(err, -EINTR, "interrupted");
	return mm_bench_mmd_check(d, err);
}

static bool is_connection_lost(int error)
{
	return error == -ECONNRESET || error == -ECONNREFUSED || error == -EPIPE;
}

int mm_bench_mmd_explain(struct mm_bench_mmd *d, int error, char *err)
{
	const uint64_t deadline_ns = mm_now_ns() + END_NS;
	char sentence[512], words[1024];
	int r = mm_bench_mmd_check(d, err);

	if (!is_connection_lost(error))
		return r ? r : error;
	/* The connections of an mmd that ends are closed before the process has ended. */
	while (!r && mm_now_ns() < deadline_ns)
		r = mm_bench_mmd_pause(d, POLL_MS, err);
	if (r)
		return r;
	snprintf(sentence, sizeof(sentence), "%s", err);
	return daemon_fail(err, error, "%s; mmd's last words: %s", sentence,
			   mm_child_last_words(&d->child, words, sizeof(words)));
}

int mm_bench_mmd_request(struct mm_bench_mmd *d, const char *method, json_t *params,
			 json_t **ret_result, char *err)
{
	char why[512];
	int r = mm_rpc_client_request(d->rpc, MM_RPC_CLIENT_START_NS, method, params, ret_result,
				      why, sizeof(why));

	if (!r)
		return 0;
	(void)daemon_fail(err, r, "%s: %s", method, why);
	return mm_bench_mmd_explain(d, r, err);
}

int mm_bench_mmd_start(struct mm_bench_mmd *d, const char *bin_dir, const char *dir,
		       char *const *flags, char *err)
{
	const uint64_t deadline_ns = mm_now_ns() + d->timeout_ns;
	char program[MM_BENCH_MMD_PATH_BYTES + 32];
	char *argv[FLAGS_MAX + 4] = { program, "--dir", (char *)dir };
	size_t n = 3;
	int r;

	d->rpc = -1;
	if (mkdir(dir, 0700) < 0)
		return daemon_fail(err, -errno, "%s: %m", dir);
	for (; *flags && n < FLAGS_MAX; flags++)
		argv[n++] = *flags;
	mm_assert(!*flags);
	snprintf(program, sizeof(program), "%s/%.24s", bin_dir, d->program ? d->program : "mmd");
	snprintf(d->admin, sizeof(d->admin), "%s/admin.sock", dir);
	snprintf(d->socket, sizeof(d->socket), "%s/tenant.sock", dir);
	d->child.name = "mmd";
	d->child.err_path = d->errors;
	r = mm_child_start(&d->child, argv);
	if (r)
		return daemon_fail(err, r, "cannot start mmd: %s", strerror(-r));
	while ((d->rpc = mm_rpc_client_open(d->admin, d->timeout_ns)) < 0) {
		char why[PATH_MAX + 256];

		mm_reach_explain(d->admin, -d->rpc, why, sizeof(why));
		r = mm_bench_mmd_pause(d, POLL_MS, err);
		if (r)
			return r;
		if (mm_now_ns() > deadline_ns)
			return daemon_fail(err, -ETIMEDOUT, "mmd does not let us in in time: %s",
					   why);
	}
	return 0;
}

void mm_bench_mmd_stop(struct mm_bench_mmd *d)
{
	if (!d->child.started)
		return;
	mm_close_fd(&d->rpc);
	if (d->child.pid)
		kill(d->child.pid, SIGTERM);
	mm_child_wait(&d->child, mm_now_ns() + STOP_NS);
	mm_child_done(&d->child);
	d->child = (struct mm_child){ 0 };
}

/* ---- plans ---- */

/* Reads the set in force from the answer to `plan.show`, which lists the layers of each slot. */
static int read_set(const json_t *plan, uint32_t layers, struct mm_plan_set *set, char *err)
{
	uint8_t slot_of[MM_LAYERS_MAX] = { 0 }; /* slot + 1; 0: the layer is resident */
	const json_t *slot, *layer;
	size_t i, k;

	*set = (struct mm_plan_set){ .beta = (uint32_t)mm_json_u64(plan, "beta") };
	json_array_foreach(json_object_get(plan, "slots"), i, slot) {
		json_array_foreach(json_object_get(slot, "layers"), k, layer)
			if (json_integer_value(layer) >= 0 && json_integer_value(layer) < layers)
				slot_of[json_integer_value(layer)] = (uint8_t)(i + 1);
	}
	for (uint32_t l = 0; l < layers; l++)
		if (slot_of[l])
			set->layer[set->m++] = (uint16_t)l;
	set->beta = set->m ? set->beta : 0;
	set->first_slot = set->m ? slot_of[set->layer[0]] - 1u : 0;
	for (uint32_t n = 0; n < set->m; n++)
		if (mm_plan_slot(set, n) + 1 != slot_of[set->layer[n]])
			return daemon_fail(err, -EPROTO, "plan.show: the slots do not take turns");
	return 0;
}

/* Checks whether the requested plan is in force. Return: 1 it is, 0 not yet; negative errno. */
static int plan_is_in_force(struct mm_bench_mmd *d, uint32_t alpha, uint32_t beta, uint32_t layers,
			    struct mm_plan_set *set, char *err)
{
	mm_cleanup(mm_json_done) json_t *shown = NULL;
	const json_t *plan;
	int r = mm_bench_mmd_request(d, "plan.show", NULL, &shown, err);

	if (r)
		return r;
	plan = json_array_get(json_object_get(shown, "plans"), 0);
	if (!strcmp(mm_json_text(plan, "plan_phase"), "steady") &&
	    mm_json_u64(plan, "alpha") == alpha && (!alpha || mm_json_u64(plan, "beta") == beta)) {
		r = read_set(plan, layers, set, err);
		r = r ? r : 1;
	}
	return r;
}

int mm_bench_mmd_set_plan(struct mm_bench_mmd *d, const char *name, uint32_t alpha, uint32_t beta,
			  uint32_t layers, struct mm_plan_set *ret_set, char *err)
{
	const uint64_t deadline_ns = mm_now_ns() + d->timeout_ns;
	json_t *done, *params = json_pack("{s:s,s:i,s:i}", "name", name, "layers", (int)alpha,
					  "slots", (int)beta);
	int r = mm_bench_mmd_request(d, "plan.set", params, &done, err);

	if (r)
		return r;
	json_decref(done);
	while (!(r = plan_is_in_force(d, alpha, beta, layers, ret_set, err))) {
		r = mm_bench_mmd_pause(d, POLL_MS, err);
		if (r)
			return r;
		if (mm_now_ns() > deadline_ns)
			return daemon_fail(
				err, -ETIMEDOUT,
				"%u layers away with %u slots: the plan does not come into "
				"force in time",
				alpha, beta);
	}
	return r < 0 ? r : 0;
}

int mm_bench_mmd_status(struct mm_bench_mmd *d, const char *key, uint64_t *ret_value, char *err)
{
	const char *dot = strchr(key, '.');
	mm_cleanup(mm_json_done) json_t *status = NULL;
	char object[64];
	int r = mm_bench_mmd_request(d, "status", NULL, &status, err);

	if (r)
		return r;
	snprintf(object, sizeof(object), "%.*s", dot ? (int)(dot - key) : 0, key);
	*ret_value =
		mm_json_u64(dot ? json_object_get(status, object) : status, dot ? dot + 1 : key);
	return 0;
}
