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
#define COMPLETIONS_MIN 16384u /* a QP may have so many work requests by default, and more */
#define LINK_TRIES 50	       /* of 200 ms */

/* There is one context: nobody to wake. */
static void
wake(void *user, unsigned context)
{
	(void)user;
	(void)context;
}

static int
open_ethdev(const struct nic_spec *spec, const struct open_nic_need *need, struct open_nic *out,
	    char *error, size_t size)
{
	struct ethdev_config config = nic_config_ethdev(spec);
	int rc;

	config.queues = 1;
	config.contexts = 1;
	config.numa_socket[0] = (int)rte_socket_id();
	config.max_qp = need->queue_pairs;
	config.cq_depth =
	    RTE_MAX(COMPLETIONS_MIN, need->queue_pairs * need->sends + need->receives);
	config.tx_frames = TX_FRAMES;
	config.wake = wake;
	rc = ethdev_open(&config, &out->ethdev, error, size);
	if (rc)
		return rc;
	out->dev = ethdev_device(out->ethdev);
	out->context = ethdev_context(out->ethdev, 0);
	return 0;
}

static int
open_verbs(const struct nic_spec *spec, const struct open_nic_need *need, struct open_nic *out,
	   char *error, size_t size)
{
	struct vnic_config config = nic_config_verbs(spec);
	struct vnic_device *device;
	int rc;

	config.contexts = 1;
	config.numa_socket[0] = (int)rte_socket_id();
	config.recv_depth = need->receives;
	rc = vnic_open(&config, &device, error, size);
	if (rc)
		return rc;
	out->dev = vnic_nic_device(device);
	out->context = vnic_nic_context(device, 0);
	return 0;
}

int
open_nic(const struct nic_spec *spec, const struct open_nic_need *need, struct open_nic *out,
	 char *error, size_t size)
{
	memset(out, 0, sizeof(*out));
	return spec->verbs ? open_verbs(spec, need, out, error, size)
			   : open_ethdev(spec, need, out, error, size);
}

/*
 * A memif client that was there before its server asks again. Once the link is up, the driver hears
 * no more of its peer: it would unmap the rings that we are polling when that goes away.
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
