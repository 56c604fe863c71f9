/* SPDX-License-Identifier: BSD-3-Clause */
#include "rx.h"

#include "clock.h"

#include "weir/address.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define UNREGISTER_MS 1000

/* Of one thread of a client: handlers write, one at a time; the server's thread reads. */
struct lane {
	_Alignas(64) _Atomic uint64_t received;
	uint64_t errors, first_ns;
	bool verify;
	struct perf_schedule schedule;
};

struct rx_client {
	struct weir_messenger *messenger;
	uint32_t threads;
	bool request;
	struct lane lane[];
};

int
rx_service(const char *service, int number, char *to, size_t size)
{
	int n = snprintf(to, size, number < 0 ? "m-%s" : "m-%s-%d", service, number);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

struct perf_schedule
rx_schedule(const struct perf_message *request, uint32_t thread)
{
	return (struct perf_schedule){
	    .test = request->test,
	    .size = request->size,
	    .seed = perf_mix(request->seed ^ perf_mix(thread + 1)),
	};
}

static void
handle(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	struct lane *l = user;
	uint64_t i = atomic_load_explicit(&l->received, memory_order_relaxed);
	bool right = message->length == l->schedule.size;

	if (!i)
		l->first_ns = now_ns();
	if (right)
		right = l->verify
			    ? perf_schedule_check(&l->schedule, i, message->data, message->length)
			    : perf_schedule_stamped(i, message->data, message->length);
	if (!right)
		l->errors++;
	if (message->flags & WEIR_MESSAGE_REQUEST &&
	    weir_message_respond(m, &message->reply, message->data, message->length))
		l->errors++;
	/* pairs with the acquire in rx_count() */
	atomic_store_explicit(&l->received, i + 1, memory_order_release);
}

/* Unregisters the first `n` types of a client and frees it. */
static void
unregister(struct perf_rx *h, uint32_t number, uint32_t n)
{
	struct rx_client *x = h->client[number];

	for (uint32_t i = 0; i < n; i++)
		weir_message_unregister(x->messenger, rx_type(x->request, number, i),
					UNREGISTER_MS);
	free(x);
	h->client[number] = NULL;
}

int
rx_open(struct perf_rx *h, struct weir *weir, const char *service,
	const struct perf_message *request, uint32_t *number)
{
	struct weir_messenger_options options = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_handler handler = {.size = sizeof(handler), .handle = handle};
	bool all = request->flags & PERF_HERE;
	struct weir_messenger **m;
	char name[WEIR_SERVICE_MAX];
	struct rx_client *x;
	uint32_t n = 0;
	int rc = 0;

	while (n < RX_CLIENTS && h->client[n])
		n++;
	if (n == RX_CLIENTS)
		return -EBUSY;
	*number = n;
	m = all ? &h->all : &h->own[n];
	if (!*m) {
		rc = rx_service(service, all ? -1 : (int)n, name, sizeof(name));
		options.service = name;
		options.lanes = WEIR_LANES_MAX;
		if (!rc)
			rc = weir_messenger_open(weir, &options, m);
	}
	if (rc)
		return rc;
	x = aligned_alloc(_Alignof(struct lane),
			  sizeof(*x) + request->threads * sizeof(x->lane[0]));
	if (!x)
		return -ENOMEM;
	x->messenger = *m;
	x->threads = request->threads;
	x->request = request->test == PERF_REQUESTS;
	h->client[n] = x;
	for (uint32_t i = 0; i < request->threads && !rc; i++) {
		x->lane[i] = (struct lane){.verify = request->flags & PERF_VERIFY,
					   .schedule = rx_schedule(request, i)};
		handler.user = &x->lane[i];
		rc = weir_message_register(*m, rx_type(x->request, n, i), &handler);
		if (rc)
			unregister(h, n, i);
	}
	return rc;
}

uint64_t
rx_count(const struct perf_rx *h, uint32_t number)
{
	const struct rx_client *x = h->client[number];
	uint64_t sum = 0;

	/* pairs with the release in handle() */
	for (uint32_t i = 0; i < x->threads; i++)
		sum += atomic_load_explicit(&x->lane[i].received, memory_order_acquire);
	return sum;
}

void
rx_close(struct perf_rx *h, uint32_t number, struct perf_message *result)
{
	struct rx_client *x = h->client[number];

	result->last_ns = now_ns();
	for (uint32_t i = 0; i < x->threads; i++) {
		struct lane *l = &x->lane[i];
		uint64_t n = atomic_load_explicit(&l->received, memory_order_acquire);

		result->received += n;
		result->bytes += n * l->schedule.size;
		result->errors += l->errors;
		/* the first of each begins the time */
		result->measured += n ? n - 1 : 0;
		if (n && (!result->start_ns || l->first_ns < result->start_ns))
			result->start_ns = l->first_ns;
	}
	unregister(h, number, x->threads);
}

void
rx_fini(struct perf_rx *h)
{
	for (uint32_t i = 0; i < RX_CLIENTS; i++)
		if (h->client[i])
			unregister(h, i, h->client[i]->threads);
	for (uint32_t i = 0; i < RX_CLIENTS; i++)
		weir_messenger_close(h->own[i]);
	weir_messenger_close(h->all);
	*h = (struct perf_rx){0};
}
