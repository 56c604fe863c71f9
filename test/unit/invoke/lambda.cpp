/* SPDX-License-Identifier: BSD-3-Clause */
#include "lambda.h"

#include "weir/invoke.hpp"

#include <algorithm>
#include <string>

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return __LINE__;                                                           \
	} while (0)

/* In no namespace that has no name: its name is known. */
struct lambda_named {
	int
	operator()() const
	{
		return 1;
	}
};

namespace
{

using weirxx::call;
using weirxx::call_all;
using weirxx::call_return;
using weirxx::future;
using weirxx::later;

constexpr int PATIENT = 600000;
constexpr uint32_t MOST = 8;

int
serve(void *v)
{
	return std::max(weir_invoker_progress(static_cast<weir_invoker *>(v), 0, 0), 0);
}

/* A member, whose thread makes and runs all of its calls. */
struct member {
	weirxx::invoker v;
	weir_group *g;
	uint32_t process, size;

	int
	enter(weir_group *group)
	{
		g = group;
		process = weir_group_rank(g);
		size = weir_group_size(g);
		CHECK(!weir_invoker_enter(v.get(), 0));
		weir_group_idle(g, serve, v.get());
		CHECK(!weir_group_barrier(g, PATIENT));
		return 0;
	}
	int
	begin(weir *w, weir_group *group)
	{
		CHECK(!weirxx::open(w, group, v));
		return enter(group);
	}
	int
	end()
	{
		CHECK(!weir_group_barrier(g, PATIENT));
		weir_group_idle(g, nullptr, nullptr);
		CHECK(!weir_invoker_leave(v.get()));
		return 0;
	}
	int
	until(const uint64_t &count, uint64_t is)
	{
		while (count < is)
			CHECK(weir_invoker_progress(v.get(), 0, PATIENT) >= 0);
		CHECK(count == is);
		return 0;
	}
	struct weir_invoker_stats
	stats() const
	{
		struct weir_invoker_stats s = WEIR_INVOKER_STATS_INIT;

		weir_invoker_stats(v.get(), &s);
		return s;
	}
};

thread_local member *own;

/* Lambdas leave here what they have seen, in the thread that runs them. */
thread_local struct {
	uint64_t calls, sum, other, wrong;
} seen;

int
begin(member &m, weir *w, weir_group *g)
{
	own = &m;
	return m.begin(w, g);
}

/* ---- calls ---- */

struct alignas(32) wide {
	char text[32];
};

int
calls(member &m)
{
	const uint32_t from = m.process;
	const wide w = {"a capture of 32 bytes"};
	weir_line *l;

	for (uint32_t p = 0; p < m.size; p++) {
		const weir_to to = {p, 0};
		const double half = p + 0.5;

		CHECK(!weir_line_open(m.v.get(), to, nullptr, PATIENT, &l));
		for (uint64_t i = 0; i < 500; i++) {
			auto add = [i] { seen.sum += i; };

			/* of one type but for its place */
			CHECK(!call(m.v.get(), to, add));
			CHECK(!call(m.v.get(), to, [i] { seen.other += 2 * i; }));
			CHECK(!call(l, add));
			CHECK(!call(l, [i]() mutable { seen.other += ++i; }));
		}
		CHECK(!call(m.v.get(), to, [w](weir_incoming *c) {
			seen.wrong += reinterpret_cast<uintptr_t>(&w) % 32 ||
				      std::strcmp(w.text, "a capture of 32 bytes") ||
				      weir_incoming_invoker(c) != own->v.get();
		}));
		CHECK(!call(m.v.get(), to, [from, half, p](weir_incoming *c) {
			seen.wrong += weir_incoming_from(c).process != from || half != p + 0.5 ||
				      own->process != p;
		}));
		/* the last one; its captures have no bytes */
		CHECK(!call(m.v.get(), to, [] { seen.calls++; }));
	}
	CHECK(!m.until(seen.calls, m.size));
	CHECK(seen.sum == m.size * 2 * (499 * 500 / 2));
	CHECK(seen.other == m.size * (2 * (499 * 500 / 2) + 500 * 501 / 2));
	CHECK(!seen.wrong && m.stats().run == m.size * 2003);
	return 0;
}

/* ---- results ---- */

struct pair {
	uint8_t first;
	double second;
};

int
results(member &m)
{
	const weir_to to = {1 - m.process, 0}, nobody = {2, 0};
	weir_invoker *v = m.v.get();
	future<uint64_t> sums[200];
	weir_future *list[200];
	future<double> converted;
	future<void> nothing;
	future<pair> both;
	uint32_t next = 0;
	double ended = 0;

	for (uint64_t i = 0; i < 200; i++) {
		CHECK(!call_return(
		    v, to, [i] { return i * i; }, sums[i]));
		list[i] = &sums[i];
	}
	CHECK(call_return(
		  v, to, [] { return 0; }, sums[199]) == -EBUSY);
	CHECK(weir_future_any(v, list + 199, 1, PATIENT) == 0);
	for (uint64_t i = 0; i < 200; i++) {
		CHECK(!weir_future_wait(v, &sums[i], PATIENT) && sums[i].result == i * i);
		CHECK(!sums[i].v);
	}
	/* one lambda for futures of several types, and for none */
	auto seven = [n = 7] {
		seen.calls++;
		return n;
	};
	CHECK(!call_return(v, to, seven, converted) && !call_return(v, to, seven, sums[0]));
	CHECK(!call_return(v, to, seven, nothing) && !call(v, to, seven));
	CHECK(!weir_future_wait(v, &converted, PATIENT) && converted.result == 7.0);
	CHECK(!weir_future_wait(v, &sums[0], PATIENT) && sums[0].result == 7);
	CHECK(!weir_future_wait(v, &nothing, PATIENT) && !nothing.length);
	CHECK(!m.until(seen.calls, 4));
	CHECK(!call_return(
	    v, to,
	    [](weir_incoming *c) {
		    return pair{static_cast<uint8_t>(weir_incoming_from(c).process), 0.25};
	    },
	    both));
	CHECK(!weir_future_wait(v, &both, PATIENT));
	CHECK(both.result.first == m.process && both.result.second == 0.25);
	/* a future that ends itself, and one whose call is refused */
	auto *f = new future<double>;
	f->next = [&](future<double> &r) {
		ended = r.result;
		next++;
		delete &r;
	};
	CHECK(!call_return(
	    v, to, [] { return 2.5; }, *f));
	while (!next)
		CHECK(weir_invoker_progress(v, 0, 10) >= 0);
	CHECK(ended == 2.5);
	sums[0].next = [&](future<uint64_t> &) { next++; };
	CHECK(call_return(v, nobody, seven, sums[0]) == -ENOENT);
	CHECK(sums[0].status == -ENOENT && !sums[0].v && next == 1);
	CHECK(!call_return(v, to, seven, sums[0]));
	CHECK(!weir_future_wait(v, &sums[0], PATIENT) && next == 2);
	return 0;
}

/* A future ends before its result has come. */
int
future_ends(member &m)
{
	const weir_to to = {1 - m.process, 0};
	alignas(future<uint64_t>) unsigned char place[sizeof(future<uint64_t>)];
	weir_invoker *v = m.v.get();
	uint32_t next = 0;

	auto *f = new (place) future<uint64_t>;
	f->next = [&](future<uint64_t> &) { next++; };
	CHECK(!call_return(
	    v, to, [] { return UINT64_MAX; }, *f));
	f->~future();
	std::memset(place, 0xa5, sizeof(place));
	while (!m.stats().ignored)
		CHECK(weir_invoker_progress(v, 0, 10) >= 0);
	for (unsigned char byte : place)
		CHECK(byte == 0xa5);
	CHECK(!next);
	return 0;
}

/* ---- nested calls ---- */

/* Asks the next process, which asks the one after it, until `left` is 0: the number of hops. */
struct hop {
	uint32_t left;

	void
	operator()(later<uint32_t> asked) const
	{
		const weir_to next = {(own->process + 1) % own->size, 0};
		auto *f = new future<uint32_t>;
		uint32_t none = 0;

		f->next = [asked](future<uint32_t> &r) {
			uint32_t hops = r.result + 1;

			asked.answer(-r.status, &hops);
			delete &r;
		};
		int rc = left ? call_return(asked.invoker, next, hop{left - 1}, *f) : 1;
		if (!rc) {
			seen.wrong += weir_future_wait(asked.invoker, f, -1) != -EDEADLK;
			return;
		}
		delete f;
		seen.wrong += rc < 0 || asked.answer(0, &none);
	}
};

thread_local later<void> open_answer;

int
nested(member &m)
{
	const weir_to next = {(m.process + 1) % m.size, 0};
	weir_invoker *v = m.v.get();
	future<uint32_t> hops[20];
	future<void> nothing;

	for (uint32_t i = 0; i < 20; i++)
		CHECK(!call_return(v, next, hop{i}, hops[i]));
	for (uint32_t i = 0; i < 20; i++)
		CHECK(!weir_future_wait(v, &hops[i], PATIENT) && hops[i].result == i);
	CHECK(!seen.wrong);
	/* an answer that is given outside of the function */
	auto keep = [](later<void> l) {
		open_answer = l;
		seen.calls++;
	};
	CHECK(!call_return(v, next, keep, nothing));
	CHECK(!m.until(seen.calls, 1));
	CHECK(!open_answer.answer(0));
	CHECK(!weir_future_wait(v, &nothing, PATIENT));
	return 0;
}

/* ---- payloads ---- */

int
payloads(member &m)
{
	weir_invoker *v = m.v.get();
	std::vector<uint64_t> few(10), many(100000);
	future<uint64_t> sum;
	const std::string text = "a text, which has no end of its own";
	const size_t length = text.size();

	for (uint64_t i = 0; i < many.size(); i++)
		many[i] = few[i % few.size()] = i;
	for (uint32_t p = 0; p < m.size; p++) {
		weirxx::sync all(v);
		auto add = [](weir_incoming *c) {
			uint64_t got = 0;

			for (uint64_t i : weirxx::payload<uint64_t>(c))
				got += i;
			seen.sum += got;
			return got;
		};
		auto spell = [length](weir_incoming *c) {
			weirxx::payload<char> got(c);

			seen.other += got.bytes == length && !std::memcmp(got.first, "a text", 6);
			seen.wrong += static_cast<size_t>(got.end() - got.begin()) != length;
		};

		CHECK(!call(v, {p, 0}, add, weirxx::with_payload(few)));
		CHECK(!call(v, {p, 0}, add, weirxx::with_payload(many, all)));
		CHECK(!call(v, {p, 0}, spell, weirxx::with_payload(text)));
		CHECK(!call_return(v, {p, 0}, add, sum, weirxx::with_payload(many)));
		CHECK(!weir_future_wait(v, &sum, PATIENT) && sum.result == 4999950000u);
		CHECK(!call_return(v, {p, 0}, add, sum)); /* none */
		CHECK(!weir_future_wait(v, &sum, PATIENT) && !sum.result);
	}
	/* those of the others may still come */
	CHECK(!m.until(seen.sum, m.size * (2 * 4999950000u + 999945)));
	CHECK(seen.other == m.size && !seen.wrong);
	return 0;
}

/* ---- exceptions ---- */

int
throws(member &m)
{
	const weir_to to = {1 - m.process, 0};
	weir_invoker *v = m.v.get();
	future<std::nullptr_t> f;
	future<uint32_t> g;
	future<void> h;

	for (uint32_t i = 0; i < 3; i++) {
		auto fail = [i]() -> std::nullptr_t {
			if (i < 3)
				throw i;
			return nullptr;
		};
		CHECK(!call_return(v, to, fail, f));
		CHECK(weir_future_wait(v, &f, PATIENT) == -ECANCELED);
		CHECK(!call_return(
		    v, to, [](later<uint32_t>) { throw std::bad_alloc(); }, g));
		CHECK(weir_future_wait(v, &g, PATIENT) == -ECANCELED);
		CHECK(!call_return(
		    v, to, [] { throw std::bad_alloc(); }, h));
		CHECK(weir_future_wait(v, &h, PATIENT) == -ECANCELED);
		/* nobody is told, and calls behind it run */
		CHECK(!call(v, to, [] { throw std::bad_alloc(); }));
		CHECK(!call(v, to, [] { seen.calls++; }));
	}
	CHECK(!m.until(seen.calls, 3));
	/* later answers are not refused calls */
	CHECK(m.stats().refused == 9);
	return 0;
}

/* ---- functions that differ ---- */

void
give_a_byte(weir_incoming *c, const void *, size_t, size_t, size_t)
{
	weir_incoming_result(c, "", 1);
}

/* Process 1 lacks lambda_named, and its other functions give results of one byte. */
int
differs(weir *w, weir_group *g)
{
	const std::string lacks = weirxx::detail::function<lambda_named, int>::registered.name;
	std::vector<weir_function> table = weirxx::functions();
	weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;
	const weir_to to = {1, 0};
	future<uint8_t> byte;
	weir_invoker *opened;
	future<int> f;
	member m;

	own = &m;
	for (weir_function &function : table)
		function.run_many = give_a_byte;
	table.erase(std::remove_if(table.begin(), table.end(),
				   [&](const weir_function &x) { return x.name == lacks; }),
		    table.end());
	CHECK(table.size() == weirxx::functions().size() - 1);
	o.functions = table.data();
	o.function_count = static_cast<uint32_t>(table.size());
	if (weir_group_rank(g)) {
		CHECK(!weir_invoker_open(w, g, &o, &opened));
		m.v.reset(opened);
	} else {
		CHECK(!weirxx::open(w, g, m.v));
	}
	CHECK(!m.enter(g));
	if (!m.process) {
		weirxx::sync s(m.v.get());

		CHECK(call_return(m.v.get(), to, lambda_named(), f) == -ENOSYS);
		CHECK(std::string(weir_reason()).find(lacks) != std::string::npos);
		CHECK(f.status == -ENOSYS);
		CHECK(!call_return(
		    m.v.get(), to, [] { return 1; }, f));
		CHECK(weir_future_wait(m.v.get(), &f, PATIENT) == -EPROTO);
		CHECK(!call_return(
		    m.v.get(), to, [] { return true; }, byte));
		CHECK(!weir_future_wait(m.v.get(), &byte, PATIENT));
		CHECK(call_return(m.v.get(), to, lambda_named(), f, s) == -ENOSYS);
		CHECK(!weir_sync_left(&s.s, nullptr));
	}
	return m.end();
}

/* ---- syncs ---- */

std::atomic<uint32_t> ran[MOST], ran_everywhere[MOST];

int
syncs(member &m)
{
	const uint32_t from = m.process;
	weir_invoker *v = m.v.get();
	future<int> f;

	{
		weirxx::sync s(v);

		for (uint32_t i = 0; i < 300; i++)
			CHECK(!call(
			    v, {i % m.size, 0}, [from] { ran[from]++; }, s));
		/* its end waits */
	}
	CHECK(ran[from] == 300);
	weirxx::sync s(v);
	for (uint32_t i = 0; i < 10; i++)
		CHECK(!call_all(
		    v,
		    [from](weir_incoming *c) {
			    ran_everywhere[from] += weir_incoming_from(c).process == from;
		    },
		    s));
	CHECK(!call_return(
	    v, {0, 0}, [] { return 3; }, f, s));
	CHECK(!weir_sync_wait(v, &s.s, PATIENT));
	CHECK(ran_everywhere[from] == 10 * m.size && f.result == 3);
	return 0;
}

int
with_member(weir *w, weir_group *g, int (*run)(member &m))
{
	member m;
	int rc;

	seen = {};
	CHECK(!begin(m, w, g));
	rc = run(m);
	return rc ? rc : m.end();
}

} // namespace

int
lambda_calls(weir *w, weir_group *g)
{
	return with_member(w, g, calls);
}

int
lambda_results(weir *w, weir_group *g)
{
	return with_member(w, g, results);
}

int
lambda_future_ends(weir *w, weir_group *g)
{
	return with_member(w, g, future_ends);
}

int
lambda_nested(weir *w, weir_group *g)
{
	return with_member(w, g, nested);
}

int
lambda_payloads(weir *w, weir_group *g)
{
	return with_member(w, g, payloads);
}

int
lambda_throws(weir *w, weir_group *g)
{
	return with_member(w, g, throws);
}

int
lambda_differs(weir *w, weir_group *g)
{
	return differs(w, g);
}

int
lambda_syncs(weir *w, weir_group *g)
{
	return with_member(w, g, syncs);
}

int
lambda_names()
{
	std::vector<std::string> names;
	future<int> f;

	for (const weir_function &function : weirxx::functions()) {
		names.push_back(function.name);
		CHECK(names.back().size() > 17 && names.back().size() <= WEIR_FUNCTION_NAME_MAX);
	}
	std::sort(names.begin(), names.end());
	CHECK(std::unique(names.begin(), names.end()) == names.end());
	/* FNV-1a of the type's mangled name */
	CHECK(std::count(names.begin(), names.end(),
			 "dc0c1700d2144385.N6weirxx6detail8functionI12lambda_namediEE") == 1);
	return 0;
}
