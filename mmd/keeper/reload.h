/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reload - the files are read again while mmd runs
 *
 * Concept:   SIGHUP and core's MM_K_RELOAD begin it. keeper reads the command line that it was
 *            started with and the files, makes of that the settings in force from now on
 *            (mmd/config/reload.h), and sends them to core, which applies them or refuses. When
 *            core has answered, new processes start with the new settings; before, with the old
 *            ones. A core that ends in between is followed by one that gets the same again.
 * Ownership: the settings in force are keeper's; what core shows of them is held by name.
 * Threading: keeper's thread. Files are read here as they are at the start: regular ones of bounded
 *            size.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "mmd/common/kchan.h"
#include "mmd/config/config.h"

struct mm_keeper;

#define MM_RELOAD_ANSWER_NS (10 * MM_NS_PER_S)

struct mm_reload {
	uint64_t serial;     /* of the last one */
	bool wanted;         /* one is to begin, as soon as none is under way */
	bool under_way;      /* core has not answered */
	bool failed;         /* what it is sent is why the files were refused */
	uint64_t generation; /* of the core that it was sent to; 0: to none */
	uint64_t due_ns;     /* core must have answered by then; UINT64_MAX: nothing was sent */
	json_t *document;    /* what is sent */
	struct mm_config in_force, next;
};

/* Takes over the settings in force; keeper->config is then in_force. */
void mm_reload_init(struct mm_keeper *keeper, const struct mm_config *config);
void mm_reload_done(struct mm_keeper *keeper);

/*
 * Holds by name what is shown of the settings, for core and its successors, and the words of the
 * command line, for a keeper of another build. Return: 0; negative errno.
 */
int mm_reload_hold(struct mm_keeper *keeper, int argc, char **argv);

/* SIGHUP, or a message of core: it asks for one, or answers. */
void mm_reload_want(struct mm_keeper *keeper);
void mm_reload_on_message(struct mm_keeper *keeper, const struct mm_kmsg *msg);

/* Begins what is wanted, and sends what a core has not got. */
void mm_reload_service(struct mm_keeper *keeper);
uint64_t mm_reload_due_ns(const struct mm_keeper *keeper);
