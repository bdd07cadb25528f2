/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mps - `mmctl mps start`, `stop`, `status` and `limit`: NVIDIA's service by which processes of
 * one user compute side by side
 *
 * The service has a control daemon, nvidia-cuda-mps-control, which comes with the driver and takes
 * commands from its standard input, one at a time here. Its answers are read as those of a
 * stranger: bounded, and numbers only where numbers are due.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/number.h"
#include "tools/mmctl/ctl.h"

#define CONTROL       "nvidia-cuda-mps-control"
#define PIPE_DEFAULT  "/tmp/nvidia-mps"
#define OUT_BYTES     16384
#define COMMAND_BYTES 128
#define LINE_BYTES    128
#define PIDS_MAX      256
#define ANSWER_NS     (20 * MM_NS_PER_S)

extern char **environ;

/* An answer of the control daemon. */
struct mps_answer {
	int status; /* of the program; -1: killed, or it did not end in time */
	char text[OUT_BYTES];
};

/* ---- the control daemon ---- */

static int environment_set(const struct mmctl_options *o)
{
	/* A program that reads nothing is no reason to die. */
	signal(SIGPIPE, SIG_IGN);
	if ((o->pipe_dir && setenv("CUDA_MPS_PIPE_DIRECTORY", o->pipe_dir, 1) < 0) ||
	    (o->log_dir && setenv("CUDA_MPS_LOG_DIRECTORY", o->log_dir, 1) < 0))
		return mmctl_error(MM_EXIT_FAILED, "out of memory");
	return MM_EXIT_DONE;
}

static const char *pipe_dir(void)
{
	const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");

	return dir ? dir : PIPE_DEFAULT;
}

/* Starts the program with @argv; its input and its output are pipes. Return: 0; errno. */
static int control_spawn(char **argv, int in, int out, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	int r = posix_spawn_file_actions_init(&actions);

	if (r)
		return r;
	r = posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
	if (!r)
		r = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	if (!r)
		r = posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
	if (!r)
		r = posix_spawnp(ret_pid, CONTROL, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

/*
 * Reads until the program has ended or the time is over. A daemon that it has left behind may keep
 * the pipe open, so the end of the process counts as well.
 */
static int output_read(int fd, pid_t pid, struct mps_answer *ret)
{
	const uint64_t until_ns = mm_deadline_ns(ANSWER_NS);
	size_t n = 0;
	int status = 0, ended = 0;

	while (mm_now_ns() < until_ns) {
		struct pollfd in = { .fd = fd, .events = POLLIN };
		ssize_t got = 0;

		if (poll(&in, 1, ended ? 0 : 50) > 0)
			got = read(fd, ret->text + n, OUT_BYTES - 1 - n);
		else if (ended)
			break;
		n += got > 0 ? (size_t)got : 0;
		if (in.revents && !got && !ended)
			nanosleep(&(struct timespec){ .tv_nsec = MM_NS_PER_MS }, NULL);
		if (n == OUT_BYTES - 1 || got < 0)
			break;
		if (!ended)
			ended = waitpid(pid, &status, WNOHANG) == pid;
		if (ended && in.revents && !got)
			break;
	}
	ret->text[n] = '\0';
	if (!ended) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		return -1;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs the program with @option, or with @command on its input. */
static int control_run(const char *option, const char *command, struct mps_answer *ret)
{
	char *argv[] = { (char *)CONTROL, (char *)option, NULL };
	int in[2] = { -1, -1 }, out[2] = { -1, -1 }, r;
	pid_t pid;

	if (pipe2(in, O_CLOEXEC) < 0)
		return mmctl_error(MM_EXIT_FAILED, CONTROL ": %s", strerror(errno));
	if (pipe2(out, O_CLOEXEC) < 0)
		r = errno;
	else
		r = control_spawn(argv, in[0], out[1], &pid);
	mm_close_fd(&in[0]);
	mm_close_fd(&out[1]);
	if (!r && command && write(in[1], command, strlen(command)) < 0)
		r = errno;
	mm_close_fd(&in[1]);
	if (!r)
		ret->status = output_read(out[0], pid, ret);
	mm_close_fd(&out[0]);
	if (r == ENOENT)
		return mmctl_error(MM_EXIT_FAILED,
				   CONTROL ": not found in PATH; it comes with NVIDIA's driver "
					   "(Debian: nvidia-cuda-mps)");
	return r ? mmctl_error(MM_EXIT_FAILED, CONTROL ": %s", strerror(r)) : MM_EXIT_DONE;
}

/* The first line that the daemon has answered, printable. */
static const char *first_line(const struct mps_answer *a, char to[LINE_BYTES])
{
	size_t n = 0;

	for (; a->text[n] && a->text[n] != '\n' && n < LINE_BYTES - 1; n++)
		to[n] = (char)(a->text[n] >= ' ' && a->text[n] < 0x7f ? a->text[n] : '?');
	to[n] = '\0';
	return n ? to : "it said nothing";
}

/* Has the daemon do @command. Any sentence on a command that has no answer is a refusal. */
static int mps_command(const char *command, bool answers, struct mps_answer *ret)
{
	char line[LINE_BYTES], name[COMMAND_BYTES];
	int r = control_run(NULL, command, ret);

	if (r != MM_EXIT_DONE)
		return r;
	if (ret->status == 0 && (answers || !*ret->text))
		return MM_EXIT_DONE;
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(command, "\n"), command);
	if (ret->status < 0)
		return mmctl_error(MM_EXIT_FAILED, CONTROL ": %s: no answer in time", name);
	return mmctl_error(MM_EXIT_FAILED, CONTROL ": %s: %s", name, first_line(ret, line));
}

/* Reads a list of processes, one a line. Return: how many; -EPROTO: that is no such list. */
static int pids_read(const struct mps_answer *a, uint32_t pid[PIDS_MAX])
{
	const char *at = a->text;
	char line[LINE_BYTES];
	int n = 0;

	while (*at) {
		const size_t bytes = strcspn(at, "\n");
		uint64_t number;

		if (bytes >= sizeof(line))
			return -EPROTO;
		memcpy(line, at, bytes);
		line[bytes] = '\0';
		if (bytes) {
			if (n == PIDS_MAX || mm_number_parse(line, &number) || !number ||
			    number > INT32_MAX)
				return -EPROTO;
			pid[n++] = (uint32_t)number;
		}
		at += bytes + (at[bytes] == '\n');
	}
	return n;
}

static int pids_ask(const char *command, uint32_t pid[PIDS_MAX], int *ret_n)
{
	struct mps_answer answer;
	char line[LINE_BYTES];
	int r = mps_command(command, true, &answer);

	if (r != MM_EXIT_DONE)
		return r;
	*ret_n = pids_read(&answer, pid);
	if (*ret_n < 0)
		return mmctl_error(MM_EXIT_FAILED, CONTROL ": %s", first_line(&answer, line));
	return MM_EXIT_DONE;
}

/* A percentage, as "50.0"; null where the daemon says something else. */
static json_t *percent_json(const char *command)
{
	struct mps_answer answer;
	double percent;
	char *end;

	if (control_run(NULL, command, &answer) != MM_EXIT_DONE || answer.status)
		return json_null();
	percent = strtod(answer.text, &end);
	if (end == answer.text || !(percent >= 0 && percent <= 100))
		return json_null();
	return json_real(percent);
}

/* ---- start and stop ---- */

static int limit_default(uint64_t percent)
{
	struct mps_answer answer;
	char command[COMMAND_BYTES];

	snprintf(command, sizeof(command), "set_default_active_thread_percentage %" PRIu64 "\n",
		 percent);
	return mps_command(command, true, &answer);
}

int mmctl_mps_start_run(const struct mmctl *ctl, int argc, char **argv)
{
	const struct mmctl_options *o = ctl->options;
	struct mps_answer answer;
	char line[LINE_BYTES];
	int r = environment_set(o);

	(void)argc;
	(void)argv;
	if (r == MM_EXIT_DONE)
		r = control_run("-d", NULL, &answer);
	if (r != MM_EXIT_DONE)
		return r;
	if (answer.status)
		return mmctl_error(MM_EXIT_FAILED, CONTROL " -d: %s", first_line(&answer, line));
	if (o->percent != MMCTL_UNSET)
		r = limit_default(o->percent);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mmctl_print_new_json(json_pack("{s:i,s:b,s:s}", "schema", 1, "running", 1,
						      "pipe_dir", pipe_dir()));
	printf("MPS runs; tenants and mmd find it by CUDA_MPS_PIPE_DIRECTORY=%s\n", pipe_dir());
	return MM_EXIT_DONE;
}

int mmctl_mps_stop_run(const struct mmctl *ctl, int argc, char **argv)
{
	struct mps_answer answer;
	int r = environment_set(ctl->options);

	(void)argc;
	(void)argv;
	if (r == MM_EXIT_DONE)
		r = mps_command("quit\n", true, &answer);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mmctl_print_new_json(json_pack("{s:i,s:b,s:s}", "schema", 1, "running", 0,
						      "pipe_dir", pipe_dir()));
	puts("MPS ends, once its clients have; who starts now computes without it");
	return MM_EXIT_DONE;
}

/* ---- status ---- */

/* The name of the tenant that is process @pid, or NULL. @status: of mmd; NULL: it is not there. */
static const char *tenant_of_pid(const json_t *status, uint32_t pid)
{
	const json_t *t;
	size_t i;

	json_array_foreach(json_object_get(status, "tenants"), i, t)
		if (mm_json_u64(t, "pid") == pid)
			return mm_json_text(t, "name");
	return NULL;
}

static json_t *clients_json(const json_t *status, const uint32_t *pid, int n)
{
	json_t *clients = json_array();

	for (int i = 0; i < n; i++) {
		const char *name = tenant_of_pid(status, pid[i]);
		json_t *client = json_object();

		mm_json_put_u64(client, "pid", pid[i]);
		mm_json_put(client, "tenant", name ? mm_json_string(name) : json_null());
		json_array_append_new(clients, client);
	}
	return clients;
}

static int server_add(const json_t *status, uint32_t server, json_t *servers)
{
	uint32_t client[PIDS_MAX];
	char command[COMMAND_BYTES];
	json_t *one;
	int n, r;

	snprintf(command, sizeof(command), "get_client_list %" PRIu32 "\n", server);
	r = pids_ask(command, client, &n);
	if (r != MM_EXIT_DONE)
		return r;
	one = json_object();
	mm_json_put_u64(one, "pid", server);
	snprintf(command, sizeof(command), "get_active_thread_percentage %" PRIu32 "\n", server);
	mm_json_put(one, "percent", percent_json(command));
	mm_json_put(one, "clients", clients_json(status, client, n));
	json_array_append_new(servers, one);
	return MM_EXIT_DONE;
}

static json_t *mmd_status(const struct mmctl *ctl)
{
	struct mmctl quiet = *ctl;
	json_t *status = NULL;

	quiet.quiet = true;
	(void)mmctl_request(&quiet, "status", NULL, &status);
	return status;
}

static int servers_ask(const json_t *status, json_t *result)
{
	uint32_t server[PIDS_MAX];
	json_t *servers = json_array();
	int n, r = pids_ask("get_server_list\n", server, &n);

	mm_json_put(result, "servers", servers);
	for (int i = 0; r == MM_EXIT_DONE && i < n; i++)
		r = server_add(status, server[i], servers);
	return r;
}

static void percent_print(const json_t *percent)
{
	if (json_is_real(percent))
		printf("%.0f %%", json_real_value(percent));
	else
		printf("unknown");
}

static void status_print(const json_t *result)
{
	const json_t *servers = json_object_get(result, "servers"), *server, *client;
	size_t i, k;

	printf("MPS runs in %s\nnew servers: share of threads ", pipe_dir());
	percent_print(json_object_get(result, "default_percent"));
	printf("\n");
	if (!json_array_size(servers))
		puts("no server: none of its clients computes");
	json_array_foreach(servers, i, server) {
		printf("server %" PRIu64 ": share of threads ", mm_json_u64(server, "pid"));
		percent_print(json_object_get(server, "percent"));
		printf("\n");
		json_array_foreach(json_object_get(server, "clients"), k, client)
			printf("  client %" PRIu64 ": %s\n", mm_json_u64(client, "pid"),
			       mm_json_has(client, "tenant") ? mm_json_text(client, "tenant")
							     : "no tenant of this mmd");
	}
}

int mmctl_mps_status_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(mm_json_done) json_t *result = json_object(), *status = NULL;
	int r = environment_set(ctl->options);

	(void)argc;
	(void)argv;
	if (r != MM_EXIT_DONE)
		return r;
	status = mmd_status(ctl);
	mm_json_put_u64(result, "schema", 1);
	mm_json_put_text(result, "pipe_dir", pipe_dir());
	r = servers_ask(status, result);
	if (r != MM_EXIT_DONE)
		return r;
	mm_json_put(result, "default_percent",
		    percent_json("get_default_active_thread_percentage\n"));
	if (ctl->json)
		return mmctl_print_json(result);
	status_print(result);
	return MM_EXIT_DONE;
}

/* ---- limit ---- */

/* Finds the server that has the tenant as a client. */
static int tenant_server(const json_t *result, const char *name, uint64_t *ret_server)
{
	const json_t *server, *client;
	size_t i, k;

	json_array_foreach(json_object_get(result, "servers"), i, server)
		json_array_foreach(json_object_get(server, "clients"), k, client)
			if (strcmp(mm_json_text(client, "tenant"), name) == 0) {
				*ret_server = mm_json_u64(server, "pid");
				return MM_EXIT_DONE;
			}
	return mmctl_error(MM_EXIT_FAILED,
			   "%s: no tenant of that name computes by MPS; mmctl mps status lists "
			   "those that do",
			   name);
}

static int server_limit(const struct mmctl *ctl, const char *name)
{
	mm_cleanup(mm_json_done) json_t *result = json_object(), *status = mmd_status(ctl);
	const uint64_t percent = ctl->options->percent;
	struct mps_answer answer;
	char command[COMMAND_BYTES];
	uint64_t server = 0;
	int r = servers_ask(status, result);

	if (r == MM_EXIT_DONE)
		r = tenant_server(result, name, &server);
	if (r != MM_EXIT_DONE)
		return r;
	snprintf(command, sizeof(command), "set_active_thread_percentage %" PRIu64 " %" PRIu64 "\n",
		 server, percent);
	r = mps_command(command, true, &answer);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mmctl_print_new_json(json_pack("{s:i,s:I,s:I}", "schema", 1, "server",
						      (json_int_t)server, "percent",
						      (json_int_t)percent));
	printf("server %" PRIu64 ": %" PRIu64 " %% of the threads for each process that begins to "
	       "compute from now on.\n%s keeps what it has until it starts anew; "
	       "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE in\nits environment limits it alone.\n",
	       server, percent, name);
	return MM_EXIT_DONE;
}

int mmctl_mps_limit_run(const struct mmctl *ctl, int argc, char **argv)
{
	int r = environment_set(ctl->options);

	if (r != MM_EXIT_DONE)
		return r;
	if (argc)
		return server_limit(ctl, argv[0]);
	r = limit_default(ctl->options->percent);
	if (r != MM_EXIT_DONE)
		return r;
	if (ctl->json)
		return mmctl_print_new_json(json_pack("{s:i,s:I}", "schema", 1, "percent",
						      (json_int_t)ctl->options->percent));
	printf("%" PRIu64 " %% of the threads for processes of servers that start from now on\n",
	       ctl->options->percent);
	return MM_EXIT_DONE;
}
