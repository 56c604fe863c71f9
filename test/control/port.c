/* SPDX-License-Identifier: BSD-3-Clause */
#include "port.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int held[64];
static unsigned count;

uint16_t
port_take(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	socklen_t length = sizeof(any);

	assert_true(count < sizeof(held) / sizeof(held[0]));
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&any, length), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&any, &length), 0);
	held[count++] = fd;
	return ntohs(any.sin_port);
}

void
port_drop_all(void)
{
	while (count)
		close(held[--count]);
}
