/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mig - `mmctl mig list`, `create` and `destroy`: the MIG instances of this machine's GPUs
 *
 * No daemon is needed: NVML does it. A MIG device is a compute instance in a GPU instance; one is
 * made that fills its GPU instance, and both are removed together. What NVML answers is bounded and
 * made printable: it is another's library.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "kernels/driver/nvml.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/driver.h"
#include "libclient/support/size.h"
#include "tools/mmctl/ctl.h"

#define FACTS_MAX      128
#define PROFILES_MAX   32
#define MIG_PREFIX     "MIG "
#define NAMES_BYTES    256
#define WORD_BYTES     65
#define COMPUTE_PLACES 32 /* numbers of compute profiles that are tried */

struct mig {
	struct mm_gpu_api gpu;
	struct mm_nvml nvml;
	json_t *status; /* answer of a running mmd; NULL: none runs */
	struct mm_nvml_facts list[FACTS_MAX];
	int n;
};

static void mig_done(struct mig *m)
{
	mm_nvml_close(&m->nvml);
	mm_gpu_close(&m->gpu);
	json_decref(m->status);
}

/* A sentence for those who change instances. Return: NULL, it is no result that they can mend. */
static const char *mig_result_text(int result)
{
	switch (result) {
	case MM_NVML_NO_PERMISSION:
		return "only root may do that";
	case MM_NVML_NOT_SUPPORTED:
		return "not supported by this GPU or its driver";
	case MM_NVML_INSUFFICIENT_RESOURCES:
		return "the GPU has no room for it; mmctl mig list tells what fits";
	case MM_NVML_IN_USE:
		return "a process uses it";
	default:
		return NULL;
	}
}

/* Says that NVML has refused @what to be done to @who. */
static int mig_refused(const char *who, const char *what, int result)
{
	const char *text = mig_result_text(result);

	if (text)
		return mmctl_error(MM_EXIT_FAILED, "%s: %s", who, text);
	return mmctl_error(MM_EXIT_FAILED, "%s: %s: NVML's result %d", who, what, result);
}

/* A word of the command line as it goes to a terminal: printable, and not all of a long one. */
static const char *argument_print(const char *word, char to[WORD_BYTES])
{
	size_t n = 0;

	for (; word[n] && n < WORD_BYTES - 1; n++)
		to[n] = (char)(word[n] >= ' ' && word[n] <= '~' ? word[n] : '?');
	to[n] = '\0';
	return to;
}

/* ---- finding devices ---- */

static int mig_open(const struct mmctl *ctl, struct mig *m)
{
	const char *driver = getenv("MM_DRIVER");
	char err[512] = "";
	struct mmctl quiet = *ctl;

	quiet.quiet = true;
	quiet.device = -1;
	quiet.uuid = NULL;
	(void)mmctl_request(&quiet, "status", NULL, &m->status);
	if (driver && *driver && !mm_is_driver(driver))
		return mmctl_error(MM_EXIT_USAGE, "MM_DRIVER: '%s' is none of: %s", driver,
				   MM_DRIVER_CHOICES);
	if (mm_gpu_open(mmctl_driver(m->status), &m->gpu, err, sizeof(err)) < 0)
		return mmctl_error(MM_EXIT_FAILED, "%s", err);
	if (mm_nvml_open(&m->gpu, &m->nvml, err, sizeof(err)) < 0)
		return mmctl_error(MM_EXIT_FAILED, "MIG needs NVML: %s", err);
	m->n = mm_nvml_list(&m->nvml, m->list, FACTS_MAX);
	if (m->n <= 0)
		return mmctl_error(MM_EXIT_FAILED, "NVML lists no devices here");
	return MM_EXIT_DONE;
}

/* Whether the options mean this GPU. A UUID may be the beginning of one. */
static bool gpu_is_meant(const struct mmctl *ctl, const struct mm_nvml_facts *f)
{
	if (ctl->uuid)
		return strncasecmp(f->uuid, ctl->uuid, strlen(ctl->uuid)) == 0;
	return ctl->device < 0 || f->gpu == ctl->device;
}

/* Finds the one GPU that the options mean, which must be in MIG mode. */
static int gpu_find(const struct mmctl *ctl, struct mig *m, const struct mm_nvml_facts **ret)
{
	int found = 0;

	for (int i = 0; i < m->n; i++) {
		if (m->list[i].instance >= 0 || !gpu_is_meant(ctl, &m->list[i]))
			continue;
		*ret = &m->list[i];
		found++;
	}
	if (found != 1)
		return mmctl_error(MM_EXIT_FAILED, "--device: %s; mmctl mig list has them",
				   found ? "several GPUs have UUIDs that begin so"
					 : "there is no such GPU");
	if (!(*ret)->mig)
		return mmctl_error(MM_EXIT_FAILED,
				   "GPU %d is not in MIG mode; nvidia-smi -i %d -mig 1, as root, "
				   "switches it on",
				   (*ret)->gpu, (*ret)->gpu);
	return MM_EXIT_DONE;
}

static int gpu_find_to_change(const struct mmctl *ctl, struct mig *m,
			      const struct mm_nvml_facts **ret)
{
	int r;

	if (ctl->device < 0 && !ctl->uuid)
		return mmctl_error(MM_EXIT_USAGE, "--device is needed: which GPU; mmctl mig list "
						  "has them");
	r = mig_open(ctl, m);
	return r == MM_EXIT_DONE ? gpu_find(ctl, m, ret) : r;
}

/* ---- profiles ---- */

struct profile {
	struct mm_nvml_profile info;
	const char *name; /* printable, and without "MIG " */
	bool has_more;    /* how many more fit is known */
	unsigned int more;
};

static void profile_name_set(struct profile *p)
{
	char *name = p->info.name;

	name[sizeof(p->info.name) - 1] = '\0';
	for (char *c = name; *c; c++)
		if (*c < ' ' || *c > '~' || *c == '"')
			*c = '?';
	p->name = strncmp(name, MIG_PREFIX, strlen(MIG_PREFIX)) == 0 ? name + strlen(MIG_PREFIX)
								     : name;
}

/* Numbers of profiles have gaps, and end where one is no valid argument. Return: how many. */
static int profiles_read(const struct mig *m, mm_nvml_dev device, struct profile ret[PROFILES_MAX])
{
	const struct mm_nvml *nvml = &m->nvml;
	int n = 0;

	if (!nvml->nvmlDeviceGetGpuInstanceProfileInfoV)
		return 0;
	for (unsigned int i = 0; i < PROFILES_MAX; i++) {
		struct profile *p = &ret[n];
		int result;

		*p = (struct profile){ .info.version = MM_NVML_PROFILE_VERSION };
		result = nvml->nvmlDeviceGetGpuInstanceProfileInfoV(device, i, &p->info);
		if (result == MM_NVML_INVALID_ARGUMENT)
			break;
		if (result)
			continue;
		profile_name_set(p);
		p->has_more = nvml->nvmlDeviceGetGpuInstanceRemainingCapacity &&
			      !nvml->nvmlDeviceGetGpuInstanceRemainingCapacity(device, p->info.id,
									       &p->more);
		n++;
	}
	return n;
}

/* The profile of an instance. Return: its name; NULL it is not known, as to who is not root. */
static const char *instance_profile(const struct mig *m, const struct mm_nvml_facts *gpu,
				    const struct mm_nvml_facts *f, const struct profile *p, int n)
{
	const struct mm_nvml *nvml = &m->nvml;
	struct mm_nvml_gi_info info;
	mm_nvml_gi instance;

	if (!nvml->nvmlDeviceGetGpuInstanceById || !nvml->nvmlGpuInstanceGetInfo ||
	    nvml->nvmlDeviceGetGpuInstanceById(gpu->device, f->gpu_instance, &instance) ||
	    nvml->nvmlGpuInstanceGetInfo(instance, &info))
		return NULL;
	for (int i = 0; i < n; i++)
		if (p[i].info.id == info.profile_id)
			return p[i].name;
	return NULL;
}

/* ---- list ---- */

static json_t *profiles_json(const struct profile *p, int n)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++) {
		json_t *one = json_pack("{s:s}", "name", p[i].name);

		mm_json_put_u64(one, "memory_bytes", (uint64_t)p[i].info.memory_mib << 20);
		mm_json_put_known(one, "more", p[i].has_more, p[i].more);
		json_array_append_new(list, one);
	}
	return list;
}

/* @gpu: in m->list, behind which its instances are. */
static json_t *gpu_json(const struct mig *m, const struct mm_nvml_facts *gpu)
{
	struct profile profile[PROFILES_MAX];
	const int n = gpu->mig ? profiles_read(m, gpu->device, profile) : 0;
	json_t *json = json_pack("{s:s, s:s, s:i, s:b}", "uuid", gpu->uuid, "name", gpu->name,
				 "gpu", gpu->gpu, "mig_mode", gpu->mig);
	json_t *instances = json_array();

	for (const struct mm_nvml_facts *f = gpu + 1; f < m->list + m->n && f->instance >= 0; f++) {
		const char *name = instance_profile(m, gpu, f, profile, n);
		json_t *one = json_pack("{s:s, s:s}", "uuid", f->uuid, "managed_by",
					mmctl_device_manager(m->status, f->uuid));

		mm_json_put(one, "profile", name ? mm_json_string(name) : json_null());
		json_array_append_new(instances, one);
	}
	mm_json_put(json, "profiles", profiles_json(profile, n));
	mm_json_put(json, "instances", instances);
	return json;
}

static void gpu_print(const json_t *gpu)
{
	const json_t *list = json_object_get(gpu, "profiles"), *one;
	char memory[MM_SIZE_TEXT_BYTES], more[24];
	size_t i;

	printf("GPU %" PRIu64 " %s: MIG mode %s\n", mm_json_u64(gpu, "gpu"),
	       mm_json_text(gpu, "uuid"),
	       json_is_true(json_object_get(gpu, "mig_mode")) ? "on" : "off");
	if (json_array_size(list))
		printf("  %-41s %8s %9s\n", "PROFILE", "MEMORY", "MORE FIT");
	json_array_foreach(list, i, one) {
		snprintf(more, sizeof(more), "%" PRIu64, mm_json_u64(one, "more"));
		printf("  %-41s %8s %9s\n", mm_json_text(one, "name"),
		       mm_size_print(mm_json_u64(one, "memory_bytes"), memory),
		       mm_json_has(one, "more") ? more : "?");
	}
	list = json_object_get(gpu, "instances");
	if (json_array_size(list))
		printf("  %-41s %-18s %s\n", "INSTANCE", "PROFILE", "MANAGED BY");
	json_array_foreach(list, i, one)
		printf("  %-41s %-18s %s\n", mm_json_text(one, "uuid"),
		       mm_json_has(one, "profile") ? mm_json_text(one, "profile") : "?",
		       mm_json_text(one, "managed_by"));
}

int mmctl_mig_list_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mig_done) struct mig m = { .n = 0 };
	mm_cleanup(mm_json_done) json_t *result = json_object();
	json_t *list = json_array(), *gpu;
	int r = mig_open(ctl, &m);
	size_t k;

	(void)argc;
	(void)argv;
	mm_json_put_u64(result, "schema", 1);
	mm_json_put(result, "devices", list);
	if (r != MM_EXIT_DONE)
		return r;
	for (int i = 0; i < m.n; i++)
		if (m.list[i].instance < 0 && gpu_is_meant(ctl, &m.list[i]))
			json_array_append_new(list, gpu_json(&m, &m.list[i]));
	if (!json_array_size(list))
		return mmctl_error(MM_EXIT_FAILED, "--device: there is no such GPU");
	if (ctl->json)
		return mmctl_print_json(result);
	json_array_foreach(list, k, gpu)
		gpu_print(gpu);
	return MM_EXIT_DONE;
}

/* ---- create ---- */

static int profile_unknown(const char *word, const struct profile *p, int n)
{
	struct mm_opt_near near = { .word = word, .bytes = strlen(word) };
	char names[NAMES_BYTES] = "", text[WORD_BYTES];
	size_t at = 0;

	for (int i = 0; i < n; i++) {
		mm_opt_near_offer(&near, p[i].name);
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", i ? ", " : "",
				       p[i].name);
		if (at >= sizeof(names))
			at = sizeof(names) - 1;
	}
	return mmctl_error(MM_EXIT_FAILED, "'%s' is no profile of this GPU: %s%s%s%s",
			   argument_print(word, text), n ? names : "NVML lists none",
			   near.best ? "; did you mean " : "", near.best ? near.best : "",
			   near.best ? "?" : "");
}

/* The GPU instance's whole: the first compute profile that has as many slices. */
static int compute_create(const struct mm_nvml *nvml, mm_nvml_gi instance, unsigned int slices)
{
	struct mm_nvml_ci_profile info;
	mm_nvml_ci compute;

	for (unsigned int i = 0; i < COMPUTE_PLACES; i++)
		if (!nvml->nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, i, 0, &info) &&
		    info.slices == slices)
			return nvml->nvmlGpuInstanceCreateComputeInstance(instance, info.id,
									  &compute);
	return MM_NVML_NOT_SUPPORTED;
}

/* The MIG device that is in GPU instance @id of @gpu. Return: false, none is. */
static bool device_of_instance(struct mig *m, int gpu, unsigned int id,
			       struct mm_nvml_facts *ret_facts)
{
	m->n = mm_nvml_list(&m->nvml, m->list, FACTS_MAX);
	for (int i = 0; i < m->n; i++) {
		*ret_facts = m->list[i];
		if (ret_facts->gpu == gpu && ret_facts->instance >= 0 &&
		    ret_facts->gpu_instance == id)
			return true;
	}
	return false;
}

/* Makes both instances, or neither. */
static int instance_create(struct mig *m, const struct mm_nvml_facts *gpu, const struct profile *p,
			   struct mm_nvml_facts *ret_facts)
{
	const struct mm_nvml *nvml = &m->nvml;
	struct mm_nvml_gi_info info;
	mm_nvml_gi instance;
	const int number = gpu->gpu;
	int result = nvml->nvmlDeviceCreateGpuInstance(gpu->device, p->info.id, &instance);

	if (result)
		return mig_refused(p->name, "the GPU instance could not be made", result);
	result = nvml->nvmlGpuInstanceGetInfo(instance, &info);
	if (!result)
		result = compute_create(nvml, instance, p->info.slices);
	if (result) {
		(void)nvml->nvmlGpuInstanceDestroy(instance);
		return mig_refused(p->name, "its compute instance could not be made", result);
	}
	if (!device_of_instance(m, number, info.id, ret_facts))
		return mmctl_error(MM_EXIT_FAILED,
				   "%s: it was made, as GPU instance %u, but NVML does not list it",
				   p->name, info.id);
	return MM_EXIT_DONE;
}

static bool nvml_can_create(const struct mm_nvml *nvml)
{
	return nvml->nvmlDeviceGetGpuInstanceProfileInfoV && nvml->nvmlDeviceCreateGpuInstance &&
	       nvml->nvmlGpuInstanceGetInfo && nvml->nvmlGpuInstanceDestroy &&
	       nvml->nvmlGpuInstanceGetComputeInstanceProfileInfo &&
	       nvml->nvmlGpuInstanceCreateComputeInstance;
}

int mmctl_mig_create_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mig_done) struct mig m = { .n = 0 };
	struct profile profile[PROFILES_MAX], *p = NULL;
	const struct mm_nvml_facts *gpu = NULL;
	struct mm_nvml_facts made;
	int r = gpu_find_to_change(ctl, &m, &gpu), n;

	(void)argc;
	if (r != MM_EXIT_DONE)
		return r;
	if (!nvml_can_create(&m.nvml))
		return mmctl_error(MM_EXIT_FAILED, "this driver's NVML cannot make MIG instances");
	n = profiles_read(&m, gpu->device, profile);
	for (int i = 0; !p && i < n; i++)
		if (strcasecmp(profile[i].name, argv[0]) == 0 ||
		    strcasecmp(profile[i].info.name, argv[0]) == 0)
			p = &profile[i];
	if (!p)
		return profile_unknown(argv[0], profile, n);
	r = instance_create(&m, gpu, p, &made);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mmctl_print_new_json(json_pack("{s:i, s:s, s:s}", "schema", 1, "uuid",
						      made.uuid, "profile", p->name));
	printf("%s: made (%s)\nmmd takes it by --device, a tenant by CUDA_VISIBLE_DEVICES\n",
	       made.uuid, p->name);
	return MM_EXIT_DONE;
}

/* ---- destroy ---- */

static int instance_find(struct mig *m, const struct mm_nvml_facts *gpu, const char *word,
			 const struct mm_nvml_facts **ret)
{
	char text[WORD_BYTES];
	int found = 0;

	for (int i = 0; i < m->n; i++) {
		const struct mm_nvml_facts *f = &m->list[i];

		if (f->gpu != gpu->gpu || f->instance < 0 || strcasecmp(f->uuid, word) != 0)
			continue;
		*ret = f;
		found++;
	}
	if (found != 1)
		return mmctl_error(MM_EXIT_FAILED,
				   "'%s' is no MIG instance of GPU %d; mmctl mig list has them, "
				   "and the whole UUID is needed",
				   argument_print(word, text), gpu->gpu);
	return MM_EXIT_DONE;
}

/* Refuses an instance that an mmd, or a process, uses. */
static int instance_check_unused(const struct mig *m, const struct mm_nvml_facts *f)
{
	const char *manager = mmctl_device_manager(m->status, f->uuid);
	struct mm_nvml_process process;

	if (strcmp(manager, "nobody") != 0)
		return mmctl_error(MM_EXIT_FAILED, "%s: %s manages it; end that first", f->uuid,
				   manager);
	if (mm_nvml_processes(&m->nvml, f->device, &process, 1))
		return mmctl_error(MM_EXIT_FAILED, "%s: process %u uses it", f->uuid, process.pid);
	return MM_EXIT_DONE;
}

/* @ret_all: whether the GPU instance went, too. It stays for other compute instances of it. */
static int instance_destroy(const struct mm_nvml *nvml, const struct mm_nvml_facts *gpu,
			    const struct mm_nvml_facts *f, bool *ret_all)
{
	mm_nvml_gi instance;
	mm_nvml_ci compute;
	int result = nvml->nvmlDeviceGetGpuInstanceById(gpu->device, f->gpu_instance, &instance);

	if (!result)
		result = nvml->nvmlGpuInstanceGetComputeInstanceById(instance, f->compute_instance,
								     &compute);
	if (!result)
		result = nvml->nvmlComputeInstanceDestroy(compute);
	if (result)
		return mig_refused(f->uuid, "it could not be removed", result);
	result = nvml->nvmlGpuInstanceDestroy(instance);
	*ret_all = result == MM_NVML_SUCCESS;
	if (result && result != MM_NVML_IN_USE)
		return mig_refused(f->uuid, "its GPU instance could not be removed", result);
	return MM_EXIT_DONE;
}

int mmctl_mig_destroy_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mig_done) struct mig m = { .n = 0 };
	const struct mm_nvml_facts *gpu = NULL, *f = NULL;
	bool all = false;
	int r;

	(void)argc;
	if (!ctl->options->yes)
		return mmctl_error(MM_EXIT_USAGE, "destroy ends the instance, and what is in its "
						  "memory is lost: --yes says that this is meant");
	r = gpu_find_to_change(ctl, &m, &gpu);
	if (r == MM_EXIT_DONE)
		r = instance_find(&m, gpu, argv[0], &f);
	if (r == MM_EXIT_DONE)
		r = instance_check_unused(&m, f);
	if (r != MM_EXIT_DONE)
		return r;
	if (!m.nvml.nvmlDeviceGetGpuInstanceById || !m.nvml.nvmlGpuInstanceGetComputeInstanceById ||
	    !m.nvml.nvmlComputeInstanceDestroy || !m.nvml.nvmlGpuInstanceDestroy)
		return mmctl_error(MM_EXIT_FAILED, "this driver's NVML cannot remove MIG "
						   "instances");
	r = instance_destroy(&m.nvml, gpu, f, &all);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mmctl_print_new_json(json_pack("{s:i, s:s, s:b}", "schema", 1, "uuid",
						      f->uuid, "gpu_instance", all));
	printf("%s: removed%s\n", f->uuid,
	       all ? "" : "; its GPU instance stays, for it has others");
	return MM_EXIT_DONE;
}
