/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A log with many writers in the memory of a program that takes no part. remote_log host KEYFILE
 * exports a megabyte and writes its key to a file, until SIGINT or SIGTERM. remote_log append
 * KEYFILE COUNT adds COUNT records, from any node and beside others. remote_log check KEYFILE reads
 * the log and tests that no record is lost, doubled, torn or out of its writer's order.
 *
 * A writer reserves bytes by adding to `tail`, puts the record's body, and then its first word.
 * Puts of one thread take effect in order, and one of 8 bytes is never torn: where that word is not
 * 0, the record is whole.
 */
#include <weir/remote.h>

#include "stop.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOG_BYTES (1u << 20)
#define WRITERS_MAX 1024u
#define RIGHTS (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE)
#define PATIENT 5000 /* ms */

struct head {
	uint64_t tail;	  /* bytes of records that were reserved */
	uint64_t writers; /* that there ever were */
};

struct record {
	uint32_t bytes, writer; /* bytes: a multiple of 8 */
	uint64_t number;	/* of this writer's, from 0 on */
	uint8_t text[104];
};

#define TEXT_AT offsetof(struct record, text)

static int
host_log(struct weir *w, const char *path)
{
	const struct timespec pause = {.tv_nsec = 100000000};
	struct weir_region *region;
	struct weir_export *x;
	struct weir_key key;
	FILE *f;
	int rc = weir_region_alloc(w, LOG_BYTES, NULL, &region);

	if (!rc)
		rc = weir_export(region, 0, LOG_BYTES, RIGHTS, &x, &key);
	if (rc)
		return rc;
	f = fopen(path, "wb");
	if (!f || fwrite(&key, sizeof(key), 1, f) != 1 || fclose(f)) {
		perror(path);
		exit(1);
	}
	printf("open\n");
	fflush(stdout);
	while (!stop)
		nanosleep(&pause, NULL);
	return weir_revoke(x);
}

static int
fetch_add(struct weir_remote *r, uint64_t offset, uint64_t add, uint64_t *was)
{
	int rc = weir_remote_fetch_op(r, offset, &add, was, WEIR_T_UINT64, WEIR_ACC_SUM, 0);

	return rc ? rc : weir_remote_flush(r, PATIENT);
}

static void
make_record(struct record *rec, uint32_t writer, uint64_t number)
{
	uint32_t words = (uint32_t)(1 + number * 7 % (sizeof(rec->text) / 8));

	*rec = (struct record){(uint32_t)TEXT_AT + words * 8, writer, number, {0}};
	memset(rec->text, (int)('a' + (writer + number) % 26), words * 8);
}

static int
append(struct weir_remote *r, uint64_t count)
{
	uint64_t writer, at;
	struct record rec;
	int rc = fetch_add(r, offsetof(struct head, writers), 1, &writer);

	for (uint64_t i = 0; !rc && i < count; i++) {
		make_record(&rec, (uint32_t)writer, i);
		rc = fetch_add(r, offsetof(struct head, tail), rec.bytes, &at);
		if (rc)
			break;
		if (at + rec.bytes > LOG_BYTES - sizeof(struct head)) {
			fprintf(stderr, "remote_log: the log is full after %" PRIu64 " records\n",
				i);
			exit(1);
		}
		at += sizeof(struct head);
		rc = weir_remote_put(r, at + 8, &rec.number, rec.bytes - 8, 0);
		if (!rc)
			rc = weir_remote_put(r, at, &rec, 8, 0);
	}
	return rc ? rc : weir_remote_flush(r, PATIENT);
}

static int
check(struct weir_remote *r)
{
	static uint8_t log[LOG_BYTES + sizeof(struct record)];
	static uint64_t next[WRITERS_MAX];
	uint64_t records = 0, at = sizeof(struct head);
	struct record rec, want;
	struct head head;
	int rc = weir_remote_get(r, 0, log, LOG_BYTES, 0);

	if (!rc)
		rc = weir_remote_flush(r, PATIENT);
	if (rc)
		return rc;
	memcpy(&head, log, sizeof(head));
	for (; at < LOG_BYTES && at < head.tail + sizeof(head); at += rec.bytes, records++) {
		memcpy(&rec, log + at, TEXT_AT);
		if (!rec.bytes) {
			printf("at %" PRIu64 " a record is under way, or its writer died\n", at);
			break;
		}
		make_record(&want, rec.writer, rec.number);
		if (rec.bytes != want.bytes || rec.writer >= WRITERS_MAX ||
		    rec.number != next[rec.writer]++ || memcmp(log + at, &want, want.bytes)) {
			printf("wrong record at %" PRIu64 ": number %" PRIu64 " of writer %u\n", at,
			       rec.number, rec.writer);
			exit(1);
		}
	}
	printf("%" PRIu64 " records of %" PRIu64 " writers, %" PRIu64 " bytes\n", records,
	       head.writers, head.tail);
	return 0;
}

static int
use_log(struct weir *w, const char *path, const char *count)
{
	struct weir_remote *r;
	struct weir_key key;
	FILE *f = fopen(path, "rb");
	int rc;

	if (!f || fread(&key, sizeof(key), 1, f) != 1) {
		perror(path);
		exit(1);
	}
	fclose(f);
	rc = weir_remote_open(w, &key, RIGHTS, 0, PATIENT, &r);
	if (rc)
		return rc;
	rc = count ? append(r, strtoull(count, NULL, 10)) : check(r);
	weir_remote_close(r);
	return rc;
}

int
main(int argc, char **argv)
{
	bool hosts = argc == 3 && !strcmp(argv[1], "host");
	bool appends = argc == 4 && !strcmp(argv[1], "append");
	struct weir *w;
	int rc;

	if (!hosts && !appends && (argc != 3 || strcmp(argv[1], "check"))) {
		fprintf(stderr,
			"usage: remote_log host KEYFILE | remote_log append KEYFILE COUNT | "
			"remote_log check KEYFILE\n");
		return 2;
	}
	rc = weir_attach(NULL, &w);
	if (rc) {
		fprintf(stderr, "remote_log: %s\n", weir_reason());
		return 1;
	}
	stop_on_signals(w);
	rc = hosts ? host_log(w, argv[2]) : use_log(w, argv[2], appends ? argv[3] : NULL);
	if (rc)
		fprintf(stderr, "remote_log: %s\n", weir_reason());
	weir_detach(w);
	return rc ? 1 : 0;
}
