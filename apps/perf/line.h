/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines of standard input: edited at a terminal, as they come from anything else. */
#ifndef WEIR_PERF_LINE_H
#define WEIR_PERF_LINE_H

/* `on_line` is given each line, and NULL at the end of the input. */
void perf_line_open(const char *prompt, void (*on_line)(char *line));
/* Waits so long for input and gives the next line out, if one is whole. */
void perf_line_read(int timeout_ms);
/* Something was printed: the prompt is shown again. */
void perf_line_again(void);
void perf_line_close(void);

#endif
