/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEIR_IDLE_H
#define WEIR_IDLE_H

/* What an engine's thread does without work: poll on, or sleep after a while. */
enum idle_mode { IDLE_POLL, IDLE_ADAPTIVE };

#endif
