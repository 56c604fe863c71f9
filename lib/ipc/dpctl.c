/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of control.sock: lengths and the one decoder. See dpctl.h. */
#include "dpctl.h"
#include "fields.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define HEAD offsetof(struct weir_ctl_msg, hello)
#define LENGTH_OF(member) ((uint32_t)(HEAD + sizeof(((struct weir_ctl_msg *)0)->member)))

static_assert(LENGTH_OF(link) <= WEIR_CTL_MAX, "fits a packet");

uint32_t
weir_ctl_length(uint32_t type)
{
	switch (type) {
	case WEIR_CTL_HELLO:
		return LENGTH_OF(hello);
	case WEIR_CTL_LINK:
		return LENGTH_OF(link);
	case WEIR_CTL_SERVICES:
		return offsetof(struct weir_ctl_msg, services.names.name);
	case WEIR_CTL_NODE:
		return LENGTH_OF(node);
	case WEIR_CTL_SYNCED:
	case WEIR_CTL_CAPTURE_STOP:
		return HEAD;
	case WEIR_CTL_FACT:
		return LENGTH_OF(fact);
	case WEIR_CTL_LINK_DOWN:
	case WEIR_CTL_RESYNC:
		return LENGTH_OF(link_down);
	case WEIR_CTL_QUERY:
		return LENGTH_OF(query);
	case WEIR_CTL_ROWS:
		return offsetof(struct weir_ctl_msg, rows.records);
	case WEIR_CTL_ERROR:
		return LENGTH_OF(error);
	case WEIR_CTL_CAPTURE:
		return LENGTH_OF(capture);
	case WEIR_CTL_CAPTURED:
		return LENGTH_OF(captured);
	case WEIR_CTL_SET:
		return LENGTH_OF(set);
	case WEIR_CTL_DONE:
		return LENGTH_OF(done);
	case WEIR_CTL_EVICT:
		return LENGTH_OF(evict);
	}
	return 0;
}

uint32_t
weir_ctl_record_bytes(uint32_t rows)
{
	const struct weir_kind *k = weir_kind(rows);

	return k ? k->bytes : 0;
}

uint32_t
weir_ctl_size(const struct weir_ctl_msg *m)
{
	uint32_t names = m->type == WEIR_CTL_SERVICES ? m->services.names.count : 0;

	return weir_ctl_length(m->type) + names * WEIR_SERVICE_MAX;
}

const char *
weir_node_state_name(uint32_t state)
{
	static const char *const name[] = {"joining", "up", "suspect", "down", "gone"};

	return state < sizeof(name) / sizeof(name[0]) ? name[state] : "unknown";
}

#define ENDED(array) (memchr(array, 0, sizeof(array)) != NULL)

static bool
node_ok(const struct weir_ctl_node *n)
{
	return n->id < UINT16_MAX && n->state <= WEIR_NODE_GONE && n->self <= 1 &&
	       n->address_count <= WEIR_CTL_ADDRESSES && ENDED(n->control);
}

static bool
rows_ok(const struct weir_ctl_msg *m, size_t length)
{
	size_t head = weir_ctl_length(WEIR_CTL_ROWS), bytes;
	const struct weir_kind *k;

	if (length < head)
		return false;
	bytes = weir_ctl_record_bytes(m->rows.rows);
	if (!bytes || m->rows.record_bytes != bytes || m->rows.more > 1 ||
	    m->rows.count != (length - head) / bytes || (length - head) % bytes)
		return false;
	k = weir_kind(m->rows.rows);
	for (uint32_t i = 0; i < m->rows.count; i++) {
		const char *record = (const char *)m->rows.records + i * bytes;
		const struct weir_row_port *p = (const void *)record;

		for (uint32_t at = 0; at < k->count; at++)
			if (k->fields[at].text &&
			    !memchr(record + k->fields[at].offset, 0, k->fields[at].size))
				return false;
		if (m->rows.rows == WEIR_ROWS_NODES && !node_ok((const void *)record))
			return false;
		if (m->rows.rows != WEIR_ROWS_PORTS)
			continue;
		if (p->drop_count > WEIR_ROW_DROPS)
			return false;
		for (uint32_t at = 0; at < p->drop_count; at++)
			if (!ENDED(p->drops[at].name))
				return false;
	}
	return true;
}

static bool
body_ok(const struct weir_ctl_msg *m)
{
	switch (m->type) {
	case WEIR_CTL_HELLO:
		return m->hello.role >= WEIR_ROLE_DATAPLANE && m->hello.role <= WEIR_ROLE_QUERY &&
		       m->hello.address_count <= WEIR_CTL_ADDRESSES && ENDED(m->hello.cluster);
	case WEIR_CTL_LINK:
		return m->link.node < UINT16_MAX && m->link.peer_node < UINT16_MAX;
	case WEIR_CTL_LINK_DOWN:
	case WEIR_CTL_RESYNC:
		return m->link_down.node < UINT16_MAX && m->link_down.peer_node < UINT16_MAX;
	case WEIR_CTL_NODE:
		return node_ok(&m->node);
	case WEIR_CTL_FACT:
		return m->fact.name[0] && ENDED(m->fact.name) && ENDED(m->fact.value) &&
		       ENDED(m->fact.from);
	case WEIR_CTL_SERVICES:
		return (m->services.node < UINT16_MAX || m->services.node == UINT32_MAX) &&
		       weir_services_ok(&m->services.names);
	case WEIR_CTL_QUERY:
		return weir_ctl_record_bytes(m->query.rows) != 0;
	case WEIR_CTL_ERROR:
		return m->error.code > 0 && ENDED(m->error.reason);
	case WEIR_CTL_CAPTURE:
		return ENDED(m->capture.port);
	case WEIR_CTL_CAPTURED:
		return m->captured.over <= 1 && m->captured.code >= 0;
	case WEIR_CTL_SET:
		return ENDED(m->set.key) && ENDED(m->set.value);
	case WEIR_CTL_EVICT:
		return m->evict.what >= WEIR_EVICT_CONNECTION &&
		       m->evict.what <= WEIR_EVICT_EXPORT && ENDED(m->evict.reason);
	}
	return true;
}

int
weir_ctl_check(const struct weir_ctl_msg *m, size_t length)
{
	if (length < HEAD || length > WEIR_CTL_MAX || m->length != length)
		return -EBADMSG;
	if (m->type == WEIR_CTL_HELLO && length >= HEAD + sizeof(m->hello.versions) &&
	    !weir_version_choose(WEIR_CTL_VERSIONS, m->hello.versions, "", "", "", NULL))
		return -EPROTO;
	if (m->type == WEIR_CTL_ROWS)
		return rows_ok(m, length) ? 0 : -EBADMSG;
	if (length < weir_ctl_length(m->type) ||
	    (m->type == WEIR_CTL_SERVICES && m->services.names.count > WEIR_SERVICES_MAX))
		return -EBADMSG;
	if (length != weir_ctl_size(m))
		return -EBADMSG;
	return body_ok(m) ? 0 : -EBADMSG;
}
