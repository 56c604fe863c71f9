/* SPDX-License-Identifier: BSD-3-Clause */
/* The status of the node in lines, some of which weir-control tells. */
#ifndef WEIR_BROKER_STATUS_H
#define WEIR_BROKER_STATUS_H

#include "broker.h"

/* Row `index` of the status. False: no such row. */
bool status_row(const struct broker *b, uint32_t index, struct weir_row_fact *r);
/* Line `index` that control has told: its versions, or all others. False: no such line. */
bool fact_row(const struct broker *b, uint32_t index, bool version, struct weir_row_fact *r);
/* Control tells a line; an empty value removes it. */
void fact_input(struct broker *b, const struct weir_row_fact *fact);
/* Control has gone, and its lines with it. */
void facts_forget(struct broker *b);

#endif
