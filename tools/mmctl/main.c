/* SPDX-License-Identifier: Apache-2.0 */
/* main - mmctl: flags that all subcommands share, the table of subcommands */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/mmctl/ctl.h"

#define WORDS_MAX  64
#define PATH_BYTES 256

static const struct mmctl_command commands[] = {
	{ "status", "", "all at a glance", mmctl_status_run },
	{ "pool show", "", "pages by state", mmctl_pool_show_run },
	{ "plan show", "[MODEL]", "which layers cycle, in which slots", mmctl_plan_show_run },
	{ "plan set", "MODEL --layers N|auto [--slots 1|2|auto]",
	  "how many layers are away, by hand", mmctl_plan_set_run },
	{ "devices", "", "GPUs and MIG instances here, and who manages them", mmctl_devices_run },
	{ "footprint", "--models FILE | DIR...", "what models take, without a daemon",
	  mmctl_footprint_run },
	{ "quota show", "", "accounts: what they use and may have", mmctl_quota_show_run },
	{ "quota set", "ACCOUNT [--max SIZE] ...", "what an account may have",
	  mmctl_quota_set_run },
	{ "wait", "[--timeout S]", "until mmd is there and ready (60 s unless told otherwise)",
	  mmctl_wait_run },
};

static void mmctl_help(void)
{
	puts("Usage: mmctl [--socket PATH | --dir DIR] [--device N|UUID] [--json] COMMAND\n"
	     "Looks into a running mmd, and sets plans by hand.\n");
	for (size_t i = 0; i < MM_ARRAY_SIZE(commands); i++)
		printf("  %-10s %-22s %s\n", commands[i].name, commands[i].args,
		       commands[i].summary);
	puts("\n  --socket PATH   mmd's admin socket\n"
	     "  --dir DIR       mmd's directory (default: /run/mmd as root, else "
	     "$XDG_RUNTIME_DIR/mmd)\n"
	     "  --device N      only of this device, by the ordinal that mmd was given, or by "
	     "UUID\n"
	     "                  (GPU-..., MIG-..., or the beginning of one)\n"
	     "  --json          one JSON object instead of text\n"
	     "  -h, --help, --version\n\n"
	     "MODEL is a tenant's name or id, ACCOUNT an account's name or uid:N; quota set takes\n"
	     "--min SIZE, --max SIZE, --weight N, --priority N, --on-timeout kill|quarantine,\n"
	     "--turn-quantum-max MS, --turn-priority-max N, --revision N, --device N. Exit status: "
	     "0 done,\n"
	     "1 failed, 2 usage, 3 mmd cannot be reached, or with wait is not ready in time.");
}

struct options {
	const char *socket, *dir, *device;
	bool json, help, version;
};

/* The value of `--name value` or `--name=value`; NULL when argv[*i] is another word. */
static const char *value_of(int argc, char **argv, int *i, const char *name, bool *ret_missing)
{
	size_t n = strlen(name);

	if (strncmp(argv[*i], name, n) != 0)
		return NULL;
	if (argv[*i][n] == '=')
		return argv[*i] + n + 1;
	if (argv[*i][n])
		return NULL;
	if (*i + 1 < argc)
		return argv[++*i];
	*ret_missing = true;
	return NULL;
}

/*
 * Takes the flags that all commands share out, wherever they stand; the other words are the
 * command's.
 */
static int flags_parse(int argc, char **argv, struct options *o, char **words, int *ret_n)
{
	int n = 0;

	for (int i = 1; i < argc; i++) {
		const char *value;
		bool missing = false;

		if ((value = value_of(argc, argv, &i, "--socket", &missing))) {
			o->socket = value;
		} else if ((value = value_of(argc, argv, &i, "--dir", &missing))) {
			o->dir = value;
		} else if ((value = value_of(argc, argv, &i, "--device", &missing))) {
			o->device = value;
		} else if (missing) {
			return mmctl_error(MM_EXIT_USAGE, "%s: needs a value", argv[i]);
		} else if (strcmp(argv[i], "--json") == 0) {
			o->json = true;
		} else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			o->help = true;
		} else if (strcmp(argv[i], "--version") == 0) {
			o->version = true;
		} else if (n == 0 && argv[i][0] == '-') {
			return mmctl_error(MM_EXIT_USAGE,
					   "%s: unknown flag; mmctl --help lists them", argv[i]);
		} else if (n == WORDS_MAX) {
			return mmctl_error(MM_EXIT_USAGE, "%s: too many arguments", argv[i]);
		} else {
			words[n++] = argv[i];
		}
	}
	*ret_n = n;
	return MM_EXIT_DONE;
}

static int device_parse(const char *word, struct mmctl *ctl)
{
	char *end;

	ctl->device = -1;
	if (!word)
		return MM_EXIT_DONE;
	if ((strncmp(word, "GPU-", 4) == 0 || strncmp(word, "MIG-", 4) == 0) && word[4]) {
		ctl->uuid = word;
		return MM_EXIT_DONE;
	}
	ctl->device = strtol(word, &end, 10);
	if (*end || end == word || ctl->device < 0 || ctl->device > INT32_MAX)
		return mmctl_error(MM_EXIT_USAGE,
				   "--device: '%s' is neither a number nor a UUID of a device",
				   word);
	return MM_EXIT_DONE;
}

static int socket_path(const struct options *o, char *path)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int n;

	if (o->socket)
		n = snprintf(path, PATH_BYTES, "%s", o->socket);
	else if (o->dir)
		n = snprintf(path, PATH_BYTES, "%s/admin.sock", o->dir);
	else if (geteuid() == 0)
		n = snprintf(path, PATH_BYTES, "/run/mmd/admin.sock");
	else if (runtime)
		n = snprintf(path, PATH_BYTES, "%s/mmd/admin.sock", runtime);
	else
		n = snprintf(path, PATH_BYTES, "%s", ""); /* a command that needs it reports it */
	if (n < 0 || n >= PATH_BYTES)
		return mmctl_error(MM_EXIT_USAGE, "--socket: longer than a socket's path may be");
	return MM_EXIT_DONE;
}

/* Returns how many of @words the command's name takes; 0: they name another command. */
static int name_matches(const char *name, int n, char **words)
{
	const char *space = strchr(name, ' ');
	size_t first = space ? (size_t)(space - name) : strlen(name);

	if (n < 1 || strlen(words[0]) != first || memcmp(words[0], name, first) != 0)
		return 0;
	if (!space)
		return 1;
	return n >= 2 && strcmp(words[1], space + 1) == 0 ? 2 : 0;
}

static int command_run(const struct mmctl *ctl, int n, char **words)
{
	if (n == 0)
		return mmctl_error(MM_EXIT_USAGE, "no command; mmctl --help lists them");
	for (size_t i = 0; i < MM_ARRAY_SIZE(commands); i++) {
		int used = name_matches(commands[i].name, n, words);

		if (used)
			return commands[i].run(ctl, n - used, words + used);
	}
	return mmctl_error(MM_EXIT_USAGE, "unknown command '%s%s%s'; mmctl --help lists them",
			   words[0], n > 1 ? " " : "", n > 1 ? words[1] : "");
}

/* Output may still lie in a buffer, so a full disk is seen only here. */
static int output_flush(int status)
{
	if ((fflush(stdout) == EOF || ferror(stdout)) && status == MM_EXIT_DONE)
		return mmctl_error(MM_EXIT_FAILED, "standard output: %s", strerror(errno));
	return status;
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	char path[PATH_BYTES], *words[WORDS_MAX];
	struct mmctl ctl;
	int n = 0, r = flags_parse(argc, argv, &o, words, &n);

	if (r != MM_EXIT_DONE)
		return r;
	if (o.help) {
		mmctl_help();
		return MM_EXIT_DONE;
	}
	if (o.version) {
		printf("mmctl %s\n", MM_VERSION);
		return MM_EXIT_DONE;
	}
	r = socket_path(&o, path);
	if (r != MM_EXIT_DONE)
		return r;
	ctl = (struct mmctl){ .socket = path, .json = o.json };
	r = device_parse(o.device, &ctl);
	if (r != MM_EXIT_DONE)
		return r;
	return output_flush(command_run(&ctl, n, words));
}
