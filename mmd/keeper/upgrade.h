/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upgrade - another build of mmd goes on as core
 *
 * Concept:   core asks for it with the path of a file, and with an export of what its successor
 *            will have to read. keeper opens the file and starts it in the role preflight, which
 *            has nothing but the export: it reads that, writes it again, and says whether it can go
 *            on from there. Then core ends, and the other build starts as core, with all that
 *            keeper holds, as after a death. keeper has made a copy of the book: if the new build
 *            ends before it says that it stands, or does not within MM_UPGRADE_STANDS_NS, the old
 *            build goes on from the copy. From then on all roles start from the new file, and a
 *            death of core is a death as any other, and keeper itself becomes the other build, too
 *            (reexec.h): preflight has read what keeper would leave. Running xfers and spools stay
 *            what they are.
 * Trust:     keeper runs only files that nobody but root or mmd's own user can change.
 * Threading: keeper's thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mmd/common/build.h"
#include "mmd/common/kchan.h"
#include "mmd/common/proto.h"

struct mm_keeper;

#define MM_UPGRADE_CHECK_NS  (10 * MM_NS_PER_S)
#define MM_UPGRADE_STANDS_NS (20 * MM_NS_PER_S)

enum mm_upgrade_state {
	MM_UPGRADE_NONE,
	MM_UPGRADE_CHECKED, /* preflight runs */
	MM_UPGRADE_AGREED,  /* core was told to give way */
	MM_UPGRADE_STARTED, /* the other build runs as core, and does not stand yet */
};

struct mm_upgrade {
	enum mm_upgrade_state state;
	bool check;      /* no more than preflight was asked for */
	uint32_t flags;  /* what became of the last one: MM_K_F_UPGRADED, MM_K_F_TAKEN_BACK */
	int program_fd;  /* roles start from it; -1: from keeper's own file */
	int next_fd;     /* the file of the other build */
	int answer_fd;   /* preflight's sentence comes here */
	int book_fd;     /* the copy of the book */
	pid_t pid;       /* of preflight; 0: it does not run */
	uint64_t due_ns; /* preflight or the new core is killed then; UINT64_MAX: nothing is */
	char build[MM_BUILD_BYTES];      /* of the file that roles start from */
	char next_build[MM_BUILD_BYTES]; /* of the other one, as preflight says */
	bool takes_keeper;               /* the other build can become keeper */
	uint64_t reexec_by_ns;           /* keeper is to become it by then; 0: it is not */
};
#define MM_UPGRADE_INIT                         \
	((struct mm_upgrade){ .program_fd = -1, \
			      .next_fd = -1,    \
			      .answer_fd = -1,  \
			      .book_fd = -1,    \
			      .due_ns = UINT64_MAX })

/* Messages of core. */
void mm_upgrade_on_request(struct mm_keeper *keeper, struct mm_kpacket *packet);
void mm_upgrade_on_stands(struct mm_keeper *keeper);

/* A child was reaped. Return: whether it was preflight. */
bool mm_upgrade_reaped(struct mm_keeper *keeper, pid_t pid, int status);

/*
 * core was reaped. Return: whether that belongs to an upgrade: another core must start at once, and
 * mm_upgrade_program() says from which file.
 */
bool mm_upgrade_core_gone(struct mm_keeper *keeper, int status);

/* Sets from which file the next core starts. */
void mm_upgrade_program(const struct mm_keeper *keeper);

/* keeper is another build now; or it stays what it is, for the reason @why. */
void mm_upgrade_keeper_done(struct mm_keeper *keeper);
void mm_upgrade_keeper_stays(struct mm_keeper *keeper, const char *why);

/* Kills what takes too long. */
void mm_upgrade_service(struct mm_keeper *keeper);
