/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Legal changes of the state of a queue pair. By line, from: RESET INIT RTR RTS SQD ERR. IBTA
 * volume 1, figure of 10.3.1, written down a second time.
 */
#ifndef WEIR_TEST_QP_STATES_H
#define WEIR_TEST_QP_STATES_H

#define STATES 6u

static const char allowed[STATES][STATES + 1] = {
    "yy...y", /* RESET */
    "y.y..y", /* INIT */
    "y..y.y", /* RTR */
    "y...yy", /* RTS */
    "y..y.y", /* SQD */
    "y....y", /* ERR */
};

#endif
