/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs driver: struct nic_ops over libibverbs, for NICs that speak RDMA themselves (mlx5, rxe,
 * any provider of rdma-core), on Ethernet (RoCE v2, by GID) or InfiniBand (by LID). A device is one
 * port of one NIC with one GID; each engine has a context with its own completion queues and
 * completion channel. Open and close run on the main lcore.
 */
#ifndef WEIR_VERBS_H
#define WEIR_VERBS_H

#include "nic/nic.h"

#define VNIC_CONTEXTS_MAX 32u
#define VNIC_GID_ANY (-1)

struct vnic_config {
	const char *device;  /* as rdma-core names it: mlx5_0, rxe0 */
	uint8_t port;	     /* 0 = the first that is up */
	int gid_index;	     /* VNIC_GID_ANY: found by address family */
	struct nic_gid gid;  /* all zeros: any; else the GID to use */
	uint16_t mtu;	     /* path MTU; 0 = the port's */
	uint64_t timeout_ns; /* 0 = 67 ms */
	uint8_t retry;	     /* 0 = 7, as rnr_retry */
	uint8_t rnr_retry;
	uint8_t rd_atomic; /* 0 = 16, or what the NIC can */
	unsigned contexts;
	int numa_socket[VNIC_CONTEXTS_MAX]; /* of each context's engine */
	uint32_t recv_depth;		    /* receives that a context's SRQs hold together */
	/* Memory for what engines use, zeroed, aligned to 64. */
	void *(*memory_get)(void *user, size_t bytes, int numa_socket);
	void (*memory_put)(void *user, void *memory, size_t bytes);
	void *user;
};

struct vnic_device;

/* Returns 0, or -errno and a line "cause; remedy" in error. `config` is copied. */
int vnic_open(const struct vnic_config *config, struct vnic_device **dev, char *error, size_t size);
/* Frees everything; the engines have stopped. NULL is fine. */
void vnic_close(struct vnic_device *dev);

struct nic_device *vnic_nic_device(struct vnic_device *dev);
struct nic_context *vnic_nic_context(struct vnic_device *dev, unsigned context);

/* For the table printed at start. */
struct vnic_info {
	char text[256]; /* device, port, what was chosen */
	char name[64];
	int numa_socket; /* -1 unknown */
	size_t table_bytes;
};
void vnic_describe(const struct vnic_device *dev, struct vnic_info *info);

#endif
