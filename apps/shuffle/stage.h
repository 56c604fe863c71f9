/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job of map tasks, and of partitions that are read when all tasks have ended. By Weir, process 0
 * hands out the tasks one by one; those that fail, take much longer than others, or whose process
 * is lost are attempted again. By TCP and none, each process has an equal share, once.
 */
#ifndef SHUFFLE_STAGE_H
#define SHUFFLE_STAGE_H

#include "options.h"

struct stage;

struct stage_thread {
	struct stage *stage;
	struct transport_thread *th;
	uint64_t records, bytes; /* read from the input in successful attempts, and by reduce() */
	uint64_t out_records;
	uint64_t task_records, task_bytes; /* of the attempt that runs */
	void *user;			   /* of the job */
};

struct stage_job {
	const char *program;
	const struct shuffle_options *o;
	uint32_t maps;
	/* flags, compare and so on; partitions, block, memory and codec are those of the options */
	struct weir_shuffle_options shuffle;
	uint32_t parts; /* of each partition */
	bool progress;
	/* Puts the records of a map task. 0 or -errno with weir_reason(). */
	int (*map)(struct stage_thread *t, uint32_t map);
	/* Reads a part of a partition, of all of which the process is the owner. 0 or -errno with
	 * weir_reason(). */
	int (*reduce)(struct stage_thread *t, uint32_t partition, uint32_t part);
	void *user;
};

struct stage {
	const struct stage_job *job;
	struct crew *crew;
	uint32_t partitions;
};

/* Of all processes. */
struct stage_result {
	uint64_t records, bytes, out_records;
	uint64_t cpu_us, attempts, spilled, blocks, placed, sent_bytes;
	uint64_t ns, map_ns, memory_peak; /* largest of all */
};

/* All processes run the job; all get the result. 0 or -errno with weir_reason(). A thread that
 * fails ends its process. */
int stage_run(struct crew *crew, const struct stage_job *job, struct stage_result *result);

/* Prints a result without the closing bracket: the program may add its own. */
void stage_print_json(const struct stage_job *job, const struct crew *crew,
		      const struct stage_result *r);
void stage_print(const struct stage_job *job, const struct stage_result *r);

/* File of a partition in a directory, DIR/part-NNNNN; without a transport also of its process. */
void stage_path(const struct stage *s, const char *dir, uint32_t partition, char *path,
		size_t size);

#endif
