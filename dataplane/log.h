/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Log of a program of the data plane: one line a message on stderr, `PROGRAM: text`. Main and
 * start-up only; an engine never logs. Text is lowercase; an error says "cause; remedy". No DPDK.
 */
#ifndef WEIR_LOG_H
#define WEIR_LOG_H

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
