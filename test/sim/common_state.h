/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside common.c: the memory, its ranges, its users and their operations. */
#ifndef WEIR_TEST_SIM_COMMON_STATE_H
#define WEIR_TEST_SIM_COMMON_STATE_H

#include "common.h"
#include "racing.h"

#define REGION SIM_COMMON_REGION
#define SMALL 8448u
#define LARGE 66048u
#define RANGES 5u
#define BY_LOCK 3u /* the range that the lock protects */
#define BIG 4u
#define RACING 64u /* offset; before it, a signal word for each range */
#define FIRST (RACING + RACING_BYTES)
#define BYTES (FIRST + BIG * SMALL + LARGE)
#define UNDER_WAY 32u /* operations of a user */
#define RIGHTS (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE | WEIR_MAY_NOTIFY | WEIR_MAY_LOCK)

enum kind { PUT, GET, UPDATE, SWAP, POLL, RACE };
enum state { HELD, PASSED, RETIRED, LOST };
enum edge { TOLD, BY_MESSAGE, BY_NOTICE, BY_SIGNAL };
enum lock_state { IDLE, ASKS, HOLDS, LEAVES };

struct range {
	uint32_t at, bytes; /* in the export */
	uint8_t state, edge;
	bool chosen;	     /* HELD: `edge` and `next` */
	uint32_t holder;     /* PASSED: the next one */
	uint32_t next, from; /* programs */
	uint32_t turn, left; /* hand-overs so far; to go */
	uint32_t todo;	     /* HELD: operations before the next one */
	uint32_t under_way;  /* of these */
	bool feast;	     /* they are gets whose answers fill the link's room for answers */
	uint32_t alike;	     /* or updates of one such type, 0: they are not, which make up runs */
	uint64_t word, before; /* its signal word, when the last signal has arrived; before that */
	uint32_t bytes_told;   /* of the put that a notice came with */
	uint32_t conn, side;   /* BY_MESSAGE */
	bool woken;	       /* the thread of the next one */
	uint32_t message;      /* number of it */
};

struct operation {
	uint8_t kind, range;
	enum weir_type type;
	enum weir_acc acc;
	unsigned flags;
	uint32_t offset, length;
	uint32_t block, stride; /* pieces; 0: one */
	bool fetches;
	uint32_t number;
	uint8_t *result, *legal; /* of a get or fetch */
	uint64_t word;		 /* POLL */
	struct race race;
};

struct user {
	struct rng rng;
	struct weir_remote *r;
	bool opened, flushing, polls, done;
	uint64_t wait_until, poll_at;
	uint32_t races, rounds; /* to go */
	uint8_t lock;		/* enum lock_state */
	int kind;		/* of the lock */
	bool asked, wrote;
	bool owes; /* the owner may not know that it has left an exclusive lock */
	uint32_t todo;
	uint64_t lock_at;
	struct operation op[UNDER_WAY];
	uint32_t ops;
};

struct sim_common {
	const struct sim_common_plan *plan;
	struct weir_region *region;
	struct weir_export *x;
	struct weir_key key;
	uint8_t *base; /* of the region; NULL: not there yet, or gone */
	uint32_t start, length;
	bool exported;
	struct range range[RANGES];
	uint32_t repaired; /* bytes of the lock's range, from its start, that are as in the model */
	bool in_doubt;	   /* an exclusive holder ended, and no exclusive one was told */
	bool maybe;	   /* a program ended that may have held the lock */
	uint32_t number;   /* of operations */
	struct racing *racing;
	struct user user[RACING_USERS];
	uint8_t model[BYTES] __attribute__((aligned(64)));
};

/* ---- common.c ---- */
void common_poke_all(struct sim *s);
/* An operation, or opening, has failed. */
void common_failed(struct sim_program *p, struct user *u, int rc);
/* rc: of a call that begins an operation. True: the operation has begun. */
bool common_has_begun(struct sim_program *p, struct user *u, int rc);
/* Begins an operation of u on a range; `reads`: a get. */
bool common_operate(struct sim_program *p, struct user *u, struct range *r, bool reads);
/* All operations of u are complete. */
void common_complete(struct sim_program *p, struct user *u);

/* ---- common_access.c ---- */
uint8_t common_byte(uint32_t number, uint32_t at);
/* The next place for an operation of u. */
struct operation *common_next_operation(struct user *u);
void common_draw(struct rng *r, const struct range *in, bool reads, struct operation *o);
/* Somewhere in the range, at a multiple of `align`. */
void common_draw_offset(struct rng *r, const struct range *in, struct operation *o, uint32_t align);
/* Bytes to put; operands; of SWAP the value that is compared, and the new one. */
const uint8_t *common_fill(const struct sim_common *k, const struct operation *o);
/* Does it to the model; `legal`: gets what a get or fetch must read. */
void common_apply(struct sim_common *k, const struct operation *o, const uint8_t *bytes);
/* Begins what was drawn for a range. 0, or why not. */
int common_start(struct sim_common *k, struct user *u, struct range *in, struct operation *o);
void common_count(struct sim *s, const struct operation *o);
void common_check_result(struct sim *s, uint32_t id, const struct operation *o);
void common_forget(struct user *u);

/* ---- common_range.c ---- */
/* Bytes around those that programs use. */
void common_check_around(struct sim *s, const struct sim_common *k);
/* All that was done in a range is done: loads see the model. */
void common_check_loads(struct sim *s, const struct sim_common *k, const struct range *r,
			const char *when);
/* All operations of p on the range are complete: the last holder retires it, or the next one hears
 * of it. */
void common_pass_flushed(struct sim_program *p, struct rng *rng, struct range *r);
/* True: something was done. */
bool common_pass_on(struct sim_program *p, struct user *u, struct range *r);
/* It is p's now. */
void common_take_over(struct sim_program *p, struct rng *rng, struct range *r);
/* Whether what the next one waits for, but for a signal, has come. */
bool common_is_told(struct sim *s, const struct range *r);
/* Whether the signal of a range that was passed on by one has come. */
bool common_is_signalled(struct sim *s, const struct range *r, uint64_t word);
/* A step of the exporting program. */
bool common_serve(struct sim_program *p);

/* ---- common_lock.c ---- */
/* True: something was done. */
bool common_ask(struct sim_program *p, struct user *u);
bool common_leave(struct sim_program *p, struct user *u);
/* One thing that u does while it holds the lock. */
bool common_hold(struct sim_program *p, struct user *u);

#endif
