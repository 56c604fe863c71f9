/* SPDX-License-Identifier: BSD-3-Clause */
/* Members of a group that call lambdas of each other, in C++: each returns 0 or the line that
 * fails. */
#ifndef WEIR_TEST_INVOKE_LAMBDA_H
#define WEIR_TEST_INVOKE_LAMBDA_H

#include "weir/group.h"

#ifdef __cplusplus
extern "C" {
#endif

int lambda_calls(struct weir *w, struct weir_group *g);
int lambda_results(struct weir *w, struct weir_group *g);
int lambda_future_ends(struct weir *w, struct weir_group *g);
int lambda_nested(struct weir *w, struct weir_group *g);
int lambda_payloads(struct weir *w, struct weir_group *g);
int lambda_throws(struct weir *w, struct weir_group *g);
int lambda_differs(struct weir *w, struct weir_group *g);
int lambda_syncs(struct weir *w, struct weir_group *g);
int lambda_names(void);

#ifdef __cplusplus
}
#endif
#endif
