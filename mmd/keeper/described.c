/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/described.h"

#include "mmd/keeper/state.h"

#define ONE(member)       MM_ONE(struct OF, member)
#define ALL(member)       MM_ARRAY(struct OF, member)
#define TEXT(member)      MM_BYTES(struct OF, member)
#define NOT(member)       MM_NOT_SAVED(struct OF, member)
#define PART(member, of)  MM_STRUCT(struct OF, member, of)
#define PARTS(member, of) MM_STRUCTS_TRIMMED(struct OF, member, of)

#ifdef MM_KEEPER_LACKS /* in a build of tests/e2e/test_upgrade */
#define CONN_SERIAL NOT(conn_serial)
#else
#define CONN_SERIAL ONE(conn_serial)
#endif

#define OF mm_held_name
MM_FIELDS_DEFINE(mm_held_name_fields, struct mm_held_name, ONE(kind), ONE(index), ONE(id));
#undef OF

#define OF mm_fdtab_entry
MM_FIELDS_DEFINE(mm_fdtab_entry_fields, struct mm_fdtab_entry, PART(name, mm_held_name_fields),
		 ONE(fd));
#undef OF

#define OF mm_place
MM_FIELDS_DEFINE(mm_place_fields, struct mm_place, NOT(dir), ONE(lock_fd), ONE(tenant_fd),
		 ONE(admin_fd), ONE(view_fd));
#undef OF

#define OF mm_relay
MM_FIELDS_DEFINE(mm_relay_fields, struct mm_relay, ONE(pipe_fd), ONE(stderr_fd), ONE(pid),
		 NOT(reopens));
#undef OF

/* Its queue is empty then (reexec.h). */
#define OF mm_kchan
MM_FIELDS_DEFINE(mm_keeper_kchan_fields, struct mm_kchan, ONE(fd), NOT(queue), NOT(retry_ns));
#undef OF

static uint32_t closer_waiting(const void *closer)
{
	return ((const struct mm_closer *)closer)->n_waiting;
}

#define OF mm_closer
MM_FIELDS_DEFINE(mm_closer_fields, struct mm_closer, ALL(child), ONE(n_children), ONE(n_waiting),
		 MM_ARRAY_USED(struct mm_closer, waiting, closer_waiting), ONE(spared_fd),
		 ONE(next_ns), ONE(stuck_reported));
#undef OF

#define OF mm_keeper_core
MM_FIELDS_DEFINE(mm_keeper_core_fields, struct mm_keeper_core, ONE(pid), ONE(generation),
		 ONE(start_at_ns), ONE(loads_by_ns), ONE(inventory), ONE(serves), ONE(resumable),
		 ONE(stopped), ONE(killed), ONE(failures), ALL(fault_at_ns), ONE(at_fault),
		 ONE(n_faults), NOT(beat), ONE(beat_ns), ONE(check_at_ns), ONE(late));
#undef OF

#define OF mm_upgrade
MM_FIELDS_DEFINE(mm_upgrade_fields, struct mm_upgrade, NOT(state), NOT(check), ONE(flags),
		 ONE(program_fd), NOT(next_fd), NOT(answer_fd), NOT(book_fd), NOT(pid), NOT(due_ns),
		 NOT(takes_keeper), TEXT(build), NOT(next_build), NOT(reexec_by_ns));
#undef OF

#define OF mm_devlock
MM_FIELDS_DEFINE(mm_devlock_fields, struct mm_devlock, ONE(claim_fd), ONE(file_fd), TEXT(uuid));
#undef OF

#define OF mm_keeper_xfer
MM_FIELDS_DEFINE(mm_keeper_xfer_fields, struct mm_keeper_xfer, ONE(epoch), ONE(pid), ONE(status),
		 ONE(start_at_ns), ONE(started_ns), ONE(failures), ONE(quick), ONE(proven),
		 ONE(excused), ONE(down), PART(lock, mm_devlock_fields), TEXT(build));
#undef OF

#define OF mm_keeper_helper
MM_FIELDS_DEFINE(mm_keeper_helper_fields, struct mm_keeper_helper, ONE(role), ONE(id), ONE(pid),
		 ONE(ended), ONE(status), TEXT(build));
#undef OF

/* The service manager is in the environment; settings are held by name, and none are under way. */
#define OF mm_keeper
MM_FIELDS_DEFINE(mm_keeper_fields, struct mm_keeper, NOT(config), NOT(loop),
		 PART(place, mm_place_fields), PART(relay, mm_relay_fields), ONE(relay_at_ns),
		 PART(core, mm_keeper_kchan_fields), PART(closer, mm_closer_fields), NOT(hold),
		 CONN_SERIAL, PART(process, mm_keeper_core_fields),
		 PART(upgrade, mm_upgrade_fields), NOT(notify), NOT(reload),
		 MM_STRUCTS(struct OF, xfer, mm_keeper_xfer_fields), ONE(n_xfers),
		 PARTS(helpers, mm_keeper_helper_fields), NOT(core_source), NOT(signal_source),
		 NOT(tenant_source), NOT(admin_source), NOT(view_source), NOT(signal_fd),
		 ONE(ready), NOT(stopping), NOT(failed), NOT(why), ONE(accept_at_ns),
		 NOT(tenant_door), NOT(view_door), NOT(end_at_ns));
#undef OF
