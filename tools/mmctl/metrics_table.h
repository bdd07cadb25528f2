/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_table - which metrics there are
 *
 * Concept:   One row per metric: its name and type, what it says, whose it is, and which member of
 *            mmd's answer to `metrics` it is made from. The exporter writes them in this order;
 *            Documentation/metrics.md, which a test compares, and `mmctl exporter --list` have the
 *            same rows. Names follow Prometheus' conventions: base units, _total for what only
 *            rises. What a tenant says of itself has "claimed" in its name.
 * Ownership: constant data.
 * Threading: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum mmctl_metric_scope {
	MMCTL_SCOPE_EXPORTER, /* made by the exporter itself */
	MMCTL_SCOPE_NODE,
	MMCTL_SCOPE_DEVICE,
	MMCTL_SCOPE_ACCOUNT, /* an account on a device */
	MMCTL_SCOPE_TENANT,
	MMCTL_SCOPES
};

enum mmctl_metric_type { MMCTL_GAUGE, MMCTL_COUNTER, MMCTL_HISTOGRAM, MMCTL_METRIC_TYPES };

/* The unit in which the member counts. */
enum mmctl_metric_scale { MMCTL_ONES, MMCTL_NANO, MMCTL_PERMILLE };

struct mmctl_metric {
	enum mmctl_metric_scope scope;
	enum mmctl_metric_type type;
	enum mmctl_metric_scale scale;
	const char *name; /* of a counter without _total */
	const char *unit; /* the name's last word; NULL: it has none */
	const char *help; /* one sentence, without its full stop */
	const char *key;  /* of the member */
	/* The member is an object: each of its own is a sample with this label; NULL: a number. */
	const char *spread;
	/* Texts of the object that are labels beside those of the scope; NULL ends the list. */
	const char *extra[4];
	bool claim; /* a tenant says so, and mmd bounds it */
};

extern const struct mmctl_metric mmctl_metrics[];
extern const size_t mmctl_metrics_n;

/* The words of the table. */
extern const char *const mmctl_metric_types[MMCTL_METRIC_TYPES];
extern const char *const mmctl_metric_scopes[MMCTL_SCOPES];
/* Labels of all metrics of a scope; NULL ends the list. */
extern const char *const mmctl_metric_labels[MMCTL_SCOPES][5];
