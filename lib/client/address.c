/* SPDX-License-Identifier: BSD-3-Clause */
/* Text of addresses from programs: mistakes become the reason of the call. */
#include "reason.h"

#include "ipc/address.h"

#include <stdio.h>

#define SHOWN_MAX 64 /* bytes of the program's text in a reason */

int
weir_address_parse(const char *text, struct weir_address *address)
{
	char shown[SHOWN_MAX + 1];
	const char *why;
	int rc = weir_address_read(text, address, &why);

	if (!rc)
		return 0;
	snprintf(shown, sizeof(shown), "%s", text ? text : "");
	for (char *p = shown; *p; p++) /* a reason is one line */
		if ((unsigned char)*p < ' ' || *p == 127)
			*p = '?';
	return weir_fail(rc, "invalid address '%s': %s", shown, why);
}
