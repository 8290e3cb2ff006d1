/*
 * The clock of the device, beside the times of completions and the time of day.
 *
 * clock DEVICE: prints nothing but what is wrong, and "all good".
 */
#include "open.h"
#include <infiniband/mlx5dv.h>
#include <stdint.h>
#include <time.h>

enum { GID_INDEX = 3, DEPTH = 16, ROUNDS = 1000, ACCESS = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE };
/* A busy machine may let the device sleep for longer, but not in each of so many tries. */
enum { TRIES = 100, LONGEST_LAG_NS = 2000000 };

static struct ibv_context *context;
static struct ibv_cq_ex *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint64_t words[2];

static void open_device(const char *name)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = DEPTH, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_pd *pd;
	context = open_by_name(name);
	CHECK((pd = ibv_alloc_pd(context)), "PD");
	CHECK((cq = ibv_create_cq_ex(context, &attr)), "CQ");
	CHECK((mr = ibv_reg_mr(pd, words, sizeof(words), ACCESS)), "MR");
	struct ibv_qp_init_attr queue = {
		.send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq), .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	CHECK((qp = ibv_create_qp(pd, &queue)), "QP");
}

static void connect_to_itself(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
				     .max_dest_rd_atomic = 1, .min_rnr_timer = 12 };
	attr.ah_attr = (struct ibv_ah_attr){ .port_num = 1, .is_global = 1 };
	attr.ah_attr.grh.sgid_index = GID_INDEX;
	attr.ah_attr.grh.hop_limit = 64;
	CHECK(!ibv_query_gid(context, 1, GID_INDEX, &attr.ah_attr.grh.dgid), "GID");
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

/* Returns the clock of the device, in its ticks. */
static uint64_t device_clock(void)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	CHECK(!ibv_query_rt_values_ex(context, &values) && values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK, "clock");
	return values.raw_clock.tv_sec * 1000000000ull + values.raw_clock.tv_nsec;
}

static uint64_t time_of_day(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Writes a word, and returns the time of the completion. */
static uint64_t completion(void)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&words[0], .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr entry = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };
	struct ibv_send_wr *bad;
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t ticks;
	entry.wr.rdma.remote_addr = (uintptr_t)&words[1];
	entry.wr.rdma.rkey = mr->rkey;
	CHECK(!ibv_post_send(qp, &entry, &bad), "post");
	while (ibv_start_poll(cq, &attr))
		;
	CHECK(cq->status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(cq->status));
	ticks = ibv_wc_read_completion_ts(cq);
	ibv_end_poll(cq);
	return ticks;
}

/* The clock never goes back, and is never ahead of a completion that follows. */
static void check_order(void)
{
	uint64_t last = device_clock();
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t before = device_clock(), completed;
		CHECK(before >= last, "%lu before %lu", before, last);
		completed = completion();
		CHECK(completed >= before, "%lu before %lu", completed, before);
		last = device_clock();
		CHECK(last >= before, "%lu before %lu", last, before);
	}
}

/* The clock of an idle device goes on, close to the time of day. */
static void check_lag(void)
{
	struct mlx5dv_clock_info info;
	int64_t least = INT64_MAX;
	uint64_t last = 0;
	CHECK(!mlx5dv_get_clock_info(context, &info), "conversion");
	for (int i = 0; i < TRIES; i++) {
		struct timespec pause = { .tv_nsec = 3000000 };
		uint64_t clock;
		int64_t lag;
		nanosleep(&pause, NULL);
		clock = device_clock();
		lag = llabs((int64_t)(time_of_day() - mlx5dv_ts_to_ns(&info, clock)));
		CHECK(clock > last, "the clock stands still at %lu", clock);
		least = lag < least ? lag : least;
		last = clock;
	}
	CHECK(least < LONGEST_LAG_NS, "the clock is off by %ld ns", least);
}

int main(int count, char **arguments)
{
	CHECK(count == 2, "clock DEVICE");
	open_device(arguments[1]);
	connect_to_itself();
	check_order();
	check_lag();
	printf("all good\n");
	return 0;
}
