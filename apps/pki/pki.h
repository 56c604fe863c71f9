/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small CA for weir-control's --tls: keys on P-256, certificates that name their node by a URI.
 * Files are made once, mode 0600, and whole or not at all.
 */
#ifndef WEIR_PKI_H
#define WEIR_PKI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define PKI_ANY_NODE UINT32_MAX

struct pki_order {
	const char *cluster;   /* letters, digits, '_', '-', '.' */
	uint32_t node;	       /* or PKI_ANY_NODE */
	const char *addresses; /* of the node, separated by commas; NULL: none in the certificate */
	time_t from, until;    /* validity */
	bool force;	       /* write over files that are there */
};

/* DIR/ca.pem and DIR/ca.key, DIR made if need be. 0, or -errno and "cause; remedy" in error. */
int pki_make_ca(const char *dir, const struct pki_order *order, char *error, size_t size);
/*
 * Of the CA in `dir`, for the cluster that the CA is of: ca.pem, node.pem and node.key in `into`,
 * which is made if need be. The same return.
 */
int pki_issue(const char *dir, const char *into, const struct pki_order *order, char *error,
	      size_t size);

#endif
