/* SPDX-License-Identifier: BSD-3-Clause */
/* A packet on control.sock. */
#include "fuzz.h"

#include "ipc/dpctl.h"

#include <stdlib.h>

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* exactly as long as the packet, so that a read beyond it is seen */
	struct weir_ctl_msg *m = malloc(size ? size : 1);

	if (!m)
		return 0;
	memcpy(m, data, size);
	if (weir_ctl_check(m, size) == 0 && m->length != size)
		abort();
	free(m);
	return 0;
}
