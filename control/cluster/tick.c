/* SPDX-License-Identifier: BSD-3-Clause */
#include "control.h"

void
control_tick(struct control *c, uint64_t now)
{
	self_node_tick(c, now);
	for (uint32_t i = c->member_count; i-- > 0;)
		member_tick(c->members[i], now);
	bootstrap_tick(c, now);
	if (now >= c->room_at) {
		c->room_at = now + MEMBER_UNUSED;
		member_make_room(c, now);
		log_budget_tell(&c->blamed, now);
	}
}
