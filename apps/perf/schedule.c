/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule.h"

#include "message.h"

#include "weir/invoke.h"
#include "weir/stream.h"

#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <string.h>

#define STEP 0x9e3779b97f4a7c15ull
#define LARGE_FIRST_BIT 16 /* 64 KiB */
#define LARGE_LAST_BIT 24  /* 16 MiB */
#define SMALL_LAST_BIT 13  /* 8 KiB */

bool
perf_elements_ok(uint32_t type, uint32_t op, uint32_t size)
{
	uint32_t of = perf_element(type);

	return op != WEIR_ACC_NO_OP &&
	       weir_acc_valid((enum weir_type)of, (enum weir_acc)perf_acc(op)) &&
	       size % perf_element_size(type) == 0;
}

uint32_t
perf_usual_size(uint32_t test, uint32_t type)
{
	uint32_t element = perf_element_size(type);

	return test == PERF_BW || test == PERF_READ	 ? 65536
	       : test == PERF_MIX || perf_is_epoch(test) ? 0
	       : test == PERF_ACC			 ? (element > 8 ? element : 8)
	       : perf_is_update(test)			 ? element
							 : 64;
}

/* Elements of two numbers, and long double: type of the first, offset of the second. */
static const struct {
	uint8_t first, second;
} wide[] = {
    [WEIR_T_LONG_DOUBLE] = {WEIR_T_LONG_DOUBLE, 0},
    [WEIR_T_FLOAT_COMPLEX] = {WEIR_T_FLOAT, sizeof(float)},
    [WEIR_T_DOUBLE_COMPLEX] = {WEIR_T_DOUBLE, sizeof(double)},
    [WEIR_T_LONG_DOUBLE_COMPLEX] = {WEIR_T_LONG_DOUBLE, sizeof(long double)},
    [WEIR_T_INT16_AT] = {WEIR_T_INT16, offsetof(struct weir_int16_at, at)},
    [WEIR_T_INT32_AT] = {WEIR_T_INT32, offsetof(struct weir_int32_at, at)},
    [WEIR_T_INT64_AT] = {WEIR_T_INT64, offsetof(struct weir_int64_at, at)},
    [WEIR_T_FLOAT_AT] = {WEIR_T_FLOAT, offsetof(struct weir_float_at, at)},
    [WEIR_T_DOUBLE_AT] = {WEIR_T_DOUBLE, offsetof(struct weir_double_at, at)},
    [WEIR_T_LONG_DOUBLE_AT] = {WEIR_T_LONG_DOUBLE, offsetof(struct weir_long_double_at, at)},
};

/* Type of the first number, and its bytes without padding. */
static uint32_t
first_number(uint32_t type, size_t *bytes)
{
	uint32_t of = perf_element(type);

	of = of > WEIR_T_DOUBLE ? wide[of].first : of;
	*bytes = of == WEIR_T_LONG_DOUBLE && LDBL_MANT_DIG == 64
		     ? 10
		     : weir_type_size((enum weir_type)of);
	return of;
}

void
perf_element_store(uint32_t type, uint64_t value, void *element)
{
	const float f = (float)value;
	const double d = (double)value;
	const long double l = (long double)value;
	uint32_t of = perf_element(type), first;
	const int32_t at = (int32_t)value;
	const void *from = &value;
	size_t bytes;

	first = first_number(type, &bytes);
	if (first == WEIR_T_FLOAT)
		from = &f;
	else if (first == WEIR_T_DOUBLE)
		from = &d;
	else if (first == WEIR_T_LONG_DOUBLE)
		from = &l;
	memset(element, 0, perf_element_size(type));
	/* little-endian, so that the first bytes are those of a shorter integer */
	memcpy(element, from, bytes);
	if (of >= WEIR_T_INT16_AT)
		memcpy((uint8_t *)element + wide[of].second, &at, sizeof(at));
}

bool
perf_element_is(uint32_t type, uint64_t value, const void *element)
{
	const uint8_t *has = element;
	uint8_t is[PERF_ELEMENT_MAX];
	uint32_t of = perf_element(type), second;
	size_t bytes;

	perf_element_store(type, value, is);
	first_number(type, &bytes);
	if (memcmp(has, is, bytes) != 0)
		return false;
	second = of > WEIR_T_DOUBLE ? wide[of].second : 0;
	bytes = of >= WEIR_T_INT16_AT ? sizeof(int32_t) : bytes;
	return !second || memcmp(has + second, is + second, bytes) == 0;
}

uint64_t
perf_element_after(uint32_t type, uint32_t op, uint64_t times)
{
	size_t bytes;

	switch (perf_acc(op)) {
	case WEIR_ACC_SUM: /* a float that counts stops at the first number that it cannot hold */
		return first_number(type, &bytes) == WEIR_T_FLOAT && times > 1u << 24 ? 1u << 24
										      : times;
	case WEIR_ACC_LXOR:
	case WEIR_ACC_BXOR:
		return times % 2;
	case WEIR_ACC_MAX:
	case WEIR_ACC_MAXLOC:
	case WEIR_ACC_LOR:
	case WEIR_ACC_BOR:
	case WEIR_ACC_REPLACE:
		return times > 0;
	default:
		return 0;
	}
}

const char *
perf_test_name(uint32_t test)
{
	static const char *const names[PERF_TESTS] = {
	    "lat",    "bw",	"rate", "mix",	"read",	   "message", "request",
	    "call",   "return", "put",	"get",	"acc",	   "fop",     "cas",
	    "notify", "signal", "flag", "lock", "lockall", "fence",   "pscw"};

	return test < PERF_TESTS ? names[test] : "?";
}

/* Log-uniform in [2^first, 2^last], the powers of two themselves more often: they are the edges. */
static uint32_t
log_uniform(uint64_t r, unsigned first, unsigned last)
{
	unsigned bit = first + (unsigned)(r % (last - first + 1));

	r >>= 8;
	if (bit == last || r % 16 == 0)
		return 1u << bit;
	return (1u << bit) + (uint32_t)((r >> 4) & ((1u << bit) - 1));
}

uint32_t
perf_schedule_mixed_size(const struct perf_schedule *schedule, uint64_t i)
{
	uint64_t r = perf_mix(schedule->seed + (i + 1) * STEP);
	uint64_t every = schedule->large ? schedule->count / schedule->large : 0;
	uint32_t size;

	if (every && i % every == every - 1 && i / every < schedule->large)
		return log_uniform(r, LARGE_FIRST_BIT, LARGE_LAST_BIT);
	/* 0 is as likely as 1 */
	size = log_uniform(r >> 1, 0, SMALL_LAST_BIT);
	return size == 1 && (r & 1) ? 0 : size;
}

uint32_t
perf_schedule_largest(const struct perf_schedule *schedule)
{
	if (schedule->test != PERF_MIX)
		return schedule->size;
	return 1u << (schedule->large ? LARGE_LAST_BIT : SMALL_LAST_BIT);
}

/* Word k of the message is first + k * STEP; the last bytes are the first ones of the next word. */
static uint64_t
first_word(const struct perf_schedule *schedule, uint64_t i)
{
	return perf_mix(schedule->seed ^ perf_mix(i + STEP));
}

void
perf_schedule_fill(const struct perf_schedule *schedule, uint64_t i, void *buf, size_t length)
{
	uint8_t *to = buf;
	uint64_t word = first_word(schedule, i);
	size_t words = length / 8;

	for (size_t k = 0; k < words; k++) {
		uint64_t w = word + k * STEP;

		memcpy(to + 8 * k, &w, 8);
	}
	word += words * STEP;
	if (length % 8)
		memcpy(to + 8 * words, &word, length % 8);
}

bool
perf_schedule_check(const struct perf_schedule *schedule, uint64_t i, const void *buf,
		    size_t length)
{
	const uint8_t *from = buf;
	uint64_t word = first_word(schedule, i), differ = 0;
	size_t words = length / 8;

	for (size_t k = 0; k < words; k++) {
		uint64_t w;

		memcpy(&w, from + 8 * k, 8);
		differ |= w ^ (word + k * STEP);
	}
	word += words * STEP;
	return !differ && (!(length % 8) || memcmp(from + 8 * words, &word, length % 8) == 0);
}

uint64_t
perf_schedule_offset(const struct perf_schedule *schedule, uint64_t i)
{
	uint64_t room = schedule->region - schedule->size;

	/* 64 bytes apart, as anything that is read for itself is */
	return perf_mix(schedule->seed + (i + 1) * STEP) % (room / 64 + 1) * 64;
}

bool
perf_schedule_read(const struct perf_schedule *schedule, uint64_t i, const void *buf, size_t length,
		   bool all)
{
	uint64_t first = perf_schedule_offset(schedule, i) / 8, words = length / 8, differ = 0, w;
	const uint8_t *from = buf;

	for (uint64_t k = 0; k < words; k += all || k == words - 1 ? 1 : words - 1) {
		memcpy(&w, from + 8 * k, 8);
		differ |= w ^ perf_region_word(first + k);
	}
	w = perf_region_word(first + words);
	return !differ && memcmp(from + 8 * words, &w, length % 8) == 0;
}

void
perf_datagram_service(uint64_t number, char name[WEIR_SERVICE_MAX])
{
	snprintf(name, WEIR_SERVICE_MAX, "perf-ud-%llx", (unsigned long long)number);
}

int
perf_message_read(struct perf_message *to, const void *buf, size_t length, enum perf_kind kind)
{
	struct perf_message m;

	if (length < offsetof(struct perf_message, kind))
		return -EBADMSG;
	memcpy(&m, buf, length < sizeof(m) ? length : sizeof(m));
	if (m.magic != PERF_MAGIC)
		return -EBADMSG;
	to->versions = m.versions;
	if (!weir_version_choose(PERF_VERSIONS, m.versions, "", "", "", NULL))
		return -EPROTONOSUPPORT;
	if ((length != sizeof(m) && length != PERF_MESSAGE_MAX) || m.kind != (uint32_t)kind)
		return -EBADMSG;
	if (kind == PERF_REQUEST && (m.test >= PERF_TESTS || m.size > WEIR_STREAM_MESSAGE_MAX ||
				     m.large > m.count || (m.test == PERF_MIX && !m.count)))
		return -EBADMSG;
	if (kind == PERF_REQUEST && m.test == PERF_READ &&
	    (m.region < m.size || m.region > 1ull << 40 || m.size <= PERF_READ_REQUEST))
		return -EBADMSG;
	if (kind == PERF_REQUEST && m.test >= PERF_MESSAGES && (!m.threads || m.threads > 256))
		return -EBADMSG;
	if (kind == PERF_REQUEST && perf_is_update(m.test) &&
	    (!m.size || !perf_elements_ok(m.type, m.op, m.size) ||
	     (m.test != PERF_ACC && m.size != perf_element_size(m.type)) ||
	     (m.test == PERF_CAS && (m.type || m.op))))
		return -EBADMSG;
	if (kind == PERF_REQUEST && m.block &&
	    (!perf_has_layout(m.test) || !m.size || m.size % m.block || m.stride < m.block ||
	     m.size / m.block > PERF_EXTENT_MAX / m.stride ||
	     (m.test == PERF_ACC && !perf_pieces_ok(m.type, m.block, m.stride))))
		return -EBADMSG;
	if (kind == PERF_REQUEST && perf_is_call(m.test) &&
	    (m.size > WEIR_ARGS_MAX ||
	     m.threads > PERF_CALL_THREADS_MAX / (m.flags & PERF_HERE ? 2 : 1) ||
	     m.mode > WEIR_BATCH_OVERFLOW || !(m.group || m.flags & PERF_HERE)))
		return -EBADMSG;
	if (kind == PERF_REQUEST &&
	    (m.group ? !(perf_is_remote(m.test) || perf_is_call(m.test)) || m.members < 2 ||
			   m.members > 2 * PERF_PROGRAMS_MAX || m.rank >= m.members
		     : perf_is_window(m.test)))
		return -EBADMSG;
	if (kind == PERF_REQUEST &&
	    (m.test == PERF_PSCW ? !m.partners || m.partners > m.members / 2 : m.partners))
		return -EBADMSG;
	if (kind == PERF_REQUEST && m.flags & PERF_UD &&
	    (m.test > PERF_RATE || m.size < PERF_UD_MIN || m.batch > 1 ||
	     m.flags & (PERF_VERIFY | PERF_ADOPT)))
		return -EBADMSG;
	*to = m;
	return 0;
}
