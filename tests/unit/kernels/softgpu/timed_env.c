/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment that makes a device a timed one: what is refused, and that
 * all processes must agree on it.
 */
#include "tests/conformance/conf.h"

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tests/unit/kernels/softgpu/timed.h"

#define gpu (&conf.gpu)

static int role_init(int sock)
{
	CUresult want = (CUresult)conf_recv(sock, NULL) - 1;

	expect(gpu->cuInit(0), want);
	return 0;
}

static void init_with(const char *variable, const char *value, CUresult want)
{
	struct conf_peer peer;

	setenv(variable, value, 1);
	peer = conf_spawn("init");
	conf_send(peer.sock, (uint64_t)want + 1, -1);
	if (conf_join(&peer))
		fail_msg("%s=%s", variable, value);
}

static void test_environment(void **state)
{
	static const char *const dilations[] = { "0",   "0.99", "-1",  "nan",   "inf",
						 "2x",  "1e99", " 2",  "0x10",  "1e6000",
						 "1,5", "+2",   "1e7", "1 2 3", "K" };
	static const char *const profiles[] = { "nosuch",
						"/etc/passwd",
						",",
						"gh200-96,",
						"gh200-96,foo=1",
						"gh200-96,h2d_gbps=nan",
						"gh200-96,h2d_gbps=0",
						"gh200-96,h2d_gbps",
						"../gh200-96",
						"/nonexistent/x.conf",
						"/" };
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(dilations); i++)
		init_with("MM_SOFTGPU_DILATION", dilations[i], CUDA_ERROR_INVALID_VALUE);
	init_with("MM_SOFTGPU_DILATION", "1.5", CUDA_SUCCESS);
	unsetenv("MM_SOFTGPU_DILATION");
	for (size_t i = 0; i < MM_ARRAY_SIZE(profiles); i++)
		if (strcmp(profiles[i], "gh200-96,") != 0)
			init_with("MM_SOFTGPU_PROFILE", profiles[i], CUDA_ERROR_INVALID_VALUE);
	unsetenv("MM_SOFTGPU_PROFILE");
	init_with("MM_SOFTGPU_DILATION", "2", CUDA_ERROR_INVALID_VALUE);
	unsetenv("MM_SOFTGPU_DILATION");
	setenv("MM_SOFTGPU_PROFILE", PROFILE, 1);
}

/* Stays on the device while the others come. */
static int role_first(int sock)
{
	ok(gpu->cuInit(0));
	conf_send(sock, 1, -1);
	conf_recv(sock, NULL);
	return 0;
}

static void test_agreement(void **state)
{
	struct conf_peer first = conf_spawn("first");

	(void)state;
	check(conf_recv(first.sock, NULL) == 1);
	init_with("MM_SOFTGPU_PROFILE", PROFILE, CUDA_SUCCESS);
	init_with("MM_SOFTGPU_PROFILE", "gh200-96", CUDA_ERROR_INVALID_VALUE);
	init_with("MM_SOFTGPU_PROFILE", "", CUDA_SUCCESS);
	init_with("MM_SOFTGPU_DILATION", "3", CUDA_ERROR_INVALID_VALUE);
	init_with("MM_SOFTGPU_DILATION", "1", CUDA_SUCCESS);
	unsetenv("MM_SOFTGPU_DILATION");
	conf_join(&first);
	/* Nobody is there any more: a functional device, on which nobody can have time. */
	first = conf_spawn("first");
	check(conf_recv(first.sock, NULL) == 1);
	init_with("MM_SOFTGPU_PROFILE", PROFILE, CUDA_ERROR_INVALID_VALUE);
	conf_join(&first);
}

int main(int argc, char **argv)
{
	static const struct conf_role roles[] = {
		{ "init", role_init },
		{ "first", role_first },
		{ NULL, NULL },
	};
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_environment),
		cmocka_unit_test(test_agreement),
	};

	if (argc == 1) {
		setenv("MM_SOFTGPU_PROFILE", PROFILE, 1);
		unsetenv("MM_SOFTGPU_DILATION");
	}
	return conf_main(argc, argv, "timed-env", tests, MM_ARRAY_SIZE(tests), roles);
}
