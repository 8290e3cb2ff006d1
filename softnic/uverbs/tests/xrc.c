/*
 * Extended reliable connections: shared domains, targets with several handles, and what a request's queue decides.
 *
 * xrc DEVICE PEER: an initiator of DEVICE sends to a target of PEER, which two contexts share. It prints nothing but what is
 * wrong, and "all good".
 */
#include "open.h"
#include "data.h"
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH = 16, SIZE = 10000, ACCESS = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

/* A context with one object of each kind. */
struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	uint32_t srqn;
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint8_t bytes[SIZE];
};

static struct side source, first, second;
static int file;

static void open_side(struct side *side, const char *name)
{
	side->context = open_by_name(name);
	CHECK((side->pd = ibv_alloc_pd(side->context)), "PD");
	CHECK((side->cq = ibv_create_cq(side->context, DEPTH, NULL, NULL, 0)), "CQ");
	CHECK((side->mr = ibv_reg_mr(side->pd, side->bytes, SIZE, ACCESS | IBV_ACCESS_LOCAL_WRITE)), "MR");
	CHECK(!ibv_query_port(side->context, 1, &side->port), "port");
	CHECK(!ibv_query_gid(side->context, 1, side->port.link_layer == IBV_LINK_LAYER_ETHERNET ? 3 : 0, &side->gid), "GID");
}

static struct ibv_xrcd *open_domain(struct side *side, int fd, int flags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = flags,
	};
	errno = 0;
	return ibv_open_xrcd(side->context, &attr);
}

static struct ibv_srq *make_srq(struct side *side, struct ibv_xrcd *xrcd, uint32_t *number)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = DEPTH, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC, .pd = side->pd, .xrcd = xrcd, .cq = side->cq,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(side->context, &attr);
	CHECK(srq && !ibv_get_srq_num(srq, number), "SRQ");
	return srq;
}

static struct ibv_qp *make_target(struct side *side)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = side->xrcd,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(side->context, &attr);
	CHECK(qp, "target");
	return qp;
}

static struct ibv_qp *make_initiator(struct side *side)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_SEND, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = side->pd, .send_cq = side->cq,
		.cap = { .max_send_wr = DEPTH, .max_send_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp_ex(side->context, &attr);
	CHECK(qp, "initiator");
	return qp;
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
}

static void to_rtr(struct ibv_qp *qp, const struct side *peer, uint32_t number, int more)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number, .rq_psn = 5,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 1,
		.ah_attr = { .port_num = 1, .dlid = peer->port.lid },
	};
	if (peer->port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.dgid = peer->gid;
		attr.ah_attr.grh.sgid_index = 3;
		attr.ah_attr.grh.hop_limit = 64;
	}
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | more), "RTR");
}

static void to_rts(struct ibv_qp *qp, int more)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4, .sq_psn = 5,
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | more), "RTS");
}

/* Each end needs the attributes of its part only. */
static void connect_qps(struct ibv_qp *initiator, struct ibv_qp *target)
{
	to_init(initiator);
	to_init(target);
	to_rtr(initiator, &first, target->qp_num, 0);
	to_rtr(target, &source, initiator->qp_num, IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	to_rts(initiator, IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	to_rts(target, 0);
}

static struct ibv_wc wait_for(struct side *side)
{
	struct ibv_wc wc;
	int n;
	while (!(n = ibv_poll_cq(side->cq, 1, &wc)))
		;
	CHECK(n == 1, "poll");
	return wc;
}

static enum ibv_wc_status execute(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t srqn, const struct side *to, uint32_t size)
{
	struct ibv_sge sge = { (uintptr_t)source.bytes, size, source.mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED };
	wr.qp_type.xrc.remote_srqn = srqn;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)to->bytes;
		wr.wr.atomic.rkey = to->mr->rkey;
		wr.wr.atomic.compare_add = 7;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)to->bytes;
		wr.wr.rdma.rkey = to->mr->rkey;
	}
	CHECK(!ibv_post_send(qp, &wr, &bad), "post");
	return wait_for(&source).status;
}

static void post_receive(struct side *side, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)side->bytes, SIZE, side->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
	CHECK(!ibv_post_srq_recv(side->srq, &wr, &bad), "receive");
}

/* Sends a message to the queue of a side, and checks what arrives there. */
static void send_to(struct ibv_qp *qp, struct side *side, uint32_t target, uint32_t size)
{
	static uint64_t id;
	struct ibv_wc wc;
	post_receive(side, ++id);
	fill(source.bytes, size, id);
	memset(side->bytes, 0, SIZE);
	CHECK(execute(qp, IBV_WR_SEND, side->srqn, side, size) == IBV_WC_SUCCESS, "SEND of %u bytes", size);
	wc = wait_for(side);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == id, "receive: %s", ibv_wc_status_str(wc.status));
	CHECK(wc.qp_num == target && wc.byte_len == size, "QP 0x%x, %u bytes", wc.qp_num, wc.byte_len);
	CHECK(!memcmp(side->bytes, source.bytes, size), "data of %u bytes", size);
}

static void domains_are_shared_by_their_file(void)
{
	struct ibv_xrcd *alone;
	CHECK(!open_domain(&first, file, 0) && errno == EAGAIN, "no domain yet");
	CHECK((first.xrcd = open_domain(&first, file, O_CREAT)), "new");
	CHECK(!open_domain(&second, file, O_CREAT | O_EXCL) && errno == EINVAL, "it exists");
	CHECK((second.xrcd = open_domain(&second, file, 0)), "shared");
	CHECK(!open_domain(&first, 999, O_CREAT) && errno == EBADF, "no file");
	CHECK((alone = open_domain(&first, -1, O_CREAT)), "without a file");
	CHECK(!ibv_close_xrcd(alone), "close");
}

/* Data go where the queue of the request says, which may be of another context than the target. */
static void requests_choose_their_queue(struct ibv_qp *qp, uint32_t target)
{
	uint64_t before = 40;
	send_to(qp, &first, target, 100);
	send_to(qp, &second, target, SIZE);
	send_to(qp, &first, target, 5000);
	send_to(qp, &second, target, 0);
	fill(source.bytes, SIZE, 77);
	CHECK(execute(qp, IBV_WR_RDMA_WRITE, second.srqn, &second, SIZE) == IBV_WC_SUCCESS, "WRITE");
	CHECK(!memcmp(source.bytes, second.bytes, SIZE), "written");
	fill(first.bytes, SIZE, 78);
	CHECK(execute(qp, IBV_WR_RDMA_READ, first.srqn, &first, SIZE) == IBV_WC_SUCCESS, "READ");
	CHECK(!memcmp(source.bytes, first.bytes, SIZE), "read");
	memcpy(first.bytes, &before, 8);
	CHECK(execute(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, first.srqn, &first, 8) == IBV_WC_SUCCESS, "atomic");
	CHECK(!memcmp(source.bytes, &before, 8) && first.bytes[0] == 47, "%u", first.bytes[0]);
}

/*
 * A target lives until its last handle is gone. libmlx5 crashes when it destroys a handle that was opened, since that has no
 * doorbell record. So the last one ends with its context.
 */
static void a_target_has_several_handles(struct ibv_qp *qp, struct ibv_qp *target)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = target->qp_num, .xrcd = second.xrcd, .qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr state;
	uint32_t number = target->qp_num;
	struct ibv_qp *other = ibv_open_qp(second.context, &attr);
	CHECK(other && other->qp_num == number, "open");
	CHECK(!ibv_query_qp(other, &state, IBV_QP_STATE, &init), "query");
	CHECK(state.qp_state == IBV_QPS_RTS && state.dest_qp_num == qp->qp_num, "state %d", state.qp_state);
	attr.qp_num++;
	CHECK(!ibv_open_qp(second.context, &attr), "another number");
	CHECK(!ibv_destroy_qp(target), "first handle");
	send_to(qp, &first, number, 3000);
	CHECK(ibv_close_xrcd(second.xrcd) == EBUSY, "a handle and a queue are left");
	CHECK(!ibv_close_device(second.context), "last handle");
	attr.qp_num = number;
	attr.xrcd = first.xrcd;
	CHECK(!ibv_open_qp(first.context, &attr), "it is gone");
}

/* Makes another connection, on which one request fails. */
static void refused(enum ibv_wr_opcode opcode, uint32_t srqn, enum ibv_wc_status expected)
{
	struct ibv_qp *qp = make_initiator(&source), *target = make_target(&first);
	struct ibv_async_event event;
	enum ibv_wc_status status;
	connect_qps(qp, target);
	status = execute(qp, opcode, srqn, &second, 64);
	CHECK(status == expected, "%s, not %s", ibv_wc_status_str(status), ibv_wc_status_str(expected));
	CHECK(!ibv_get_async_event(first.context, &event) && event.element.qp == target, "event %d", event.event_type);
	ibv_ack_async_event(&event);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(target), "destroy");
}

static void wrong_requests_are_refused(void)
{
	struct ibv_xrcd *other = open_domain(&second, -1, O_CREAT);
	uint32_t elsewhere;
	struct ibv_srq *srq = make_srq(&second, other, &elsewhere);
	/* The key is of another domain of protection than the queue that the request names. */
	refused(IBV_WR_RDMA_WRITE, first.srqn, IBV_WC_REM_ACCESS_ERR);
	refused(IBV_WR_RDMA_READ, first.srqn, IBV_WC_REM_ACCESS_ERR);
	refused(IBV_WR_SEND, elsewhere, IBV_WC_REM_INV_REQ_ERR);
	refused(IBV_WR_SEND, 0xabcdef, IBV_WC_REM_INV_REQ_ERR);
	CHECK(!ibv_destroy_srq(srq) && !ibv_close_xrcd(other), "destroy");
}

static void a_queue_tells_its_limit(struct ibv_qp *qp, uint32_t target)
{
	struct ibv_srq_attr attr = { .srq_limit = 2 };
	struct ibv_async_event event;
	post_receive(&first, 1000);
	CHECK(!ibv_modify_srq(first.srq, &attr, IBV_SRQ_LIMIT), "arm");
	CHECK(!ibv_query_srq(first.srq, &attr) && attr.srq_limit == 2, "limit %u", attr.srq_limit);
	fill(source.bytes, 10, 1);
	CHECK(execute(qp, IBV_WR_SEND, first.srqn, &first, 10) == IBV_WC_SUCCESS, "SEND");
	CHECK(wait_for(&first).wr_id == 1000, "receive of QP 0x%x", target);
	CHECK(!ibv_get_async_event(first.context, &event), "event");
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == first.srq, "event %d", event.event_type);
	ibv_ack_async_event(&event);
}

int main(int argc, char **argv)
{
	struct ibv_qp *qp, *target;
	char path[] = "/tmp/xrc-XXXXXX";
	CHECK(argc == 3, "usage: xrc DEVICE PEER");
	CHECK((file = mkstemp(path)) >= 0, "file");
	unlink(path);
	open_side(&source, argv[1]);
	open_side(&first, argv[2]);
	open_side(&second, argv[2]);
	domains_are_shared_by_their_file();
	first.srq = make_srq(&first, first.xrcd, &first.srqn);
	second.srq = make_srq(&second, second.xrcd, &second.srqn);
	qp = make_initiator(&source);
	target = make_target(&first);
	connect_qps(qp, target);
	requests_choose_their_queue(qp, target->qp_num);
	a_queue_tells_its_limit(qp, target->qp_num);
	wrong_requests_are_refused();
	a_target_has_several_handles(qp, target);
	CHECK(!ibv_destroy_qp(qp), "initiator");
	CHECK(!ibv_destroy_srq(first.srq) && !ibv_close_xrcd(first.xrcd), "SRQ and domain");
	CHECK(!open_domain(&first, file, 0) && errno == EAGAIN, "the domain is gone");
	puts("all good");
	return 0;
}
