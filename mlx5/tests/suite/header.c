/* Prints what infiniband/mlx5dv.h says about entries, completions, numbers and layouts; header.rs compares. */
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define NUMBER(name) printf(#name " %llu\n", (unsigned long long)(name))
#define SIZE(name, type) printf("sizeof_" name " %zu\n", sizeof(type))
#define OFFSET(name, type, member) printf(name " %zu\n", offsetof(type, member))

enum { QPN = 0x1a7, RKEY = 0x00181ef0, LKEY = 0x00200f42 };
static const uint64_t RADDR = 0x7f4a20001000, LADDR = 0x7f3b40002000;

/* The entry under construction. */
static unsigned char entry[128];
static size_t used;

static void *take(size_t bytes)
{
	void *at = entry + used;
	used += bytes;
	return at;
}

static void start(uint8_t opcode, uint8_t opmod, uint16_t index, uint8_t flags, uint8_t ds, uint32_t imm)
{
	memset(entry, 0, sizeof(entry));
	used = 0;
	mlx5dv_set_ctrl_seg(take(sizeof(struct mlx5_wqe_ctrl_seg)), index, opcode, opmod, QPN, flags, ds, 0, imm);
}

static void remote(void)
{
	struct mlx5_wqe_raddr_seg *seg = take(sizeof(*seg));
	seg->raddr = htobe64(RADDR);
	seg->rkey = htobe32(RKEY);
	seg->reserved = 0;
}

static void local(uint32_t length)
{
	mlx5dv_set_data_seg(take(sizeof(struct mlx5_wqe_data_seg)), length, LKEY, LADDR);
}

static void operands(uint64_t swap_add, uint64_t compare)
{
	struct mlx5_wqe_atomic_seg *seg = take(sizeof(*seg));
	seg->swap_add = htobe64(swap_add);
	seg->compare = htobe64(compare);
}

static void print(const char *name, const void *bytes, size_t length)
{
	const unsigned char *byte = bytes;
	printf("%s ", name);
	for (size_t i = 0; i < length; i++)
		printf("%02x", byte[i]);
	printf("\n");
}

static void finish(const char *name)
{
	print(name, entry, used);
}

static void entries(void)
{
	const uint8_t on = MLX5_WQE_CTRL_CQ_UPDATE;

	start(MLX5_OPCODE_RDMA_WRITE, 0, 0x12, on, 3, 0);
	remote();
	local(16384);
	finish("write");

	start(MLX5_OPCODE_RDMA_READ, 0, 0x13, on, 3, 0);
	remote();
	local(256);
	finish("read");

	start(MLX5_OPCODE_RDMA_WRITE, 0, 0x14, on, 4, 0);
	remote();
	struct mlx5_wqe_inl_data_seg *inl = take(sizeof(*inl));
	inl->byte_count = htobe32(28 | MLX5_INLINE_SEG);
	memcpy(take(28), "twenty-eight bytes of inline", 28);
	finish("inline");

	start(MLX5_OPCODE_ATOMIC_FA, 0, 0x16, on, 4, 0);
	remote();
	operands(5, 0);
	local(8);
	finish("fetch_add");

	start(MLX5_OPCODE_ATOMIC_CS, 0, 0x18, on, 4, 0);
	remote();
	operands(11, 10);
	local(8);
	finish("compare_swap");

	/* The masks have no structure of their own: they are two more operands. */
	start(MLX5_OPCODE_ATOMIC_MASKED_CS, 9, 0x19, 0, 5, 0);
	remote();
	operands(0x0102030405060708, 0x1112131415161718);
	operands(0x2122232425262728, 0x3132333435363738);
	local(8);
	finish("masked_compare_swap");

	start(MLX5_OPCODE_NOP, 0, 0xffff, on | MLX5_WQE_CTRL_FENCE, 1, 0);
	finish("nop");

	start(MLX5_OPCODE_RDMA_WRITE_IMM, 0, 0x1e, on | MLX5_WQE_CTRL_SOLICITED, 3, htobe32(0xcafe0001));
	remote();
	local(64);
	finish("write_imm");

	start(MLX5_OPCODE_SEND, 0, 0x1f, on, 2, 0);
	local(64);
	finish("send");

	start(MLX5_OPCODE_SEND_IMM, 0, 0x20, on, 2, htobe32(0xcafe0001));
	local(64);
	finish("send_imm");

	start(MLX5_OPCODE_SEND_INVAL, 0, 0x21, on, 2, htobe32(RKEY));
	local(64);
	finish("send_inval");

	start(MLX5_OPCODE_SEND_IMM, 0, 0x22, on, 5, htobe32(0xcafe0001));
	uint8_t rmac[6] = { 2, 0x52, 0x4d, 0, 0x12, 0xb7 };
	uint8_t rgid[16] = { [10] = 0xff, [11] = 0xff, 127, 64, 3, 4 };
	mlx5dv_set_dgram_seg(take(sizeof(struct mlx5_wqe_datagram_seg)), 0x1111222200000000, 0x2b8, 1, 0x36, 0x05,
			     0xc001, rmac, 0x68, 0x40, 1 << 30 | 3 << 20 | 0x12345, rgid);
	local(64);
	finish("datagram");

	start(MLX5_OPCODE_ATOMIC_FA, 0, 0x23, on, 7, 0);
	mlx5dv_set_dgram_seg(take(sizeof(struct mlx5_wqe_datagram_seg)), 0x1122334455667788, 0x2b8, 1, 0x36, 0x05,
			     0xc001, rmac, 0x68, 0x40, 1 << 30 | 3 << 20 | 0x12345, rgid);
	remote();
	operands(5, 0);
	local(8);
	finish("dynamic");
}

static void completions(void)
{
	struct mlx5_cqe64 cqe;
	memset(&cqe, 0, sizeof(cqe));
	cqe.srqn_uidx = htobe32(7);
	cqe.byte_cnt = htobe32(0x4000);
	cqe.timestamp = htobe64(0x1234567890);
	cqe.sop_drop_qpn = htobe32(MLX5_OPCODE_RDMA_WRITE << 24 | QPN);
	cqe.wqe_counter = htobe16(0x12);
	cqe.op_own = MLX5_CQE_REQ << 4;
	mlx5dv_set_cqe_owner(&cqe, 0);
	print("cqe", &cqe, sizeof(cqe));

	struct mlx5_err_cqe err;
	memset(&err, 0, sizeof(err));
	err.srqn = htobe32(7);
	err.vendor_err_synd = 0x88;
	err.syndrome = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
	err.s_wqe_opcode_qpn = htobe32(MLX5_OPCODE_RDMA_READ << 24 | QPN);
	err.wqe_counter = htobe16(0x13);
	err.op_own = MLX5_CQE_REQ_ERR << 4 | 1;
	print("err_cqe", &err, sizeof(err));
}

static void numbers(void)
{
	NUMBER(MLX5_OPCODE_NOP);
	NUMBER(MLX5_OPCODE_SEND_INVAL);
	NUMBER(MLX5_OPCODE_RDMA_WRITE);
	NUMBER(MLX5_OPCODE_RDMA_WRITE_IMM);
	NUMBER(MLX5_OPCODE_SEND);
	NUMBER(MLX5_OPCODE_SEND_IMM);
	NUMBER(MLX5_OPCODE_TSO);
	NUMBER(MLX5_OPCODE_RDMA_READ);
	NUMBER(MLX5_OPCODE_ATOMIC_CS);
	NUMBER(MLX5_OPCODE_ATOMIC_FA);
	NUMBER(MLX5_OPCODE_ATOMIC_MASKED_CS);
	NUMBER(MLX5_OPCODE_ATOMIC_MASKED_FA);
	NUMBER(MLX5_OPCODE_FMR);
	NUMBER(MLX5_OPCODE_LOCAL_INVAL);
	NUMBER(MLX5_OPCODE_CONFIG_CMD);
	NUMBER(MLX5_OPCODE_SET_PSV);
	NUMBER(MLX5_OPCODE_UMR);
	NUMBER(MLX5_OPCODE_TAG_MATCHING);
	NUMBER(MLX5_OPCODE_FLOW_TBL_ACCESS);
	NUMBER(MLX5_OPCODE_MMO);

	NUMBER(MLX5_CQE_REQ);
	NUMBER(MLX5_CQE_RESP_WR_IMM);
	NUMBER(MLX5_CQE_RESP_SEND);
	NUMBER(MLX5_CQE_RESP_SEND_IMM);
	NUMBER(MLX5_CQE_RESP_SEND_INV);
	NUMBER(MLX5_CQE_RESIZE_CQ);
	NUMBER(MLX5_CQE_NO_PACKET);
	NUMBER(MLX5_CQE_SIG_ERR);
	NUMBER(MLX5_CQE_REQ_ERR);
	NUMBER(MLX5_CQE_RESP_ERR);
	NUMBER(MLX5_CQE_INVALID);
	NUMBER(MLX5_CQE_OWNER_MASK);

	NUMBER(MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
	NUMBER(MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
	NUMBER(MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
	NUMBER(MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	NUMBER(MLX5_CQE_SYNDROME_MW_BIND_ERR);
	NUMBER(MLX5_CQE_SYNDROME_BAD_RESP_ERR);
	NUMBER(MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR);
	NUMBER(MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
	NUMBER(MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	NUMBER(MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
	NUMBER(MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	NUMBER(MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
	NUMBER(MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR);

	NUMBER(MLX5_WQE_CTRL_CQ_UPDATE);
	NUMBER(MLX5_WQE_CTRL_SOLICITED);
	NUMBER(MLX5_WQE_CTRL_FENCE);
	NUMBER(MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE);
	NUMBER(MLX5_INLINE_SEG);
	NUMBER(MLX5_EXTENDED_UD_AV);
	NUMBER(MLX5_INVALID_LKEY);
	NUMBER(MLX5_SEND_WQE_BB);
	NUMBER(MLX5_RCV_DBR);
	NUMBER(MLX5_SND_DBR);
	NUMBER(MLX5_CQ_DB_REQ_NOT_SOL);
	NUMBER(MLX5_CQ_DB_REQ_NOT);
	NUMBER(MLX5_CQ_DOORBELL);
}

static void layout(void)
{
	SIZE("ctrl", struct mlx5_wqe_ctrl_seg);
	SIZE("raddr", struct mlx5_wqe_raddr_seg);
	SIZE("data", struct mlx5_wqe_data_seg);
	SIZE("atomic", struct mlx5_wqe_atomic_seg);
	SIZE("inline", struct mlx5_wqe_inl_data_seg);
	SIZE("av", struct mlx5_wqe_av);
	OFFSET("av.dqp_dct", struct mlx5_wqe_av, dqp_dct);
	OFFSET("av.stat_rate_sl", struct mlx5_wqe_av, stat_rate_sl);
	OFFSET("av.fl_mlid", struct mlx5_wqe_av, fl_mlid);
	OFFSET("av.rlid", struct mlx5_wqe_av, rlid);
	OFFSET("av.rmac", struct mlx5_wqe_av, rmac);
	OFFSET("av.tclass", struct mlx5_wqe_av, tclass);
	OFFSET("av.hop_limit", struct mlx5_wqe_av, hop_limit);
	OFFSET("av.grh_gid_fl", struct mlx5_wqe_av, grh_gid_fl);
	OFFSET("av.rgid", struct mlx5_wqe_av, rgid);
	SIZE("srq_next", struct mlx5_wqe_srq_next_seg);
	OFFSET("srq_next.next", struct mlx5_wqe_srq_next_seg, next_wqe_index);
	OFFSET("srq_next.signature", struct mlx5_wqe_srq_next_seg, signature);

	SIZE("cqe", struct mlx5_cqe64);
	SIZE("err_cqe", struct mlx5_err_cqe);
	OFFSET("cqe.wqe_id", struct mlx5_cqe64, wqe_id);
	OFFSET("cqe.ml_path", struct mlx5_cqe64, ml_path);
	OFFSET("cqe.slid", struct mlx5_cqe64, slid);
	OFFSET("cqe.flags_rqpn", struct mlx5_cqe64, flags_rqpn);
	OFFSET("cqe.hds_ip_ext", struct mlx5_cqe64, hds_ip_ext);
	OFFSET("cqe.l4_hdr_type", struct mlx5_cqe64, l4_hdr_type_etc);
	OFFSET("cqe.vlan_info", struct mlx5_cqe64, vlan_info);
	OFFSET("cqe.srqn_uidx", struct mlx5_cqe64, srqn_uidx);
	OFFSET("cqe.imm_inval_pkey", struct mlx5_cqe64, imm_inval_pkey);
	OFFSET("cqe.app", struct mlx5_cqe64, app);
	OFFSET("cqe.app_op", struct mlx5_cqe64, app_op);
	OFFSET("cqe.app_info", struct mlx5_cqe64, app_info);
	OFFSET("cqe.byte_cnt", struct mlx5_cqe64, byte_cnt);
	OFFSET("cqe.timestamp", struct mlx5_cqe64, timestamp);
	OFFSET("cqe.sop_drop_qpn", struct mlx5_cqe64, sop_drop_qpn);
	OFFSET("err_cqe.srqn", struct mlx5_err_cqe, srqn);
	OFFSET("err_cqe.vendor_err_synd", struct mlx5_err_cqe, vendor_err_synd);
	OFFSET("err_cqe.syndrome", struct mlx5_err_cqe, syndrome);
}

int main(void)
{
	entries();
	completions();
	numbers();
	layout();
	return 0;
}
