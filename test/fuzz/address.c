/* SPDX-License-Identifier: BSD-3-Clause */
/* Text of an address, as it comes from a command line or a peers file. */
#include "fuzz.h"

#include "ipc/address.h"

#include <stdlib.h>
#include <string.h>

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct weir_address a, b;
	char text[WEIR_ADDRESS_TEXT_MAX], host[WEIR_HOST_MAX], service[WEIR_SERVICE_MAX];
	const char *why;
	char *in = malloc(size + 1);

	if (!in)
		return 0;
	memcpy(in, data, size);
	in[size] = '\0';
	memset(&a, 0, sizeof(a));
	/* what was understood can be said again, and then means the same */
	if (weir_address_read(in, &a, &why) == 0) {
		if (weir_address_format(&a, text, sizeof(text)) != 0 ||
		    weir_address_read(text, &b, NULL) != 0 || a.kind != b.kind || a.id != b.id ||
		    memcmp(a.ip, b.ip, sizeof(a.ip)) != 0 || strcmp(a.service, b.service) != 0)
			abort();
	}
	/* mistakes are named, and no address is the name of a host as well */
	if (a.kind ? why != NULL || weir_address_host(in, host, service) : !strchr(why, ';'))
		abort();
	if (!a.kind && weir_address_host(in, host, service) &&
	    strlen(host) + 1 + strlen(service) != strlen(in))
		abort();
	free(in);
	return 0;
}
