/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes journals: the bytes as a journal that was found, and as packed events, each behind the
 * number of its bytes. Events that are accepted are written to a journal and are read as they were.
 * Inputs that begin with "hex " are digits, so that those in corpus/ can be read and compared.
 */
#include <stdalign.h>
#include <string.h>

#include "mmd/journal/journal.h"
#include "tests/fuzz/input.h"

#define BYTES (128u << 10)

static alignas(8) unsigned char found[BYTES], written[BYTES], packed[BYTES], repacked[BYTES];

static void journal_read(void)
{
	struct mm_journal_record record;
	struct mm_tenant_stats stats;
	struct mm_journal journal;
	struct mm_event event;
	uint64_t at = 0;

	if (mm_journal_open(found, BYTES, &journal) < 0)
		return;
	while (mm_journal_next(&journal, &at, &record, &stats, &event) == 0)
		mm_assert(event.kind > MM_EVENT_NONE && event.kind < MM_EVENT_KINDS);
}

static void event_write(struct mm_journal *journal, const struct mm_event *event, uint64_t seq)
{
	struct mm_journal_record record = { .seq = seq }, got;
	struct mm_tenant_stats stats;
	struct mm_event back;
	uint64_t at = mm_journal_used(journal);
	size_t bytes;

	if (mm_journal_append(journal, &record, event) != 0)
		return;
	mm_assert(mm_journal_next(journal, &at, &got, &stats, &back) == 0);
	mm_assert(got.seq == seq && !got.skipped && at == mm_journal_used(journal));
	bytes = mm_event_pack(event, packed);
	mm_assert(mm_event_pack(&back, repacked) == bytes && bytes == mm_event_bytes(event));
	mm_assert(memcmp(packed, repacked, bytes) == 0);
}

static void bytes_read(const uint8_t *data, size_t size_bytes)
{
	struct mm_tenant_stats stats;
	struct mm_journal journal;
	struct mm_event event;
	uint64_t seq = 0;

	memset(found, 0, sizeof(found));
	memcpy(found, data, size_bytes);
	journal_read();
	mm_journal_create(written, BYTES, &journal);
	for (size_t n; size_bytes > 2; data += n, size_bytes -= n) {
		n = (size_t)(data[0] | data[1] << 8);
		data += 2;
		size_bytes -= 2;
		n = MM_MIN(n, size_bytes);
		memcpy(found, data, n);
		if (mm_event_unpack(found, n, &stats, &event) == 0)
			event_write(&journal, &event, seq++);
	}
	mm_assert(mm_journal_open(written, BYTES, &journal) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	static unsigned char digits[BYTES];

	if (size_bytes > BYTES)
		return 0;
	data = input_bytes(data, &size_bytes, digits);
	bytes_read(data, size_bytes);
	return 0;
}
