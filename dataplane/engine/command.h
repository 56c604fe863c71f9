/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands of the main lcore, as the engine works on them. */
#ifndef WEIR_ENGINE_COMMAND_H
#define WEIR_ENGINE_COMMAND_H

#include "engine.h"

struct session;

/* Finishes a command that engine_execute() left open; main takes it by engine_done(). */
void engine_complete(struct engine *e, struct engine_command *c, int result);
/* Tries again the commands that wait for room. */
void commands_retry(struct engine *e);
/* Completes commands that wait for a session that ends. */
void commands_abandon(struct engine *e, const struct session *s);
/* Fills the snapshot of a SNAPSHOT command. */
void engine_snapshot_fill(struct engine *e, struct engine_snapshot *snapshot);

#endif
