/* SPDX-License-Identifier: BSD-3-Clause */
#include "http.h"

#include "base/vec.h"
#include "ipc/invariant.h"

#include <curl/curl.h>
#include <event2/event.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define CONNECT_SECONDS 3L
#define COST_MAX (3u << 20) /* of an answer's values: 65,535 nodes cost 2 million */

struct etcd_request {
	LIST_ENTRY(etcd_request) of_http;
	struct etcd_http *http;
	struct etcd_reply reply;
	CURL *easy;
	struct curl_slist *headers;
	char *body;
	char *got; /* what came and is no whole answer yet */
	size_t length, room;
	char error[ETCD_ERROR_MAX]; /* "": none so far */
	char curl_error[CURL_ERROR_SIZE];
	bool busy, dropped; /* in libcurl's hands; freed when it lets go */
};

struct etcd_http {
	struct event_base *base;
	const struct etcd_access *access;
	CURLM *multi;
	struct event *timer;
	LIST_HEAD(, etcd_request) requests;
};

// ---- base64, numbers ----

json_t *
etcd_bytes(const char *text)
{
	size_t n = strlen(text);
	unsigned char *out = malloc(4 * ((n + 2) / 3) + 1);
	json_t *j;

	if (!out)
		return NULL;
	EVP_EncodeBlock(out, (const unsigned char *)text, (int)n);
	j = json_string((const char *)out);
	free(out);
	return j;
}

int
etcd_text(const json_t *bytes, char *text, size_t size)
{
	const char *from = json_string_value(bytes);
	size_t n = json_string_length(bytes);
	unsigned char out[3072];
	int length;

	if (!from || n > 4096 || n % 4)
		return -1;
	length = EVP_DecodeBlock(out, (const unsigned char *)from, (int)n);
	for (; length > 0 && n && from[n - 1] == '='; n--)
		length--;
	if (length < 0 || (size_t)length >= size || memchr(out, 0, (size_t)length))
		return -1;
	memcpy(text, out, (size_t)length);
	text[length] = 0;
	return 0;
}

uint64_t
etcd_number(const json_t *number)
{
	const char *text = json_string_value(number);

	return text ? strtoull(text, NULL, 10) : 0;
}

// ---- answers ----

static void
set_error(struct etcd_request *r, const char *text)
{
	size_t n = 0;

	if (r->error[0])
		return;
	for (; text[n] && n + 1 < sizeof(r->error); n++)
		r->error[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
	r->error[n] = 0;
}

static void
take_answer(struct etcd_request *r, const char *text, size_t length)
{
	json_t *answer = NULL, *error, *result;
	json_error_t where;
	size_t cost = 0;

	// A value costs jansson far more than its bytes: 24 MiB of "[]," would take 1 GiB.
	for (size_t i = 0; i < length && cost <= COST_MAX; i++)
		cost += text[i] == '[' || text[i] == '{' ? 4 : text[i] == ',';
	if (cost <= COST_MAX)
		answer = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
	// etcd says {"error":...} on its own, or as a stream's element.
	error = json_object_get(answer, "error");
	if (json_is_object(error))
		error = json_object_get(error, "message");
	result = json_object_get(answer, "result");
	if (json_is_string(error))
		set_error(r, json_string_value(error));
	// Each of etcd's answers has a header.
	else if (!json_is_object(json_object_get(result ? result : answer, "header")))
		set_error(r, "the server that answers is not an etcd");
	else if (!r->dropped)
		r->reply.answer(r->reply.user, answer);
	json_decref(answer);
}

static size_t
on_data(char *data, size_t size, size_t n, void *user)
{
	struct etcd_request *r = user;
	size_t more = size * n, seen, at = 0;
	char *end;

	weir_assert(r->length <= ETCD_ANSWER_MAX);

	if (more > ETCD_ANSWER_MAX - r->length) {
		set_error(r, "an answer is longer than 24 MiB");
		return 0;
	}
	if (VEC_RESERVE(r->got, r->room, r->length + more)) {
		set_error(r, "out of memory");
		return 0;
	}
	memcpy(r->got + r->length, data, more);
	r->length += more;
	// Whole lines are whole answers. The bytes from before hold no end of line.
	seen = r->length - more;
	while (!r->error[0] && !r->dropped && seen < r->length &&
	       (end = memchr(r->got + seen, '\n', r->length - seen))) {
		if (end > r->got + at)
			take_answer(r, r->got + at, (size_t)(end - r->got) - at);
		seen = at = (size_t)(end - r->got) + 1;
	}
	memmove(r->got, r->got + at, r->length - at);
	r->length -= at;
	return r->error[0] || r->dropped ? 0 : more; /* 0: libcurl ends it */
}

// ---- requests ----

static void
request_free(struct etcd_request *r)
{
	if (r->busy)
		curl_multi_remove_handle(r->http->multi, r->easy);
	LIST_REMOVE(r, of_http);
	curl_easy_cleanup(r->easy);
	curl_slist_free_all(r->headers);
	free(r->body);
	free(r->got);
	free(r);
}

void
etcd_drop(struct etcd_request *r)
{
	if (r)
		r->dropped = true;
	if (r && r->http->timer) /* libcurl may be calling us */
		event_active(r->http->timer, EV_TIMEOUT, 0);
}

static void
finish_some(struct etcd_http *h)
{
	struct etcd_request *r, *following;
	char error[ETCD_ERROR_MAX], text[40];
	struct etcd_reply reply;
	const CURLMsg *m;
	CURLcode code;
	long status;
	int left;

	while ((m = curl_multi_info_read(h->multi, &left))) {
		if (m->msg != CURLMSG_DONE)
			continue;
		code = m->data.result;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&r);
		reply = r->reply;
		status = 0;
		curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
		if (code == CURLE_OK && r->length && !r->error[0])
			take_answer(r, r->got, r->length); /* the last one has no end of line */
		/* what libcurl has to say of these says after how many ms, each time others */
		if (code == CURLE_COULDNT_CONNECT || code == CURLE_OPERATION_TIMEDOUT)
			r->curl_error[0] = 0;
		if (code != CURLE_OK && !r->error[0])
			set_error(r, r->curl_error[0] ? r->curl_error : curl_easy_strerror(code));
		if (status >= 300 && !r->error[0]) {
			snprintf(text, sizeof(text), "HTTP status %ld", status);
			set_error(r, text);
		}
		memcpy(error, r->error, sizeof(error));
		if (r->dropped)
			reply.over = NULL;
		request_free(r);
		if (reply.over)
			reply.over(reply.user, error[0] ? error : NULL);
	}
	for (r = LIST_FIRST(&h->requests); r; r = following) {
		following = LIST_NEXT(r, of_http);
		if (r->dropped)
			request_free(r);
	}
}

// Takes the reference to `body`.
static struct etcd_request *
request_make(struct etcd_http *h, const char *url, const char *path, json_t *body,
	     const char *token, unsigned seconds)
{
	struct etcd_request *r = body ? calloc(1, sizeof(*r)) : NULL;
	char text[512];

	if (r) {
		r->http = h;
		LIST_INSERT_HEAD(&h->requests, r, of_http);
		r->body = json_dumps(body, JSON_COMPACT);
		r->easy = curl_easy_init();
		r->headers = curl_slist_append(NULL, "Content-Type: application/json");
	}
	json_decref(body);
	if (!r || !r->body || !r->easy || !r->headers) {
		if (r)
			request_free(r);
		return NULL;
	}
	if (token && token[0]) {
		snprintf(text, sizeof(text), "Authorization: %s", token);
		curl_slist_append(r->headers, text);
	}
	snprintf(text, sizeof(text), "%s%s", url, path);
	curl_easy_setopt(r->easy, CURLOPT_URL, text);
	curl_easy_setopt(r->easy, CURLOPT_PRIVATE, r);
	curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, r->headers);
	curl_easy_setopt(r->easy, CURLOPT_POSTFIELDS, r->body);
	curl_easy_setopt(r->easy, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(r->easy, CURLOPT_WRITEDATA, r);
	curl_easy_setopt(r->easy, CURLOPT_ERRORBUFFER, r->curl_error);
	curl_easy_setopt(r->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(r->easy, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(r->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(r->easy, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS);
	curl_easy_setopt(r->easy, CURLOPT_TIMEOUT, (long)seconds);
	if (h->access->ca)
		curl_easy_setopt(r->easy, CURLOPT_CAINFO, h->access->ca);
	if (h->access->certificate) {
		curl_easy_setopt(r->easy, CURLOPT_SSLCERT, h->access->certificate);
		curl_easy_setopt(r->easy, CURLOPT_SSLKEY, h->access->key);
	}
	return r;
}

struct etcd_request *
etcd_post(struct etcd_http *h, const char *url, const char *path, json_t *body, const char *token,
	  unsigned seconds, const struct etcd_reply *reply)
{
	struct etcd_request *r = request_make(h, url, path, body, token, seconds);

	if (!r)
		return NULL;
	r->reply = *reply;
	r->busy = curl_multi_add_handle(h->multi, r->easy) == CURLM_OK;
	if (r->busy)
		return r;
	request_free(r);
	return NULL;
}

void
etcd_post_and_wait(struct etcd_http *h, const char *url, const char *path, json_t *body,
		   const char *token, unsigned seconds)
{
	struct etcd_request *r = request_make(h, url, path, body, token, seconds);

	if (!r)
		return;
	r->dropped = true; /* nobody asks what the answer was */
	curl_easy_perform(r->easy);
	request_free(r);
}

// ---- libcurl in the event loop ----

static void
on_event(evutil_socket_t fd, short what, void *user)
{
	struct etcd_http *h = user;
	int running, action = (what & EV_READ ? CURL_CSELECT_IN : 0) |
			      (what & EV_WRITE ? CURL_CSELECT_OUT : 0);

	curl_multi_socket_action(h->multi, fd, action, &running);
	finish_some(h);
}

static void
on_timer(evutil_socket_t fd, short what, void *user)
{
	struct etcd_http *h = user;
	int running;

	curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	finish_some(h);
}

static int
want_timer(CURLM *multi, long ms, void *user)
{
	struct etcd_http *h = user;
	struct timeval wait = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	if (ms < 0)
		evtimer_del(h->timer);
	else
		evtimer_add(h->timer, &wait);
	return 0;
}

static int
want_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *mine)
{
	struct etcd_http *h = user;
	struct event *watch = mine; // of this descriptor so far
	short events = (short)((what != CURL_POLL_OUT ? EV_READ : 0) |
			       (what != CURL_POLL_IN ? EV_WRITE : 0) | EV_PERSIST);

	if (watch)
		event_free(watch);
	watch = what == CURL_POLL_REMOVE ? NULL : event_new(h->base, fd, events, on_event, h);
	if (watch && event_add(watch, NULL)) {
		event_free(watch);
		watch = NULL;
	}
	curl_multi_assign(h->multi, fd, watch);
	return watch || what == CURL_POLL_REMOVE ? 0 : -1;
}

struct etcd_http *
etcd_http_create(struct event_base *base, const struct etcd_access *access)
{
	struct etcd_http *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->base = base;
	h->access = access;
	LIST_INIT(&h->requests);
	h->multi = curl_multi_init();
	h->timer = evtimer_new(base, on_timer, h);
	if (!h->multi || !h->timer) {
		etcd_http_destroy(h);
		return NULL;
	}
	curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
	curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
	curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, want_timer);
	curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
	curl_multi_setopt(h->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, 8L);
	return h;
}

void
etcd_http_destroy(struct etcd_http *h)
{
	if (!h)
		return;
	while (!LIST_EMPTY(&h->requests))
		request_free(LIST_FIRST(&h->requests));
	if (h->multi)
		curl_multi_cleanup(h->multi);
	if (h->timer)
		event_free(h->timer);
	free(h);
}
