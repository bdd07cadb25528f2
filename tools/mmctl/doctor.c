/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmctl/doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/mmctl/ctl.h"

#define TEXT_BYTES 768

static const char *const result_names[MMCTL_RESULTS] = { "ok", "note", "warn", "fail" };

static void doctor_done(struct mmctl_doctor *d)
{
	json_decref(d->checks);
}

static void finding_print(const char *name, enum mmctl_result result, const char *text,
			  const char *advice)
{
	printf("%-4s  %-12s %s%s%s\n", result_names[result], name, text, *advice ? "; do: " : "",
	       advice);
}

void mmctl_doctor_add(struct mmctl_doctor *d, const char *name, enum mmctl_result result,
		      const char *advice, const char *fmt, ...)
{
	char text[TEXT_BYTES];
	json_t *check;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	d->n[result]++;
	if (!d->json) {
		finding_print(name, result, text, advice);
		return;
	}
	check = json_object();
	mm_json_put_text(check, "name", name);
	mm_json_put_text(check, "result", result_names[result]);
	mm_json_put_text(check, "text", text);
	mm_json_put_text(check, "advice", advice);
	json_array_append_new(d->checks, check);
}

/* A result that this mmctl does not know is of a later mmd, and nothing that it may pass over. */
static enum mmctl_result result_parse(const char *text)
{
	for (int i = 0; i < MMCTL_RESULTS; i++)
		if (strcmp(text, result_names[i]) == 0)
			return (enum mmctl_result)i;
	return MMCTL_WARN;
}

static void answer_add(struct mmctl_doctor *d, const json_t *answer)
{
	const json_t *check;
	char name[64];
	size_t i;

	json_array_foreach(json_object_get(answer, "checks"), i, check) {
		if (mm_json_has(check, "device"))
			snprintf(name, sizeof(name), "%s/%" PRIu64, mm_json_text(check, "name"),
				 mm_json_u64(check, "device"));
		else
			snprintf(name, sizeof(name), "%s", mm_json_text(check, "name"));
		mmctl_doctor_add(d, name, result_parse(mm_json_text(check, "result")),
				 mm_json_text(check, "advice"), "%s", mm_json_text(check, "text"));
	}
}

static int doctor_print_json(const struct mmctl_doctor *d, bool reached)
{
	mm_cleanup(mm_json_done) json_t *result = json_object();

	mm_json_put_u64(result, "schema", 1);
	mm_json_put_flag(result, "mmd", reached);
	for (int i = 0; i < MMCTL_RESULTS; i++)
		mm_json_put_u64(result, result_names[i], d->n[i]);
	mm_json_put(result, "checks", json_incref(d->checks));
	return mmctl_print_json(result);
}

int mmctl_doctor_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(doctor_done) struct mmctl_doctor d = { .json = ctl->json,
							  .checks = json_array() };
	mm_cleanup(mm_json_done) json_t *answer = NULL;
	int r = MM_EXIT_DONE, printed = MM_EXIT_DONE;

	(void)argc;
	(void)argv;
	mmctl_doctor_host(&d);
	if (!ctl->options->host_only) {
		fflush(stdout);
		r = mmctl_request(ctl, "doctor", NULL, &answer);
	}
	if (answer) {
		answer_add(&d, answer);
		mmctl_doctor_roles(&d, answer);
	}
	if (ctl->json)
		printed = doctor_print_json(&d, answer != NULL);
	if (printed != MM_EXIT_DONE)
		return printed;
	if (r != MM_EXIT_DONE)
		return r;
	return d.n[MMCTL_FAIL] ? MM_EXIT_FAILED : MM_EXIT_DONE;
}
