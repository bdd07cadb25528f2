/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/trail.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/json.h"
#include "mmd/common/audit.h"
#include "mmd/common/lognames.h"
#include "mmd/core/why.h"
#include "mmd/explain/explain.h"
#include "mmd/shell/shell.h"

#define MAGIC           0x4d4d5452u
#define RETRY_NS        (100 * MM_NS_PER_MS)
#define END_NS          (2 * MM_NS_PER_S)
#define LINES_PER_ROUND 64

static struct mm_trail *trail_tapped;

static struct mm_trail_record *record_at(const struct mm_trail *trail, uint64_t seq)
{
	return &trail->kept->record[seq % MM_TRAIL_RECORDS];
}

/* ---- making records ---- */

static void record_put(struct mm_trail *trail, enum mm_log_level level, const char *name,
		       const char *text, bool audited)
{
	struct mm_trail_kept *kept = trail->kept;
	struct mm_trail_record *record = record_at(trail, kept->next);

	mm_kept_publish(&record->seq, UINT64_C(0));
	record->wall_ns = mm_log_wall_ns();
	record->level = level;
	record->again = trail->finishing;
	snprintf(record->name, sizeof(record->name), "%s", name);
	snprintf(record->text, sizeof(record->text), "%s", text);
	record->audit = audited ? kept->audits + 1 : 0;
	mm_kept_publish(&record->seq, kept->next);
	mm_kept_publish(&kept->next, kept->next + 1);
	if (audited)
		mm_kept_publish(&kept->audits, kept->audits + 1);
	if (audited && trail->retry_ns == UINT64_MAX)
		trail->retry_ns = 0;
}

/* A record that its core has not lived to count is there, as its number says. */
static void counts_mend(struct mm_trail *trail)
{
	struct mm_trail_kept *kept = trail->kept;
	const struct mm_trail_record *last = record_at(trail, kept->next);

	if (last->seq == kept->next)
		kept->next++;
	last = record_at(trail, kept->next - 1);
	if (kept->next > 1 && last->seq == kept->next - 1 && last->audit > kept->audits)
		kept->audits = last->audit;
}

static void trail_tap(enum mm_log_level level, const char *event, const char *text)
{
	const struct mm_logname *row = mm_lognames_find(event);
	const bool audited = row && row->audited;

	if (trail_tapped && (audited || level <= MM_LOG_INFO))
		record_put(trail_tapped, level, event, text, audited);
}

/* ---- what tenants get and give ---- */

static bool sums_have_changed(const struct mm_trail_sums *was, const struct mm_trail_sums *is)
{
	return was->granted != is->granted || was->released != is->released ||
	       was->lent != is->lent || was->returned != is->returned;
}

static void memory_log(const struct mm_session *s, const struct mm_trail_sums *was,
		       const struct mm_trail_sums *is)
{
	const uint64_t page_bytes = s->pool->worker.device.page_bytes;
	char account[MM_ACCOUNT_NAME_BYTES];
	struct mm_core_tenant t = { 0 };
	struct mm_core_why why = { 0 };
	uint64_t pages;

	(void)mm_core_tenant(s->pool->core, s->tenant, &t);
	(void)mm_core_why(s->pool->core, s->tenant, &why);
	pages = (uint64_t)t.pages_param + t.pages_slot + t.pages_kv + t.pages_mem +
		t.pages_revoking;
	mm_log(MM_LOG_DEBUG, "tenant.memory",
	       "tenant=%u name=%s account=%s uid=%u device=%" PRIu64 " granted_bytes=%" PRIu64
	       " released_bytes=%" PRIu64 " layers_lent=%" PRIu64 " layers_returned=%" PRIu64
	       " held_bytes=%" PRIu64 " kv_bytes=%" PRIu64 " wanted_bytes=%" PRIu64 " reason=%s",
	       s->tenant, s->name, mm_quota_name(s->shell, s->account, account), s->uid,
	       s->pool->ordinal, (is->granted - was->granted) * t.kv_chunk_pages * page_bytes,
	       (is->released - was->released) * t.kv_chunk_pages * page_bytes, is->lent - was->lent,
	       is->returned - was->returned, pages * page_bytes, (uint64_t)t.pages_kv * page_bytes,
	       (uint64_t)t.kv_wanted * t.kv_chunk_pages * page_bytes, mm_explain_reason(&why));
}

void mm_trail_session(const struct mm_session *s)
{
	struct mm_trail_sums *was = &s->shell->trail.kept->sums[s - s->shell->session];
	struct mm_trail_sums is = { .tenant = s->tenant, .pool = s->pool->index };
	struct mm_core_tally tally;

	if (!mm_core_tally_tenant(s->pool->core, s->tenant, &tally))
		return;
	if (was->tenant != is.tenant || was->pool != is.pool)
		*was = is;
	is.granted = tally.grants;
	is.released = tally.released;
	is.lent = tally.takes;
	is.returned = tally.returns;
	if (!sums_have_changed(was, &is))
		return;
	memory_log(s, was, &is);
	*was = is;
}

void mm_trail_sessions(struct mm_shell *shell)
{
	MM_FOREACH_SESSION(shell, s) {
		if (s->state >= MM_SESSION_OPEN)
			mm_trail_session(s);
	}
}

static uint64_t actions_performed(const struct mm_shell *shell)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < shell->n_pools; i++)
		sum += shell->pool[i].kept->performed;
	return sum;
}

static void memory_service(struct mm_shell *shell, uint64_t now_ns)
{
	struct mm_trail *trail = &shell->trail;
	const uint64_t performed = actions_performed(shell);

	if (performed != trail->performed && trail->memory_at_ns == UINT64_MAX)
		trail->memory_at_ns = now_ns + MM_TRAIL_MEMORY_NS;
	if (now_ns < trail->memory_at_ns)
		return;
	trail->performed = performed;
	trail->memory_at_ns = UINT64_MAX;
	mm_trail_sessions(shell);
}

/* ---- the audit log ---- */

static int line_write(struct mm_trail *trail, uint64_t n, const struct mm_trail_record *record)
{
	const struct mm_audit_line line = { .role = "core",
					    .n = n,
					    .seq = record->seq,
					    .wall_ns = record->wall_ns,
					    .level = (enum mm_log_level)record->level,
					    .event = record->name,
					    .text = record->text,
					    .again = record->again || trail->resumed };
	int r = mm_audit_write(&line);

	if (r < 0)
		return r;
	mm_kept_publish(&trail->kept->written, n);
	trail->resumed = false;
	return 0;
}

/* Writes how many records are not in the ring any more, in place of the last of them. */
static int loss_write(struct mm_trail *trail, uint64_t next)
{
	struct mm_trail_record loss = { .wall_ns = mm_log_wall_ns(), .level = MM_LOG_WARN };

	snprintf(loss.name, sizeof(loss.name), "audit.dropped");
	snprintf(loss.text, sizeof(loss.text), "records=%" PRIu64, next - 1 - trail->kept->written);
	return line_write(trail, next - 1, &loss);
}

/* Return: 0; -EAGAIN or another negative errno: the log takes no more now. */
static int records_write(struct mm_trail *trail)
{
	struct mm_trail_kept *kept = trail->kept;
	int r = 0;

	trail->cursor = MM_MAX(trail->cursor, mm_trail_first(trail));
	for (int i = 0; r == 0 && trail->cursor < kept->next && i < LINES_PER_ROUND;) {
		const struct mm_trail_record *record = record_at(trail, trail->cursor);

		if (record->seq != trail->cursor || record->audit <= kept->written) {
			trail->cursor++;
			continue;
		}
		i++;
		if (record->audit > kept->written + 1)
			r = loss_write(trail, record->audit);
		else
			r = line_write(trail, record->audit, record);
		trail->cursor += r == 0 && record->audit == kept->written;
	}
	return r;
}

static void audit_service(struct mm_trail *trail, uint64_t now_ns)
{
	if (now_ns < trail->retry_ns)
		return;
	trail->retry_ns = UINT64_MAX;
	if (!mm_audit_is_on()) {
		trail->kept->written = trail->kept->audits;
		trail->cursor = trail->kept->next;
	} else if (records_write(trail) < 0) {
		trail->retry_ns = now_ns + RETRY_NS;
	} else if (trail->cursor < trail->kept->next) {
		trail->retry_ns = 0;
	}
}

void mm_trail_service(struct mm_shell *shell, uint64_t now_ns)
{
	memory_service(shell, now_ns);
	audit_service(&shell->trail, now_ns);
}

uint64_t mm_trail_deadline(const struct mm_shell *shell)
{
	return MM_MIN(shell->trail.retry_ns, shell->trail.memory_at_ns);
}

/* ---- looking ---- */

uint64_t mm_trail_next(const struct mm_trail *trail)
{
	return trail->kept->next;
}

uint64_t mm_trail_first(const struct mm_trail *trail)
{
	return trail->kept->next > MM_TRAIL_RECORDS ? trail->kept->next - MM_TRAIL_RECORDS : 1;
}

json_t *mm_trail_json(const struct mm_trail *trail, uint64_t seq)
{
	const struct mm_trail_record *record = record_at(trail, seq);
	char wall[MM_LOG_TIME_BYTES];
	json_t *json;

	if (!seq || record->seq != seq)
		return NULL;
	json = json_object();
	mm_log_time(record->wall_ns, wall);
	mm_json_put_u64(json, "seq", seq);
	mm_json_put_text(json, "time", wall);
	mm_json_put_text(json, "level", mm_log_level_name((enum mm_log_level)record->level));
	mm_json_put_text(json, "event", record->name);
	if (record->again)
		mm_json_put_flag(json, "again", true);
	mm_json_put(json, "fields", mm_audit_fields(record->text));
	return json;
}

/* ---- beginning and end ---- */

static int trail_create(struct mm_shell *shell, struct mm_held_name name)
{
	struct mm_trail *trail = &shell->trail;
	int r = mm_region_create(sizeof(*trail->kept), MM_REGION_SHARED, "mm-trail",
				 &trail->region);

	if (r < 0)
		return r;
	trail->kept = trail->region.base;
	trail->kept->next = 1;
	trail->kept->born_ns = mm_log_wall_ns();
	trail->kept->bytes = sizeof(*trail->kept);
	mm_kept_publish(&trail->kept->magic, MAGIC);
	mm_held_put(&shell->held, name, trail->region.fd);
	return 0;
}

/* Return: whether the last core's ring can be gone on with. */
static bool trail_resume(struct mm_trail *trail, int fd)
{
	const struct mm_trail_kept *kept;

	if (fd < 0 || mm_region_open(fd, sizeof(*kept), true, &trail->region) < 0)
		return false;
	kept = trail->region.base;
	if (kept->magic != MAGIC || kept->bytes != sizeof(*kept) || !kept->next) {
		mm_region_done(&trail->region);
		return false;
	}
	trail->kept = trail->region.base;
	counts_mend(trail);
	trail->resumed = kept->written < kept->audits;
	trail->finishing = true;
	trail->retry_ns = 0;
	return true;
}

int mm_trail_begin(struct mm_shell *shell)
{
	const struct mm_held_name name = { .kind = MM_HELD_TRAIL };
	struct mm_trail *trail = &shell->trail;
	const int fd = mm_held_take(&shell->held, name);
	const bool anew = fd >= 0;
	int r = 0;

	*trail = (struct mm_trail){ .region = MM_REGION_NULL,
				    .retry_ns = UINT64_MAX,
				    .memory_at_ns = UINT64_MAX };
	mm_audit_init(mm_audit_sink(shell->config->audit));
	if (!trail_resume(trail, fd)) {
		r = trail_create(shell, name);
		if (r < 0)
			return r;
		trail_tapped = trail;
		mm_log_set_tap(trail_tap);
		if (anew)
			mm_log(MM_LOG_WARN, "trail.anew", "reason=%s", "layout");
		return 0;
	}
	trail_tapped = trail;
	mm_log_set_tap(trail_tap);
	return 0;
}

void mm_trail_resumed(struct mm_shell *shell)
{
	mm_trail_sessions(shell);
	shell->trail.finishing = false;
}

/* Writes what is left, and waits for a moment where that takes no more: core has nothing to do. */
static void records_write_last(struct mm_trail *trail)
{
	struct pollfd room = { .fd = STDERR_FILENO, .events = POLLOUT };
	const uint64_t until_ns = mm_now_ns() + END_NS;
	int r = 0;

	while (mm_audit_is_on() && trail->kept->written < trail->kept->audits &&
	       (r == 0 || mm_now_ns() < until_ns)) {
		r = records_write(trail);
		if (r < 0)
			poll(&room, 1, (int)(RETRY_NS / MM_NS_PER_MS));
		else if (trail->cursor >= trail->kept->next)
			break;
	}
}

void mm_trail_done(struct mm_shell *shell)
{
	struct mm_trail *trail = &shell->trail;

	if (!trail->kept)
		return;
	records_write_last(trail);
	mm_log_set_tap(NULL);
	trail_tapped = NULL;
	mm_region_done(&trail->region);
	trail->kept = NULL;
}
