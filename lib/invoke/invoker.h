/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An invoker is a model of messages between the processes of a group: a line to another process is
 * a lane to that very thread, a batch of calls one message. Between threads of a process batches
 * are handed over by pointer.
 *
 * A thread that has entered is a guest of the messenger; handler threads, the pool, run calls to
 * WEIR_THREAD_ANY. Lines, and all that has no lock or atomic here, belong to the thread that makes
 * the calls. Nothing is freed before the invoker closes but lines, which their thread frees.
 */
#ifndef WEIR_INVOKE_INVOKER_H
#define WEIR_INVOKE_INVOKER_H

#include "public.h"

#include "client/likely.h"
#include "message/message.h"

#include "weir/remote.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

/* value: the thread that made them; flags: TAG_ASKS, then `type` is the number */
#define KIND_CALLS MESSAGE_KIND_FIRST
#define TAG_ASKS 0x1u /* the thread that runs them says when it has */
#define FUNCTION_NONE UINT16_MAX

struct arrivals;
struct get;
struct line;
struct invoke_thread;
struct run_head;

/* ---- functions ---- */

/* A function as processes tell each other. */
struct function_entry {
	uint64_t name; /* hash */
	uint32_t version;
	uint16_t min_length, max_length;
};

/* Where a call of an own function goes, and the lengths that both processes accept. */
struct function_target {
	uint16_t number; /* there; FUNCTION_NONE: it has none of this name and version */
	uint16_t min_length, max_length;
};

/* The functions of one or more processes. */
struct function_table {
	SLIST_ENTRY(function_table) next;
	uint64_t hash; /* of entries */
	uint32_t count;
	struct function_entry *entries;
	struct function_target *targets; /* by number of the own function */
};

struct invoke_process {
	uint32_t threads, pool_threads;
	uint32_t seat; /* number among those that have threads: their place in trees */
	const struct function_table *table;
	_Atomic int status;   /* why it was lost last; 0: it is connected. The pool writes */
	_Atomic bool unheard; /* the program has not been told of that */
};

/* ---- batches ---- */

/* Calls of one batch that count with one sync. */
struct ask {
	struct ask *next;
	struct weir_sync *sync;
	uint64_t count;
	uint16_t number; /* of the batch, once it is sent */
	int status;	 /* once they have ended */
};

/* A payload on its way behind its call. */
struct parcel {
	struct parcel *next;
	const uint8_t *data;
	uint32_t length, sent;
	uint32_t number;     /* struct payload_args */
	uint64_t connection; /* that its call has left on; 0: it has not */
	struct ask *ask;     /* ends when the bytes have left; NULL: none */
	uint64_t id;	     /* of the result, which ends no earlier; 0: none */
};

/* Calls that leave together. */
struct batch {
	struct batch *next;	    /* in a queue, an inbox, or a list of spares */
	struct invoke_thread *from; /* owns the memory */
	uint8_t *data;		    /* runs: `bytes`, or the draft's memory */
	uint32_t room, length, calls;
	uint32_t receiver;	      /* handed over: index of the thread */
	uint64_t since;		      /* ns: the first call was packed */
	uint64_t place;		      /* among all that its line has queued */
	struct ask *asks, *asks_last; /* until it is sent */
	uint16_t ask;		      /* handed over: its number */
	bool asks_answer;	      /* it has one */
	bool lost;		      /* came back, and has not run */
	struct parcel *parcel;	      /* payload behind its last call; NULL: none */
	struct weir_op *put;	      /* it leaves behind the end of that; NULL: none */
	struct weir_draft draft;      /* data NULL: none */
	_Alignas(8) uint8_t bytes[];
};

/* ---- threads ---- */

struct invoke_counters {
#define INVOKE_COUNTER(name, help) _Atomic uint64_t name;
	WEIR_INVOKER_COUNTERS(INVOKE_COUNTER)
#undef INVOKE_COUNTER
};

/* A result that is outstanding. */
struct future_slot {
	struct weir_future *future; /* NULL: free, unless it is `lent` */
	union {
		const struct line *line;
		struct weir_sync *sync; /* future NULL: it counts with that status; or NULL */
	};
	uint32_t generation, next; /* of a free one: the next free one */
	int status;
	uint16_t length; /* of the result */
	bool over;	 /* ends in the thread's next turn, with status and length */
	bool lent; /* the payload is still read: neither future nor sync says that it is not */
};

/* A sync that other processes may signal. */
struct sync_name {
	struct weir_sync *sync; /* NULL: none */
	uint64_t left;		/* of its count, that signals may take */
	uint32_t generation;
};

/* Sums over threads. */
struct wave {
	uint64_t closed, sent, lost;
};

/* The arguments that agree in all threads. Without padding: compared whole. */
struct meeting_call {
	uint32_t kind;	   /* enum meeting_kind */
	uint32_t type, op; /* REDUCE */
	uint32_t zero;
	uint64_t count;
};

/* A thread's part in collective calls. It writes under the meeting's lock; others read under that.
 */
struct attendance {
	bool joined;	 /* has begun a call, and does not know that it has ended */
	bool gone;	 /* has left; it takes no part until it enters again */
	bool is_home;	 /* the thread that has joined the group */
	uint64_t number; /* of the call */
	/* its own: */
	bool waits;    /* in that call */
	uint64_t seen; /* `news` when it looked last */
	struct meeting_call call;
	const void *mine;
	void *result;
};

/* The collective call of the process's threads. */
struct meeting {
	pthread_mutex_t lock;
	struct meeting_call call;     /* of those that have joined */
	uint32_t joined;	      /* threads */
	struct invoke_thread *leader; /* makes the call of the group; NULL: not all have joined */
	_Atomic uint64_t news;	      /* changes that threads that wait look at */
	uint64_t number;	      /* calls that are complete */
	int result;		      /* of the last one */
	int over;		      /* why no call succeeds any more; 0: they may */
	char why[200];		      /* of `result` or `over` */
	/* the leader's */
	bool begun;   /* the group's call has */
	void *buffer; /* REDUCE: the elements of the process */
	uint32_t waves;
	struct wave mine, sum, last;
};

struct invoke_thread {
	struct weir_invoker *v;
	uint32_t index;		 /* WEIR_THREAD_ANY: of the pool */
	uint32_t inside;	 /* functions of the program that it is in */
	bool wait_ends;		 /* a function wants that of the call that waits for room */
	uint64_t told;		 /* ends of futures and syncs that it has seen */
	struct line ***lines;	 /* by process, then by thread; the last one is that to any */
	uint16_t **asked;	 /* likewise: where a line goes on whose thread has left */
	TAILQ_HEAD(, line) busy; /* have calls that have not left */
	struct batch *spare;
	uint32_t in_flight[WEIR_INVOKE_THREADS_MAX]; /* bytes handed to threads of the process */
	struct line *connecting;		     /* the thread waits for it; NULL: for none */
	int connected;				     /* how that has ended; -EAGAIN: it has not */
	struct batch *arrived;			     /* taken out of the inbox, in order */
	struct ask *spare_ask;
	struct ask *ended, **ended_last; /* the next turn counts them */
	uint32_t local_asks;		 /* batches handed over that have one */
	struct future_slot *slots;
	uint32_t slot_count, slot_free; /* the first free one */
	bool futures_lost;		/* some are `over` */
	struct get *gets, **gets_last;	/* that functions have begun, and that have not ended */
	struct sync_name *names;
	uint32_t name_count;
	uint32_t trees;			 /* of others, passed on, that have not ended */
	struct invoke_counters counters; /* it alone writes, all read */
	/* of the calls that it has made and run, those of the library with them (meet.c) */
	_Atomic uint64_t sent;	 /* it alone writes, before they leave */
	uint64_t ran;		 /* its own */
	_Atomic uint64_t closed; /* `ran` when all calls that those have made were in `sent` */
	_Atomic(const struct weir_function *) running; /* NULL: none. It alone writes */
	const struct weir_function *shown;	       /* to operators: the last one */
	struct attendance meets;
	/* written by other threads */
	_Alignas(64) _Atomic(pthread_t) entered; /* 0: nobody. It alone writes */
	_Atomic bool taken;			 /* somebody enters, is there, or still leaves */
	_Atomic(struct batch *) inbox;		 /* the latest first */
	_Atomic(struct batch *) returned;	 /* its batches that have run */
	_Atomic bool asleep;			 /* it alone writes */
	_Atomic bool wants_returned;		 /* a line waits for these. It sets, others clear */
	_Atomic bool lane_ended;	   /* of a line: `ended` is set. Others set, it clears */
	_Atomic(struct arrivals *) broken; /* of connections that have ended */
};

struct weir_invoker {
	struct weir *w;
	struct weir_group *g;	  /* of collective calls */
	struct weir_messenger *m; /* NULL: closed */
	uint64_t serial;	  /* never given twice */
	uint64_t word;		  /* of the group: a process without it makes no calls */
	struct weir_invoker_options o;
	struct weir_function *functions;
	struct invoke_process *processes;
	uint32_t process_count, self;
	uint32_t *seats, seat_count; /* processes that have threads */
	struct meeting meeting;
	_Atomic uint64_t lost;	    /* how often calls did not run, or may not have */
	_Atomic uint64_t assembled; /* bytes of payloads for which the library has memory */
	SLIST_HEAD(, function_table) tables;
	struct invoke_thread *threads, *pool; /* o.threads; o.pool_threads, at least one */
	_Atomic uint32_t pool_used;
	pthread_key_t key; /* a thread that has entered */
	bool has_key;
	_Atomic uint32_t news;		     /* processes that are `unheard` */
	_Atomic uint64_t queued, queue_peak; /* bytes */
	LIST_ENTRY(weir_invoker) in_all;     /* open.c's */
};

/* Where a batch has come from. */
struct origin {
	struct weir_to from;
	const struct batch *batch;	/* of a thread of the process; NULL: of a peer */
	const struct weir_reply *reply; /* of a peer */
};

enum payload_place {
	PAYLOAD_ELSEWHERE, /* goes away behind the call */
	PAYLOAD_LENT,	   /* a message on its own */
	PAYLOAD_ALLOCATED, /* by the library */
	PAYLOAD_PLACED,	   /* by the program */
};

/* A call, or a row of calls, while it runs. */
struct weir_incoming {
	struct weir_invoker *v;
	struct invoke_thread *thread;
	const struct weir_function *function; /* NULL: of the library, FUNCTION_TREE */
	struct weir_to from;
	uint64_t id;   /* of the result that the caller expects; 0: none */
	bool answered; /* it was given, or will be */
	bool kept;     /* the payload is */
	enum payload_place place;
	const struct origin *origin;
	const void *payload; /* NULL: none */
	size_t payload_length;
};

struct expected_result {
	struct weir_future *future;
	void *result;
	size_t size;
	struct weir_sync *sync; /* counts with the future; or NULL */
};

/* A call while it is made. */
struct call {
	uint32_t function, length;
	const void *args;
	uint32_t flags; /* WEIR_CALL_*, CALL_LIBRARY */
	int timeout_ms;
	struct weir_sync *sync;		       /* counts when it has run; NULL: none */
	const struct expected_result *expects; /* NULL: none */
	const void *payload;		       /* of payload_call() */
	size_t payload_length;
	/* line_call() sets */
	uint32_t number; /* of the function there */
	uint32_t run_flags;
	/* payload_call() sets */
	uint32_t behind; /* bytes of payload in the batch, padded */
	/* call_make() sets */
	uint64_t id; /* of the result; 0: none */
};
#define CALL_LIBRARY 0x80000000u /* a function of the library: does not wait, has no bound */

/* The first member is the program's: a line is known by it. */
struct line {
	struct weir_line fast;
	struct invoke_thread *thread;
	struct weir_to to;
	const struct function_target *targets;
	struct weir_batching batching;
	struct message_lane *lane;	/* NULL: to `receiver` */
	struct invoke_thread *receiver; /* of this process */
	bool connected;
	bool busy;	    /* in thread->busy */
	int status;	    /* why calls of it were dropped last; 0: none were */
	struct batch *open; /* calls are packed into it; NULL: none */
	uint8_t *head;	    /* of the run that is open; NULL: none */
	/* of that run: of the caller, there, bytes, RUN_* */
	uint32_t function, number, length, flags;
	struct batch *first, **last;	      /* batches that wait for room */
	uint64_t queued;		      /* that ever have */
	struct parcel *behind, **behind_last; /* payloads that other calls overtake */
	uint64_t numbers;		      /* those of payloads, as bits from 0 */
	struct ask *asks, **asks_last;	      /* sent, and not answered */
	uint16_t asked, answered;	      /* numbers of batches */
	uint16_t told;			      /* by the other end, last */
	bool is_told;			      /* since the line was lost */
	uint16_t owed;	   /* this line answers up to this batch of the other end */
	bool owes;	   /* it has not yet */
	_Atomic int ended; /* why the connection has; others set, its thread clears */
	TAILQ_ENTRY(line) in_busy;
};

static inline void
invoke_count(_Atomic uint64_t *counter, uint64_t n)
{
	/* one writer */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* ---- function.c ---- */

/* Copies the program's table. 0 or -errno. */
int functions_adopt(struct weir_invoker *v, const struct weir_invoker_options *o,
		    struct function_table **own);
/* A table of `count` entries, which is v's. NULL: no memory. */
struct function_table *function_table_make(struct weir_invoker *v, uint32_t count);
/* The table has its entries: the own functions find their targets. 0 or -ENOMEM. */
int function_table_complete(struct weir_invoker *v, struct function_table *table);
uint64_t function_table_hash(const struct function_entry *entries, uint32_t count);
void functions_free(struct weir_invoker *v);
/* A call that cannot be made: says why. */
int function_refuse(const struct weir_invoker *v, struct weir_to to, uint32_t function,
		    size_t length) __attribute__((cold));

/* ---- open.c ---- */

/* 0 or -EINVAL. */
int batching_check(const struct weir_batching *batching);

/* ---- thread.c ---- */

/* The thread object that the calling thread used last. */
struct thread_latest {
	uint64_t serial; /* of its invoker */
	struct invoke_thread *thread;
};
extern __thread struct thread_latest thread_last
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Looks for it among all. */
struct invoke_thread *thread_find(const struct weir_invoker *v);
/* The calling thread, which has entered or is of the pool. NULL: it has not. */
static inline struct invoke_thread *
thread_own(const struct weir_invoker *v)
{
	return thread_last.serial == v->serial ? thread_last.thread : thread_find(v);
}
/* Why the calling thread may not call. */
int thread_foreign(const struct weir_invoker *v) __attribute__((cold));
/* Whether it is in a function of the program, and so must not wait. */
static inline bool
thread_is_inside(const struct invoke_thread *t)
{
	return t->inside;
}

/* Functions that run while the call waits may end that; they make calls themselves, but wait in
 * none. */
static inline void
thread_begins_call(struct invoke_thread *t)
{
	if (!thread_is_inside(t))
		t->wait_ends = false;
}
int thread_waits_inside(void) __attribute__((cold));
/* Why a thread of the pool, which is not named by calls, cannot. */
int thread_of_pool(void) __attribute__((cold));
void thread_wake(struct invoke_thread *t);
/* One turn, which may sleep for up to `timeout_ms`. As weir_messenger_progress(). */
int thread_turn(struct invoke_thread *t, unsigned max, int timeout_ms);
/* It sleeps from now on, unless it finds what has come before: other threads wake it. */
void thread_falls_asleep(struct invoke_thread *t);
void thread_is_awake(struct invoke_thread *t);
/* Callbacks of the messenger. */
bool thread_take(struct weir_messenger *m, const struct message_taken *taken, void *user);
unsigned thread_work(struct weir_messenger *m, unsigned most, void *user);
/* Drops all that the thread has, and its lines. */
void thread_drop(struct invoke_thread *t);
/* The memory of one that is dropped. */
void thread_free(struct invoke_thread *t);
void thread_ended(void *thread);

/* ---- line.c ---- */

/* The line of t, made if necessary. NULL: *rc says why. */
struct line *line_get_slow(struct invoke_thread *t, struct weir_to to, int *rc);
static inline struct line *
line_get(struct invoke_thread *t, struct weir_to to, int *rc)
{
	const struct weir_invoker *v = t->v;
	struct line *l = NULL;

	if (weir_likely(t->lines && to.process < v->process_count && t->lines[to.process] &&
			to.thread < v->processes[to.process].threads))
		l = t->lines[to.process][to.thread];
	return weir_likely(l != NULL) ? l : line_get_slow(t, to, rc);
}
/* The line of t to `to` answers that batch of it. 0 or -ENOMEM. */
int line_owe(struct invoke_thread *t, struct weir_to to, uint16_t number);
/* The next inline call of each line comes to the library. */
void lines_close_fast_path(struct invoke_thread *t);
/* The line that t has; NULL: none. */
struct line *line_find(const struct invoke_thread *t, struct weir_to to);
/* Connections of lines have ended: what was under way there does not run, or is not known to. */
unsigned lines_ended(struct invoke_thread *t);
/* Sends all that it has, as far as there is room. 0, -EAGAIN, or why calls were dropped. */
int line_flush(struct line *l);
/* Sends what all lines of t have. The number of batches. */
unsigned lines_flush(struct invoke_thread *t);
/* All calls of t's lines are in `sent`. False: a line still owes an answer. */
bool lines_close_runs(struct invoke_thread *t);
/* Calls that the line accepted did not run, or may not have. */
void line_has_lost(const struct line *l);
/* Drops what t's lines have, and frees them. */
void lines_drop(struct invoke_thread *t);
void lines_free(struct invoke_thread *t);

/* ---- call.c ---- */

/* Reads the program's options, with these flags. 0 or -EINVAL. */
int call_prepare(struct call *c, uint32_t function, const void *args, size_t length,
		 const struct weir_call_options *options, uint32_t flags);
#define CALL_FLAGS (WEIR_CALL_NOW | WEIR_CALL_FULL_FAILS | WEIR_CALL_SYNC_SENT)
/* Makes a call whose `number` and `run_flags` are set. As line_call(). */
int call_make(struct line *l, struct call *c);
/* Waits as c says until the line has room for one more. 0, -EAGAIN, or why not. */
int call_await_room(struct line *l, const struct call *c);
int line_call(struct line *l, struct call *c);
/* A call that expects a result, without options, if it is small and calls leave alone now. -EAGAIN:
 * by line_call(). */
int line_put_return(struct line *l, uint32_t function, const void *args, size_t length,
		    const struct expected_result *e);
/* A call with a payload. As line_call(). */
int payload_call(struct line *l, struct call *c);
/* The payload of a call is there, and not too long. 0, -EINVAL, -EMSGSIZE. */
int payload_check(const struct call *c);
/* -EINVAL: nothing tells when a large payload may be used again. */
int payload_without_sync(const struct call *c) __attribute__((cold));
/* Makes a call with a payload that is checked. As call_make(). With a large payload and a sync: 0
 * if, and only if, the sync counts. */
int payload_make(struct line *l, struct call *c);
/* A call that leaves behind a put, in a batch of its own. As line_call(), weir_remote_put(). */
int put_call(struct line *l, struct call *c, struct weir_remote *r,
	     const struct weir_transfer *put);
/* A piece of the first payload that others overtake leaves behind all that the line has. */
void line_send_piece(struct line *l);
/* A call of the library, accepted unless the line cannot be. */
int line_say(struct invoke_thread *t, struct weir_to to, uint32_t function, const void *args,
	     size_t length);

/* ---- inbox.c ---- */

/* Memory for `room` bytes of calls. NULL: none. */
struct batch *batch_make(struct invoke_thread *t, uint32_t room);
void batch_free(struct batch *b);
/* Hands b, of the calling thread `from`, to another thread of the process. 0, -EAGAIN,
 * -ECONNREFUSED. */
int inbox_put(struct invoke_thread *from, struct invoke_thread *to, struct batch *b);
/* Whether `to` has run all that `from` has handed to it. */
bool inbox_is_free(struct invoke_thread *from, uint32_t to);
/* Whether batches may have come; a sleeper looks behind its flag, as in pull(). */
static inline bool
inbox_has(const struct invoke_thread *t)
{
	return t->arrived || atomic_load_explicit(&t->inbox, memory_order_seq_cst);
}
/* Runs batches of t's inbox until about `most` calls have run. How many have. */
unsigned inbox_run(struct invoke_thread *t, unsigned most);
/* Takes back what has run. */
void inbox_settle(struct invoke_thread *t);
/* Gives batches that have not run back to their threads. The number of their calls. */
uint64_t inbox_drop(struct invoke_thread *t);

/* ---- sync.c ---- */

/* Counts calls that have run, or were lost. In a thread of the invoker. */
void sync_count(struct invoke_thread *t, struct weir_sync *s, uint64_t count, int status);
/* One more call of b has this sync. 0 or -ENOMEM. */
int asks_add(struct line *l, struct batch *b, struct weir_sync *s);
/* The calls of b are not made after all. */
void batch_asks_forget(struct invoke_thread *t, struct batch *b);
/* Whether the line may ask once more. */
bool asks_have_room(const struct line *l);
/* b is sent, as number l->asked + 1. */
void asks_sent(struct line *l, struct batch *b);
/* All up to that number have run, or were lost. False: there is no such number. */
bool asks_answered(struct line *l, uint32_t number, int status);
/* The same of a number that the other end says. False, too: it has said a later one. */
bool asks_told(struct line *l, uint32_t number);
/* Asks of the line, or of b, end in the thread's next turn. */
void asks_lost(struct line *l, int status);
void batch_asks_lost(struct line *l, struct batch *b, int status);
/* An ask for one call of s. NULL: no memory. */
struct ask *ask_make(struct invoke_thread *t, struct weir_sync *s);
/* It ends in the thread's next turn. */
void ask_end(struct invoke_thread *t, struct ask *a, int status);
/* Counts those that have ended. How many. */
unsigned asks_count(struct invoke_thread *t);
void asks_free(struct invoke_thread *t);
struct signal_args;
void sync_signalled(struct invoke_thread *t, const struct signal_args *a);
/* The first error that it has counted; 0: none. */
int sync_error(const struct weir_sync *s);
/* No signal counts any more. */
void sync_names_drop(struct invoke_thread *t);

/* ---- future.c ---- */

/* A call on a line that is connected begins to expect its result: sets its id. 0 or -errno. */
int future_begin(const struct line *l, const struct expected_result *e, uint64_t *id);
/* The call has not left after all: nobody knows its id. */
void future_forget(struct invoke_thread *t, uint64_t id);
/* Makes a call by `make` whose result ends f. As weir_call_return(). */
int future_call(struct line *l, struct call *c, struct weir_future *f, void *result, size_t size,
		int (*make)(struct line *l, struct call *c));
/* Gives the result of the call that has this id to its thread. As line_say(), -EMSGSIZE. */
int future_give(struct invoke_thread *t, struct weir_to to, uint64_t id, int status,
		const void *result, size_t length);
/* A result has come. False: it is malformed. */
bool future_result(struct invoke_thread *t, struct weir_to from, const void *data, size_t length);
/* Results that come on the line back from there do not come any more. */
void futures_lost(struct invoke_thread *t, const struct line *l, int status);
/* The payload of the call with this id is read by others. Then it is not any more. */
void future_lend(struct invoke_thread *t, uint64_t id);
void future_return(struct invoke_thread *t, uint64_t id);
/* Ends futures that are over; all: with this status. How many. */
unsigned futures_end_lost(struct invoke_thread *t);
void futures_end_all(struct invoke_thread *t, int status);
void futures_free(struct invoke_thread *t);
void futures_init(struct invoke_thread *t);
/* A call has run: without a result it gets an empty one. False: that has no room. */
bool incoming_complete(struct weir_incoming *c);

/* ---- tree.c ---- */

/* Whether a call of a tree may come, with these arguments, from where *call says. */
bool tree_is_valid(const struct weir_incoming *call, const void *data, uint32_t length);
/* It has come. Memory that the library has allocated for its payload is the tree's. False:
 * malformed, or its result finds no room. */
bool tree_run(const struct weir_incoming *call, const uint8_t *data, uint32_t length);

/* ---- meet.c ---- */

void meeting_init(struct weir_invoker *v);
void meeting_free(struct weir_invoker *v);
/* The thread has entered, or is nobody any more. */
void meeting_enter(struct invoke_thread *t);
void meeting_leave(struct invoke_thread *t);
/* Whether there are news for a thread that waits. */
static inline bool
meeting_has_news(const struct invoke_thread *t)
{
	/* pairs with the addition in tell(): one of both sees the other's */
	return t->meets.waits &&
	       atomic_load_explicit(&t->v->meeting.news, memory_order_seq_cst) != t->meets.seen;
}
/* The end of a turn: what has run counts as run when what it has called counts as made. */
void turn_close(struct invoke_thread *t);

/* ---- parcel.c ---- */

/* The first batch of the queue has a parcel: sends both, without waiting, as far as there is room.
 * 0: both have left, b is freed; -EAGAIN, or why not. */
int parcel_send(struct line *l, struct batch *b);
/* The parcel has left, or is lost with its line. */
void parcel_end(struct invoke_thread *t, struct parcel *p, int status);
/* Whether the other end waits for more of p, which is lost, on a connection that is still there. */
bool parcel_is_cut(const struct line *l, const struct parcel *p);
/* Parcels that other calls overtake are lost. How many. *cut: set if one of them is. */
unsigned parcels_lose(struct line *l, int status, bool *cut);

/* ---- payload.c ---- */

enum payload_came {
	PAYLOAD_MALFORMED,
	PAYLOAD_RAN,  /* its call has */
	PAYLOAD_WAITS /* for bytes to come */
};

/* A call that is checked, with a payload, or the announcement of one; data: behind the head. */
enum payload_came payload_take(struct weir_incoming *c, const uint8_t *data,
			       const struct run_head *h);
/* One piece of the payload with this number follows. False: malformed. */
bool payload_expect(const struct origin *from, uint32_t number);
/* A piece has come for a call of *from. False: malformed. */
bool payload_arrived(struct invoke_thread *t, const struct message_taken *taken,
		     struct weir_to *from);
/* Callback of the messenger. */
void payloads_broken(void *arrivals, void *user);
/* Frees memory of the library that a payload was put together in. */
void payload_free(struct weir_invoker *v, void *data, uint32_t length);
/* Ends calls whose payloads do not arrive any more. How many. */
unsigned payloads_drop(struct invoke_thread *t);

/* ---- remote.c ---- */

/* Goes on with gets of functions, and calls the program for those that have ended. How many. */
unsigned gets_continue(struct invoke_thread *t);
/* Ends all of them. */
void gets_drop(struct invoke_thread *t);
void gets_init(struct invoke_thread *t);

/* ---- run.c ---- */

/* The thread runs this function now, for people who wait for it. */
void run_begins(struct invoke_thread *t, const struct weir_function *f);
/* Runs one call whose length is checked; *c has thread and function. */
void run_one(struct weir_incoming *c, const void *args, size_t length);

/* Runs the calls of a batch in t. False: it is malformed; calls before that place have run. */
bool run_batch(struct invoke_thread *t, const struct origin *origin, const uint8_t *data,
	       uint32_t bytes);

#endif
