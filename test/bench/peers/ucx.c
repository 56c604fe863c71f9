/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX: tagged messages of UCP. UCX_TLS chooses shared memory or TCP. */
#include "peer.h"

#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define TAG 1u
#define ADDRESS_MAX 4096u /* bytes of a worker's address */

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h ep;
static ucs_status_ptr_t sends[PEER_SLOTS], recvs[PEER_SLOTS];

static void
check(ucs_status_t status, const char *what)
{
	if (status != UCS_OK)
		peer_die(what, ucs_status_string(status));
}

static int
open_ucx(int rank, int pipe, bool nodes)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
	ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
					     .thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_ep_params_t ep_params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
	static char own[ADDRESS_MAX], other[ADDRESS_MAX];
	ucp_address_t *address;
	ucp_config_t *config;
	size_t length;

	check(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
	check(ucp_init(&params, config, &context), "ucp_init");
	ucp_config_release(config);
	check(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
	check(ucp_worker_get_address(worker, &address, &length), "ucp_worker_get_address");
	if (length > sizeof(own))
		peer_die("the worker's address is too long", NULL);
	memcpy(own, address, length);
	ucp_worker_release_address(worker, address);
	peer_exchange(pipe, own, other, sizeof(own));
	ep_params.address = (ucp_address_t *)other;
	check(ucp_ep_create(worker, &ep_params, &ep), "ucp_ep_create");
	return rank;
}

static void
await(ucs_status_ptr_t *request)
{
	ucs_status_t status;

	if (UCS_PTR_IS_ERR(*request))
		peer_die("ucp", ucs_status_string(UCS_PTR_STATUS(*request)));
	if (!*request)
		return;
	while ((status = ucp_request_check_status(*request)) == UCS_INPROGRESS)
		ucp_worker_progress(worker);
	check(status, "ucp");
	ucp_request_free(*request);
	*request = NULL;
}

static void
send_ucx(unsigned slot, const void *buf, size_t size)
{
	static const ucp_request_param_t none;

	sends[slot] = ucp_tag_send_nbx(ep, buf, size, TAG, &none);
}

static void
sent_ucx(unsigned slot)
{
	await(&sends[slot]);
}

static void
recv_ucx(unsigned slot, void *buf, size_t size)
{
	static const ucp_request_param_t none;

	recvs[slot] = ucp_tag_recv_nbx(worker, buf, size, TAG, ~0ull, &none);
}

static void
received_ucx(unsigned slot)
{
	await(&recvs[slot]);
}

/* Closing waits for what the other rank has not taken yet. */
static void
close_ucx(void)
{
	static const ucp_request_param_t none;
	ucs_status_ptr_t request = ucp_ep_close_nbx(ep, &none);

	if (!UCS_PTR_IS_ERR(request))
		await(&request);
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
}

const struct peer peer = {false, open_ucx, send_ucx, sent_ucx, recv_ucx, received_ucx, close_ucx};
