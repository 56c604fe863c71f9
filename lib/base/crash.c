/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "crash.h"

#include "log.h"

#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FRAMES 64
#define STACK 65536

static void (*say_state)(void);
static _Atomic pid_t crashed; /* the first thread that does; 0: none has */

void
crash_add(struct crash_line *l, const char *text)
{
	while (*text && l->length < sizeof(l->text) - 1)
		l->text[l->length++] = *text++;
}

static void
add_number(struct crash_line *l, uint64_t number, unsigned base)
{
	char digits[24];
	size_t at = sizeof(digits) - 1;

	digits[at] = 0;
	do
		digits[--at] = "0123456789abcdef"[number % base];
	while ((number /= base));
	crash_add(l, digits + at);
}

void
crash_add_number(struct crash_line *l, uint64_t number)
{
	add_number(l, number, 10);
}

void
crash_add_hex(struct crash_line *l, uint64_t number)
{
	crash_add(l, "0x");
	add_number(l, number, 16);
}

void
crash_write(const struct crash_line *l)
{
	bool plain = log_format() == LOG_FORMAT_TEXT;
	const char *end = log_raw_end();
	char whole[1024];
	size_t n;

	log_raw_begin(LOG_LEVEL_ERROR, whole, sizeof(whole) / 2);
	n = strlen(whole);
	for (const char *at = "crash: "; *at; at++)
		whole[n++] = *at;
	/* characters that need an escape in the log's format are replaced */
	for (size_t i = 0; i < l->length && n < sizeof(whole) - 8; i++)
		whole[n++] =
		    l->text[i] < ' ' || (!plain && (l->text[i] == '"' || l->text[i] == '\\'))
			? '?'
			: l->text[i];
	while (*end)
		whole[n++] = *end++;
	if (write(STDERR_FILENO, whole, n) < 0)
		return; /* nowhere to say so */
}

/* libc prints into a descriptor alone. A pipe holds all of it. */
static void
say_where(void *const *frame, int count)
{
	int from_to[2] = {-1, -1};
	struct crash_line l = {.length = 0};
	char c;

	if (log_format() == LOG_FORMAT_TEXT || pipe2(from_to, O_CLOEXEC | O_NONBLOCK)) {
		backtrace_symbols_fd(frame, count, STDERR_FILENO);
		return;
	}
	backtrace_symbols_fd(frame, count, from_to[1]);
	while (read(from_to[0], &c, 1) == 1) {
		char one[2] = {c, '\0'};

		if (c != '\n') {
			crash_add(&l, one);
			continue;
		}
		crash_write(&l);
		l.length = 0;
	}
	close(from_to[0]);
	close(from_to[1]);
}

static void
handle(int number, siginfo_t *info, void *context)
{
	void *frame[FRAMES];
	struct crash_line l = {.length = 0};
	pid_t thread = (pid_t)syscall(SYS_gettid), first = 0;

	if (!atomic_compare_exchange_strong(&crashed, &first, thread)) {
		while (first != thread)
			pause(); /* another thread is about to end us */
	} else {
		crash_add(&l, number == SIGSEGV	  ? "SIGSEGV"
			      : number == SIGBUS  ? "SIGBUS"
			      : number == SIGILL  ? "SIGILL"
			      : number == SIGFPE  ? "SIGFPE"
			      : number == SIGABRT ? "SIGABRT"
						  : "signal");
		if (info->si_code > 0) {
			crash_add(&l, " at address ");
			crash_add_hex(&l, (uintptr_t)info->si_addr);
		} else {
			crash_add(&l, " sent by process ");
			crash_add_number(&l, (uint64_t)info->si_pid);
		}
		crash_add(&l, ", thread ");
		crash_add_number(&l, (uint64_t)thread);
		crash_add(&l, "; report this with the lines below and the core");
		crash_write(&l);
		say_where(frame, backtrace(frame, FRAMES));
		if (say_state)
			say_state(); /* last: it may be what is broken */
	}
	signal(number, SIG_DFL);
	/* a fault comes again when we return, with the registers it had; what was sent doesn't */
	if (info->si_code <= 0)
		raise(number);
}

void
crash_install(void (*state)(void))
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
	struct sigaction sa = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK}, before;
	void *frame[2];

	say_state = state;
	backtrace(frame, 2); /* loads what it needs now */
	sigfillset(&sa.sa_mask);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (!sigaction(signals[i], NULL, &before) && before.sa_handler == SIG_DFL)
			sigaction(signals[i], &sa, NULL);
	crash_thread();
}

void
crash_thread(void)
{
	stack_t stack = {.ss_size = STACK}, before;

	/* lives as long as the thread, which lives as long as the process */
	if (sigaltstack(NULL, &before) || !(before.ss_flags & SS_DISABLE))
		return;
	stack.ss_sp = malloc(STACK);
	if (stack.ss_sp && sigaltstack(&stack, NULL))
		free(stack.ss_sp);
}
