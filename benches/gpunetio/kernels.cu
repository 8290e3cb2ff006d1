// Kernels over the public device interface of NVIDIA's DOCA GPUNetIO verbs headers, one per operation. Each thread of a
// launch performs the operation once, at its own addresses. src/theirs.rs compiles and launches them; its structs
// Queue, Work and Outcome match those here.
//
// Completions are polled with a deadline, so no kernel waits forever.
#include "doca_gpunetio_device.h"

namespace {

using Qp = doca_gpu_dev_verbs_qp;
using Addr = doca_gpu_dev_verbs_addr;
using Ticket = doca_gpu_dev_verbs_ticket_t;

// Space that the host reserves for a Qp, in bytes.
constexpr size_t QP_ROOM = 4096;
static_assert(sizeof(Qp) <= QP_ROOM, "the host must give more room for NVIDIA's queue pair");

// What the host knows about a queue pair.
struct Queue {
    uint64_t sq;         // send queue
    uint64_t cq;         // completion queue
    uint64_t sq_record;  // send word of the doorbell record
    uint64_t cq_record;  // doorbell record of the completion queue
    uint64_t doorbell;   // register of the UAR page
    uint32_t qpn;
    uint32_t cqn;
    uint32_t depth;      // entries of either queue
    uint32_t collapsed;  // not 0: all completions go to entry 0
    uint32_t on_gpu;     // not 0: all but the doorbell lies in GPU memory
    uint32_t reserved;
};

// The work of a launch. Thread i uses raddr + i * stride and laddr + i * stride.
struct Work {
    uint64_t raddr;        // at the peer
    uint64_t laddr;        // here
    uint64_t bytes;        // of each transfer
    uint64_t stride;
    uint64_t signal;       // word at the peer that signals add to
    uint64_t sink;         // where its old value goes
    uint64_t value;        // to put inline, or to add
    uint64_t rounds;       // of the kernel storm
    uint64_t patience_ns;  // for each completion
    uint32_t lkey;
    uint32_t rkey;
    uint32_t fence;        // 0: ring as NVIDIA's calls do by themselves; 1: after a fence at system scope
    uint32_t no_record;    // not 0: queues have no doorbell record
};

struct Outcome {
    uint64_t ticket;  // of the thread's last entry
    int32_t status;   // of its completion: 0, ETIMEDOUT, or what polling said
    int32_t ahead;    // what polling says of the entry after that, which nobody has posted (one thread only)
};

constexpr auto GPU = DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU;
constexpr auto SYSTEM = DOCA_GPUNETIO_VERBS_SYNC_SCOPE_SYS;

template <doca_gpu_dev_verbs_nic_handler H>
struct Handler {
    static constexpr auto value = H;
};

__device__ Addr at(uint64_t address, uint32_t key) { return {address, doca_gpu_dev_verbs_bswap32(key)}; }

__device__ uint64_t own(uint64_t base, const Work &work) {
    return base + (blockIdx.x * uint64_t(blockDim.x) + threadIdx.x) * work.stride;
}

__device__ Addr remote(const Work &work) { return at(own(work.raddr, work), work.rkey); }
__device__ Addr local(const Work &work) { return at(own(work.laddr, work), work.lkey); }
__device__ Addr signal(const Work &work) { return at(work.signal, work.rkey); }
__device__ Addr sink(const Work &work) { return at(work.sink, work.lkey); }

// Waits for the completion of an entry.
//
// With a collapsed queue, polling also reports the entry after the last completed one as done, so check the count as
// well.
__device__ int await(Qp *qp, Ticket ticket, uint64_t patience_ns) {
    const uint64_t begin = doca_gpu_dev_verbs_query_globaltimer();
    for (;;) {
        const int status = doca_gpu_dev_verbs_poll_one_cq_at<GPU>(qp, ticket);
        if (status != 0 && status != EBUSY) return status;
        if (status == 0 && doca_gpu_dev_verbs_load_relaxed<GPU>(&qp->cq_sq.cqe_ci) > ticket) return 0;
        if (doca_gpu_dev_verbs_query_globaltimer() - begin > patience_ns) return ETIMEDOUT;
    }
}

// Posts with `op`, which receives the handler to use and where to store its ticket.
//
// NVIDIA's calls ring after a fence at GPU scope, but a queue in host memory needs system scope. Then `op` gets a
// handler that does not ring, and their function that rings at system scope is called here.
template <typename Op>
__device__ Ticket post(Qp *qp, const Work &work, bool rings, Op op) {
    Ticket ticket = 0;
    if (work.fence == 0) {
        op(Handler<DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB>{}, &ticket);
        return ticket;
    }
    op(Handler<DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY_FREE_FLOW>{}, &ticket);
    if (rings) doca_gpu_dev_verbs_submit<GPU, SYSTEM, DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB>(qp, ticket + 1);
    return ticket;
}

// The body of a kernel: posts, waits and stores the outcome.
template <typename Op>
__device__ void once(Qp *qp, const Work &work, Outcome *outcomes, bool rings, Op op) {
    const Ticket ticket = post(qp, work, rings, op);
    const int status = await(qp, ticket, work.patience_ns);
    const bool alone = gridDim.x * blockDim.x == 1;
    const int ahead = alone ? doca_gpu_dev_verbs_poll_one_cq_at<GPU>(qp, ticket + 1) : 0;
    outcomes[blockIdx.x * blockDim.x + threadIdx.x] = {ticket, status, ahead};
}

// Calls of warp scope post the warp's entries together, and the last lane has the last one.
__device__ bool last_lane() { return (threadIdx.x & 31) == 31; }

template <typename T>
__device__ void put_value(Qp *qp, const Work &work, Outcome *outcomes) {
    once(qp, work, outcomes, true, [&](auto handler, Ticket *ticket) {
        doca_gpu_dev_verbs_p<T, GPU, decltype(handler)::value>(qp, remote(work), T(work.value), ticket);
    });
}

}  // namespace

// Initializes NVIDIA's queue pair in zeroed GPU memory.
extern "C" __global__ void prepare(Qp *qp, Queue queue) {
    const uint32_t shifted = queue.qpn << 8;
    qp->sq_num = queue.qpn;
    qp->sq_num_shift8 = shifted;
    qp->sq_num_shift8_be = doca_gpu_dev_verbs_bswap32(shifted);
    qp->sq_num_shift8_be_1ds = doca_gpu_dev_verbs_bswap32(shifted | 1);
    qp->sq_num_shift8_be_2ds = doca_gpu_dev_verbs_bswap32(shifted | 2);
    qp->sq_num_shift8_be_3ds = doca_gpu_dev_verbs_bswap32(shifted | 3);
    qp->sq_num_shift8_be_4ds = doca_gpu_dev_verbs_bswap32(shifted | 4);
    qp->sq_num_shift8_be_5ds = doca_gpu_dev_verbs_bswap32(shifted | 5);
    qp->sq_wqe_num = queue.depth;
    qp->sq_wqe_mask = queue.depth - 1;
    qp->sq_wqe_daddr = reinterpret_cast<uint8_t *>(queue.sq);
    qp->sq_dbrec = reinterpret_cast<__be32 *>(queue.sq_record);
    qp->sq_db = reinterpret_cast<uint64_t *>(queue.doorbell);
    qp->nic_handler = DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB;
    const auto memory = queue.on_gpu ? DOCA_GPUNETIO_VERBS_MEM_TYPE_GPU : DOCA_GPUNETIO_VERBS_MEM_TYPE_HOST;
    qp->mem_type = memory;
    qp->cq_sq.cqe_daddr = reinterpret_cast<uint8_t *>(queue.cq);
    qp->cq_sq.cq_num = queue.cqn;
    qp->cq_sq.cqe_num = queue.depth;
    qp->cq_sq.cqe_mask = queue.depth - 1;
    qp->cq_sq.cqe_size = DOCA_GPUNETIO_VERBS_CQE_SIZE;
    qp->cq_sq.dbrec = reinterpret_cast<__be32 *>(queue.cq_record);
    // Collapsed, but polled by the GPU itself: in their terms, HOST is polled by a CPU thread.
    qp->cq_sq.cq_type =
        queue.collapsed ? DOCA_GPUNETIO_VERBS_CQ_64B_COLLAPSED : DOCA_GPUNETIO_VERBS_CQ_64B;
    qp->cq_sq.mem_type = memory;
}

extern "C" __global__ void put(Qp *qp, Work work, Outcome *outcomes) {
    once(qp, work, outcomes, true, [&](auto handler, Ticket *ticket) {
        doca_gpu_dev_verbs_put<GPU, decltype(handler)::value>(qp, remote(work), local(work), work.bytes, ticket);
    });
}

extern "C" __global__ void put_warp(Qp *qp, Work work, Outcome *outcomes) {
    once(qp, work, outcomes, last_lane(), [&](auto handler, Ticket *ticket) {
        doca_gpu_dev_verbs_put<GPU, decltype(handler)::value, DOCA_GPUNETIO_VERBS_EXEC_SCOPE_WARP>(
            qp, remote(work), local(work), work.bytes, ticket);
    });
}

extern "C" __global__ void put_u8(Qp *qp, Work work, Outcome *outcomes) { put_value<uint8_t>(qp, work, outcomes); }
extern "C" __global__ void put_u16(Qp *qp, Work work, Outcome *outcomes) { put_value<uint16_t>(qp, work, outcomes); }
extern "C" __global__ void put_u32(Qp *qp, Work work, Outcome *outcomes) { put_value<uint32_t>(qp, work, outcomes); }
extern "C" __global__ void put_u64(Qp *qp, Work work, Outcome *outcomes) { put_value<uint64_t>(qp, work, outcomes); }

extern "C" __global__ void add_signal(Qp *qp, Work work, Outcome *outcomes) {
    once(qp, work, outcomes, true, [&](auto handler, Ticket *ticket) {
        doca_gpu_dev_verbs_signal<DOCA_GPUNETIO_VERBS_SIGNAL_OP_ADD, GPU, decltype(handler)::value>(
            qp, signal(work), sink(work), work.value, ticket);
    });
}

extern "C" __global__ void put_signal(Qp *qp, Work work, Outcome *outcomes) {
    once(qp, work, outcomes, true, [&](auto handler, Ticket *ticket) {
        doca_gpu_dev_verbs_put_signal<DOCA_GPUNETIO_VERBS_SIGNAL_OP_ADD, GPU, decltype(handler)::value>(
            qp, remote(work), local(work), work.bytes, signal(work), sink(work), work.value, ticket);
    });
}

extern "C" __global__ void put_u64_signal(Qp *qp, Work work, Outcome *outcomes) {
    once(qp, work, outcomes, true, [&](auto handler, Ticket *ticket) {
        doca_gpu_dev_verbs_p_signal<uint64_t, DOCA_GPUNETIO_VERBS_SIGNAL_OP_ADD, GPU, decltype(handler)::value>(
            qp, remote(work), work.value, signal(work), sink(work), work.value, ticket);
    });
}

extern "C" __global__ void get(Qp *qp, Work work, Outcome *outcomes) {
    once(qp, work, outcomes, true, [&](auto handler, Ticket *ticket) {
        doca_gpu_dev_verbs_get<GPU, decltype(handler)::value>(
            qp, remote(work), local(work), work.bytes, sink(work), ticket);
    });
}

extern "C" __global__ void get_dump(Qp *qp, Work work, Outcome *outcomes) {
    once(qp, work, outcomes, true, [&](auto handler, Ticket *ticket) {
        doca_gpu_dev_verbs_get<GPU, decltype(handler)::value, DOCA_GPUNETIO_VERBS_EXEC_SCOPE_THREAD,
                               DOCA_GPUNETIO_VERBS_MCST_ENABLED>(
            qp, remote(work), local(work), work.bytes, sink(work), ticket);
    });
}

extern "C" __global__ void get_warp(Qp *qp, Work work, Outcome *outcomes) {
    once(qp, work, outcomes, last_lane(), [&](auto handler, Ticket *ticket) {
        doca_gpu_dev_verbs_get<GPU, decltype(handler)::value, DOCA_GPUNETIO_VERBS_EXEC_SCOPE_WARP>(
            qp, remote(work), local(work), work.bytes, sink(work), ticket);
    });
}

// In every round, every thread puts a value that encodes thread and round to its own word, adds to the signal word, and
// waits for the latter. Threads that find no room in the queue wait in NVIDIA's own loop, which has no deadline.
extern "C" __global__ void storm(Qp *qp, Work work, Outcome *outcomes) {
    const uint64_t thread = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x;
    Outcome outcome = {};
    for (uint64_t round = 0; round < work.rounds && outcome.status == 0; round++) {
        post(qp, work, true, [&](auto handler, Ticket *ticket) {
            doca_gpu_dev_verbs_p<uint64_t, GPU, decltype(handler)::value>(
                qp, remote(work), thread << 32 | round, ticket);
        });
        outcome.ticket = post(qp, work, true, [&](auto handler, Ticket *ticket) {
            doca_gpu_dev_verbs_signal<DOCA_GPUNETIO_VERBS_SIGNAL_OP_ADD, GPU, decltype(handler)::value>(
                qp, signal(work), sink(work), work.value, ticket);
        });
        outcome.status = await(qp, outcome.ticket, work.patience_ns);
    }
    outcomes[thread] = outcome;
}

// Posting only. Each thread puts its 8 bytes `rounds` times, with NVIDIA's calls unchanged, into queues with room for
// all entries. No NIC executes them. `spans` receives the start and end of each block in nanoseconds.

// The queue pair that a thread uses. Queue pairs are `QP_ROOM` bytes apart.
template <bool PerBlock>
__device__ Qp *queue_of(uint64_t qps) {
    return reinterpret_cast<Qp *>(qps + (PerBlock ? blockIdx.x : 0) * QP_ROOM);
}

template <bool PerBlock, doca_gpu_dev_verbs_resource_sharing_mode Sharing, doca_gpu_dev_verbs_exec_scope Scope,
          doca_gpu_dev_verbs_nic_handler Ring>
__device__ void post_rounds(uint64_t qps, const Work &work, uint64_t *spans) {
    Qp *qp = queue_of<PerBlock>(qps);
    const Addr there = remote(work), here = local(work);
    __syncthreads();
    const uint64_t begin = doca_gpu_dev_verbs_query_globaltimer();
    for (uint64_t round = 0; round < work.rounds; round++) {
        Ticket ticket;
        doca_gpu_dev_verbs_put<Sharing, Ring, Scope>(qp, there, here, work.bytes, &ticket);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        spans[2 * blockIdx.x] = begin;
        spans[2 * blockIdx.x + 1] = doca_gpu_dev_verbs_query_globaltimer();
    }
}

template <bool PerBlock, doca_gpu_dev_verbs_resource_sharing_mode Sharing, doca_gpu_dev_verbs_exec_scope Scope>
__device__ void post_many(uint64_t qps, const Work &work, uint64_t *spans) {
    if (work.no_record) {
        post_rounds<PerBlock, Sharing, Scope, DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_NO_DBR>(qps, work, spans);
    } else {
        post_rounds<PerBlock, Sharing, Scope, DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB>(qps, work, spans);
    }
}

constexpr auto ALONE = DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_EXCLUSIVE;
constexpr auto CTA = DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_CTA;
constexpr auto THREAD = DOCA_GPUNETIO_VERBS_EXEC_SCOPE_THREAD;
constexpr auto WARP = DOCA_GPUNETIO_VERBS_EXEC_SCOPE_WARP;

extern "C" __global__ void post_exclusive(uint64_t qps, Work work, uint64_t *spans) {
    post_many<false, ALONE, THREAD>(qps, work, spans);
}
extern "C" __global__ void post_per_block(uint64_t qps, Work work, uint64_t *spans) {
    post_many<true, CTA, THREAD>(qps, work, spans);
}
extern "C" __global__ void post_shared(uint64_t qps, Work work, uint64_t *spans) {
    post_many<false, GPU, THREAD>(qps, work, spans);
}
extern "C" __global__ void post_warp(uint64_t qps, Work work, uint64_t *spans) {
    post_many<false, GPU, WARP>(qps, work, spans);
}
extern "C" __global__ void post_warp_per_block(uint64_t qps, Work work, uint64_t *spans) {
    post_many<true, CTA, WARP>(qps, work, spans);
}
