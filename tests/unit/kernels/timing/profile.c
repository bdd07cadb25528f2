/* SPDX-License-Identifier: Apache-2.0 */
/* Device profiles: those that are shipped, overrides, and files that are wrong in one way each. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/timing/profile.h"
#include "libclient/base/base.h"

static char err[MM_PROFILE_ERROR_BYTES];

static const char whole[] = "# a device\n"
			    "memory_mib = 1024\n"
			    "hbm_gbps = 1000 # of the sheet\n"
			    "h2d_gbps=55\n"
			    "\td2h_gbps\t=\t5.5e1\r\n"
			    "\n"
			    "duplex_loss = 0.15\n"
			    "f16_tflops = 100\n"
			    "mem_efficiency = 0.8\n"
			    "flop_efficiency = 0.5\n"
			    "kernel_us = 2.5\n"
			    "copy_us = 0\n"
			    "launch_us = 1\n"
			    "create_us = 1\n"
			    "map_us = 1\n"
			    "set_access_us = 1\n"
			    "unmap_us = 1\n"
			    "release_us = 1\n"
			    "import_us = 1\n"
			    "export_us = 0.001"; /* no line end */

struct file {
	char path[64];
};

static void remove_file(struct file *f)
{
	unlink(f->path);
}

static struct file write_file(const char *text, size_t bytes)
{
	struct file f = { "/tmp/mm-profile-XXXXXX" };
	const int fd = mkstemp(f.path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, bytes), bytes);
	close(fd);
	return f;
}

static int profile_load(const char *text, struct mm_profile *ret)
{
	mm_cleanup(remove_file) struct file f = write_file(text, strlen(text));

	err[0] = '\0';
	return mm_profile_load(f.path, ret, err, sizeof(err));
}

static void reads_a_file(void **state)
{
	struct mm_profile p;

	(void)state;
	assert_int_equal(profile_load(whole, &p), 0);
	assert_int_equal(p.memory_bytes, 1 << 30);
	assert_true(p.hbm_bps == 1e12 && p.h2d_bps == 55e9 && p.d2h_bps == 55e9);
	assert_true(p.duplex_loss == 0.15 && p.f16_flops == 1e14);
	assert_true(p.mem_efficiency == 0.8 && p.flop_efficiency == 0.5);
	assert_int_equal(p.kernel_ns, 2500);
	assert_int_equal(p.copy_ns, 0);
	assert_int_equal(p.export_ns, 1);
	assert_memory_equal(p.name, "mm-profile-", strlen("mm-profile-"));
}

/* By how much the link slows kernels down follows from bandwidths, unless it is stated. */
static void derives_what_is_not_stated(void **state)
{
	struct mm_profile p;
	char text[sizeof(whole) + 128];

	(void)state;
	assert_int_equal(profile_load(whole, &p), 0);
	assert_true(p.link_slows_in == 0.055 && p.link_slows_out == 0.055 && p.rho == 0.5);
	snprintf(text, sizeof(text), "link_slows_out = 80\nrho=250\n%s", whole);
	assert_int_equal(profile_load(text, &p), 0);
	assert_true(p.link_slows_in == 0.055 && p.link_slows_out == 0.08 && p.rho == 0.25);
	snprintf(text, sizeof(text), "link_slows_in = 0\n%s", whole);
	assert_int_equal(profile_load(text, &p), 0);
	assert_true(p.link_slows_in == 0 && p.link_slows_out == 0.055);
	snprintf(text, sizeof(text), "rho = 0\n%s", whole);
	assert_int_equal(profile_load(text, &p), -EBADMSG);
	assert_non_null(strstr(err, "rho: 0 is not between 1 and 1000"));
	/* Overrides come first: other bandwidths, or the number itself. */
	assert_int_equal(
		mm_profile_load("gh200-96,h2d_gbps=300,link_slows_out=150", &p, err, sizeof(err)),
		0);
	assert_true(p.link_slows_in == 300e9 / 4e12 && p.link_slows_out == 0.15);
}

/* The line of `whole` that begins with @key is replaced by @line. */
static void line_replace(char *out, size_t bytes, const char *key, const char *line)
{
	const char *at = strstr(whole, key), *end;

	assert_non_null(at);
	end = at + strcspn(at, "\n");
	snprintf(out, bytes, "%.*s%s%s", (int)(at - whole), whole, line, end);
}

static const struct {
	const char *name, *key, *line, *said;
} wrong[] = {
	{ "a word", "hbm_gbps", "hbm_gbps = fast", ":3: hbm_gbps: 'fast' is not a number" },
	{ "nothing", "hbm_gbps", "hbm_gbps =", ":3: hbm_gbps: '' is not a number" },
	{ "two numbers", "hbm_gbps", "hbm_gbps = 1 2", ":3: hbm_gbps: '1 2' is not a number" },
	{ "a unit", "hbm_gbps", "hbm_gbps = 4000 GB/s", ":3: hbm_gbps: '4000 GB/s' is not a" },
	{ "NaN", "hbm_gbps", "hbm_gbps = nan", ":3: hbm_gbps: 'nan' is not a number" },
	{ "infinite", "hbm_gbps", "hbm_gbps = inf", ":3: hbm_gbps: 'inf' is not a number" },
	{ "too large for a double", "hbm_gbps", "hbm_gbps = 1e999",
	  ":3: hbm_gbps: '1e999' is not" },
	{ "hexadecimal", "hbm_gbps", "hbm_gbps = 0x10", ":3: hbm_gbps: '0x10' is not a number" },
	{ "zero", "hbm_gbps", "hbm_gbps = 0", ":3: hbm_gbps: 0 is not between 1 and 1000000" },
	{ "negative", "hbm_gbps", "hbm_gbps = -5", ":3: hbm_gbps: -5 is not between" },
	{ "huge", "memory_mib", "memory_mib = 1e18", ":2: memory_mib: 1e18 is not between" },
	{ "negative time", "map_us", "map_us = -1", ": map_us: -1 is not between 0 and" },
	{ "a long time", "map_us", "map_us = 1e7", ": map_us: 1e7 is not between 0 and" },
	{ "more than all", "mem_eff", "mem_efficiency = 1.1",
	  ":9: mem_efficiency: 1.1 is not between" },
	{ "all is lost", "duplex", "duplex_loss = 1",
	  ":7: duplex_loss: 1 is not between 0 and 0.9" },
	{ "unknown", "hbm_gbps", "hbm = 5", ":3: 'hbm' is not a key of a profile" },
	{ "no key", "hbm_gbps", "= 5", ":3: '' is not a key of a profile" },
	{ "no value", "hbm_gbps", "hbm_gbps 5", ":3: 'hbm_gbps 5' is not key = value" },
	{ "twice", "hbm_gbps", "h2d_gbps = 5", ":4: h2d_gbps is given twice" },
	{ "missing", "hbm_gbps", "# hbm_gbps = 5", ": hbm_gbps is missing" },
};

static void refuses_a_wrong_line(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(wrong); i++) {
		struct mm_profile p = { .hbm_bps = 7 };
		char text[sizeof(whole) + 128];

		line_replace(text, sizeof(text), wrong[i].key, wrong[i].line);
		assert_int_equal(profile_load(text, &p), -EBADMSG);
		if (!strstr(err, wrong[i].said) || !strstr(err, "/tmp/mm-profile-"))
			fail_msg("%s: said \"%s\"", wrong[i].name, err);
		assert_true(p.hbm_bps == 7);
	}
}

static void refuses_a_long_line(void **state)
{
	struct mm_profile p;
	char text[sizeof(whole) + 300], line[300];

	(void)state;
	memset(line, ' ', sizeof(line));
	memcpy(line, "hbm_gbps = 5", 12);
	line[254] = '\0';
	line_replace(text, sizeof(text), "hbm_gbps", line);
	assert_int_equal(profile_load(text, &p), 0);
	line[254] = ' ';
	line[255] = '\0';
	line_replace(text, sizeof(text), "hbm_gbps", line);
	assert_int_equal(profile_load(text, &p), -EBADMSG);
	assert_non_null(strstr(err, ":3: the line is longer than 254 bytes"));
}

static void refuses_zero_bytes(void **state)
{
	struct mm_profile p;

	(void)state;
	for (size_t i = 1; i < sizeof(whole) - 1; i++) {
		char text[sizeof(whole)];

		memcpy(text, whole, sizeof(whole));
		text[i] = '\0';
		mm_cleanup(remove_file) struct file f = write_file(text, sizeof(text) - 1);
		assert_int_equal(mm_profile_load(f.path, &p, err, sizeof(err)), -EBADMSG);
	}
}

static void refuses_what_is_no_file(void **state)
{
	struct mm_profile p;

	(void)state;
	assert_int_equal(mm_profile_load("/nowhere/at-all.conf", &p, err, sizeof(err)), -ENOENT);
	assert_string_equal(err, "/nowhere/at-all.conf: No such file or directory");
	assert_int_equal(mm_profile_load("/tmp/", &p, err, sizeof(err)), -EIO);
	assert_string_equal(err, "/tmp/: cannot be read");
	assert_int_equal(profile_load("", &p), -EBADMSG);
	assert_non_null(strstr(err, "memory_mib is missing"));
	assert_int_equal(mm_profile_load("/dev/zero", &p, err, sizeof(err)), -EBADMSG);
	assert_string_equal(err, "/dev/zero: longer than 65536 bytes");
}

/* The shortest buffer and the longest name: nothing is written beyond. */
static void errors_fit(void **state)
{
	struct mm_profile p;
	char name[2 * PATH_MAX], small[8];

	(void)state;
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(mm_profile_load(name, &p, small, sizeof(small)), -ENOENT);
	assert_true(strlen(small) < sizeof(small));
	name[0] = '/';
	assert_true(mm_profile_load(name, &p, small, sizeof(small)) < 0);
	assert_true(strlen(small) < sizeof(small));
	assert_int_equal(mm_profile_load("", &p, err, sizeof(err)), -ENOENT);
}

static void loads_the_shipped(void **state)
{
	static const char *const names[] = { "gh200-96", "h200-pcie5", "h100-pcie5", "a100-pcie4" };
	struct mm_profile by_name, by_path;
	char path[PATH_MAX];

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(names); i++) {
		if (mm_profile_load(names[i], &by_name, err, sizeof(err)))
			fail_msg("%s", err);
		assert_string_equal(by_name.name, names[i]);
		snprintf(path, sizeof(path), "%s/%s.conf", getenv("MM_TEST_PROFILES"), names[i]);
		if (mm_profile_load(path, &by_path, err, sizeof(err)))
			fail_msg("%s", err);
		assert_string_equal(by_path.name, names[i]);
		assert_true(by_path.hbm_bps == by_name.hbm_bps);
	}
	assert_int_equal(mm_profile_load("b300", &by_name, err, sizeof(err)), -ENOENT);
	assert_string_equal(err, "there is no device profile 'b300'; there are: a100-pcie4 "
				 "gh200-96 h100-pcie5 h200-pcie5");
}

static void overrides_keys(void **state)
{
	struct mm_profile p, q;

	(void)state;
	assert_int_equal(mm_profile_load("gh200-96", &p, err, sizeof(err)), 0);
	assert_true(p.h2d_bps == 419e9 && p.d2h_bps == 371e9);
	assert_int_equal(p.memory_bytes, UINT64_C(96) << 30);
	assert_int_equal(mm_profile_load("gh200-96,h2d_gbps=300,kernel_us=3,h2d_gbps=301", &q, err,
					 sizeof(err)),
			 0);
	assert_true(q.h2d_bps == 301e9 && q.d2h_bps == 371e9 && q.kernel_ns == 3000);
	assert_string_equal(q.name, "gh200-96");
	assert_int_equal(mm_profile_load("gh200-96,h2d=300", &q, err, sizeof(err)), -EBADMSG);
	assert_non_null(strstr(err, "profile "));
	assert_non_null(strstr(err, "gh200-96"));
	assert_non_null(strstr(err, "'h2d' is not a key of a profile"));
	assert_int_equal(mm_profile_load("gh200-96,h2d_gbps=0", &q, err, sizeof(err)), -EBADMSG);
	assert_int_equal(mm_profile_load("gh200-96,what", &q, err, sizeof(err)), -EBADMSG);
}

static void shares_a_device(void **state)
{
	struct mm_profile p, part;

	(void)state;
	assert_int_equal(mm_profile_load("gh200-96", &p, err, sizeof(err)), 0);
	part = p;
	mm_profile_share(&part, 0.25);
	assert_int_equal(part.memory_bytes, p.memory_bytes / 4);
	assert_true(part.hbm_bps == p.hbm_bps / 4 && part.f16_flops == p.f16_flops / 4);
	assert_true(part.h2d_bps == p.h2d_bps / 4 && part.d2h_bps == p.d2h_bps / 4);
	assert_true(part.link_slows_in == p.link_slows_in && part.rho == p.rho);
	assert_int_equal(part.kernel_ns, p.kernel_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_a_file),
		cmocka_unit_test(derives_what_is_not_stated),
		cmocka_unit_test(refuses_a_wrong_line),
		cmocka_unit_test(refuses_a_long_line),
		cmocka_unit_test(refuses_zero_bytes),
		cmocka_unit_test(refuses_what_is_no_file),
		cmocka_unit_test(errors_fit),
		cmocka_unit_test(loads_the_shipped),
		cmocka_unit_test(overrides_keys),
		cmocka_unit_test(shares_a_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
