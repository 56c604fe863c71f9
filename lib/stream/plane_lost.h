/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections after the end of the data plane. */
#ifndef WEIR_STREAM_PLANE_LOST_H
#define WEIR_STREAM_PLANE_LOST_H

#include "conn.h"

/* The data plane is gone: waits until c has ended, with all that came. False: not in time. */
bool weir_conn_await_end(struct weir_conn *c);

#endif
