/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands of main to engines: queued by main, answered once by the engine, then freed. */
#ifndef WEIR_BROKER_COMMAND_H
#define WEIR_BROKER_COMMAND_H

#include "broker.h"

#include <sys/queue.h>

struct broker_conn;
struct broker_command;

/* Called when the engine has answered; the command is freed afterwards. */
typedef void command_done_fn(struct broker *b, struct broker_command *c);

struct broker_command {
	struct engine_command cmd;
	uint32_t engine;
	command_done_fn *done; /* NULL: no function waits for the answer */
	void *context;
	bool about_conn;		    /* context is a broker_conn that counts this command */
	bool reserved;			    /* came from the reserve */
	bool common;			    /* and is one of the broker's own */
	STAILQ_ENTRY(broker_command) entry; /* of its mailbox, or of the reserve */
	LIST_ENTRY(broker_command) in_all;  /* broker.commands */
};

STAILQ_HEAD(broker_commands, broker_command);

/*
 * Commands made in advance. An object reserves those that its end takes, so that it never lacks
 * memory to end. Some more are for whoever lacks memory in a step that it can't refuse.
 */
struct broker_reserve {
	struct broker_commands list;
	uint32_t listed; /* in the list: `needed`, less those under way for objects that exist */
	uint32_t needed; /* of all objects, and the common ones */
	uint32_t common; /* common ones that are not under way */
};

/* Commands of one engine that wait for room in its mailbox, in order. */
struct broker_mailbox {
	struct broker_commands waiting;
	uint32_t opening; /* commands under way that make a connection */
	uint32_t *early;  /* vqpns whose CONN_CLOSED overtook the answer to that command */
	uint32_t early_count, early_room;
};

/* NULL: out of memory, logged. The caller refuses what it was asked for. */
struct broker_command *command_new(struct broker *b, uint32_t engine, enum engine_command_type type,
				   command_done_fn *done, void *context);
/* Out of memory it takes a common one of the reserve. NULL: all of those are under way. */
struct broker_command *command_urgent(struct broker *b, uint32_t engine,
				      enum engine_command_type type, command_done_fn *done,
				      void *context);
/* One that the object has reserved: never NULL. */
struct broker_command *command_reserved(struct broker *b, uint32_t engine,
					enum engine_command_type type, command_done_fn *done,
					void *context);
/* Reserves `count` commands for an object, which has no more than that under way: 0 or -ENOMEM. */
int command_reserve(struct broker *b, uint32_t count);
void command_unreserve(struct broker *b, uint32_t count);
/* Makes the common part of the reserve: 0 or -ENOMEM. */
int command_begin(struct broker *b);
/* Frees a command that is not under way. */
void command_drop(struct broker *b, struct broker_command *c);
/* Queues the command; it leaves at the next broker_flush(). */
void command_submit(struct broker *b, struct broker_command *c);
/*
 * The end of a turn: settles sessions and connections that have ended, and gives waiting commands
 * to the engines. Called at the end of every entry point.
 */
void broker_flush(struct broker *b);
/* Whether this connection was closed before the answer that made it; forgets the note. */
bool command_closed_early(struct broker *b, uint32_t engine, uint32_t vqpn);
/* Notes a CONN_CLOSED that came before the answer to the command that makes the connection. */
void command_note_early(struct broker *b, uint32_t engine, uint32_t vqpn);
/* The engines have stopped: frees all commands. */
void command_free_all(struct broker *b);
/* Whether commands wait because an engine's mailbox is full. */
bool command_waiting(const struct broker *b);

#endif
