/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The environment by which weir-run, or the launcher of a cluster, tells a program its group
 * (docs/group.md). weir_group_join() reads it.
 */
#ifndef WEIR_COMMON_LAUNCH_H
#define WEIR_COMMON_LAUNCH_H

#define LAUNCH_GROUP "WEIR_GROUP"	  /* name */
#define LAUNCH_SIZE "WEIR_GROUP_SIZE"	  /* members */
#define LAUNCH_RANK "WEIR_GROUP_RANK"	  /* unset: assigned */
#define LAUNCH_SECRET "WEIR_GROUP_SECRET" /* unset: none */
#define LAUNCH_THREADS "WEIR_THREADS"	  /* of each program, for its own use; may be unset */
#define LAUNCH_INSTANCE "WEIR_INSTANCE"	  /* to attach to; weir_attach() */

#endif
