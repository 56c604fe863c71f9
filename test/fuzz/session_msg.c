/* SPDX-License-Identifier: BSD-3-Clause */
/* A packet on session.sock. */
#include "ipc/session_msg.h"

#include <stdlib.h>

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* exactly as long as the packet, so that a read beyond it is seen */
	struct weir_session_msg *m = malloc(size ? size : 1);

	if (!m)
		return 0;
	memcpy(m, data, size);
	if (weir_session_check(m, size) == 0 &&
	    (m->length != size || weir_session_length(m->type) != size ||
	     !weir_session_type_name(m->type)))
		abort();
	free(m);
	return 0;
}
