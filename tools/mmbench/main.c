/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "mm/base.h"
#include "tools/mmbench/serve.h"

static const char help_text[] =
	"usage: mmbench serve [options]     replay a trace under each policy in turn\n"
	"       mmbench --help | --version\n"
	"\n"
	"`mmbench serve --help` has its options.\n";

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";

	if (!strcmp(command, "serve")) {
		argv[1] = argv[0]; /* getopt names it in its messages */
		return mm_bench_serve(argc - 1, argv + 1);
	}
	if (!strcmp(command, "--help")) {
		fputs(help_text, stdout);
		return 0;
	}
	if (!strcmp(command, "--version")) {
		puts("mmbench " MM_VERSION);
		return 0;
	}
	if (*command)
		fprintf(stderr, "mmbench: unknown command '%s'; there is: serve\n", command);
	else
		fprintf(stderr, "mmbench: no command; there is: serve\n");
	return 2;
}
