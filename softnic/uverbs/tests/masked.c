/*
 * Masked atomics, which libmlx5 has no call for. GPU programs post them to queue pairs that verbs have made.
 *
 * masked DEVICE: posts them to a connected queue pair, and through a DC initiator to a DC target. It prints nothing but what
 * is wrong, and "all good".
 */
#include "open.h"
#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GID_INDEX = 3, DEPTH = 16, KEY = 0x1234, ACCESS = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static union ibv_gid gid;
/* The target's word, and the old value. */
static _Alignas(64) uint64_t words[2];

static void open_device(const char *name)
{
	context = open_by_name(name);
	CHECK((pd = ibv_alloc_pd(context)), "PD");
	CHECK((cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0)), "CQ");
	CHECK((mr = ibv_reg_mr(pd, words, sizeof(words), ACCESS | IBV_ACCESS_LOCAL_WRITE)), "MR");
	CHECK(!ibv_query_gid(context, 1, GID_INDEX, &gid), "GID");
}

static struct ibv_ah_attr own_address(void)
{
	struct ibv_ah_attr attr = { .port_num = 1, .is_global = 1 };
	attr.grh.dgid = gid;
	attr.grh.sgid_index = GID_INDEX;
	attr.grh.hop_limit = 64;
	return attr;
}

static struct ibv_qp *create(enum mlx5dv_dc_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD,
		.qp_type = type ? IBV_QPT_DRIVER : IBV_QPT_RC,
	};
	struct mlx5dv_qp_init_attr dc = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC, .dc_init_attr.dc_type = type };
	struct ibv_qp *qp;
	if (type == MLX5DV_DCTYPE_DCT) {
		dc.dc_init_attr.dct_access_key = KEY;
	} else {
		attr.cap.max_send_wr = DEPTH, attr.cap.max_send_sge = 1;
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
	}
	CHECK((qp = mlx5dv_create_qp(context, &attr, type ? &dc : NULL)), "QP of DC type %d", type);
	return qp;
}

static void to_init(struct ibv_qp *qp, int more)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | more), "INIT");
}

static void to_rtr(struct ibv_qp *qp, int more)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .ah_attr = own_address(), .dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | more), "RTR");
}

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4 };
	int mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK(!ibv_modify_qp(qp, &attr, mask), "RTS");
}

/* Posts a masked fetch and add of 4 or 8 bytes, to a DC target if there is an address vector, and waits for it. */
static void fetch_add(struct ibv_qp *qp, const struct mlx5_wqe_av *av, unsigned width, uint64_t add, uint64_t boundary)
{
	static uint32_t posted;
	struct mlx5dv_qp queue = { 0 };
	struct mlx5dv_obj object = { .qp = { .in = qp, .out = &queue } };
	struct mlx5_wqe_raddr_seg *raddr;
	struct ibv_wc wc;
	unsigned char *entry, *at;
	uint64_t ctrl;
	unsigned segments = av ? 7 : 4, blocks = (segments + 3) / 4;
	CHECK(!mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), "queue");
	/* Each queue pair starts with an empty queue, and takes few entries. */
	static struct ibv_qp *last;
	posted = last == qp ? posted : 0;
	last = qp;
	CHECK(posted + blocks <= queue.sq.wqe_cnt, "full");
	entry = at = (unsigned char *)queue.sq.buf + posted * 64;
	mlx5dv_set_ctrl_seg((struct mlx5_wqe_ctrl_seg *)at, posted, 0x15, width == 4 ? 8 : 9, qp->qp_num,
			    MLX5_WQE_CTRL_CQ_UPDATE, segments, 0, 0);
	at += 16;
	if (av) {
		memcpy(at, av, sizeof(*av));
		at += sizeof(*av);
	}
	raddr = (struct mlx5_wqe_raddr_seg *)at;
	*raddr = (struct mlx5_wqe_raddr_seg){ .raddr = htobe64((uintptr_t)&words[0]), .rkey = htobe32(mr->rkey) };
	at += 16;
	memset(at, 0, 16);
	if (width == 4) {
		((uint32_t *)at)[0] = htobe32(add);
		((uint32_t *)at)[1] = htobe32(boundary);
	} else {
		((uint64_t *)at)[0] = htobe64(add);
		((uint64_t *)at)[1] = htobe64(boundary);
	}
	at += 16;
	mlx5dv_set_data_seg((struct mlx5_wqe_data_seg *)at, width, mr->lkey, (uintptr_t)&words[1]);
	posted += blocks;
	__atomic_store_n(&queue.dbrec[1], htobe32(posted & 0xffff), __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	memcpy(&ctrl, entry, 8);
	__atomic_store_n((uint64_t *)queue.bf.reg, ctrl, __ATOMIC_RELEASE);
	while (!ibv_poll_cq(cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS, "%u bytes%s: %s", width, av ? ", DC" : "", ibv_wc_status_str(wc.status));
}

/* Adds without a limit, and in fields of 8 bits. */
static void fetch_adds(struct ibv_qp *qp, const struct mlx5_wqe_av *av)
{
	words[0] = 0x01020304050607ff;
	fetch_add(qp, av, 8, 0x101, 0);
	CHECK(words[1] == 0x01020304050607ff && words[0] == 0x0102030405060900, "0x%lx", words[0]);
	fetch_add(qp, av, 8, 0xffffffffffffffff, 0x8080808080808080);
	CHECK(words[1] == 0x0102030405060900 && words[0] == 0x00010203040508ff, "0x%lx", words[0]);
	fetch_add(qp, av, 4, 0x80000001, 0);
	CHECK(be32toh(*(uint32_t *)&words[1]) == 0x040508ff && words[0] == 0x0001020384050900, "0x%lx", words[0]);
	fetch_add(qp, av, 4, 0xffffffff, 0xffffffff);
	CHECK(be32toh(*(uint32_t *)&words[1]) == 0x84050900 && words[0] == 0x000102037bfaf6ff, "0x%lx", words[0]);
}

static void connected(void)
{
	struct ibv_qp *qp = create(0, NULL);
	to_init(qp, IBV_QP_ACCESS_FLAGS);
	to_rtr(qp, IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	to_rts(qp);
	fetch_adds(qp, NULL);
	CHECK(!ibv_destroy_qp(qp), "QP");
}

static void dynamic(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_ah_attr address = own_address();
	struct ibv_srq *srq = ibv_create_srq(pd, &attr);
	struct ibv_ah *ah = ibv_create_ah(pd, &address);
	struct mlx5dv_ah path;
	struct mlx5dv_obj object = { .ah = { .in = ah, .out = &path } };
	struct mlx5_wqe_av av;
	struct ibv_qp *target, *initiator;
	CHECK(srq && ah && !mlx5dv_init_obj(&object, MLX5DV_OBJ_AH), "SRQ and address");
	target = create(MLX5DV_DCTYPE_DCT, srq);
	to_init(target, IBV_QP_ACCESS_FLAGS);
	to_rtr(target, IBV_QP_MIN_RNR_TIMER);
	initiator = create(MLX5DV_DCTYPE_DCI, NULL);
	to_init(initiator, 0);
	to_rtr(initiator, 0);
	to_rts(initiator);
	av = *path.av;
	av.key.dc_key = htobe64(KEY);
	av.dqp_dct = htobe32(target->qp_num | 0x80000000);
	fetch_adds(initiator, &av);
	CHECK(!ibv_destroy_qp(initiator) && !ibv_destroy_qp(target) && !ibv_destroy_srq(srq) && !ibv_destroy_ah(ah), "QPs");
}

int main(int count, char **arguments)
{
	CHECK(count == 2, "masked DEVICE");
	open_device(arguments[1]);
	connected();
	dynamic();
	CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context), "device");
	printf("all good\n");
	return 0;
}
