/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters of the NIC: the kernel shows them in files, for the whole port, so context 0 alone has
 * them. Where the NIC counts no bytes, those are of the payload that we posted or received.
 */
#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT(field) offsetof(struct nic_counters, field)

/* Of several files for one counter the first that exists counts. */
static const struct {
	const char *file;
	uint16_t offset;
	uint8_t factor;
} files[] = {
    {"counters/port_rcv_packets", AT(rx_frames), 1},
    {"hw_counters/rcvd_pkts", AT(rx_frames), 1},
    {"counters/port_xmit_packets", AT(tx_frames), 1},
    {"hw_counters/sent_pkts", AT(tx_frames), 1},
    {"counters/port_rcv_data", AT(rx_bytes), 4}, /* in words of 4 */
    {"counters/port_xmit_data", AT(tx_bytes), 4},
    {"hw_counters/duplicate_request", AT(drop_duplicate), 1},
    {"hw_counters/out_of_sequence", AT(drop_out_of_order), 1},
    {"hw_counters/out_of_seq_request", AT(drop_out_of_order), 1},
    {"hw_counters/out_of_buffer", AT(drop_no_buffer), 1},
    {"hw_counters/packet_seq_err", AT(naks_received), 1},
    {"hw_counters/rcvd_seq_err", AT(naks_received), 1},
    {"hw_counters/rcvd_rnr_err", AT(rnr_received), 1},
    {"hw_counters/send_rnr_err", AT(rnr_sent), 1},
    {"hw_counters/local_ack_timeout_err", AT(timeouts), 1},
    {"hw_counters/completer_retry_err", AT(retransmits), 1},
};
#define FILES (sizeof(files) / sizeof(files[0]))

void
vnic_counters_open(struct vnic_device *dev)
{
	char path[512];

	_Static_assert(FILES <= VNIC_COUNTER_FILES, "a place for each file");
	for (size_t i = 0; i < FILES; i++) {
		unsigned known = 0;
		int fd;

		while (known < dev->counter_files && dev->counter[known].offset != files[i].offset)
			known++;
		if (known < dev->counter_files)
			continue;
		snprintf(path, sizeof(path), "%s/ports/%u/%s", dev->ctx->device->ibdev_path,
			 dev->port, files[i].file);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			dev->counter[dev->counter_files++] = (struct vnic_counter_file){
			    .fd = fd, .offset = files[i].offset, .factor = files[i].factor};
	}
}

void
vnic_counters_close(struct vnic_device *dev)
{
	while (dev->counter_files)
		close(dev->counter[--dev->counter_files].fd);
}

void
vnic_counters(const struct nic_context *nctx, struct nic_counters *out)
{
	const struct vnic_context *ctx = (const struct vnic_context *)nctx;
	const struct vnic_device *dev = ctx->dev;
	const uint64_t *from = (const uint64_t *)(const void *)&ctx->counters;
	uint64_t *to = (uint64_t *)(void *)out, dropped;

	_Static_assert(sizeof(*out) % sizeof(uint64_t) == 0, "counters are 64-bit words");
	for (size_t i = 0; i < sizeof(*out) / sizeof(uint64_t); i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
	if (ctx->id != 0)
		return;
	for (unsigned i = 0; i < dev->counter_files; i++) {
		const struct vnic_counter_file *f = &dev->counter[i];
		char text[32];
		ssize_t n = pread(f->fd, text, sizeof(text) - 1, 0);

		text[n > 0 ? n : 0] = '\0';
		to[f->offset / sizeof(uint64_t)] = f->factor * strtoull(text, NULL, 10);
	}
	dropped = out->drop_duplicate + out->drop_out_of_order + out->drop_no_buffer;
	out->rx_accepted = out->rx_frames > dropped ? out->rx_frames - dropped : 0;
}
