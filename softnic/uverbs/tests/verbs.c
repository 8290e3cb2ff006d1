/*
 * A verbs program of its own: one of everything that queue pairs do, between two endpoints in this process.
 *
 * verbs DEVICE DEVICE [exported|address|mapped|dma-buf]: the endpoints' devices, which may be the same. With a third word,
 * all data is in a dma-buf of the kernel (`exported`), or in GPU memory of the stand-in for CUDA: registered by address,
 * mapped without a context, or registered as dma-buf. It prints nothing but what is wrong, and "all good".
 */
#define _GNU_SOURCE
#include "open.h"
#include "cuda/cuda.h"
#include "exporter.h"
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HEAP = 1 << 16, DEPTH = 32, INLINE = 200, QKEY = 0x11111111, GRH = 40 };

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_port_attr port;
	union ibv_gid gid;
	/* The heap for the CPU, and its registered address. */
	unsigned char *heap;
	uint64_t address;
};

/* Kind of the GPU memory, or NULL for host memory. */
static const char *gpu;
/* Whether the host memory is a dma-buf. */
static int exported;

/* The GID that both kinds of ports have: an InfiniBand port has but one, and RoCEv2 is the last of the others. */
static int gid_index(const struct end *end)
{
	return end->port.link_layer == IBV_LINK_LAYER_ETHERNET ? 3 : 0;
}

static int is(const char *kind)
{
	return gpu && !strcmp(gpu, kind);
}

/* Makes the heap, and registers it. */
static void make_heap(struct end *end)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	int fd = -1;
	if (gpu) {
		CHECK(!(is("mapped") ? cuda.standin_map(&end->address, HEAP, 0) : cuda.cuMemAlloc_v2(&end->address, HEAP)),
		      "GPU memory");
		end->heap = (unsigned char *)cuda.standin_host(end->address);
	} else if (exported) {
		fd = export_dma_buf(HEAP, (void **)&end->heap);
		end->address = (uintptr_t)end->heap;
	} else {
		CHECK(!posix_memalign((void **)&end->heap, 4096, HEAP), "heap");
		end->address = (uintptr_t)end->heap;
	}
	memset(end->heap, 0, HEAP);
	if (is("dma-buf"))
		CHECK(!cuda.cuMemGetHandleForAddressRange(&fd, end->address, HEAP, 1, 0), "dma-buf");
	if (fd >= 0) {
		end->mr = ibv_reg_dmabuf_mr(end->pd, 0, HEAP, end->address, fd, access);
		close(fd);
	} else {
		end->mr = ibv_reg_mr(end->pd, (void *)end->address, HEAP, access);
	}
	CHECK(end->mr, "MR");
}

static void open_end(struct end *end, const char *name)
{
	end->context = open_by_name(name);
	CHECK((end->pd = ibv_alloc_pd(end->context)), "PD");
	make_heap(end);
	CHECK((end->channel = ibv_create_comp_channel(end->context)), "channel");
	CHECK((end->send_cq = ibv_create_cq(end->context, DEPTH, NULL, NULL, 0)), "CQ");
	CHECK((end->recv_cq = ibv_create_cq(end->context, DEPTH, NULL, end->channel, 0)), "CQ");
	CHECK(!ibv_query_port(end->context, 1, &end->port), "port");
	CHECK(!ibv_query_gid(end->context, 1, gid_index(end), &end->gid), "GID");
}

static void close_end(struct end *end)
{
	CHECK(!ibv_destroy_cq(end->send_cq) && !ibv_destroy_cq(end->recv_cq), "CQ");
	CHECK(!ibv_destroy_comp_channel(end->channel), "channel");
	CHECK(!ibv_dereg_mr(end->mr) && !ibv_dealloc_pd(end->pd), "PD");
	CHECK(!ibv_close_device(end->context), "device");
	if (gpu)
		CHECK(!cuda.cuMemFree_v2(end->address), "GPU memory");
	else if (exported)
		CHECK(!munmap(end->heap, HEAP), "mapping of a dma-buf");
	else
		free(end->heap);
}

static void create_qp(struct end *end, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = end->send_cq,
		.recv_cq = end->recv_cq,
		.qp_type = type,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 8, .max_send_sge = 4, .max_recv_sge = 2, .max_inline_data = INLINE },
	};
	CHECK((end->qp = ibv_create_qp(end->pd, &attr)), "QP of type %d", type);
}

static struct ibv_ah_attr address(const struct end *from, const struct end *to)
{
	struct ibv_ah_attr attr = { .port_num = 1, .dlid = to->port.lid };
	if (from->port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		attr.is_global = 1;
		attr.grh.dgid = to->gid;
		attr.grh.sgid_index = gid_index(from);
		attr.grh.hop_limit = 64;
	}
	return attr;
}

/* Brings a queue pair to RTS towards another. */
static void connect_to(struct end *end, const struct end *to)
{
	enum ibv_qp_type type = end->qp->qp_type;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	mask |= type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (type == IBV_QPT_UC)
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	CHECK(!ibv_modify_qp(end->qp, &attr, mask), "INIT");

	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = to->qp->qp_num;
	attr.rq_psn = 0x123456;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 1;
	attr.ah_attr = address(end, to);
	mask = IBV_QP_STATE;
	if (type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK(!ibv_modify_qp(end->qp, &attr, mask), "RTR");

	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 0x123456;
	attr.timeout = 18;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK(!ibv_modify_qp(end->qp, &attr, mask), "RTS");
}

static struct ibv_sge piece(const struct end *end, uint32_t at, uint32_t length)
{
	return (struct ibv_sge){ .addr = end->address + at, .length = length, .lkey = end->mr->lkey };
}

/* A piece that the library reads itself, for inline data. */
static struct ibv_sge inline_piece(const struct end *end, uint32_t at, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)end->heap + at, .length = length };
}

static void post_receive(struct end *end, uint32_t at, uint32_t first, uint32_t second)
{
	struct ibv_sge list[2] = { piece(end, at, first), piece(end, at + 4096, second) };
	struct ibv_recv_wr wr = { .wr_id = at, .sg_list = list, .num_sge = second ? 2 : 1 }, *bad;
	CHECK(!ibv_post_recv(end->qp, &wr, &bad), "receive");
}

/* Waits for one completion. */
static struct ibv_wc completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	time_t begin = time(NULL);
	int got;
	while (!(got = ibv_poll_cq(cq, 1, &wc)))
		CHECK(time(NULL) - begin < 20, "no completion");
	CHECK(got == 1, "poll");
	return wc;
}

static void post(struct end *end, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	wr->send_flags |= IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(end->qp, wr, &bad), "post");
}

static void run(struct end *end, struct ibv_send_wr *wr)
{
	post(end, wr);
	struct ibv_wc wc = completion(end->send_cq);
	CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
	CHECK(wc.wr_id == wr->wr_id && wc.qp_num == end->qp->qp_num, "wr_id %ld", (long)wc.wr_id);
}

static struct ibv_wc receive(struct end *end)
{
	struct ibv_wc wc = completion(end->recv_cq);
	CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
	CHECK(wc.qp_num == end->qp->qp_num, "QP %x", wc.qp_num);
	return wc;
}

/* Fills the heap's first half with bytes that differ, and clears the second. */
static void pattern(struct end *end, unsigned seed)
{
	for (unsigned i = 0; i < HEAP / 2; i++)
		end->heap[i] = (seed + i) * 2654435761u >> 13;
	memset(end->heap + HEAP / 2, 0, HEAP / 2);
}

static struct ibv_send_wr work(enum ibv_wr_opcode opcode, struct ibv_sge *list, int count)
{
	static uint64_t id;
	return (struct ibv_send_wr){ .wr_id = ++id, .opcode = opcode, .sg_list = list, .num_sge = count };
}

static struct ibv_send_wr rdma(enum ibv_wr_opcode opcode, struct ibv_sge *list, int count, const struct end *to, uint32_t at)
{
	struct ibv_send_wr wr = work(opcode, list, count);
	wr.wr.rdma.remote_addr = to->address + at;
	wr.wr.rdma.rkey = to->mr->rkey;
	return wr;
}

/* SENDs from lists to lists, with and without immediate, plain and inline. */
static void sends(struct end *a, struct end *b, struct ibv_send_wr base)
{
	const int ud = base.opcode == IBV_WR_SEND && base.wr.ud.ah != NULL;
	const uint32_t head = ud ? GRH : 0;
	for (int i = 0; i < 4; i++) {
		const int imm = i & 1, in_place = i & 2;
		pattern(a, i);
		memset(b->heap, 0, HEAP);
		post_receive(b, 8192, head + 50, 200);
		struct ibv_sge (*from)(const struct end *, uint32_t, uint32_t) = in_place ? inline_piece : piece;
		struct ibv_sge list[3] = { from(a, 0, 30), from(a, 1000, 60), from(a, 3, 7) };
		struct ibv_send_wr wr = work(imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, list, 3);
		wr.wr = base.wr;
		wr.imm_data = htonl(0xcafe0000 + i);
		wr.send_flags = in_place ? IBV_SEND_INLINE : 0;
		run(a, &wr);
		struct ibv_wc wc = receive(b);
		CHECK(wc.opcode == IBV_WC_RECV && wc.wr_id == 8192, "%d", wc.opcode);
		CHECK(wc.byte_len == head + 97, "%u bytes", wc.byte_len);
		CHECK(!!(wc.wc_flags & IBV_WC_WITH_IMM) == imm, "flags %x", wc.wc_flags);
		CHECK(!imm || wc.imm_data == wr.imm_data, "immediate %x", wc.imm_data);
		CHECK(!ud || wc.src_qp == a->qp->qp_num, "source %x", wc.src_qp);
		unsigned char sent[97];
		memcpy(sent, a->heap, 30);
		memcpy(sent + 30, a->heap + 1000, 60);
		memcpy(sent + 90, a->heap + 3, 7);
		CHECK(!memcmp(b->heap + 8192 + head, sent, 50), "first part");
		CHECK(!memcmp(b->heap + 8192 + 4096, sent + 50, 47), "second part");
	}
}

/* Waits for data: on an unreliable connection a completion says that it has left, no more. */
static void arrives(const unsigned char *at, const unsigned char *data, size_t length)
{
	time_t begin = time(NULL);
	while (memcmp(at, data, length)) {
		CHECK(time(NULL) - begin < 20, "%zu bytes do not arrive", length);
		__sync_synchronize();
	}
}

static void writes(struct end *a, struct end *b)
{
	pattern(a, 7);
	memset(b->heap, 0, HEAP);
	struct ibv_sge list[2] = { piece(a, 100, 5000), piece(a, 10000, 3) };
	struct ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE, list, 2, b, 333);
	run(a, &wr);
	post_receive(b, 0, 1, 0);
	wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, list, 2, b, 20000);
	wr.imm_data = htonl(5);
	run(a, &wr);
	struct ibv_wc wc = receive(b);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data == htonl(5), "%d", wc.opcode);
	CHECK(wc.byte_len == 5003, "%u bytes", wc.byte_len);
	CHECK(!memcmp(b->heap + 333, a->heap + 100, 5000) && !memcmp(b->heap + 5333, a->heap + 10000, 3), "data");
	CHECK(!memcmp(b->heap + 20000, a->heap + 100, 5000), "data");

	/* Inline entries of every size, round the ring and round again. */
	for (int i = 0; i < 400; i++) {
		struct ibv_sge one = inline_piece(a, i, i % (INLINE + 1));
		wr = rdma(IBV_WR_RDMA_WRITE, &one, 1, b, i);
		wr.send_flags = IBV_SEND_INLINE;
		run(a, &wr);
		arrives(b->heap + i, a->heap + i, one.length);
	}

	/* One call for many entries, of which the last is signalled. */
	struct ibv_sge lists[12];
	struct ibv_send_wr chain[12], *bad;
	for (int i = 0; i < 12; i++) {
		lists[i] = piece(a, 64 * i, 64);
		chain[i] = rdma(IBV_WR_RDMA_WRITE, &lists[i], 1, b, 40000 + 64 * i);
		chain[i].next = i < 11 ? &chain[i + 1] : NULL;
		chain[i].send_flags = i < 11 ? 0 : IBV_SEND_SIGNALED;
	}
	CHECK(!ibv_post_send(a->qp, chain, &bad), "chain");
	wc = completion(a->send_cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == chain[11].wr_id, "%s", ibv_wc_status_str(wc.status));
	arrives(b->heap + 40000, a->heap, 12 * 64);
}

static void reads_and_atomics(struct end *a, struct end *b)
{
	pattern(b, 9);
	memset(a->heap, 0, HEAP);
	struct ibv_sge list[2] = { piece(a, 40000, 2000), piece(a, 50000, 1500) };
	struct ibv_send_wr wr = rdma(IBV_WR_RDMA_READ, list, 2, b, 11);
	post(a, &wr);
	/* What is fenced comes after what was read. */
	struct ibv_sge back = piece(a, 40000, 16);
	struct ibv_send_wr fenced = rdma(IBV_WR_RDMA_WRITE, &back, 1, b, 60000);
	fenced.send_flags = IBV_SEND_FENCE;
	post(a, &fenced);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = completion(a->send_cq);
		CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
		CHECK(wc.opcode == (i ? IBV_WC_RDMA_WRITE : IBV_WC_RDMA_READ), "%d", wc.opcode);
		CHECK(i || wc.byte_len == 3500, "%u bytes", wc.byte_len);
	}
	CHECK(!memcmp(a->heap + 40000, b->heap + 11, 2000) && !memcmp(a->heap + 50000, b->heap + 2011, 1500), "data");
	CHECK(!memcmp(b->heap + 60000, b->heap + 11, 16), "fence");

	uint64_t *word = (uint64_t *)(b->heap + 48000), *old = (uint64_t *)(a->heap + 512);
	*word = 0x0102030405060708;
	struct ibv_sge eight = piece(a, 512, 8);
	wr = work(IBV_WR_ATOMIC_FETCH_AND_ADD, &eight, 1);
	wr.wr.atomic.remote_addr = b->address + 48000;
	wr.wr.atomic.rkey = b->mr->rkey;
	wr.wr.atomic.compare_add = 0x10;
	run(a, &wr);
	CHECK(*old == 0x0102030405060708 && *word == 0x0102030405060718, "%lx %lx", *old, *word);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 0x0102030405060718;
	wr.wr.atomic.swap = 99;
	run(a, &wr);
	CHECK(*old == 0x0102030405060718 && *word == 99, "%lx %lx", *old, *word);
	run(a, &wr);
	CHECK(*old == 99 && *word == 99, "%lx %lx", *old, *word);
}

static int readable(int fd)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };
	return poll(&one, 1, 50) == 1;
}

static void events(struct end *a, struct end *b)
{
	struct ibv_sge one = piece(a, 0, 8);
	struct ibv_send_wr wr = work(IBV_WR_SEND, &one, 1);
	struct ibv_cq *cq;
	void *cq_context;

	CHECK(!ibv_req_notify_cq(b->recv_cq, 1), "arm");
	for (int i = 0; i < 3; i++)
		post_receive(b, 0, 8, 0);
	run(a, &wr);
	receive(b);
	CHECK(!readable(b->channel->fd), "an event that nobody asked for");
	wr.send_flags = IBV_SEND_SOLICITED;
	run(a, &wr);
	receive(b);
	CHECK(readable(b->channel->fd), "no event");
	CHECK(!ibv_get_cq_event(b->channel, &cq, &cq_context) && cq == b->recv_cq, "event");
	CHECK(!ibv_req_notify_cq(b->recv_cq, 0), "arm");
	CHECK(!readable(b->channel->fd), "an event of old");
	wr.send_flags = 0;
	run(a, &wr);
	receive(b);
	CHECK(readable(b->channel->fd), "no event");
	CHECK(!ibv_get_cq_event(b->channel, &cq, &cq_context) && cq == b->recv_cq, "event");
	ibv_ack_cq_events(b->recv_cq, 2);
}

/* A CQ changes its size while completions wait in it. */
static void resizes(struct end *a, struct end *b)
{
	static const int sizes[] = { 100, 7, 500, 500, DEPTH };
	struct ibv_sge one = piece(a, 0, 8);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		for (uint32_t imm = 0; imm < 5; imm++) {
			struct ibv_send_wr wr = work(IBV_WR_SEND_WITH_IMM, &one, 1);
			wr.imm_data = htonl(imm);
			post_receive(b, 0, 8, 0);
			run(a, &wr);
		}
		CHECK(!ibv_resize_cq(b->recv_cq, sizes[i]) && b->recv_cq->cqe >= sizes[i], "%d entries", sizes[i]);
		for (uint32_t imm = 0; imm < 5; imm++) {
			struct ibv_wc wc = receive(b);
			CHECK(ntohl(wc.imm_data) == imm, "immediate %x", ntohl(wc.imm_data));
		}
	}
}

/* A refused request: both ends fail, each in its own way, and can be used again. */
static void failure(struct end *a, struct end *b)
{
	struct ibv_async_event event;
	struct ibv_sge one = piece(a, 0, 8);
	struct ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE, &one, 1, b, 0);
	wr.wr.rdma.rkey ^= 0x7700;
	post_receive(b, 0, 8, 0);
	post(a, &wr);
	struct ibv_wc wc = completion(a->send_cq);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR, "%s", ibv_wc_status_str(wc.status));
	wc = completion(b->recv_cq);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR, "%s", ibv_wc_status_str(wc.status));
	wr.wr.rdma.rkey ^= 0x7700;
	post(a, &wr);
	wc = completion(a->send_cq);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == wr.wr_id, "%s", ibv_wc_status_str(wc.status));

	CHECK(readable(b->context->async_fd), "no asynchronous event");
	CHECK(!ibv_get_async_event(b->context, &event), "event");
	CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == b->qp, "%s",
	      ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);

	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	CHECK(!ibv_modify_qp(a->qp, &attr, IBV_QP_STATE) && !ibv_modify_qp(b->qp, &attr, IBV_QP_STATE), "RESET");
	connect_to(a, b);
	connect_to(b, a);
	run(a, &wr);
}

static void pair(struct end *a, struct end *b, enum ibv_qp_type type)
{
	create_qp(a, type);
	create_qp(b, type);
	connect_to(a, b);
	connect_to(b, a);
}

static void destroy(struct end *a, struct end *b)
{
	CHECK(!ibv_destroy_qp(a->qp) && !ibv_destroy_qp(b->qp), "destroy");
}

static void datagrams(struct end *a, struct end *b)
{
	struct ibv_ah_attr attr = address(a, b);
	struct ibv_ah *ah = ibv_create_ah(a->pd, &attr);
	CHECK(ah, "AH");
	struct ibv_send_wr base = { .opcode = IBV_WR_SEND };
	base.wr.ud.ah = ah;
	base.wr.ud.remote_qpn = b->qp->qp_num;
	base.wr.ud.remote_qkey = QKEY;
	sends(a, b, base);

	/* Another key leads nowhere, and the receive stays. */
	struct ibv_sge one = piece(a, 0, 100);
	struct ibv_send_wr wr = work(IBV_WR_SEND, &one, 1);
	wr.wr = base.wr;
	wr.wr.ud.remote_qkey++;
	post_receive(b, 0, GRH + 100, 0);
	run(a, &wr);
	wr.wr.ud.remote_qkey--;
	run(a, &wr);
	struct ibv_wc wc = receive(b);
	CHECK(wc.byte_len == GRH + 100 && !memcmp(b->heap + GRH, a->heap, 100), "%u bytes", wc.byte_len);
	/* Where it came from is where an answer goes. */
	if (b->port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		CHECK(wc.wc_flags & IBV_WC_GRH, "flags %x", wc.wc_flags);
		struct ibv_ah *back = ibv_create_ah_from_wc(b->pd, &wc, (struct ibv_grh *)b->heap, 1);
		CHECK(back, "AH of a completion");
		one = piece(b, 200, 9);
		wr = work(IBV_WR_SEND, &one, 1);
		wr.wr.ud.ah = back;
		wr.wr.ud.remote_qpn = wc.src_qp;
		wr.wr.ud.remote_qkey = QKEY;
		post_receive(a, 0, GRH + 9, 0);
		run(b, &wr);
		CHECK(receive(a).byte_len == GRH + 9, "answer");
		CHECK(!ibv_destroy_ah(back), "AH");
	}
	CHECK(!ibv_destroy_ah(ah), "AH");
}

/* A receive queue that queue pairs share. */
static void shared_receives(struct end *a, struct end *b)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 8, .max_sge = 2 } };
	struct ibv_srq *srq = ibv_create_srq(b->pd, &srq_attr);
	CHECK(srq, "SRQ");
	struct ibv_qp_init_attr attr = {
		.send_cq = b->send_cq,
		.recv_cq = b->recv_cq,
		.srq = srq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
	};
	create_qp(a, IBV_QPT_RC);
	CHECK((b->qp = ibv_create_qp(b->pd, &attr)), "QP");
	connect_to(a, b);
	connect_to(b, a);
	for (uint32_t i = 0; i < 20; i++) {
		pattern(a, i);
		struct ibv_sge list[2] = { piece(b, 32768, 10), piece(b, 40000, 5000) }, one = piece(a, i, 3000);
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = list, .num_sge = 2 }, *bad;
		CHECK(!ibv_post_srq_recv(srq, &wr, &bad), "receive");
		struct ibv_send_wr send = work(IBV_WR_SEND, &one, 1);
		run(a, &send);
		struct ibv_wc wc = receive(b);
		CHECK(wc.wr_id == i && wc.byte_len == 3000, "%u bytes", wc.byte_len);
		CHECK(!memcmp(b->heap + 32768, a->heap + i, 10) && !memcmp(b->heap + 40000, a->heap + i + 10, 2990), "data");
	}
	destroy(a, b);
	CHECK(!ibv_destroy_srq(srq), "SRQ");
}

/* One end's memory of a large message, apart from its heap. */
struct large {
	uint64_t address;
	struct ibv_mr *mr;
	unsigned char *host;
};

static struct large make_large(struct end *end, size_t size)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct large large;
	CHECK(!cuda.cuMemAlloc_v2(&large.address, size), "GPU memory");
	CHECK((large.mr = ibv_reg_mr(end->pd, (void *)large.address, size, access)), "MR");
	large.host = (unsigned char *)cuda.standin_host(large.address);
	return large;
}

/* Calls of the driver do not grow with the packets: each costs more than a packet. */
static void few_driver_calls(struct end *a, struct end *b)
{
	enum { SIZE = 1 << 20, MTU = 1024, EACH = 256 };
	struct large from = make_large(a, SIZE), to = make_large(b, SIZE);
	for (unsigned i = 0; i < SIZE; i++)
		from.host[i] = i * 2654435761u >> 13;
	for (int reads = 0; reads < 2; reads++) {
		struct ibv_sge one = { from.address, SIZE, from.mr->lkey };
		struct ibv_send_wr wr = work(reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &one, 1);
		wr.wr.rdma.remote_addr = to.address;
		wr.wr.rdma.rkey = to.mr->rkey;
		if (reads)
			memset(from.host, 0, SIZE);
		const int before = cuda.standin_calls();
		run(a, &wr);
		const int calls = cuda.standin_calls() - before;
		CHECK(!memcmp(from.host, to.host, SIZE) && to.host[SIZE - 1] == (unsigned char)((SIZE - 1) * 2654435761u >> 13), "data");
		/* One by one, each packet is a copy from, a wait and a copy to. */
		CHECK(calls < SIZE / MTU * 3 / 2, "%d calls of the driver for %d packets", calls, SIZE / MTU);
		if (getenv("PRINT_CALLS"))
			printf("%d calls of the driver for a %s of 1 MiB\n", calls, reads ? "READ" : "WRITE");
	}
	/* Many small messages that one doorbell announces. */
	struct ibv_sge lists[DEPTH / 2];
	struct ibv_send_wr chain[DEPTH / 2], *bad;
	memset(to.host, 0, SIZE);
	for (int i = 0; i < DEPTH / 2; i++) {
		lists[i] = (struct ibv_sge){ from.address + 2 * i * EACH, EACH, from.mr->lkey };
		chain[i] = work(IBV_WR_RDMA_WRITE, &lists[i], 1);
		chain[i].wr.rdma.remote_addr = to.address + 3 * i * EACH;
		chain[i].wr.rdma.rkey = to.mr->rkey;
		chain[i].next = i < DEPTH / 2 - 1 ? &chain[i + 1] : NULL;
		chain[i].send_flags = i < DEPTH / 2 - 1 ? 0 : IBV_SEND_SIGNALED;
	}
	int least = INT_MAX;
	for (int attempt = 0; attempt < 10; attempt++) {
		const int before = cuda.standin_calls();
		CHECK(!ibv_post_send(a->qp, chain, &bad), "chain");
		struct ibv_wc wc = completion(a->send_cq);
		CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
		const int calls = cuda.standin_calls() - before;
		least = calls < least ? calls : least;
	}
	for (int i = 0; i < DEPTH / 2; i++)
		CHECK(!memcmp(to.host + 3 * i * EACH, from.host + 2 * i * EACH, EACH), "message %d", i);
	/* A copy from, a copy to, and waits that messages share. */
	CHECK(least < DEPTH / 2 * 5 / 2, "%d calls of the driver for %d messages", least, DEPTH / 2);
	if (getenv("PRINT_CALLS"))
		printf("%d calls of the driver for %d messages\n", least, DEPTH / 2);
	CHECK(!ibv_dereg_mr(from.mr) && !ibv_dereg_mr(to.mr), "MR");
	CHECK(!cuda.cuMemFree_v2(from.address) && !cuda.cuMemFree_v2(to.address), "GPU memory");
}

int main(int count, char **words)
{
	struct end a, b;
	void *context = NULL;
	CHECK(count == 3 || count == 4, "two devices");
	exported = count == 4 && !strcmp(words[3], "exported");
	gpu = exported ? NULL : words[3];
	if (gpu) {
		load_cuda();
		CHECK(!cuda.cuInit(0) && !cuda.cuDevicePrimaryCtxRetain(&context, 0), "CUDA");
		CHECK(!cuda.cuCtxPushCurrent_v2(context), "context");
	}
	open_end(&a, words[1]);
	open_end(&b, words[2]);

	pair(&a, &b, IBV_QPT_RC);
	sends(&a, &b, (struct ibv_send_wr){ 0 });
	writes(&a, &b);
	reads_and_atomics(&a, &b);
	events(&a, &b);
	resizes(&a, &b);
	failure(&a, &b);
	destroy(&a, &b);
	shared_receives(&a, &b);
	if (gpu && strcmp(words[1], words[2])) {
		pair(&a, &b, IBV_QPT_RC);
		few_driver_calls(&a, &b);
		destroy(&a, &b);
	}

	pair(&a, &b, IBV_QPT_UC);
	sends(&a, &b, (struct ibv_send_wr){ 0 });
	writes(&a, &b);
	destroy(&a, &b);

	pair(&a, &b, IBV_QPT_UD);
	datagrams(&a, &b);
	destroy(&a, &b);

	close_end(&a);
	close_end(&b);
	if (gpu) {
		CHECK(!cuda.cuCtxPopCurrent_v2(&context), "the thread's context");
		CHECK(cuda.standin_left() == 0, "%d things of the driver are left", cuda.standin_left());
	}
	puts("all good");
	return 0;
}
