/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run - the declarations that conf.c and run.c share
 *
 * Concept:   run.c starts a process for each test; conf.c is the library inside of them.
 * Threading: the test's main thread.
 */
#pragma once

#include <stdbool.h>

#define CONF_ROLE_FD 3

extern bool conf_in_role;
extern const char *conf_test_name; /* in a test, and in its roles */
