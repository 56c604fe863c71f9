/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Remote invocation in C++17, over weir/invoke.h: lambdas are functions that other processes run.
 * Guide: docs/invoke.md. Header only; it needs exceptions and RTTI. Errors, threads, blocking and
 * calls inside functions are those of weir/invoke.h.
 *
 * Lambdas: a call copies the captures, as bytes. They are plain data, captured by value; a pointer
 * or a reference among them leads nowhere in another process. The bytes are a peer's: a lambda
 * checks what it uses. Its forms, for a future<R>; a call without a future has R void:
 *   [...]() { return r; }                  r converts to R; void discards it
 *   [...](weir_incoming *c) { return r; }  c for weir_incoming_from() and the like
 *   [...](weirxx::later<R> l) { ... }      the result comes later, by l.answer()
 *
 * Identity: the mangled type of the lambda, so that processes of one build agree wherever they are
 * loaded. It does not say what the lambda does: start one build everywhere. Types of one name, such
 * as of static functions of one name in two files, make open() return -EEXIST. Lambdas of a library
 * that is loaded after the first functions() have no number: calls of them return -EINVAL.
 *
 * Exceptions: one that leaves a lambda ends the future with -ECANCELED, and goes no further. It is
 * counted as `refused`. If the caller expects no result, the first of a lambda is told on stderr.
 */
#ifndef WEIR_INVOKE_HPP
#define WEIR_INVOKE_HPP

#include "invoke.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <typeinfo>
#include <utility>
#include <vector>

namespace weirxx /* `weir` is a structure */
{

/* The future<R> of a caller. Copied freely. */
template <class R> struct later {
	weir_invoker *invoker;
	struct weir_answer name;

	int
	answer(int error, const R *r = nullptr) const /* weir_answer() */
	{
		if constexpr (std::is_void_v<R>)
			return weir_answer(invoker, &name, error, nullptr, 0);
		else
			return weir_answer(invoker, &name, error, r, r ? sizeof(R) : 0);
	}
};

namespace detail
{
/* A function, in a list of all. */
struct entry {
	weir_function f;
	char name[WEIR_FUNCTION_NAME_MAX + 1];
	uint32_t number = UINT32_MAX; /* in the table */
	entry *next;
	static inline entry *first;

	/* Its name: FNV-1a of the type's, and the end of that for people. */
	entry(const char *type, uint32_t size, decltype(weir_function::run_many) run) : next(first)
	{
		size_t length = std::strlen(type), skip = length > 46 ? length - 46 : 0;
		unsigned long long h = 14695981039346656037ull;

		for (const char *c = type; *c; c++)
			h = (h ^ static_cast<unsigned char>(*c)) * 1099511628211ull;
		std::snprintf(name, sizeof(name), "%016llx.%s", h, type + skip);
		f = {name, 1, 0, size, size, nullptr, run, nullptr, nullptr, nullptr};
		first = this;
	}
};

/* F as a function, for futures of R. */
template <class F, class R> struct function {
	static_assert(std::is_class_v<F> && std::is_trivially_copyable_v<F> &&
			  sizeof(F) <= WEIR_ARGS_MAX,
		      "capture plain data by value, at most WEIR_ARGS_MAX bytes");
	static constexpr uint32_t size = std::is_empty_v<F> ? 0 : sizeof(F);

	static auto
	call(F &f, weir_incoming *c)
	{
		if constexpr (std::is_invocable_v<F &, weir_incoming *>)
			return f(c);
		else
			return f();
	}
	static void
	run(F &f, weir_incoming *c)
	{
		if constexpr (std::is_invocable_v<F &, later<R>>) {
			later<R> l{weir_incoming_invoker(c), {}};

			weir_incoming_later(c, &l.name);
			try {
				f(l);
			} catch (...) {
				l.answer(ECANCELED);
			}
		} else if constexpr (std::is_void_v<R>) {
			call(f, c);
		} else {
			const R r = call(f, c);

			weir_incoming_result(c, &r, sizeof(r));
		}
	}
	static void
	run_many(weir_incoming *c, const void *args, size_t, size_t stride, size_t count) noexcept
	{
		for (size_t i = 0; i < count; i++) {
			alignas(F) unsigned char copy[sizeof(F)] = {};

			std::memcpy(copy, static_cast<const char *>(args) + i * stride, size);
			try {
				run(*std::launder(reinterpret_cast<F *>(copy)), c);
			} catch (...) {
				if (weir_incoming_refuse(c, ECANCELED) == -EINVAL &&
				    !told.exchange(true))
					std::fprintf(stderr, "weir: an exception left a call: %s\n",
						     typeid(F).name());
			}
		}
	}
	static inline std::atomic<bool> told;
	static inline entry registered{typeid(function).name(), size, run_many};
};

/* make(number, size) calls F; o.sync counts that, unless it fails. */
template <class F, class R = void, class Make>
int
call(const weir_call_options &o, Make make)
{
	if (o.sync)
		weir_sync_add(o.sync, 1);
	int rc = make(function<F, R>::registered.number, function<F, R>::size);
	if (rc && o.sync)
		weir_sync_add(o.sync, static_cast<uint64_t>(-1));
	return rc;
}

} // namespace detail

/* All lambdas that the program calls; from now on they have numbers. In main() or later, any
 * thread. May throw std::bad_alloc. */
inline const std::vector<weir_function> &
functions()
{
	static const auto table = [] {
		std::vector<weir_function> t;

		for (detail::entry *e = detail::entry::first; e; e = e->next) {
			e->number = static_cast<uint32_t>(t.size());
			t.push_back(e->f);
		}
		return t;
	}();

	return table;
}

/* Closes it at its end; all other threads have left. */
using invoker =
    std::unique_ptr<weir_invoker,
		    std::integral_constant<int (*)(weir_invoker *), weir_invoker_close>>;

/* weir_invoker_open() with functions(). May throw std::bad_alloc. */
inline int
open(weir *w, weir_group *g, invoker &v, weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT)
{
	weir_invoker *opened = nullptr;

	o.functions = functions().data();
	o.function_count = static_cast<uint32_t>(functions().size());
	int rc = weir_invoker_open(w, g, &o, &opened);
	v.reset(opened);
	return rc;
}

/* As NULL. A sync of options counts each call that does not fail, without weir_sync_add(). */
inline constexpr weir_call_options standard{0, -1, nullptr, nullptr, 0, {}};

/* These options with the elements of a container as payload, as in with_payload(vector, sync). */
template <class C>
weir_call_options
with_payload(const C &c, weir_call_options o = standard)
{
	using T = std::remove_pointer_t<decltype(std::data(c))>;
	static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8, "give plain data");

	o.payload = std::data(c);
	o.payload_length = std::size(c) * sizeof(T);
	return o;
}

/* In a lambda, the payload as elements, without a part of one. They are a peer's. */
template <class T> struct payload {
	size_t bytes;
	const T *first;

	explicit payload(const weir_incoming *c)
	    : first(static_cast<const T *>(weir_incoming_payload(c, &bytes)))
	{
	}
	const T *
	begin() const
	{
		return first;
	}
	const T *
	end() const
	{
		return first + bytes / sizeof(T);
	}
};

/* weir_call() of f. */
template <class F>
int
call(weir_invoker *v, weir_to to, const F &f, const weir_call_options &o = standard)
{
	return detail::call<F>(
	    o, [&](uint32_t n, size_t size) { return weir_call(v, to, n, &f, size, &o); });
}

/* weir_line_call() of f. */
template <class F>
int
call(weir_line *l, const F &f)
{
	return detail::call<F>(
	    standard, [&](uint32_t n, size_t size) { return weir_line_call(l, n, &f, size); });
}

/* weir_call_all() of f. */
template <class F>
int
call_all(weir_invoker *v, const F &f, const weir_call_options &o = standard)
{
	return detail::call<F>(
	    o, [&](uint32_t n, size_t size) { return weir_call_all(v, n, &f, size, &o); });
}

/* A weir_sync, and the options with which calls name it. So it does not move, and its end waits for
 * them, in a thread that has entered and is in no function; elsewhere it is std::terminate(). If
 * the data plane is lost, the thread leaves. */
struct sync : weir_call_options {
	weir_sync s;
	weir_invoker *v;

	explicit sync(weir_invoker *invoker)
	    : weir_call_options{0, -1, &s, nullptr, 0, {}}, v(invoker)
	{
		weir_sync_init(&s, 0, nullptr, nullptr);
	}
	sync &operator=(sync &&) = delete;
	~sync()
	{
		/* in a forked child nothing names it */
		for (int rc = 0; weir_sync_left(&s, nullptr) && rc != -ENOTCONN;) {
			rc = weir_sync_wait(v, &s, -1);
			if (rc == -EDEADLK || rc == -EPERM)
				std::terminate();
			if (rc == -ENODEV || rc == -ECONNABORTED)
				weir_invoker_leave(v);
		}
	}
};

/* A weir_future and the memory for its result, so it does not move. The thread that has made the
 * call ends it; an outstanding result is then cancelled in silence. The status is also -EPROTO: a
 * result of another size. Instead of `then` set `next` before a call: it runs once, must not throw,
 * and may end the future. */
template <class R> struct future : weir_future {
	using value = std::conditional_t<std::is_void_v<R>, char, R>;
	static constexpr size_t size = std::is_void_v<R> ? 0 : sizeof(value);
	static_assert(std::is_trivially_copyable_v<value> && size <= WEIR_ARGS_MAX,
		      "return plain data, at most WEIR_ARGS_MAX bytes");

	std::function<void(future &)> next;
	weir_invoker *v = nullptr; /* of an outstanding result */
	value result = {};	   /* a peer's bytes, if the status is 0 */

	future() : weir_future{-EINVAL, 0, 0, ended, this, {}} {}
	future &operator=(future &&) = delete;
	~future()
	{
		next = nullptr;
		if (v)
			weir_future_cancel(v, this);
	}
	static void
	ended(weir_future *, void *user) noexcept
	{
		future *f = static_cast<future *>(user);
		auto then = std::exchange(f->next, nullptr);

		f->v = nullptr;
		if (!f->status && f->length != size)
			f->status = -EPROTO;
		if (then)
			then(*f);
	}
};

/* weir_call_return() of f; also -EBUSY: r is outstanding. */
template <class R, class F>
int
call_return(weir_invoker *v, weir_to to, const F &f, future<R> &r,
	    const weir_call_options &o = standard)
{
	if (r.v)
		return -EBUSY;
	r.v = v;
	int rc = detail::call<F, R>(o, [&](uint32_t n, size_t size) {
		return weir_call_return(v, to, n, &f, size, &r, &r.result, r.size, &o);
	});
	if (rc) { /* else it may be gone */
		r.v = nullptr;
		r.status = rc;
	}
	return rc;
}

} // namespace weirxx
#endif
