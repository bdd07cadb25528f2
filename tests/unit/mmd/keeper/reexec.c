/* SPDX-License-Identifier: Apache-2.0 */
/* keeper, written down for another build: all bytes are described, and damage is refused. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/base/random.h"
#include "mmd/keeper/described.h"
#include "mmd/keeper/reexec.h"
#include "tests/unit/mmd/fields/described.h"

#define DAMAGES    300
#define HEAD_BYTES 184 /* before the rows */

#ifdef MM_KNOWS_PADDING
#define STRUCTS(X)                                          \
	X(mm_held_name_fields, struct mm_held_name)         \
	X(mm_fdtab_entry_fields, struct mm_fdtab_entry)     \
	X(mm_place_fields, struct mm_place)                 \
	X(mm_relay_fields, struct mm_relay)                 \
	X(mm_keeper_kchan_fields, struct mm_kchan)          \
	X(mm_closer_fields, struct mm_closer)               \
	X(mm_keeper_core_fields, struct mm_keeper_core)     \
	X(mm_upgrade_fields, struct mm_upgrade)             \
	X(mm_devlock_fields, struct mm_devlock)             \
	X(mm_keeper_xfer_fields, struct mm_keeper_xfer)     \
	X(mm_keeper_helper_fields, struct mm_keeper_helper) \
	X(mm_keeper_fields, struct mm_keeper)

STRUCTS(MM_DESCRIBED_CLEAR)
static const struct mm_described described[] = { STRUCTS(MM_DESCRIBED_ROW) };

static void test_each_byte_is_described(void **state)
{
	const size_t n = sizeof(described) / sizeof(described[0]);

	(void)state;
	for (size_t i = 0; i < n; i++)
		mm_described_check(&described[i]);
	mm_described_complete(described, n, &mm_keeper_fields);
	mm_described_complete(described, n, &mm_fdtab_entry_fields);
}
#endif

static struct mm_keeper from, to;

static void keeper_fill(struct mm_keeper *k, uint64_t entries)
{
	memset(k, 0, sizeof(*k));
	mm_hold_init(&k->hold, &k->closer);
	k->place = MM_PLACE_NULL;
	k->relay = MM_RELAY_NULL;
	k->upgrade = MM_UPGRADE_INIT;
	mm_kchan_init(&k->core, -1);
	k->n_xfers = 1;
	k->xfer[0].lock = MM_DEVLOCK_NULL;
	k->closer.spared_fd = -1;
	for (uint64_t i = 1; i <= entries; i++) {
		const struct mm_held_name name = { MM_HELD_PAGE, 0, i };

		assert_int_equal(mm_hold_put(&k->hold, name, memfd_create("page", MFD_CLOEXEC)), 0);
	}
}

static int keeper_save(void)
{
	int fd;

	keeper_fill(&from, 100);
	from.conn_serial = 7;
	from.process.pid = 77;
	from.process.generation = 3;
	from.process.serves = true;
	from.helpers[200] = (struct mm_keeper_helper){ .role = MM_ROLE_SPOOL, .id = 5, .pid = 78 };
	from.xfer[0].epoch = 9;
	strcpy(from.xfer[0].lock.uuid, "abc");
	strcpy(from.xfer[0].build, "0.1.0 old");
	from.closer.waiting[0] = memfd_create("waits", MFD_CLOEXEC);
	from.closer.n_waiting = 1;
	fd = mm_reexec_save(&from);
	assert_true(fd >= 0);
	return fd;
}

static void keeper_close(struct mm_keeper *k)
{
	mm_fdtab_done(&k->hold.fds);
}

static void test_what_is_saved_is_loaded(void **state)
{
	const struct mm_held_name name = { MM_HELD_PAGE, 0, 50 };
	char why[200] = "";
	int fd = keeper_save();

	(void)state;
	assert_int_equal(mm_reexec_try(fd, why, sizeof(why)), 0);
	keeper_fill(&to, 0);
	assert_int_equal(mm_reexec_load(fd, &to, why, sizeof(why)), 0);
	assert_int_equal(to.conn_serial, 7);
	assert_int_equal(to.process.pid, 77);
	assert_int_equal(to.process.generation, 3);
	assert_true(to.process.serves);
	assert_int_equal(to.helpers[200].role, MM_ROLE_SPOOL);
	assert_int_equal(to.helpers[200].pid, 78);
	assert_int_equal(to.xfer[0].epoch, 9);
	assert_string_equal(to.xfer[0].lock.uuid, "abc");
	assert_string_equal(to.xfer[0].build, "0.1.0 old");
	assert_int_equal(to.closer.n_waiting, 1);
	assert_int_equal(to.closer.waiting[0], from.closer.waiting[0]);
	assert_int_equal(to.hold.fds.count, 100);
	assert_int_equal(mm_fdtab_find(&to.hold.fds, name), mm_fdtab_find(&from.hold.fds, name));
	/* They pass through an exec until all is done. */
	assert_int_equal(fcntl(mm_fdtab_find(&to.hold.fds, name), F_GETFD), 0);
	mm_reexec_done(fd, &to, why, sizeof(why));
	assert_string_equal(why, "");
	assert_int_equal(fcntl(mm_fdtab_find(&to.hold.fds, name), F_GETFD), FD_CLOEXEC);
	close(to.closer.waiting[0]);
	keeper_close(&from);
	free(to.hold.fds.entry);
}

static void test_missing_fds_are_refused(void **state)
{
	char why[200] = "";
	int fd = keeper_save();

	(void)state;
	close(from.closer.waiting[0]);
	keeper_fill(&to, 0);
	assert_int_equal(mm_reexec_load(fd, &to, why, sizeof(why)), -EBADF);
	assert_string_equal(why, "its keeper: an fd is missing");
	free(to.hold.fds.entry);
	keeper_fill(&to, 0);
	to.n_xfers = 2;
	assert_int_equal(mm_reexec_load(fd, &to, why, sizeof(why)), -EBADMSG);
	assert_string_equal(why, "its keeper: it has other devices");
	free(to.hold.fds.entry);
	close(fd);
	keeper_close(&from);
}

static void test_damage_is_refused(void **state)
{
	char why[200] = "";
	int fd = keeper_save();
	struct stat st;
	uint64_t bytes, random = 1;

	(void)state;
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(pread(fd, &bytes, sizeof(bytes), 8), sizeof(bytes));
	for (uint32_t i = 0; i < DAMAGES; i++) {
		const off_t at = (off_t)(HEAD_BYTES + (off_t)mm_random_below(&random, bytes));
		unsigned char was, is;

		assert_int_equal(pread(fd, &was, 1, at), 1);
		is = (unsigned char)(was ^ (1u << mm_random_below(&random, 8)));
		assert_int_equal(pwrite(fd, &is, 1, at), 1);
		assert_true(mm_reexec_try(fd, why, sizeof(why)) < 0);
		assert_int_equal(pwrite(fd, &was, 1, at), 1);
	}
	assert_int_equal(mm_reexec_try(fd, why, sizeof(why)), 0);
	for (off_t n = 0; n < st.st_size; n += 1 + st.st_size / 50) {
		int copy = memfd_create("cut", MFD_CLOEXEC);

		assert_int_equal(ftruncate(copy, n), 0);
		assert_true(mm_reexec_try(copy, why, sizeof(why)) < 0);
		close(copy);
	}
	close(from.closer.waiting[0]);
	close(fd);
	keeper_close(&from);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifdef MM_KNOWS_PADDING
		cmocka_unit_test(test_each_byte_is_described),
#endif
		cmocka_unit_test(test_what_is_saved_is_loaded),
		cmocka_unit_test(test_missing_fds_are_refused),
		cmocka_unit_test(test_damage_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
