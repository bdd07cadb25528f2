/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/out/described.h"

#include "mmd/core/out/jobs.h"
#include "mmd/core/out/queue.h"

MM_FIELDS_DEFINE(mm_msg_fields, struct mm_msg, MM_ONE(struct mm_msg, opcode),
		 MM_ONE(struct mm_msg, flags), MM_ONE(struct mm_msg, result),
		 MM_ONE(struct mm_msg, user_data), MM_ONE(struct mm_msg, epoch),
		 MM_ARRAY(struct mm_msg, arg), MM_ONE(struct mm_msg, reserved));

MM_FIELDS_DEFINE(mm_job_fields, struct mm_job, MM_ONE(struct mm_job, used),
		 MM_ONE(struct mm_job, deaths), MM_ONE(struct mm_job, next),
		 MM_ONE(struct mm_job, prev), MM_ONE(struct mm_job, tenant),
		 MM_ONE(struct mm_job, tenant_id), MM_ONE(struct mm_job, id),
		 MM_ONE(struct mm_job, issued_ns), MM_STRUCT(struct mm_job, msg, mm_msg_fields));

MM_FIELDS_DEFINE(mm_jobs_fields, struct mm_jobs, MM_NOT_SAVED(struct mm_jobs, job),
		 MM_ONE(struct mm_jobs, n), MM_ONE(struct mm_jobs, bulk_max),
		 MM_ONE(struct mm_jobs, bulk_used), MM_ONE(struct mm_jobs, first),
		 MM_ONE(struct mm_jobs, last), MM_ONE(struct mm_jobs, serial));

MM_FIELDS_DEFINE(mm_queue_fields, struct mm_queue, MM_NOT_SAVED(struct mm_queue, action),
		 MM_NOT_SAVED(struct mm_queue, head), MM_NOT_SAVED(struct mm_queue, tail),
		 MM_NOT_SAVED(struct mm_queue, again));
