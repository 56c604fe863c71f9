/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One request of ours at a time (and a watch, and the lease's beat): step() looks what is missing
 * and asks for that; whatever goes wrong ends in fail(), which goes to the next URL after a while.
 * So there is one way from any state to where all is well.
 */
#include "internal.h"

#include "base/log.h"
#include "ipc/invariant.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_SECONDS 3u
#define RETRY_MIN 200u /* ms */

static void step(struct etcd *e);

// ---- requests ----

static const char *
key_text(const struct etcd *e, const char *kind, const char *name, char text[KEY_MAX])
{
	snprintf(text, KEY_MAX, "/weir/%s/%s/%s", e->is.cluster, kind, name);
	return text;
}

json_t *
etcd_key(const struct etcd *e, const char *kind, const char *name)
{
	char text[KEY_MAX];

	return etcd_bytes(key_text(e, kind, name, text));
}

json_t *
etcd_node_key(const struct etcd *e, const char *kind, uint32_t id)
{
	char text[12];

	snprintf(text, sizeof(text), "%u", id);
	return etcd_key(e, kind, text);
}

// All keys that begin with `from`, which ends in a slash; '0' is what follows it.
json_t *
etcd_range(const char *from)
{
	char to[KEY_MAX];

	snprintf(to, sizeof(to), "%.*s0", (int)strlen(from) - 1, from);
	return json_pack("{s:o, s:o}", "key", etcd_bytes(from), "range_end", etcd_bytes(to));
}

static json_t *
range_of(const struct etcd *e, const char *kind)
{
	char from[KEY_MAX];

	return etcd_range(key_text(e, kind, "", from));
}

json_t *
etcd_put(json_t *k, json_t *value, uint64_t lease)
{
	json_t *p = json_pack("{s:o, s:o}", "key", k, "value", value);
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)lease);
	if (lease)
		json_object_set_new(p, "lease", json_string(text));
	return p;
}

void
etcd_set_retry(struct etcd *e, unsigned ms)
{
	struct timeval wait = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	evtimer_add(e->retry, &wait);
}

/* step(), but not from here: an answer is being read, or whoever calls has more to do. */
static void
look_soon(struct etcd *e)
{
	if (e->retry && !evtimer_pending(e->retry, NULL))
		event_active(e->retry, EV_TIMEOUT, 0);
}

static void
drop_all(struct etcd *e)
{
	etcd_drop(e->step);
	etcd_drop(e->watch);
	etcd_drop(e->beat);
	e->step = e->watch = e->beat = NULL;
}

/*
 * Another lease, and with it everything anew: whoever has forgotten the lease may have forgotten
 * all (its revisions begin anew then, and a watch from ours on would show nothing for long).
 */
static void
lease_lost(struct etcd *e)
{
	e->lease = 0;
	e->claimed = e->alive = e->told = e->listed = false;
	etcd_drop(e->watch);
	e->watch = NULL;
}

/* Half of the time is chance: nodes that failed together don't come back together. */
static void
fail(struct etcd *e, const char *error)
{
	struct log_field about[] = {{"etcd", 0, e->url[e->url_now]}, {"reason", 0, error}};
	const char *remedy = "trying again; the nodes known stay";

	if (strstr(error, "space exceeded"))
		remedy = "compact it, raise its quota and disarm its alarm";
	else if (strstr(error, "user") || strstr(error, "permission"))
		remedy = "check --etcd-user and --etcd-password; trying again";
	else if (strstr(error, "certificate"))
		remedy = "check --etcd-tls; trying again";
	log_once_about(&e->trouble[e->url_now], about, 2, "etcd at %s: %s; %s", e->url[e->url_now],
		       error, remedy);
	if (strstr(error, "auth"))
		e->token[0] = 0;
	if (strstr(error, "lease not found"))
		lease_lost(e);
	if (strstr(error, "compacted"))
		e->listed = false;
	drop_all(e);
	weir_assert(e->url_now < e->url_count && e->retry_ms <= ETCD_RETRY_MAX);
	e->url_now = (e->url_now + 1) % e->url_count;
	etcd_set_retry(e, e->retry_ms / 2 + etcd_any(e->retry_ms / 2) + 1);
	e->retry_ms = e->retry_ms * 2 < ETCD_RETRY_MAX ? e->retry_ms * 2 : ETCD_RETRY_MAX;
}

static void
step_over(void *user, const char *error)
{
	struct etcd *e = user;

	e->step = NULL;
	if (!error && e->wrong)
		error = "the server that answers is not an etcd";
	e->wrong = false;
	if (error)
		fail(e, error);
	else
		step(e);
}

void
etcd_ask(struct etcd *e, const char *path, json_t *body,
	 void (*answer)(void *user, const json_t *answer))
{
	const struct etcd_reply reply = {.answer = answer, .over = step_over, .user = e};

	weir_assert(!e->step);
	e->step =
	    etcd_post(e->http, e->url[e->url_now], path, body, e->token, ANSWER_SECONDS, &reply);
	if (!e->step)
		fail(e, "out of memory");
}

// ---- who we are ----

static void
take_token(void *user, const json_t *answer)
{
	struct etcd *e = user;
	const char *token = json_string_value(json_object_get(answer, "token"));

	e->wrong = !token || !*token || strlen(token) >= sizeof(e->token) || strpbrk(token, "\r\n");
	if (!e->wrong)
		memcpy(e->token, token, strlen(token) + 1);
}

// ---- the lease ----

static void
take_lease(void *user, const json_t *answer)
{
	struct etcd *e = user;

	e->lease = etcd_number(json_object_get(answer, "ID"));
	e->wrong = !e->lease;
}

static void
beat_answer(void *user, const json_t *answer)
{
	struct etcd *e = user;

	if (etcd_number(json_object_get(json_object_get(answer, "result"), "TTL")))
		return;
	lease_lost(e);
}

static void
beat_over(void *user, const char *error)
{
	struct etcd *e = user;

	e->beat = NULL;
	if (error)
		fail(e, error);
	else if (!e->step)
		step(e);
}

static void
on_beat(evutil_socket_t fd, short what, void *user)
{
	const struct etcd_reply reply = {.answer = beat_answer, .over = beat_over, .user = user};
	struct etcd *e = user;
	char text[24];

	if (!e->lease || e->beat || evtimer_pending(e->retry, NULL) || (e->is.user && !e->token[0]))
		return;
	snprintf(text, sizeof(text), "%llu", (unsigned long long)e->lease);
	e->beat = etcd_post(e->http, e->url[e->url_now], "/v3/lease/keepalive",
			    json_pack("{s:s}", "ID", text), e->token, ANSWER_SECONDS, &reply);
}

// ---- what we say ----

static void
put_alive(void *user, const json_t *answer)
{
	struct etcd *e = user;

	e->alive = true;
}

static void
put_told(void *user, const json_t *answer)
{
	struct etcd *e = user;

	bool put = json_is_true(json_object_get(answer, "succeeded"));

	e->told = put && !e->changed;
	if (!put)
		e->claimed = e->alive = false;
}

static void
etcd_publish(struct membership_source *source, const struct peer_entry *self)
{
	struct etcd *e = (struct etcd *)source;
	char address[INET6_ADDRSTRLEN];
	size_t n = (size_t)snprintf(e->value, sizeof(e->value), "%s", e->is.control);

	for (uint32_t i = 0; i < self->address_count && n < sizeof(e->value); i++) {
		const uint8_t *a = self->address[i];

		if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)a))
			inet_ntop(AF_INET, a + 12, address, sizeof(address));
		else
			inet_ntop(AF_INET6, a, address, sizeof(address));
		n += (size_t)snprintf(e->value + n, sizeof(e->value) - n, "%c%s", i ? ',' : ' ',
				      address);
	}
	for (uint32_t i = 0; i < self->lid_count && n < sizeof(e->value); i++)
		n += (size_t)snprintf(e->value + n, sizeof(e->value) - n, "%clid:%u",
				      i || self->address_count ? ',' : ' ', self->lid[i]);
	if (e->id == ETCD_NODE_AUTO) { /* its data plane has had it all the time */
		e->candidate = self->id;
		e->look = LOOK_TRY;
	}
	e->told = false;
	e->changed = true;
	look_soon(e);
}

// ---- what others say ----

static void
gone(struct etcd *e, uint32_t id)
{
	weir_assert(id < ETCD_IDS);
	e->known[id] = false;
	e->events->gone(e->user, (uint16_t)id);
}

/* A name would have to be looked up, for longer than a node timeout perhaps: nodes write none. */
static bool
is_address(const char *control)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *found;
	char host[WEIR_CTL_PEER_TEXT];
	uint16_t port;

	if (host_port_split(control, false, host, sizeof(host), &port) ||
	    getaddrinfo(host, NULL, &hints, &found))
		return false;
	freeaddrinfo(found);
	return true;
}

// Without NICs it is known too: its data plane is still to come.
static void
known(struct etcd *e, uint32_t id, const char *value)
{
	bool bare = !strchr(value, ' ');
	char line[VALUE_MAX + 32], error[160];
	struct peers one;

	if (id == ETCD_NODE_AUTO || id == e->id)
		return;
	snprintf(line, sizeof(line), "%u %s%s\n", id, value, bare ? " 0.0.0.0" : "");
	if (strchr(value, '\n') || peers_parse(line, &one, error, sizeof(error)))
		one = (struct peers){0};
	if (one.count != 1 || !is_address(one.list[0].control)) {
		log_once_about(&e->odd, LOG_NODE(id),
			       "etcd's entry of node %u is invalid: '%.80s'; remove it", id, value);
	} else {
		if (bare)
			one.list[0].address_count = 0;
		e->known[id] = true;
		e->events->known(e->user, &one.list[0]);
	}
	peers_free(&one);
}

static void
take_kv(struct etcd *e, const json_t *kv)
{
	uint32_t id = etcd_id_of_key(kv);
	char value[VALUE_MAX];

	if (etcd_text(json_object_get(kv, "value"), value, sizeof(value)))
		return;
	if (id == e->id && strcmp(value, e->value) && e->told)
		e->claimed = e->told = false; /* somebody has changed ours */
	known(e, id, value);
}

static void
take_list(void *user, const json_t *answer)
{
	struct etcd *e = user;
	const json_t *header = json_object_get(answer, "header"), *kv;
	uint64_t revision = etcd_number(json_object_get(header, "revision"));
	bool forgot;
	size_t i;

	weir_assert(e->id < ETCD_IDS);
	memset(e->seen, 0, sizeof(e->seen));
	json_array_foreach(json_object_get(answer, "kvs"), i, kv)
	{
		uint32_t id = etcd_id_of_key(kv);

		if (id != ETCD_NODE_AUTO)
			e->seen[id] = true;
		take_kv(e, kv);
	}
	/*
	 * Drops nodes that left without notice. Not by the list of an etcd that has forgotten us,
	 * and maybe others, or that lacks our own entries: nodes missing from such a list need not
	 * be in a later one, until they have been listed again.
	 */
	forgot = e->renewed || revision < e->revision || !e->seen[e->id];
	for (uint32_t id = 0; id < ETCD_IDS; id++) {
		if (!e->known[id] || e->seen[id])
			continue;
		e->known[id] = false;
		if (!forgot)
			gone(e, id);
	}
	e->revision = revision;
	e->renewed = false;
	e->listed = revision > 0;
	e->wrong = !e->listed;
}

static void
watch_answer(void *user, const json_t *answer)
{
	struct etcd *e = user;
	const json_t *result = json_object_get(answer, "result"), *event;
	uint64_t revision =
	    etcd_number(json_object_get(json_object_get(result, "header"), "revision"));
	size_t i;

	if (json_is_true(json_object_get(result, "canceled"))) {
		/* what was between is lost; the connection would stay, and bring nothing more */
		e->claimed = e->listed = false;
		fail(e, "it has ended the watch");
		return;
	}
	json_array_foreach(json_object_get(result, "events"), i, event)
	{
		const char *type = json_string_value(json_object_get(event, "type"));
		const json_t *kv = json_object_get(event, "kv");
		uint32_t id = etcd_id_of_key(kv);

		if (!type || strcmp(type, "DELETE"))
			take_kv(e, kv);
		else if (id == e->id)
			e->claimed = e->told = false;
		else if (id != ETCD_NODE_AUTO)
			gone(e, id);
	}
	if (revision > e->revision)
		e->revision = revision;
	if (json_is_true(json_object_get(result, "created"))) {
		e->retry_ms = RETRY_MIN;
		log_forget(&e->trouble[e->url_now]);
	}
	look_soon(e);
}

static void
watch_over(void *user, const char *error)
{
	struct etcd *e = user;

	e->watch = NULL;
	fail(e, error ? error : "the watch ended");
}

// ---- what is missing ----

static void
step(struct etcd *e)
{
	json_t *ours, *put;
	char lease[24];

	if (evtimer_pending(e->retry, NULL))
		return;
	if (e->is.user && !e->token[0]) {
		etcd_ask(e, "/v3/auth/authenticate",
			 json_pack("{s:s, s:s}", "name", e->is.user, "password", e->is.password),
			 take_token);
	} else if (!e->lease) {
		snprintf(lease, sizeof(lease), "%u", e->is.lease);
		etcd_ask(e, "/v3/lease/grant", json_pack("{s:s}", "TTL", lease), take_lease);
	} else if (!e->claimed) {
		etcd_claim(e);
	} else if (!e->alive) {
		etcd_ask(
		    e, "/v3/kv/put",
		    etcd_put(etcd_node_key(e, "alive", e->id), etcd_bytes(e->is.control), e->lease),
		    put_alive);
	} else if (!e->told && e->value[0]) {
		// Only while the id is ours: another etcd in the place of the one that we know
		// would seem to know us, and a node that it lacks would seem to have left.
		snprintf(lease, sizeof(lease), "%llu", (unsigned long long)e->lease);
		ours = json_pack("{s:s, s:s, s:o, s:s}", "target", "LEASE", "result", "EQUAL",
				 "key", etcd_node_key(e, "alive", e->id), "lease", lease);
		put = etcd_put(etcd_node_key(e, "node", e->id), etcd_bytes(e->value), 0);
		e->changed = false;
		etcd_ask(
		    e, "/v3/kv/txn",
		    json_pack("{s:[o], s:[{s:o}]}", "compare", ours, "success", "request_put", put),
		    put_told);
	} else if (!e->listed) {
		etcd_ask(e, "/v3/kv/range", range_of(e, "node"), take_list);
	} else if (!e->watch) {
		const struct etcd_reply reply = {
		    .answer = watch_answer, .over = watch_over, .user = e};
		json_t *what = range_of(e, "node");
		char revision[24];

		snprintf(revision, sizeof(revision), "%llu", (unsigned long long)e->revision + 1);
		json_object_set_new(what, "start_revision", json_string(revision));
		e->watch =
		    etcd_post(e->http, e->url[e->url_now], "/v3/watch",
			      json_pack("{s:o}", "create_request", what), e->token, 0, &reply);
		if (!e->watch)
			fail(e, "out of memory");
	}
}

static void
on_retry(evutil_socket_t fd, short what, void *user)
{
	struct etcd *e = user;

	if (!e->step)
		step(e);
}

// ---- life ----

static int
etcd_start(struct membership_source *source, struct event_base *base,
	   const struct membership_events *events, void *user)
{
	struct etcd *e = (struct etcd *)source;
	struct timeval every = {.tv_sec = e->is.lease / 3, .tv_usec = e->is.lease % 3 * 333333};

	e->base = base;
	e->events = events;
	e->user = user;
	e->http = etcd_http_create(base, &e->is.access);
	e->retry = evtimer_new(base, on_retry, e);
	e->beat_timer = event_new(base, -1, EV_PERSIST, on_beat, e);
	if (!e->http || !e->retry || !e->beat_timer || event_add(e->beat_timer, &every)) {
		log_error("out of memory; free some");
		return -ENOMEM;
	}
	step(e);
	return 0;
}

static void
etcd_stop(struct membership_source *source, bool leave)
{
	struct etcd *e = (struct etcd *)source;
	const char *url = e->url[e->url_now];
	char text[24];

	drop_all(e);
	if (e->http && leave && e->claimed) /* control/HOST:PORT stays: it comes back with its id */
		etcd_post_and_wait(e->http, url, "/v3/kv/deleterange",
				   json_pack("{s:o}", "key", etcd_node_key(e, "node", e->id)),
				   e->token, 1);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)e->lease);
	if (e->http && e->lease)
		etcd_post_and_wait(e->http, url, "/v3/lease/revoke", json_pack("{s:s}", "ID", text),
				   e->token, 1);
	etcd_http_destroy(e->http);
	if (e->retry)
		event_free(e->retry);
	if (e->beat_timer)
		event_free(e->beat_timer);
	free(e->urls);
	free(e);
}

struct membership_source *
etcd_source_create(const struct etcd_options *o)
{
	struct etcd *e = calloc(1, sizeof(*e));
	char *rest;

	if (!e)
		return NULL;
	e->source = (struct membership_source){.closed = true,
					       .gives_ids = true,
					       .start = etcd_start,
					       .publish = etcd_publish,
					       .stop = etcd_stop};
	e->is = *o;
	e->id = o->node;
	e->retry_ms = RETRY_MIN;
	e->urls = rest = strdup(o->urls);
	for (char *url; rest && (url = strsep(&rest, ",")) && e->url_count < ETCD_URLS;) {
		size_t n = strlen(url);

		while (n && url[n - 1] == '/')
			url[--n] = 0;
		if (n && n < 200)
			e->url[e->url_count++] = url;
	}
	if (e->url_count)
		return &e->source;
	free(e->urls);
	free(e);
	return NULL;
}
