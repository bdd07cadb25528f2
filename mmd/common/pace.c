/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/pace.h"

#include "mm/abi.h"

void mm_pace_charge(struct mm_pace *pace, uint64_t price_ns, uint64_t now_ns)
{
	pace->paid_ns = MM_MAX(pace->paid_ns, now_ns) + price_ns;
}

uint64_t mm_pace_due(const struct mm_pace *pace, uint64_t burst_ns, uint64_t now_ns)
{
	return pace->paid_ns > now_ns + burst_ns ? pace->paid_ns - burst_ns : 0;
}

uint64_t mm_pace_spend(struct mm_pace *pace, uint64_t price_ns, uint64_t burst_ns, uint64_t now_ns)
{
	const uint64_t paid_ns = MM_MAX(pace->paid_ns, now_ns);

	if (price_ns && paid_ns - now_ns > burst_ns - MM_MIN(price_ns, burst_ns))
		return paid_ns - (burst_ns - MM_MIN(price_ns, burst_ns));
	pace->paid_ns = paid_ns + price_ns;
	return 0;
}

uint64_t mm_pace_price(uint16_t opcode)
{
	switch (opcode) {
	case MM_OP_KV_RELEASE:
	case MM_OP_MEM_FREE:
	case MM_OP_PARKED:
	case MM_OP_MAPPED:
	case MM_OP_COMMITTED:
	case MM_OP_SWAP:
	case MM_OP_TURN_DONE:
	case MM_OP_GROUP_MAPPED:
	case MM_OP_BYE:
		return 0;
	case MM_OP_KV_WANT:
	case MM_OP_TURN_WANT:
	case MM_OP_MEM_ALLOC:
	case MM_OP_FDS_ACK:
		return MM_PACE_WANT_NS;
	default:
		return MM_PACE_ASK_NS;
	}
}

struct mm_pace *mm_pace_of_user(struct mm_pace_users *users, uint32_t uid, uint64_t now_ns)
{
	size_t full = MM_PACE_USERS;

	for (size_t i = 0; i < MM_PACE_USERS; i++) {
		if (users->user[i].pace.paid_ns <= now_ns)
			full = full == MM_PACE_USERS ? i : full;
		else if (users->user[i].uid == uid)
			return &users->user[i].pace;
	}
	/* A bucket that is full again loses nothing when it becomes another user's. */
	users->user[full].uid = uid;
	return &users->user[full].pace;
}
