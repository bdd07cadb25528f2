/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main() of a conformance program: starts itself once for each test, ends what hangs, and sums up.
 * Nothing here calls the driver but what runs in a test or a role.
 */
#include "tests/conformance/run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/conf.h"

#define REPORT_FD      4 /* a test, or its role, tells the runner why it is skipped */
#define MEMORY         "64M"
#define GRANULARITY    "64K"
#define LIMIT_SOFTWARE 600 /* for a machine many times slower than any that was seen */
#define LIMIT_HARDWARE 60  /* a device is there for minutes, and nobody is beside it */
#define LIMIT_LONG     1800
#define KILL_LIMIT     20

extern char **environ;

bool conf_in_role;
const char *conf_test_name = "";

static char device_dir[64];
static const struct CMUnitTest *the_test;
static bool test_returned, test_skipped;
static volatile sig_atomic_t end_signal; /* by this signal */

/* ---- In a test ---- */

_Noreturn void conf_skip(const char *format, ...)
{
	char reason[256];
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	printf("skipped: %s\n", reason);
	fflush(stdout);
	if (write(REPORT_FD, reason, strlen(reason)) < 0)
		perror("skip");
	if (conf_in_role)
		_exit(CONF_SKIPPED);
	test_skipped = true;
	skip();
	abort();
}

/* cmocka does not tell whether a test was skipped: then it does not come back to here. */
static void run_and_return(void **state)
{
	the_test->test_func(state);
	test_returned = true;
}

/*
 * A role that failed or was skipped ends its test: that may be waiting on the device for what will
 * not come any more.
 */
static void on_child(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	if (info->si_code == CLD_EXITED &&
	    (info->si_status == CONF_FAILED || info->si_status == CONF_SKIPPED))
		_exit(info->si_status);
}

static int run_the_test(const char *program, const char *name, const struct CMUnitTest *tests,
			size_t n_tests)
{
	struct sigaction action = { .sa_sigaction = on_child,
				    .sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP };
	int failed;

	sigaction(SIGCHLD, &action, NULL);
	for (size_t i = 0; i < n_tests; i++)
		if (strcmp(tests[i].name, name) == 0)
			the_test = &tests[i];
	if (!the_test) {
		fprintf(stderr, "no test '%s'\n", name);
		return 1;
	}
	const struct CMUnitTest one[] = { { the_test->name, run_and_return, the_test->setup_func,
					    the_test->teardown_func, the_test->initial_state } };

	failed = _cmocka_run_group_tests(program, one, 1, NULL, NULL);
	if (failed)
		return 1;
	return test_returned && !test_skipped ? 0 : CONF_SKIPPED;
}

static int run_role(const char *name, const struct conf_role *roles)
{
	conf_in_role = true;
	fcntl(CONF_ROLE_FD, F_SETFD, FD_CLOEXEC);
	fcntl(REPORT_FD, F_SETFD, FD_CLOEXEC);
	for (; roles && roles->name; roles++)
		if (strcmp(roles->name, name) == 0)
			exit(roles->run(CONF_ROLE_FD));
	fprintf(stderr, "no role '%s'\n", name);
	return 1;
}

/*
 * A driver that is asked to end in order waits for its streams: after a failure they may stand at a
 * value that nobody writes any more, and the test would end as one that hung.
 */
_Noreturn static void run_leave(int status)
{
	fflush(NULL);
	if (!conf.software)
		_exit(status);
	exit(status);
}

/* ---- The runner ---- */

static void remove_tree(const char *path)
{
	char member[300];
	struct dirent *entry;
	DIR *dir = opendir(path);

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(member, sizeof(member), "%s/%s", path, entry->d_name);
		if (unlink(member) < 0)
			remove_tree(member);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

static void on_end(int sig)
{
	end_signal = sig;
}

/* A device in memory outlives us: whoever ends us, it is removed first. */
static void catch_ends(void)
{
	static const int ends[] = { SIGHUP, SIGINT, SIGTERM };
	struct sigaction action = { .sa_handler = on_end, .sa_flags = (int)SA_RESETHAND };

	for (size_t i = 0; i < MM_ARRAY_SIZE(ends); i++)
		sigaction(ends[i], &action, NULL);
}

/* A device of our own, open to every user: one fact needs two of them. */
static void make_device(void)
{
	snprintf(device_dir, sizeof(device_dir), "/dev/shm/mm-conformance-XXXXXX");
	if (!mkdtemp(device_dir) || chmod(device_dir, 0777) < 0) {
		perror(device_dir);
		exit(1);
	}
	setenv("MM_SOFTGPU_DIR", device_dir, 1);
	setenv("MM_SOFTGPU_MEMORY", MEMORY, 1);
	setenv("MM_SOFTGPU_GRANULARITY", GRANULARITY, 1);
}

/* Else each process of a build with ThreadSanitizer sleeps a second when it ends. */
static void end_at_once(void)
{
	const char *old = getenv("TSAN_OPTIONS");
	char options[1024];

	snprintf(options, sizeof(options), "%s atexit_sleep_ms=0", old ? old : "");
	setenv("TSAN_OPTIONS", options, 1);
}

static unsigned int limit_s(void)
{
	const char *text = getenv("MM_CONF_LIMIT_S");
	long limit = text ? strtol(text, NULL, 10) : 0;

	if (limit > 0)
		return (unsigned int)limit;
	if (conf.is_long)
		return LIMIT_LONG;
	return conf.software ? LIMIT_SOFTWARE : LIMIT_HARDWARE;
}

static pid_t child_start(const char *test, int report_fd)
{
	char *argv[] = { (char *)"test", (char *)"--test", (char *)test, NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid;

	fflush(stdout);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, report_fd, REPORT_FD);
	errno = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (errno) {
		perror("posix_spawn");
		exit(1);
	}
	return pid;
}

/* Whether it ended in time; a process that hangs in the driver may outlive even SIGKILL. */
static bool wait_within(pid_t pid, unsigned int seconds, int *ret_status)
{
	uint64_t end = conf_now_ns() + seconds * MM_NS_PER_S;
	pid_t found;

	while ((found = waitpid(pid, ret_status, WNOHANG)) == 0 && conf_now_ns() < end) {
		if (end_signal)
			kill(pid, SIGKILL);
		conf_nap_ms(2);
	}
	return found == pid;
}

enum outcome { PASSED, SKIPPED, FAILED, TIMEOUT, CRASHED, N_OUTCOMES };

static const char *const outcome_names[N_OUTCOMES] = { "passed", "skipped", "failed", "timeout",
						       "crashed" };

static enum outcome child_watch(pid_t pid, char *reason, size_t bytes)
{
	unsigned int limit = limit_s();
	int status = 0;

	if (!wait_within(pid, limit, &status)) {
		kill(pid, SIGKILL);
		snprintf(reason, bytes, "still running after %u s%s", limit,
			 wait_within(pid, KILL_LIMIT, &status) ? ""
							       : ", and SIGKILL does not end it");
		return TIMEOUT;
	}
	if (WIFSIGNALED(status)) {
		snprintf(reason, bytes, "ended by signal %d", WTERMSIG(status));
		return CRASHED;
	}
	if (WEXITSTATUS(status) == CONF_SKIPPED)
		return SKIPPED;
	return WEXITSTATUS(status) == 0 ? PASSED : FAILED;
}

static enum outcome run_one(const char *test)
{
	uint64_t begin = conf_now_ns();
	char reason[300] = "", said[256] = "";
	enum outcome outcome;
	int report[2];
	ssize_t n;

	if (pipe2(report, O_CLOEXEC | O_NONBLOCK) < 0) {
		perror("pipe2");
		exit(1);
	}
	outcome = child_watch(child_start(test, report[1]), reason, sizeof(reason));
	n = read(report[0], said, sizeof(said) - 1);
	close(report[0]);
	close(report[1]);
	if (n > 0)
		snprintf(reason, sizeof(reason), "%s", said);
	conf_fact_outcome(test, outcome_names[outcome], (double)(conf_now_ns() - begin) / 1e9,
			  reason);
	printf("%s: %s%s%s\n", test, outcome_names[outcome], *reason ? ": " : "", reason);
	return outcome;
}

/* Those that are named, or all. */
static int run_all(int argc, char **argv, const struct CMUnitTest *tests, size_t n_tests)
{
	size_t count[N_OUTCOMES] = { 0 };

	for (size_t i = 0; i < n_tests; i++) {
		bool wanted = argc == 1;

		for (int k = 1; k < argc; k++)
			wanted |= strcmp(argv[k], tests[i].name) == 0;
		if (wanted && !end_signal)
			count[run_one(tests[i].name)]++;
	}
	printf("%zu passed, %zu failed, %zu skipped\n", count[PASSED],
	       count[FAILED] + count[TIMEOUT] + count[CRASHED], count[SKIPPED]);
	if (count[FAILED] + count[TIMEOUT] + count[CRASHED])
		return 1;
	if (!count[PASSED] && !count[SKIPPED]) {
		fprintf(stderr, "no test of that name\n");
		return 2;
	}
	return count[PASSED] ? 0 : CONF_SKIPPED;
}

int conf_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests,
	      size_t n_tests, const struct conf_role *roles)
{
	const char *driver = getenv("MM_DRIVER"), *is_long = getenv("MM_TEST_LONG");
	bool is_role = argc == 4 && strcmp(argv[1], "--role") == 0;
	bool is_test = argc == 3 && strcmp(argv[1], "--test") == 0;
	char err[256];
	int status;

	conf.software = !driver || !*driver || strcmp(driver, "software") == 0;
	conf.is_long = is_long && *is_long;
	if (is_role || is_test)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (mm_gpu_open(driver, &conf.gpu, err, sizeof(err)) < 0) {
		fprintf(stderr, "skipped: %s\n", err);
		return conf.software ? 1 : CONF_SKIPPED;
	}
	conf_test_name = is_role ? argv[3] : is_test ? argv[2] : "";
	conf_facts_begin(name, conf_test_name);
	if (is_role)
		return run_role(argv[2], roles);
	/* The lowest free descriptors are the roles' and the report then, none of ours. */
	while (open("/dev/null", O_RDONLY | O_CLOEXEC) <= REPORT_FD)
		;
	if (is_test)
		run_leave(run_the_test(name, argv[2], tests, n_tests));
	end_at_once();
	if (conf.software) {
		catch_ends();
		make_device();
	}
	status = run_all(argc, argv, tests, n_tests);
	if (conf.software)
		remove_tree(device_dir);
	if (end_signal)
		raise(end_signal);
	return status;
}
