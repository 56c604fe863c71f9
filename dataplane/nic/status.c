/* SPDX-License-Identifier: BSD-3-Clause */
#include "nic.h"

const char *
nic_wc_status_name(enum nic_wc_status status)
{
	switch (status) {
	case NIC_WC_SUCCESS:
		return "success";
	case NIC_WC_LOC_LEN_ERR:
		return "local length error";
	case NIC_WC_LOC_PROT_ERR:
		return "local protection error";
	case NIC_WC_WR_FLUSH_ERR:
		return "flushed";
	case NIC_WC_REM_INV_REQ_ERR:
		return "remote invalid request";
	case NIC_WC_REM_ACCESS_ERR:
		return "remote access error";
	case NIC_WC_REM_OP_ERR:
		return "remote operation error";
	case NIC_WC_RETRY_EXC_ERR:
		return "no answer, retries exceeded";
	case NIC_WC_RNR_RETRY_EXC_ERR:
		return "receiver not ready, retries exceeded";
	case NIC_WC_BAD_RESP_ERR:
		return "bad response";
	case NIC_WC_FATAL_ERR:
		return "fatal error";
	}
	return "unknown";
}
