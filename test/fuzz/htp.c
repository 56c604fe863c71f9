/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lines of the Hex Text Protocol from anybody. Numbers are cut to two digits and no time is set, so
 * that no search takes long. Each command has one answer, which ends with the only empty line.
 */
#include "hex/htp.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INPUT_MAX 32768u /* a pipe takes more */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool good)
{
	if (!good)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hex_options o;
	char input[INPUT_MAX], error[256], *text = NULL, *at;
	unsigned digits = 0;
	size_t n = 0, length;
	FILE *out;
	int fds[2];

	for (size_t i = 0; i < size && n < INPUT_MAX; i++) {
		digits = data[i] >= '0' && data[i] <= '9' ? digits + 1 : 0;
		if (digits <= 2)
			input[n++] = (char)data[i];
	}
	for (size_t i = 0; i + 7 <= n; i++)
		if (!memcmp(input + i, "seconds", 7))
			input[i] = 'S';
	require(!option_defaults(&hex_option_table, &o, error, sizeof(error)));
	o.size = 3;
	o.rollouts = 8;
	o.nodes = 1000;
	out = open_memstream(&text, &length);
	require(out && !pipe(fds));
	require(write(fds[1], input, n) == (ssize_t)n);
	close(fds[1]);
	require(!htp_run(&o, fds[0], out, error, sizeof(error)));
	close(fds[0]);
	fclose(out);
	for (at = text; *at;) {
		char *end = strstr(at, "\n\n");

		require(*at == '=' || *at == '?' || !strncmp(at, "gogui-gfx:", 10));
		require(end && end - at >= 2);
		at = end + 2;
	}
	free(text);
	return 0;
}
