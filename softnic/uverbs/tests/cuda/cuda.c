/*
 * A program with GPU memory: what a kernel with nvidia-peermem and dma-bufs answers, and errors.
 *
 * cuda DEVICE. It prints nothing but what is wrong, and "all good".
 */
#define _GNU_SOURCE
#include "../check.h"
#include "cuda.h"
#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 16 * PAGE };
enum { RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

static const char module[] = "/sys/module/nvidia_peermem/version";
static struct ibv_context *device;
static struct ibv_pd *pd;

static int refused_address(uint64_t address, size_t length)
{
	errno = 0;
	return ibv_reg_mr(pd, (void *)address, length, RIGHTS) ? 0 : errno;
}

static int refused_dma_buf(uint64_t offset, size_t length, uint64_t iova, int fd)
{
	errno = 0;
	return ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, RIGHTS) ? 0 : errno;
}

/* A queue pair that is connected to itself. */
static struct ibv_qp *loop(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp, "QP");
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = qp->qp_num;
	attr.max_dest_rd_atomic = 1;
	attr.ah_attr = (struct ibv_ah_attr){ .port_num = 1, .is_global = 1, .grh = { .sgid_index = 3, .hop_limit = 1 } };
	CHECK(!ibv_query_gid(device, 1, 3, &attr.ah_attr.grh.dgid), "GID");
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	      "RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_MAX_QP_RD_ATOMIC),
	      "RTS");
	return qp;
}

/* Writes from one region to another over a queue pair of its own, and returns the status. */
static enum ibv_wc_status written(struct ibv_mr *from, uint64_t source, struct ibv_mr *to, uint64_t target, uint32_t length)
{
	struct ibv_cq *cq = ibv_create_cq(device, 8, NULL, NULL, 0);
	struct ibv_qp *qp = loop(cq);
	struct ibv_sge one = { source, length, from->lkey };
	struct ibv_send_wr wr = { .sg_list = &one, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;
	time_t begin = time(NULL);
	wr.wr.rdma.remote_addr = target;
	wr.wr.rdma.rkey = to->rkey;
	CHECK(!ibv_post_send(qp, &wr, &bad), "post");
	while (!ibv_poll_cq(cq, 1, &wc))
		CHECK(time(NULL) - begin < 20, "no completion");
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq), "destroy");
	return wc.status;
}

/* Without CUDA, the addresses are not known, and the module is not there unless the machine has it. */
static void without_cuda(int machine_has_module)
{
	void *reserved = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(refused_address((uintptr_t)reserved, PAGE) == EFAULT, "reserved memory");
	CHECK((access(module, F_OK) == 0) == machine_has_module, "%s", module);
	munmap(reserved, PAGE);
}

static void errors(void)
{
	void *context[2], *current = NULL;
	uint64_t first, second;
	int fd, other;
	CHECK(!cuda.cuInit(0) && !cuda.cuDevicePrimaryCtxRetain(&context[0], 0), "CUDA");
	CHECK(!cuda.cuDevicePrimaryCtxRetain(&context[1], 1) && !cuda.cuCtxPushCurrent_v2(context[0]), "CUDA");
	CHECK(!cuda.cuMemAlloc_v2(&first, SIZE), "memory");

	/* The thread's context is one of the other GPU. */
	CHECK(!cuda.cuCtxPopCurrent_v2(&current) && !cuda.cuCtxPushCurrent_v2(context[1]), "context");
	CHECK(!cuda.cuMemAlloc_v2(&second, SIZE), "memory");
	struct ibv_mr *a = ibv_reg_mr(pd, (void *)first, SIZE, RIGHTS), *b = ibv_reg_mr(pd, (void *)second, SIZE, RIGHTS);
	CHECK(a && b, "MR");
	memset(cuda.standin_host(first), 7, SIZE);
	CHECK(written(a, first + 5, b, second + 9, 3000) == IBV_WC_SUCCESS, "write");
	CHECK(!memcmp(cuda.standin_host(second + 9), cuda.standin_host(first), 3000), "data");
	CHECK(!cuda.cuCtxGetCurrent(&current) && current == context[1], "the thread's context");

	/* Ranges that leave the memory. */
	CHECK(refused_address(first, SIZE + 1) == EFAULT, "beyond the end");
	CHECK(refused_address(first + SIZE - 1, 2) == EFAULT, "beyond the end");
	CHECK(!cuda.cuMemGetHandleForAddressRange(&fd, first, SIZE, 1, 0), "dma-buf");
	CHECK(refused_dma_buf(0, SIZE + PAGE, first, fd) == EINVAL, "beyond the end of a dma-buf");
	CHECK(refused_dma_buf(0, 0, first, fd) == EINVAL, "an empty range");
	CHECK(refused_dma_buf(0, PAGE, first + 1, fd) == EINVAL, "an address between pages");
	CHECK(refused_dma_buf(0, PAGE, 0x1000, fd) == EOPNOTSUPP, "an address that is not the GPU's");
	CHECK(refused_dma_buf(0, 2 * PAGE, first + SIZE - PAGE, fd) == EFAULT, "an address beyond the end");
	CHECK((other = memfd_create("closed", 0)) >= 0 && !close(other), "file");
	CHECK(refused_dma_buf(0, PAGE, first, other) == EBADF, "a closed descriptor");
	/* Part of a dma-buf. */
	struct ibv_mr *part = ibv_reg_dmabuf_mr(pd, PAGE, PAGE, first + PAGE, fd, RIGHTS);
	CHECK(part && written(b, second, part, first + PAGE, PAGE) == IBV_WC_SUCCESS, "part of a dma-buf");
	CHECK(!memcmp(cuda.standin_host(second), cuda.standin_host(first + PAGE), PAGE), "data");
	CHECK(written(b, second, part, first, 8) == IBV_WC_REM_ACCESS_ERR, "before the part");
	CHECK(!ibv_dereg_mr(part) && !close(fd), "dereg");

	/* Memory that is freed while it is registered. */
	CHECK(!cuda.cuMemFree_v2(first), "free");
	CHECK(refused_address(first, SIZE) == EFAULT, "freed memory");
	CHECK(written(a, first, b, second, 100) != IBV_WC_SUCCESS, "from freed memory");
	CHECK(written(b, second, a, first, 100) != IBV_WC_SUCCESS, "to freed memory");
	CHECK(written(b, second, b, second + PAGE, 100) == IBV_WC_SUCCESS, "the rest goes on");
	CHECK(!ibv_dereg_mr(a) && !ibv_dereg_mr(b), "dereg");

	/* Mapped memory has no context: that of the thread, or the GPU's primary context. */
	CHECK(!cuda.standin_map(&first, SIZE, 0), "memory");
	CHECK((a = ibv_reg_mr(pd, (void *)first, SIZE, RIGHTS)), "by the primary context");
	CHECK((b = ibv_reg_mr(pd, (void *)first, SIZE, RIGHTS)), "once more");
	CHECK(written(a, first, b, first + PAGE, 100) == IBV_WC_SUCCESS, "write");
	CHECK(!ibv_dereg_mr(a) && !ibv_dereg_mr(b), "dereg");
	CHECK(!cuda.cuDevicePrimaryCtxRelease_v2(0), "the adapter keeps no context");
	CHECK(refused_address(first, SIZE) == EFAULT, "no context of the GPU");

	CHECK(!cuda.cuCtxPopCurrent_v2(&current) && current == context[1], "context");
	CHECK(cuda.standin_left() == 0, "%d things of the driver are left", cuda.standin_left());
}

int main(int count, char **words)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(count == 3 && list && *list && (device = ibv_open_device(*list)) && (pd = ibv_alloc_pd(device)), "device");
	CHECK(refused_dma_buf(0, 0, 0, -1) == EBADF, "programs ask so whether there are dma-bufs");
	without_cuda(atoi(words[2]));
	load_cuda();
	CHECK(!access(module, F_OK), "%s", module);
	CHECK(refused_dma_buf(0, 0, 0, -1) == EBADF, "programs ask so whether there are dma-bufs");
	errors();
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(device), "close");
	puts("all good");
	return 0;
}
