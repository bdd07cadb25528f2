/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where this runs: container, MPS, MIG, and what the machine's other tools see. Most is only told,
 * because one machine is one place.
 */
#include "tests/conformance/conf.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/driver/nvml.h"

#define gpu (&conf.gpu)

static const CUmemAccess_flags RW = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

static void tell_file(const char *name, const char *path)
{
	char text[256] = "";
	FILE *file = fopen(path, "re");

	if (!file || !fgets(text, sizeof(text), file))
		snprintf(text, sizeof(text), "none");
	if (file)
		fclose(file);
	conf_fact_text(name, "%s", text);
}

/* gVisor shows by its kernel's version, a container by its marks. */
static void test_machine(void **state)
{
	static const char *const marks[] = { "/.dockerenv", "/run/.containerenv" };
	bool container = getenv("KUBERNETES_SERVICE_HOST") != NULL;

	(void)state;
	tell_file("machine.kernel", "/proc/version");
	tell_file("machine.driver_module", "/proc/driver/nvidia/version");
	for (size_t i = 0; i < MM_ARRAY_SIZE(marks); i++)
		container |= access(marks[i], F_OK) == 0;
	conf_fact("machine.container", "", container);
	conf_fact("machine.root", "", geteuid() == 0);
	conf_fact("machine.imex_channels", "", access("/dev/nvidia-caps-imex-channels", F_OK) == 0);
}

/* One instance of a device: all that the other programs say is said of it alone. */
static void test_mig(void **state)
{
	mm_cleanup(mm_nvml_close) struct mm_nvml nvml = { 0 };
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	struct mm_nvml_facts facts = { .instance = -1 };
	bool by_name = visible && strncmp(visible, "MIG-", 4) == 0;
	CUuuid uuid;

	(void)state;
	ok(gpu->cuDeviceGetUuid(&uuid, 0));
	if (mm_nvml_open(gpu, &nvml, NULL, 0) == 0)
		mm_nvml_find(&nvml, &uuid, &facts);
	if (facts.instance < 0 && !by_name)
		conf_skip("the device is no MIG instance");
	/* A process that is given an instance can find it again, as mmd must. */
	conf_fact("mig.known_to_nvml", "", facts.instance >= 0);
	check(!conf.software || facts.instance >= 0);
	conf_fact_text("mig.device", "%s", facts.name);
	conf_fact("mig.gpu_instance", "", facts.gpu_instance);
	conf_fact("mig.compute_instance", "", facts.compute_instance);
	conf_fact("mig.processors", "", conf_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
}

/* ---- MPS ---- */

/* Makes a page, and says whether it is a client. */
static int run_maker(int sock)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	int fd;

	conf_context();
	h = conf_create(conf.granule);
	va = conf_reserve(conf.granule);
	conf_map(va, conf.granule, h, RW);
	ok(gpu->cuMemsetD32Async(va, 0x1234, conf.granule / 4, NULL));
	ok(gpu->cuCtxSynchronize());
	fd = conf_export(h);
	conf_send(sock, 1 + (uint64_t)conf_attribute(CU_DEVICE_ATTRIBUTE_MPS_ENABLED), fd);
	close(fd);
	conf_recv(sock, NULL);
	return 0;
}

/* Memory of a process that is kept out of MPS (where there is MPS) is memory like any other. */
static void test_share_with_outsider(void **state)
{
	CUmemGenericAllocationHandle h;
	struct conf_peer peer;
	CUdeviceptr va = conf_reserve(conf.granule);
	uint32_t seen = 0;
	uint64_t said;
	int fd;

	(void)state;
	setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 1);
	peer = conf_spawn("maker");
	unsetenv("CUDA_MPS_PIPE_DIRECTORY");
	said = conf_recv(peer.sock, &fd);
	if (!said) {
		conf_finish(&peer);
		check(false);
	}
	conf_fact("mps.here", "", conf_attribute(CU_DEVICE_ATTRIBUTE_MPS_ENABLED));
	conf_fact("mps.there", "", (double)said - 1);
	h = conf_import(fd);
	close(fd);
	conf_map(va, conf.granule, h, RW);
	ok(gpu->cuMemcpyDtoH(&seen, va, sizeof(seen)));
	check(seen == 0x1234);
	conf_send(peer.sock, 1, -1);
	conf_finish(&peer);
	ok(gpu->cuMemUnmap(va, conf.granule));
	ok(gpu->cuMemAddressFree(va, conf.granule));
	ok(gpu->cuMemRelease(h));
}

/*
 * The mode is only a fact; whether a client can be ended without its peers can be tested only with
 * a server.
 */
static void test_mps(void **state)
{
	const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");

	(void)state;
	if (!conf_attribute(CU_DEVICE_ATTRIBUTE_MPS_ENABLED))
		conf_skip("MPS is not on (CUDA_MPS_PIPE_DIRECTORY %s)", pipes ? pipes : "not set");
	conf_fact_text("mps.pipes", "%s", pipes ? pipes : "default");
	conf_fact_text("mps.threads", "%s",
		       getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
			       ? getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
			       : "all");
}

/* ---- What NVML counts ---- */

/* Takes a page that it is sent, step by step: imported, mapped, written; a word for each. */
static int run_importer(int sock)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	int fd;

	conf_context();
	va = conf_reserve(conf.bulk);
	conf_send(sock, 1, -1);
	check(conf_recv(sock, &fd) == 2 && fd >= 0);
	h = conf_import(fd);
	close(fd);
	conf_send(sock, 3, -1);
	check(conf_recv(sock, NULL) == 4);
	conf_map(va, conf.bulk, h, RW);
	ok(gpu->cuMemsetD32Async(va, 1, conf.bulk / 4, NULL));
	ok(gpu->cuCtxSynchronize());
	conf_send(sock, 5, -1);
	conf_recv(sock, NULL);
	return 0;
}

/*
 * By process id, which is another one where NVML sees other names than this process: then nothing.
 */
static void report_counted(const struct mm_nvml *nvml, mm_nvml_dev device, pid_t pid,
			   const char *who, const char *when)
{
	struct mm_nvml_process list[64];
	size_t n = mm_nvml_processes(nvml, device, list, MM_ARRAY_SIZE(list));
	char name[96];

	snprintf(name, sizeof(name), "counted.%s.%s", who, when);
	for (size_t i = 0; i < n; i++)
		if (list[i].pid == (unsigned int)pid && list[i].used_bytes != UINT64_MAX) {
			conf_fact(name, "bytes", (double)list[i].used_bytes);
			return;
		}
	conf_fact_text(name, "not told");
}

/*
 * The process to which NVML charges memory that one process made and another mapped: tools that
 * watch tenants use it.
 */
static void test_counted(void **state)
{
	mm_cleanup(mm_nvml_close) struct mm_nvml nvml = { 0 };
	struct mm_nvml_facts facts;
	CUmemGenericAllocationHandle h;
	struct conf_peer peer;
	char err[256];
	CUuuid uuid;
	int fd;

	(void)state;
	if (mm_nvml_open(gpu, &nvml, err, sizeof(err)) < 0)
		conf_skip("%s", err);
	ok(gpu->cuDeviceGetUuid(&uuid, 0));
	if (mm_nvml_find(&nvml, &uuid, &facts) < 0)
		conf_skip("NVML does not know the device");
	h = conf_create(conf.bulk);
	fd = conf_export(h);
	peer = conf_spawn("importer");
	check(conf_recv(peer.sock, NULL) == 1);
	conf_fact("counted.page", "bytes", (double)conf.bulk);
	report_counted(&nvml, facts.device, getpid(), "maker", "made");
	report_counted(&nvml, facts.device, peer.pid, "importer", "before");
	conf_send(peer.sock, 2, fd);
	close(fd);
	check(conf_recv(peer.sock, NULL) == 3);
	report_counted(&nvml, facts.device, peer.pid, "importer", "imported");
	conf_send(peer.sock, 4, -1);
	check(conf_recv(peer.sock, NULL) == 5);
	report_counted(&nvml, facts.device, peer.pid, "importer", "mapped");
	ok(gpu->cuMemRelease(h));
	report_counted(&nvml, facts.device, getpid(), "maker", "released");
	report_counted(&nvml, facts.device, peer.pid, "importer", "alone");
	conf_send(peer.sock, 6, -1);
	conf_finish(&peer);
}

#define T(name) cmocka_unit_test_setup(name, conf_set_up)
static const struct CMUnitTest tests[] = {
	T(test_machine), T(test_mig), T(test_share_with_outsider), T(test_mps), T(test_counted),
};

static const struct conf_role roles[] = {
	{ "maker", run_maker },
	{ "importer", run_importer },
	{ NULL, NULL },
};

CONF_MAIN("place", tests, roles)
