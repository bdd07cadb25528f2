/* SPDX-License-Identifier: Apache-2.0 */
/* What conf.c and run.c know of each other. */
#pragma once

#include <stdbool.h>

#define CONF_ROLE_FD 3

extern bool conf_in_role;
extern const char *conf_test_name; /* in a test, and in its roles */
