/*
 * A forked child uses what its parent has opened, as the kernel allows it.
 *
 * fork DEVICE: the child makes objects in the parent's context, sends data between them in its own memory, and reads
 * memory that it shares with its parent. It prints nothing but what is wrong, and "all good".
 */
#include "open.h"
#include "data.h"
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GID_INDEX = 3, DEPTH = 16, SIZE = 10000, ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;

/* A queue pair that is connected to itself, with its own completions. */
struct loop {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct loop make_loop(struct ibv_pd *of)
{
	struct loop loop;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS };
	CHECK((loop.channel = ibv_create_comp_channel(context)), "channel");
	CHECK((loop.cq = ibv_create_cq(context, DEPTH, NULL, loop.channel, 0)), "CQ");
	init.send_cq = init.recv_cq = loop.cq;
	CHECK((loop.qp = ibv_create_qp(of, &init)), "QP");
	CHECK(!ibv_modify_qp(loop.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = loop.qp->qp_num, .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = { .port_num = 1, .is_global = 1, .grh = { .dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 64 } },
	};
	CHECK(!ibv_modify_qp(loop.qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4 };
	CHECK(!ibv_modify_qp(loop.qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
	return loop;
}

static void destroy_loop(struct loop *loop)
{
	CHECK(!ibv_destroy_qp(loop->qp) && !ibv_destroy_cq(loop->cq) && !ibv_destroy_comp_channel(loop->channel), "destroy");
}

/* Executes a request between addresses, and waits for the event of its completion. */
static void execute(struct loop *loop, enum ibv_wr_opcode opcode, struct ibv_mr *from, void *at, uint32_t size, struct ibv_mr *to, void *remote)
{
	struct ibv_sge sge = { (uintptr_t)at, size, from->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *cq_context;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)remote;
		wr.wr.atomic.rkey = to->rkey;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)remote;
		wr.wr.rdma.rkey = to->rkey;
	}
	CHECK(!ibv_req_notify_cq(loop->cq, 0) && !ibv_post_send(loop->qp, &wr, &bad), "post");
	CHECK(!ibv_get_cq_event(loop->channel, &cq, &cq_context) && cq == loop->cq, "event");
	ibv_ack_cq_events(cq, 1);
	CHECK(ibv_poll_cq(loop->cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
}

/* Moves data between two buffers of this process, in a protection domain. */
static void move_data(struct ibv_pd *of, uint32_t seed)
{
	struct loop loop = make_loop(of);
	uint8_t *from = malloc(SIZE), *to = calloc(1, SIZE);
	uint64_t *words = calloc(2, sizeof(*words));
	struct ibv_mr *mr[3] = { ibv_reg_mr(of, from, SIZE, ACCESS), ibv_reg_mr(of, to, SIZE, ACCESS), ibv_reg_mr(of, words, 16, ACCESS) };
	CHECK(mr[0] && mr[1] && mr[2], "MRs");
	for (int i = 0; i < 5; i++) {
		fill(from, SIZE, seed + i);
		execute(&loop, IBV_WR_RDMA_WRITE, mr[0], from, SIZE, mr[1], to);
		CHECK(!memcmp(from, to, SIZE), "WRITE %d", i);
		fill(from, SIZE, seed + 100 + i);
		execute(&loop, IBV_WR_RDMA_READ, mr[1], to, SIZE, mr[0], from);
		CHECK(!memcmp(from, to, SIZE), "READ %d", i);
		execute(&loop, IBV_WR_ATOMIC_FETCH_AND_ADD, mr[2], &words[1], 8, mr[2], &words[0]);
		CHECK(words[0] == 5 * (i + 1u) && words[1] == 5 * (uint64_t)i, "atomic %d: %lu, %lu", i, words[0], words[1]);
	}
	for (int i = 0; i < 3; i++)
		CHECK(!ibv_dereg_mr(mr[i]), "MR");
	destroy_loop(&loop);
	free(from);
	free(to);
	free(words);
}

/* Allocates memory of the device, and writes to it. */
static void use_device_memory(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	struct ibv_dm *dm = ibv_alloc_dm(context, &attr);
	uint8_t in[100], out[100];
	CHECK(dm, "DM");
	fill(in, sizeof(in), getpid());
	CHECK(!ibv_memcpy_to_dm(dm, 64, in, sizeof(in)) && !ibv_memcpy_from_dm(out, dm, 64, sizeof(out)), "copies");
	CHECK(!memcmp(in, out, sizeof(in)) && !ibv_free_dm(dm), "contents");
}

/* The parent registered the shared bytes, and its peer is the child. */
static void child(struct ibv_mr *shared_mr, uint8_t *shared, int number)
{
	struct ibv_port_attr port;
	struct ibv_pd *own = ibv_alloc_pd(context);
	struct loop loop = make_loop(pd);
	uint8_t bytes[256];
	struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof(bytes), ACCESS);
	CHECK(own && mr && !ibv_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE, "objects");
	fill(bytes, sizeof(bytes), number);
	execute(&loop, IBV_WR_RDMA_WRITE, mr, bytes, sizeof(bytes), shared_mr, shared + 256 * number);
	move_data(own, 1000 * number);
	use_device_memory();
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(own), "destroy");
	destroy_loop(&loop);
	/* A bad address is an error, as from a kernel. */
	CHECK(!ibv_reg_mr(pd, (void *)0x1000, 4096, ACCESS) && errno == EFAULT, "no memory");
}

int main(int argc, char **argv)
{
	enum { CHILDREN = 3 };
	struct ibv_mr *mr;
	uint8_t *shared, expected[256];
	int status;
	CHECK(argc == 2, "usage: fork DEVICE");
	context = open_by_name(argv[1]);
	CHECK((pd = ibv_alloc_pd(context)) && !ibv_query_gid(context, 1, GID_INDEX, &gid), "PD and GID");
	shared = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED && (mr = ibv_reg_mr(pd, shared, SIZE, ACCESS)), "shared memory");
	for (int i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0, "fork");
		if (!pid) {
			child(mr, shared, i);
			/* A grandchild, too. */
			if (!fork()) {
				use_device_memory();
				_exit(0);
			}
			CHECK(wait(&status) > 0 && !status, "grandchild");
			_exit(0);
		}
	}
	move_data(pd, 7);
	for (int i = 0; i < CHILDREN; i++)
		CHECK(wait(&status) > 0 && !status, "child: status 0x%x", status);
	for (int i = 0; i < CHILDREN; i++) {
		fill(expected, sizeof(expected), i);
		CHECK(!memcmp(expected, shared + 256 * i, sizeof(expected)), "bytes of child %d", i);
	}
	move_data(pd, 8);
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context), "close");
	puts("all good");
	return 0;
}
