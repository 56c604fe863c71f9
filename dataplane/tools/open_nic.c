/* SPDX-License-Identifier: BSD-3-Clause */
#include "open_nic.h"

#include "daemon/nic_config.h"
#include "daemon/munmap_guard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <rte_common.h>
#include <rte_lcore.h>

#define TX_FRAMES 8192u
#define COMPLETIONS_MIN 16384u /* of the completion queue; above a QP's default depth */
#define LINK_TRIES 50	       /* of 200 ms */

/* There is one context: nobody to wake. */
static void
wake(void *user, unsigned context)
{
}

int
open_nic(const struct nic_spec *spec, const struct open_nic_need *need, struct open_nic *out,
	 char *error, size_t size)
{
	struct ethdev_config ethdev;
	struct vnic_config verbs;
	struct vnic_device *device;
	int rc;

	memset(out, 0, sizeof(*out));
	if (spec->verbs) {
		verbs = nic_config_verbs(spec);
		verbs.contexts = 1;
		verbs.numa_socket[0] = (int)rte_socket_id();
		verbs.recv_depth = need->receives;
		rc = vnic_open(&verbs, &device, error, size);
		if (rc)
			return rc;
		out->dev = vnic_nic_device(device);
		out->context = vnic_nic_context(device, 0);
		return 0;
	}
	ethdev = nic_config_ethdev(spec);
	ethdev.queues = 1;
	ethdev.contexts = 1;
	ethdev.numa_socket[0] = (int)rte_socket_id();
	ethdev.max_qp = need->queue_pairs;
	ethdev.cq_depth =
	    RTE_MAX(COMPLETIONS_MIN, need->queue_pairs * need->sends + need->receives);
	ethdev.tx_frames = TX_FRAMES;
	ethdev.wake = wake;
	rc = ethdev_open(&ethdev, &out->ethdev, error, size);
	if (rc)
		return rc;
	out->dev = ethdev_device(out->ethdev);
	out->context = ethdev_context(out->ethdev, 0);
	return 0;
}

/*
 * A memif client that started before its server is restarted until the server answers. Once the
 * link is up, the driver gets no more events: at the end of its peer it would unmap the rings that
 * we poll.
 */
int
open_nic_await_link(const struct open_nic *nic, struct nic_attr *attr, char *error, size_t size)
{
	static const struct timespec pause = {.tv_nsec = 200000000};

	for (int i = 0; i < LINK_TRIES; i++) {
		if (NIC_OPS(nic->dev)->query(nic->dev, attr) == 0 && attr->link_up) {
			if (nic->ethdev)
				quiet_hold_interrupts();
			return 0;
		}
		if (nic->ethdev && ethdev_wants_restart(nic->ethdev)) {
			quiet_hold_interrupts();
			ethdev_restart(nic->ethdev);
			quiet_release_interrupts();
		}
		nanosleep(&pause, NULL);
	}
	snprintf(error, size, "the link of %s does not come up; look at its other end", attr->name);
	return -ENODEV;
}
