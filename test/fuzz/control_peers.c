/* SPDX-License-Identifier: BSD-3-Clause */
/* The peers file: whatever is in it, an entry is one that can be told to a data plane. */
#include "fuzz.h"

#include "membership/peers_file.h"

#include <stdlib.h>
#include <string.h>

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), error[64];
	struct peers peers;

	memcpy(text, data, size);
	text[size] = 0;
	if (!peers_parse(text, &peers, error, sizeof(error))) {
		for (uint32_t i = 0; i < peers.count; i++) {
			struct peer_entry *e = &peers.list[i];

			if (e->id == UINT16_MAX || e->address_count + e->lid_count == 0 ||
			    e->address_count > WEIR_CTL_ADDRESSES ||
			    e->lid_count > WEIR_CTL_ADDRESSES ||
			    !memchr(e->control, 0, sizeof(e->control)) ||
			    !strchr(e->control, ':') || peers_find(&peers, e->id) != e)
				abort();
		}
		peers_free(&peers);
	} else if (!strchr(error, ':') || peers.list) {
		abort();
	}
	free(text);
	return 0;
}
