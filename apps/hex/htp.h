/* SPDX-License-Identifier: BSD-3-Clause */
/* The Hex Text Protocol, as HexGui speaks it. */
#ifndef HEX_HTP_H
#define HEX_HTP_H

#include "options.h"

#include <stdio.h>

#define HTP_LINE_MAX 4096u /* bytes of a line of input */

/* Obeys the lines of file descriptor `in` until "quit" or its end. 0, or -errno and error. */
int htp_run(const struct hex_options *o, int in, FILE *out, char *error, size_t size);

#endif
