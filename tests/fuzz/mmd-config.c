/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the configuration file of mmd, accounts and knobs of the controller included: what is
 * accepted makes the command lines of roles, and those are accepted again.
 */
#include <string.h>

#include "mmd/config/config.h"
#include "tests/fuzz/input.h"

static void role_check(const struct mm_config *config)
{
	struct mm_config again = { 0 };
	char *argv[MM_CONFIG_ARGS_MAX], error[MM_OPT_ERROR_BYTES] = "";
	struct mm_opt_line line;
	int argc = 0;

	mm_assert(mm_config_args(config, MM_ROLE_CORE, argv) == 0);
	while (argv[argc])
		argc++;
	mm_assert(mm_opt_parse(&mm_config_program, argc, argv, &again, &line, error) == 0);
	mm_assert(again.role == MM_ROLE_CORE && again.device.n == config->device.n &&
		  again.accounts.n == config->accounts.n && again.policy == config->policy);
	mm_assert(strcmp(again.controller, config->controller) == 0);
	mm_config_args_free(argv);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	char path[INPUT_PATH_BYTES], error[MM_OPT_ERROR_BYTES] = "";
	char program[] = "mmd", option[] = "--config";
	char *argv[] = { program, option, path, NULL };
	struct mm_config config = { 0 };
	struct mm_opt_line line;

	input_path(data, size_bytes, path);
	if (mm_opt_parse(&mm_config_program, 3, argv, &config, &line, error) != 0) {
		mm_assert(*error && memchr(error, 0, sizeof(error)));
		return 0;
	}
	mm_assert(config.device.n <= MM_DEVICES_MAX);
	role_check(&config);
	return 0;
}
