/* SPDX-License-Identifier: BSD-3-Clause */
/* The books of killed programs compared, by what a completion means. */
#include "chaos.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEDGERS 4096u
#define SOON_MS 2000u  /* a second, and the node timeout */
#define LATE_MS 15000u /* whatever else was dead or busy meanwhile */
#define AWAY_MS 15000u /* the switch, once killed, and its links, on a busy machine */

static const struct chaos_ledger *book[LEDGERS];
static unsigned books;
static int faults;

static char slowest[160];
static struct {
	uint64_t streams, taken, complete, lost, delivered, ends, soon, slowest;
} sum;

#define fault(...)                                                                                 \
	do {                                                                                       \
		if (++faults <= 20)                                                                \
			printf(__VA_ARGS__), putchar('\n');                                        \
	} while (0)

static void
read_all(char **ledgers)
{
	for (; *ledgers && books < LEDGERS; ledgers++) {
		book[books] = chaos_open(*ledgers, O_RDONLY);
		if (book[books]->magic == CHAOS_MAGIC) /* else killed before it began */
			books++;
	}
}

int
chaos_fresh(uint64_t since_ms, char **ledgers)
{
	int stale = 0;

	read_all(ledgers);
	for (unsigned i = 0; i < books; i++)
		for (uint32_t node = 0; node < CHAOS_NODES; node++)
			if (book[i]->to & 1u << node && book[i]->fresh[node] < since_ms) {
				printf("node %u has sent nothing to node %u\n", book[i]->node,
				       node);
				stale = 1;
			}
	return books == 0 || stale;
}

int
chaos_unbroken(uint64_t since_ms, char **ledgers)
{
	read_all(ledgers);
	for (unsigned i = 0; i < books; i++)
		for (uint32_t n = 0; n < book[i]->streams; n++) {
			const struct chaos_stream *s = &book[i]->stream[n];

			/* not one that was only wished for */
			if (s->ended_ms > since_ms && s->status &&
			    (s->peer || book[i]->role == CHAOS_RECEIVES))
				fault("node %u: a connection to node %u ended with %d (%s)",
				      book[i]->node, s->node, s->status, strerror(-s->status));
		}
	return faults != 0;
}

// ---- one stream ----

static const struct chaos_ledger *
life(uint32_t number)
{
	for (unsigned i = 0; i < books; i++)
		if (book[i]->life == number)
			return book[i];
	return NULL;
}

/* The receiver's book of the stream; NULL: nothing came. More than one is a fault. */
static const struct chaos_stream *
other_end(uint64_t id, const struct chaos_ledger **of)
{
	const struct chaos_stream *found = NULL;

	for (unsigned i = 0; i < books; i++)
		for (uint32_t s = 0; book[i]->role == CHAOS_RECEIVES && s < book[i]->streams; s++) {
			if (book[i]->stream[s].id != id)
				continue;
			if (found)
				fault("stream %#llx came twice", (unsigned long long)id);
			found = &book[i]->stream[s];
			*of = book[i];
		}
	return found;
}

static void
check_sender(const struct chaos_ledger *l, const struct chaos_stream *s)
{
	const struct chaos_ledger *of = life(s->peer);
	const struct chaos_stream *r = other_end(s->id, &of);
	uint64_t delivered = r ? r->received + 1 : 0, ended = s->complete + s->lost;
	unsigned long long id = s->id;

	if (delivered > s->tried)
		fault("stream %#llx: %llu were sent, %llu received", id,
		      (unsigned long long)s->tried, (unsigned long long)delivered);
	if (r && of->life != s->peer)
		fault("stream %#llx came to life %u instead of %u", id, of->life, s->peer);
	if (of && of->finished && delivered < s->complete)
		fault(
		    "stream %#llx from node %u to %u: %llu completed, but its receiver, which "
		    "lived, "
		    "got %llu; %llu were accepted; it ended with %d at %llu, for the receiver with "
		    "%d at %llu",
		    id, l->node, s->node, (unsigned long long)s->complete,
		    (unsigned long long)delivered, (unsigned long long)s->taken, s->status,
		    (unsigned long long)s->ended_ms, r ? r->status : 0,
		    (unsigned long long)(r ? r->ended_ms : 0));
	if (r && r->ended_ms && r->status == 0 && (!s->closed || delivered != s->taken))
		fault("stream %#llx: its receiver saw an end in order after %llu of %llu", id,
		      (unsigned long long)delivered, (unsigned long long)s->taken);
	if (l->finished && !s->ended_ms)
		fault("stream %#llx never ended", id);
	if (s->ended_ms && !s->closed && ended != s->taken)
		fault("stream %#llx: %llu of %llu messages ended", id, (unsigned long long)ended,
		      (unsigned long long)s->taken);
	sum.streams++;
	sum.taken += s->taken;
	sum.complete += s->complete;
	sum.lost += s->lost;
	sum.delivered += delivered;
}

/* Errors that docs/stream.md names, for either end. */
static void
check_status(const struct chaos_stream *s)
{
	static const int both[] = {0, -ECONNRESET, -EHOSTDOWN, -ENODEV};
	static const int opening[] = {-EHOSTUNREACH, -ECONNREFUSED, -ETIMEDOUT};
	bool known = false;

	for (unsigned i = 0; i < 4; i++)
		known |= s->status == both[i];
	for (unsigned i = 0; i < 3; i++)
		known |= s->status == opening[i] && !s->taken && !s->received;
	if (s->ended_ms && !known)
		fault("stream %#llx ended with %d (%s)", (unsigned long long)s->id, s->status,
		      strerror(-s->status));
}

// ---- who died ----

struct death {
	uint64_t ms;
	char who[16];
	uint32_t node, life;
};

static uint64_t cut[1024]; /* when the switch between the nodes was killed */
static unsigned cuts;

/* The news of a death may have waited for the switch to be there again, and its links. */
static bool
was_cut(uint64_t from, uint64_t to)
{
	for (unsigned i = 0; i < cuts; i++)
		if (cut[i] + AWAY_MS >= from && cut[i] <= to)
			return true;
	return false;
}

static bool
concerns(const struct death *d, const struct chaos_ledger *l, const struct chaos_stream *s)
{
	uint32_t other = l->role == CHAOS_SENDS ? s->peer : (uint32_t)(s->id >> 32);

	if (!strcmp(d->who, "dataplane"))
		return d->node == l->node || d->node == s->node;
	return d->life && d->life == other;
}

/* How long ends that a death concerns went on, of programs that lived to tell. */
static void
check_ends(const struct death *d, const struct chaos_ledger *l)
{
	for (uint32_t i = 0; i < l->streams; i++) {
		const struct chaos_stream *s = &l->stream[i];
		uint64_t after;

		if (!concerns(d, l, s) || s->opened_ms >= d->ms || !s->ended_ms ||
		    s->ended_ms < d->ms)
			continue;
		after = s->ended_ms - d->ms;
		sum.ends++;
		sum.soon += after <= SOON_MS;
		if (after > sum.slowest) {
			sum.slowest = after;
			snprintf(slowest, sizeof(slowest),
				 ": at node %u to %u, with %d, %s of node %u killed at %llu",
				 l->node, s->node, s->status, d->who, d->node,
				 (unsigned long long)d->ms);
		}
		if (after > LATE_MS && !was_cut(d->ms, s->ended_ms))
			fault("stream %#llx ended with %d %llu ms after %s of node %u was killed",
			      (unsigned long long)s->id, s->status, (unsigned long long)after,
			      d->who, d->node);
	}
}

/* False: the log has no more. */
static bool
next_death(FILE *log, struct death *d)
{
	char line[128], what[16];
	unsigned long long ms;

	while (fgets(line, sizeof(line), log)) {
		if (sscanf(line, "%llu %15s %15s %u %u", &ms, what, d->who, &d->node, &d->life) !=
			5 ||
		    strcmp(what, "kill"))
			continue;
		d->ms = ms;
		return true;
	}
	return false;
}

static void
check_deaths(const char *log)
{
	FILE *f = fopen(log, "r");
	struct death d;

	if (!f) {
		fault("no log %s", log);
		return;
	}
	while (next_death(f, &d))
		if (!strcmp(d.who, "switch") && cuts < sizeof(cut) / sizeof(cut[0]))
			cut[cuts++] = d.ms;
	rewind(f);
	while (next_death(f, &d))
		for (unsigned i = 0; i < books; i++)
			check_ends(&d, book[i]);
	fclose(f);
}

int
chaos_check(const char *log, char **ledgers)
{
	unsigned lived = 0;

	read_all(ledgers);
	for (unsigned i = 0; i < books; i++) {
		const struct chaos_ledger *l = book[i];

		lived += l->finished;
		if (l->failure[0])
			fault("%s of node %u, life %u: %s",
			      l->role == CHAOS_SENDS ? "sender" : "receiver", l->node, l->life,
			      l->failure);
		for (uint32_t s = 0; s < l->streams; s++) {
			if (l->role == CHAOS_SENDS)
				check_sender(l, &l->stream[s]);
			check_status(&l->stream[s]);
		}
	}
	check_deaths(log);
	if (!sum.complete)
		fault("no message completed");
	printf("%u programs, %u lived; %llu connections; %llu messages accepted, %llu completed, "
	       "%llu ended with an error, %llu received\n",
	       books, lived, (unsigned long long)sum.streams, (unsigned long long)sum.taken,
	       (unsigned long long)sum.complete, (unsigned long long)sum.lost,
	       (unsigned long long)sum.delivered);
	printf(
	    "%llu connections ended for a death, %llu within %u ms, the slowest after %llu ms%s\n",
	    (unsigned long long)sum.ends, (unsigned long long)sum.soon, SOON_MS,
	    (unsigned long long)sum.slowest, slowest);
	if (faults > 20)
		printf("... %d faults in all\n", faults);
	return faults != 0;
}
