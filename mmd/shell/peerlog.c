/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/peerlog.h"

#include <inttypes.h>

#include "libclient/base/base.h"
#include "mmd/common/log.h"

void mm_peerlog_init(struct mm_peerlog *log)
{
	*log = (struct mm_peerlog){ 0 };
	for (size_t i = 0; i <= MM_PEERLOG_BUCKETS; i++)
		log->bucket[i].report_at_ns = UINT64_MAX;
}

static void bucket_report(struct mm_peerlog_bucket *b)
{
	bool is_uid = b->key & MM_PEERLOG_UID(0);

	if (b->suppressed && b->key == MM_PEERLOG_SHARED)
		mm_log(MM_LOG_WARN, "log.suppressed", "others=many lines=%" PRIu64, b->suppressed);
	else if (b->suppressed && is_uid)
		mm_log(MM_LOG_WARN, "log.suppressed", "uid=%" PRIu64 " lines=%" PRIu64,
		       b->key & ~MM_PEERLOG_UID(0), b->suppressed);
	else if (b->suppressed)
		mm_log(MM_LOG_WARN, "log.suppressed", "account=%" PRIu64 " lines=%" PRIu64, b->key,
		       b->suppressed);
	b->suppressed = 0;
	b->report_at_ns = UINT64_MAX;
}

static struct mm_peerlog_bucket *bucket_find(struct mm_peerlog *log, uint64_t key, uint64_t now_ns)
{
	struct mm_peerlog_bucket *oldest = &log->bucket[0];

	for (size_t i = 0; i < MM_PEERLOG_BUCKETS; i++) {
		struct mm_peerlog_bucket *b = &log->bucket[i];

		if (b->used_ns && b->key == key)
			return b;
		if (b->used_ns < oldest->used_ns)
			oldest = b;
	}
	/*
	 * A bucket that is full again loses nothing when it is reused. Reuse of any other would
	 * give its peer a whole new burst.
	 */
	if (oldest->used_ns && now_ns - oldest->used_ns < MM_PEERLOG_BURST * MM_PEERLOG_LINE_NS) {
		oldest = &log->bucket[MM_PEERLOG_BUCKETS];
		oldest->key = MM_PEERLOG_SHARED;
		return oldest;
	}
	bucket_report(oldest);
	*oldest = (struct mm_peerlog_bucket){ .key = key, .report_at_ns = UINT64_MAX };
	return oldest;
}

bool mm_peerlog_allows(struct mm_peerlog *log, uint64_t key, uint64_t now_ns)
{
	struct mm_peerlog_bucket *b = bucket_find(log, key, now_ns);

	b->used_ns = MM_MAX(now_ns, UINT64_C(1));
	b->paid_ns = MM_MAX(b->paid_ns, now_ns);
	if (b->paid_ns - now_ns > (MM_PEERLOG_BURST - 1) * MM_PEERLOG_LINE_NS) {
		if (!b->suppressed++)
			b->report_at_ns = now_ns + MM_PEERLOG_REPORT_NS;
		return false;
	}
	b->paid_ns += MM_PEERLOG_LINE_NS;
	return true;
}

void mm_peerlog_tick(struct mm_peerlog *log, uint64_t now_ns)
{
	for (size_t i = 0; i <= MM_PEERLOG_BUCKETS; i++) {
		if (now_ns >= log->bucket[i].report_at_ns)
			bucket_report(&log->bucket[i]);
	}
}

uint64_t mm_peerlog_deadline(const struct mm_peerlog *log)
{
	uint64_t at = UINT64_MAX;

	for (size_t i = 0; i <= MM_PEERLOG_BUCKETS; i++)
		at = MM_MIN(at, log->bucket[i].report_at_ns);
	return at;
}
