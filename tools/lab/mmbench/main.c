/* SPDX-License-Identifier: Apache-2.0 */
/* mmbench - measures mmd; each subcommand is a file or a folder of its own. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/options.h"
#include "tools/lab/mmbench/chaos.h"
#include "tools/lab/mmbench/death.h"
#include "tools/lab/mmbench/decide.h"
#include "tools/lab/mmbench/grant.h"
#include "tools/lab/mmbench/hostile.h"
#include "tools/lab/mmbench/restart.h"
#include "tools/lab/mmbench/serve.h"
#include "tools/lab/mmbench/steps_options.h"
#include "tools/lab/mmbench/timed.h"

struct mmbench {
	struct mm_bench_opts serve;
	struct mm_timed_opts timed;
	struct mm_bench_steps_opts steps;
	struct mm_decide_line decide;
	struct mm_hostile_opts hostile;
	struct mm_chaos_opts chaos;
	struct mm_restart_opts restart;
	struct mm_death_opts death;
	struct mm_grant_opts grant;
};

/* Two commands are called "serve": --models on the line says that it is the first. */
enum mmbench_command {
	COMMAND_SERVE,
	COMMAND_TIMED,
	COMMAND_STEPS,
	COMMAND_DECIDE,
	COMMAND_HOSTILE,
	COMMAND_CHAOS,
	COMMAND_RESTART,
	COMMAND_DEATH,
	COMMAND_GRANT,
	COMMANDS
};

static const struct mm_opt_command mmbench_commands[COMMANDS] = {
	[COMMAND_SERVE] = {
		.name = "serve",
		.arguments = "--models DIR,...",
		.summary = "replay a trace under each policy, and compare every token",
		.text = "Starts mmd and one mmserve for each model, replays a trace under each "
			"policy, one after the other, and compares every token between the "
			"policies. It uses a software GPU of its own, or with --driver the devices "
			"that there are. It ends with the ratios to recompute and what they mean; "
			"in the JSON these are ratios and ratios_to. Status 1 also says that a "
			"token differed.",
		.sets = { { mm_bench_options, offsetof(struct mmbench, serve) } },
	},
	[COMMAND_TIMED] = {
		.name = "serve",
		.arguments = "[--profile NAME]",
		.summary = "the timed run: the same on a device that keeps time",
		.text = "Starts mmd on the software GPU, which keeps the time of a device instead "
			"of computing, and one mmserve for each model, under each policy, one "
			"after the other. Options, table and JSON are those of mmsim, where the "
			"same line means the same case.",
		.sets = { { mm_wl_options, offsetof(struct mmbench, timed.wl) },
			  { mm_timed_options, offsetof(struct mmbench, timed) } },
	},
	[COMMAND_STEPS] = {
		.name = "steps",
		.arguments = "--profile NAME {--shape NAME | --model DIR}",
		.summary = "the time of a step under each plan, on a timed device",
		.text = "One tenant on a timed software GPU computes the same batch again and "
			"again, while plans are set by hand. Prints the median device time of a "
			"step under each plan, and what the controller's arithmetic says.",
		.sets = { { mm_bench_steps_options, offsetof(struct mmbench, steps) } },
	},
	[COMMAND_DECIDE] = {
		.name = "decide",
		.arguments = "",
		.summary = "what deciding costs, by the number of tenants",
		.text = "The core of mmd under a busy load in virtual time: only its own time is "
			"measured.",
		.sets = { { mm_decide_options, offsetof(struct mmbench, decide) } },
	},
	[COMMAND_HOSTILE] = {
		.name = "hostile",
		.arguments = "",
		.summary = "what comes of each act of a hostile tenant, and what it costs others",
		.text = "Starts mmd on a software GPU and an engine whose tokens are all checked. "
			"Beside it each act is done again and again, in turn with busy loops that "
			"take as much of the processors. Status 1 also says that an act had "
			"another outcome than expected, that a token differed, or that a page was "
			"not free at the end.",
		.sets = { { mm_hostile_options, offsetof(struct mmbench, hostile) } },
	},
	[COMMAND_CHAOS] = {
		.name = "chaos",
		.arguments = "",
		.summary = "everything wrong at once: kills, hostile tenants, faults of the device",
		.text = "Engines whose tokens are all checked and tenants that look at every byte "
			"of their pages share an mmd on a software GPU with hostile tenants, while "
			"tenants, xfer and core are killed, plans change and the device fails. "
			"Status 1 also says that a token differed, a page was not free at the end "
			"or had bytes of others, or an honest connection ended.",
		.sets = { { mm_chaos_options, offsetof(struct mmbench, chaos) } },
	},
	[COMMAND_RESTART] = {
		.name = "restart",
		.arguments = "",
		.summary = "how long tenants wait for the core that follows one that was killed",
		.text = "Tenants share an mmd on a software GPU whose core is killed again and "
			"again. The time from a kill until all of them have an answer is compared "
			"with the bare cost of giving another process as many descriptors and "
			"mapping the regions among them. Status 1 also says that a connection "
			"ended.",
		.sets = { { mm_restart_options, offsetof(struct mmbench, restart) } },
	},
	[COMMAND_DEATH] = {
		.name = "death",
		.arguments = "",
		.summary = "how long pages take from a tenant that dies to another one",
		.text = "A tenant that holds all pages of an mmd on a software GPU is killed. The "
			"time until another one has them all, scrubbed, is compared with a bare "
			"fill of as many.",
		.sets = { { mm_death_options, offsetof(struct mmbench, death) } },
	},
	[COMMAND_GRANT] = {
		.name = "grant",
		.arguments = "",
		.summary = "what a journal and images cost in a grant and in a step",
		.text = "Takes pages from two mmd and from one that keeps neither journal nor "
			"images of its core, in turn, and lets an engine compute in each at the "
			"same time. Prints the ratios, and that of the two which are the same.",
		.sets = { { mm_grant_options, offsetof(struct mmbench, grant) } },
	},
};

static const struct mm_opt_program mmbench_program = {
	.name = "mmbench",
	.summary = "measure mmd: replay traces, time steps, time decisions, try to hurt it",
	.text = "Documentation/mmbench.md says what each number means.\n\n"
		"The papers' evaluation, through the simulator, is mmevaluate.",
	.commands = mmbench_commands,
	.n_commands = COMMANDS,
	.exits = "Exit status: 0 done; 1 a run failed, or a token differed; 2 usage.",
	.man_section = "1",
	.see_also = "gpubench(1), mmsim(1), mmevaluate(1), mmctl(1), mmd(8)",
};

/* Commands that are now programs of their own. */
static const struct {
	const char *name;
	const char *now;
} other_commands[] = {
	{ .name = "evaluate", .now = "mmevaluate" },
	{ .name = "gpu", .now = "gpubench" },
};

/* Refuses one of other_commands. Return: the exit status; -1: the line is of none of them. */
static int refuse_other(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < MM_ARRAY_SIZE(other_commands); i++) {
		if (strcmp(argv[1], other_commands[i].name))
			continue;
		return mm_opt_refuse(&mmbench_program, MM_OPT_COMMAND_NONE,
				     "'%s' is a program of its own now: %s", argv[1],
				     other_commands[i].now);
	}
	return -1;
}

/* Also true of a slip, so that the message is about --models. */
static bool names_models(int argc, char **argv)
{
	for (int i = 2; i < argc && strcmp(argv[i], "--"); i++) {
		struct mm_opt_near near = { .word = argv[i] + 2 };

		if (strncmp(argv[i], "--", 2))
			continue;
		near.bytes = strcspn(near.word, "=");
		mm_opt_near_offer(&near, "models");
		if (near.best)
			return true;
	}
	return false;
}

/* Reads a line of `mmbench serve` as that of one of the two. Return: as mm_opt_main(). */
static int serve_line(int argc, char **argv, struct mmbench *into, struct mm_opt_line *ret_line)
{
	const size_t kind = names_models(argc, argv) ? COMMAND_SERVE : COMMAND_TIMED;
	struct mm_opt_program program = mmbench_program;
	struct mm_opt_command commands[COMMANDS];
	int r;

	if (argc == 2)
		return mm_opt_refuse(&mmbench_program, COMMAND_SERVE,
				     "give --models DIR,... or --profile NAME");
	if (argc == 3 && (!strcmp(argv[2], "--help") || !strcmp(argv[2], "-h"))) {
		mm_opt_print_help(stdout, &mmbench_program, COMMAND_SERVE);
		fputs("\n\n", stdout);
		mm_opt_print_help(stdout, &mmbench_program, COMMAND_TIMED);
		return mm_opt_flush(&mmbench_program, MM_EXIT_DONE);
	}
	/* The first of that name is taken; the other one is there for what is said about it. */
	memcpy(commands, mmbench_commands, sizeof(commands));
	commands[0] = mmbench_commands[kind];
	commands[1] = mmbench_commands[kind == COMMAND_SERVE ? COMMAND_TIMED : COMMAND_SERVE];
	program.commands = commands;
	r = mm_opt_main(&program, argc, argv, into, ret_line);
	if (r < 0)
		ret_line->command = kind;
	return r;
}

static int timed_settle(struct mm_wl_opts *opts, char *why)
{
	for (uint32_t p = 0; p < opts->policies; p++) {
		if (!opts->policy[p].simulated)
			continue;
		snprintf(why, MM_OPT_ERROR_BYTES, "--policy: only mmsim has '%s'",
			 opts->policy[p].name);
		return -EINVAL;
	}
	return mm_wl_settle(opts, why);
}

static int command_settle(struct mmbench *m, size_t command, char *why)
{
	switch (command) {
	case COMMAND_SERVE:
		return mm_bench_settle(&m->serve, why);
	case COMMAND_TIMED:
		return timed_settle(&m->timed.wl, why);
	case COMMAND_STEPS:
		return mm_bench_steps_settle(&m->steps, why);
	case COMMAND_HOSTILE:
		return mm_hostile_settle(&m->hostile, why);
	default:
		return 0;
	}
}

static int command_run(const struct mmbench *m, size_t command)
{
	switch (command) {
	case COMMAND_SERVE:
		return mm_bench_serve(&m->serve);
	case COMMAND_TIMED:
		return mm_bench_timed(&m->timed);
	case COMMAND_STEPS:
		return mm_bench_steps(&m->steps);
	case COMMAND_HOSTILE:
		return mm_bench_hostile(&m->hostile);
	case COMMAND_CHAOS:
		return mm_bench_chaos(&m->chaos);
	case COMMAND_RESTART:
		return mm_bench_restart(&m->restart);
	case COMMAND_DEATH:
		return mm_bench_death(&m->death);
	case COMMAND_GRANT:
		return mm_bench_grant(&m->grant);
	default:
		return mm_bench_decide(&m->decide);
	}
}

int main(int argc, char **argv)
{
	static struct mmbench m = { .serve = MM_BENCH_OPTS_INIT };
	char why[MM_OPT_ERROR_BYTES];
	struct mm_opt_line line;
	int r = refuse_other(argc, argv);

	if (r >= 0)
		return r;
	if (argc > 1 && !strcmp(argv[1], "serve"))
		r = serve_line(argc, argv, &m, &line);
	else
		r = mm_opt_main(&mmbench_program, argc, argv, &m, &line);
	if (r >= 0)
		return r;
	if (command_settle(&m, line.command, why))
		return mm_opt_refuse(&mmbench_program, line.command, "%s", why);
	return mm_opt_flush(&mmbench_program, command_run(&m, line.command));
}
