/* SPDX-License-Identifier: Apache-2.0 */
/* The program mmd: parses its settings and runs one role; without --role that is keeper. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "mmd/common/rights.h"
#include "mmd/config/config.h"
#include "mmd/keeper/keeper.h"
#include "mmd/keeper/reexec.h"
#include "mmd/keeper/relay.h"
#include "mmd/load/load.h"
#include "mmd/shell/preflight.h"
#include "mmd/shell/shell.h"
#include "mmd/spool/spool.h"
#include "mmd/xfer/xfer.h"

/* The most that systems allow by default. */
#define FILES_WANTED (UINT64_C(1) << 20)

/*
 * Raises the limit of open files for roles that hold an fd per page. Without a service manager the
 * limit is often 4096; root may raise it.
 */
static void files_raise(void)
{
	struct rlimit files, more;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	more.rlim_cur = more.rlim_max = FILES_WANTED;
	if (files.rlim_max < FILES_WANTED && setrlimit(RLIMIT_NOFILE, &more) == 0)
		return;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

/* Opens closed standard streams on /dev/null; else files opened later would take their numbers. */
static int streams_open(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/*
 * Ignores signals of conditions that calls report as errors: a pipe without reader, a file at
 * RLIMIT_FSIZE, output of a background process on a terminal.
 */
static void signals_ignore(void)
{
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGTTOU, SIG_IGN);
}

/* It is executed by a number, which the kernel may show as its name. */
static void process_show_name(void)
{
	prctl(PR_SET_NAME, "mmd");
}

static int keeper_again(const struct mm_config *config, char **argv)
{
#ifdef MM_KEEPER_FAILS /* in a build of tests/e2e/test_upgrade: it passes preflight, and fails */
	mm_reexec_back(MM_ROLE_FD, argv, "it was built to fail");
#endif
	files_raise();
	return mm_keeper_again(config, argv);
}

static int role_run(const struct mm_config *config, int argc, char **argv)
{
	enum mm_log_level level = (enum mm_log_level)config->log_level;
	static char role[16];

	signals_ignore();
	mm_rights_init((enum mm_sandbox)config->sandbox);
	switch (config->role) {
	case MM_ROLE_CORE:
		mm_log_init("core", level);
#ifdef MM_CORE_FAILS /* in a build of tests/e2e/test_upgrade: it passes preflight, and fails */
		return MM_EXIT_FAILED;
#endif
		files_raise();
		return mm_shell_main(MM_ROLE_FD, config);
	case MM_ROLE_XFER:
		if (*config->device_uuid[0])
			snprintf(role, sizeof(role), "xfer-%.10s", config->device_uuid[0]);
		else
			snprintf(role, sizeof(role), "xfer-%" PRIu64, config->device.value[0]);
		mm_log_init(role, level);
		files_raise();
		return mm_xfer_main(MM_ROLE_FD);
	case MM_ROLE_LOAD:
		mm_log_init("load", level);
		return mm_load_main(MM_ROLE_FD, MM_ROLE_LOAD_FD);
	case MM_ROLE_SPOOL:
		mm_log_init("spool", level);
		return mm_spool_main(MM_ROLE_FD, config);
	case MM_ROLE_LOG:
		mm_log_init("log", level);
		return mm_relay_main(MM_ROLE_FD, config);
	case MM_ROLE_PREFLIGHT:
		mm_log_init("preflight", level);
		return mm_preflight_main(MM_ROLE_FD, mm_reexec_try);
	case MM_ROLE_KEEPER_AGAIN:
		mm_log_init("keeper", level);
		return keeper_again(config, argv);
	default:
		mm_log_init("keeper", level);
		/*
		 * keeper holds connections until the closer takes them; without a free fd it would
		 * have to close them itself.
		 */
		files_raise();
		return mm_keeper_main(config, argc, argv);
	}
}

/* Prints which files were read, and that they are correct. Return: the exit status. */
static int files_print(const struct mm_config *config)
{
	for (uint32_t i = 0; i < config->sources.n; i++)
		printf("%s\n", config->sources.path[i]);
	printf("%s\n", config->sources.n ? "The configuration is correct."
					 : "No file was read; the command line is correct.");
	return mm_opt_flush(&mm_config_program, MM_EXIT_DONE);
}

/* A keeper whose other build does not take its options must not end of that. */
static int options_refused(int status, char **argv)
{
	for (char **arg = argv; *arg; arg++)
		if (strcmp(*arg, "--role=keeper-again") == 0)
			mm_reexec_back(MM_ROLE_FD, argv, "it refuses the options of mmd");
	return status;
}

int main(int argc, char **argv)
{
	static struct mm_config config;
	char error[MM_OPT_ERROR_BYTES];
	struct mm_opt_line line;
	int r = mm_config_read(argc, argv, &config, error);

	if (r < 0)
		return options_refused(mm_opt_refuse(&mm_config_program, 0, "%s", error), argv);
	if (r != MM_OPT_RUN) /* it prints help or the version */
		return options_refused(mm_opt_main(&mm_config_program, argc, argv, &config, &line),
				       argv);
	if (config.check_only)
		return files_print(&config);
	if (!config.role)
		mm_log_find_journal();
	process_show_name();
	r = streams_open();
	if (r < 0) {
		fprintf(stderr, "%smmd: cannot open /dev/null: %s\n", mm_log_prefix(MM_LOG_ERROR),
			strerror(-r));
		return MM_EXIT_FAILED;
	}
	return role_run(&config, argc, argv);
}
