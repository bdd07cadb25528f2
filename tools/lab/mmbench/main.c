/* SPDX-License-Identifier: Apache-2.0 */
/* mmbench - measures mmd; each subcommand is a file or a folder of its own. */
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tools/lab/mmbench/decide.h"
#include "tools/lab/evaluate/evaluate.h"
#include "tools/lab/gpubench/gpubench.h"
#include "tools/lab/mmbench/serve.h"
#include "tools/lab/mmbench/steps.h"

static const char mmbench_help[] =
	"usage: mmbench serve [options]     replay a trace under each policy in turn\n"
	"       mmbench evaluate [options]  the papers' evaluation, through the simulator\n"
	"       mmbench steps [options]     the time of a step under each plan, on a timed device\n"
	"       mmbench decide [options]    what deciding costs, by the number of tenants\n"
	"       mmbench gpu [PART,...] [options]  the mechanism on the device that is there\n"
	"       mmbench -h | --help | --version\n"
	"\n"
	"`mmbench serve --help` and so on have their options.\n";

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "serve", mm_bench_serve }, { "evaluate", mm_bench_evaluate },
	{ "steps", mm_bench_steps }, { "decide", mm_bench_decide },
	{ "gpu", mm_bench_gpu },
};

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";

	for (size_t i = 0; i < MM_ARRAY_SIZE(commands); i++) {
		if (strcmp(command, commands[i].name))
			continue;
		argv[1] = argv[0]; /* getopt puts argv[0] into its messages */
		return commands[i].run(argc - 1, argv + 1);
	}
	if (!strcmp(command, "--help") || !strcmp(command, "-h")) {
		fputs(mmbench_help, stdout);
		return 0;
	}
	if (!strcmp(command, "--version")) {
		puts("mmbench " MM_VERSION);
		return 0;
	}
	if (*command)
		fprintf(stderr,
			"mmbench: unknown command '%s'; there are: serve, evaluate, steps, "
			"decide, gpu\n",
			command);
	else
		fprintf(stderr,
			"mmbench: no command; there are: serve, evaluate, steps, decide, gpu\n");
	return 2;
}
