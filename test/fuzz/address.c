/* SPDX-License-Identifier: BSD-3-Clause */
/* Text of an address, as it comes from a command line or a peers file. */
#include "weir/address.h"

#include <stdlib.h>
#include <string.h>

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct weir_address a, b;
	char text[WEIR_ADDRESS_TEXT_MAX];
	char *in = malloc(size + 1);

	if (!in)
		return 0;
	memcpy(in, data, size);
	in[size] = '\0';
	/* what was understood can be said again, and then means the same */
	if (weir_address_parse(in, &a) == 0) {
		if (weir_address_format(&a, text, sizeof(text)) != 0 ||
		    weir_address_parse(text, &b) != 0 || a.kind != b.kind || a.id != b.id ||
		    memcmp(a.ip, b.ip, sizeof(a.ip)) != 0 || strcmp(a.service, b.service) != 0)
			abort();
	}
	free(in);
	return 0;
}
