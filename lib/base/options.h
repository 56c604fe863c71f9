/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Command lines of daemons and tools. A program declares each of its options once, in a table;
 * parsing, defaults, error messages and --help come from it. An error is one line: cause, then
 * what was expected or a remedy.
 */
#ifndef WEIR_BASE_OPTIONS_H
#define WEIR_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_type {
	OPTION_FLAG,	 /* bool or integer, see `set`; no value */
	OPTION_STOP,	 /* the same; options after it are not read: --help, --version */
	OPTION_UNSIGNED, /* integer of any width, from min to max */
	OPTION_SIZE,	 /* the same; K, M or G may follow */
	OPTION_REAL,	 /* double, from least to most */
	OPTION_TEXT, /* const char *, into argv or the environment; min to max bytes, max 0: any */
	OPTION_WORD, /* integer or bool: index of the value in words */
	OPTION_CALL  /* take() has the grammar; without an argument it is a flag */
};

struct option_spec {
	const char *name; /* long name; NULL: letter only */
	char letter;	  /* 0: none */
	enum option_type type;
	size_t offset, width; /* of the field; see OPTION_FIELD() */
	const char *argument; /* metavariable; NULL: words, or none */
	const char *initial;  /* default as a user would type it; NULL: none, the field is 0 */
	const char *help;

	const char *env; /* environment variable between default and option; NULL: none */
	uint64_t min, max;
	double least, most;
	const char *words;    /* "poll|adaptive" */
	const char *expected; /* ends "(expected ...)" of errors; NULL: made of type and bounds */
	uint64_t set;	      /* stored by a flag; 0: 1 */
	bool c_base;	      /* numbers may begin with 0x or, octal, with 0 */
	size_t given;	      /* offset of a bool that says: an option, no default; 0: none */
	/* 0, or -EINVAL and optionally its own line in error, which is empty before. */
	int (*take)(void *into, const char *text, char *error, size_t size);
};

/* Offset, width and argument of specs whose value is member `field` of struct `type`. */
#define OPTION_FIELD(type, field) offsetof(type, field), sizeof(((type *)NULL)->field)

/* The first three members of a table: an array of specs, and the struct that is filled in. */
#define OPTION_SPECS(array, type)                                                                  \
	.specs = (array), .count = sizeof(array) / sizeof((array)[0]), .size = sizeof(type)

struct option_table {
	const struct option_spec *specs; /* sorted by name: the order of --help */
	size_t count;
	size_t size;		 /* bytes of the struct that is filled in */
	unsigned operands;	 /* most words that are not options */
	bool exact;		 /* long names can not be abbreviated */
	bool command;		 /* the first operand is a program: no option stands behind it */
	const char *remedy;	 /* of unknown options; NULL: "see --help" */
	const char *head, *tail; /* text of --help before and after the options; NULL: none */
};

/* Clears `into`, then fills in environment variables and defaults. 0, or -EINVAL and error. */
int option_defaults(const struct option_table *table, void *into, char *error, size_t size);

/*
 * Reads argv[0 ... *argc), without a program name. 0, or -EINVAL and error. Moves the operands,
 * in their order, to the beginning of argv and sets *argc to their number. An option given twice
 * is stored twice: the last one stands.
 */
int option_parse(const struct option_table *table, void *into, int *argc, char **argv, char *error,
		 size_t size);

/*
 * For main(): reads the command line, as option_defaults() and option_parse() do. Prints usage
 * errors, --help and --version, whose fields are bools. Returns -1: the program goes on; else its
 * exit code: 0, 1: nothing can be printed, or 2: usage.
 */
int option_main(const struct option_table *table, void *into, const char *program,
		const char *version, int *argc, char **argv);

/* The option of this long name (`length` bytes), NULL: none. */
const struct option_spec *option_find(const struct option_table *table, const char *name,
				      size_t length);

/* Stores a value as if it stood on the command line; `from` names its place in errors. */
int option_store(const struct option_spec *spec, void *into, const char *from, const char *text,
		 char *error, size_t size);

/* The value in `from` as a user would type it; OPTION_CALL has none: "". */
void option_text(const struct option_spec *spec, const void *from, char *text, size_t size);

/* Writes "invalid value 'TEXT' for FROM (expected EXPECTED)"; returns -EINVAL. */
int option_invalid(const char *from, const char *text, const char *expected, char *error,
		   size_t size);

void option_print_help(const struct option_table *table, FILE *to);

/* For callbacks. Decimal number; with `suffixes` K, M or G may follow. 0 or -EINVAL. */
int option_number(const char *text, bool suffixes, uint64_t min, uint64_t max, uint64_t *value);
int option_real(const char *text, double least, double most, double *value);
/* Calls take() per word between commas. -EINVAL: a word is empty or long, or take() refused. */
int option_list(const char *text, int (*take)(void *into, const char *word), void *into);

#endif
