// Rows of `rushmem perf --list`, measured with NCCL's device API for peers in the node (LSA). Rank 0 writes the results in
// the format that `rushmem perf --compare` reads.
//
//     device PLAN RESULTS.json
//
// The API provides the addresses of peers' memory, a barrier and, in newer releases, a copy by a block. All else is
// written with loads, stores and fences, as in any CUDA kernel. Skips rows that take more. Compile with
// `--extended-lambda`, which NCCL's copy needs.
#include "job.cuh"

#include <nccl_device.h>

#include <cuda/atomic>

#include "../rma.cuh"

namespace {

constexpr unsigned LIMIT_SECONDS = 240;  // for everything
constexpr uint64_t MAX_POLLS = 1 << 26;
constexpr uint64_t PAGE = 2 << 20;
constexpr int TARGET = 1;

using Word = cuda::atomic_ref<uint64_t, cuda::thread_scope_system>;
using Barrier = ncclLsaBarrierSession<ncclCoopCta>;

// The symmetric memory of a rank.
struct Lsa {
    ncclDevComm comm;
    ncclWindow_t window;
    char *base;

    // Returns the address of a peer's copy of `word`.
    __device__ uint64_t *at(int peer, uint64_t *word) const {
        void *const there = ncclGetLsaPointer(window, reinterpret_cast<char *>(word) - base, peer);
        // Otherwise the compiler allows for shared memory, and atomics take longer.
        __builtin_assume(__isGlobal(there));
        return static_cast<uint64_t *>(there);
    }
};

// Copies by a block with vector loads and stores, up to eight of each thread in flight.
struct ByStores {
    static __device__ void copy(uint64_t *dst, uint64_t *src, uint64_t words) {
        const auto *from = reinterpret_cast<const ulonglong2 *>(src);
        auto *to = reinterpret_cast<ulonglong2 *>(dst);
        const uint64_t pieces = words / 2, step = blockDim.x;
        uint64_t at = threadIdx.x;
        for (; at + 7 * step < pieces; at += 8 * step) {
            ulonglong2 v[8];
            for (int k = 0; k < 8; k++) v[k] = from[at + k * step];
            for (int k = 0; k < 8; k++) to[at + k * step] = v[k];
        }
        for (; at < pieces; at += step) to[at] = from[at];
        if (words % 2 == 1 && threadIdx.x == 0) dst[words - 1] = src[words - 1];
    }
};

#if __has_include(<nccl_device/reduce_copy.h>)
#define HAS_LSA_COPY
// NCCL's copy to several peers, here to one.
struct ByLsaCopy {
    static __device__ void copy(uint64_t *dst, uint64_t *src, uint64_t words) {
        ncclLsaCopy(ncclCoopCta(), src, [=] __device__(int) { return dst; }, 1, words);
    }
};
#endif

__device__ void fence() { cuda::atomic_thread_fence(cuda::memory_order_release, cuda::thread_scope_system); }

// Completes what the threads of the block have stored.
__device__ void quiet_block() {
    __syncthreads();
    if (threadIdx.x == 0) fence();
    __syncthreads();
}

// Atomics of CUDA C++ that apply to other GPUs fetch the previous value even if it is unused.
__device__ void add_to(uint64_t *word, uint64_t value) {
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(word)), "l"(value) : "memory");
}

__device__ void wait_until(uint64_t *signal, uint64_t value) {
    const Word word(*signal);
    for (uint64_t polls = 0; word.load(cuda::memory_order_acquire) < value; polls++) {
        if (polls == MAX_POLLS) __trap();
    }
}

__device__ void sync(Barrier &barrier) { barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel); }

template <typename By>
__global__ void put(Work work, Lsa lsa) {
    work.dst = lsa.at(TARGET, work.dst);
    transfer(work, By::copy, quiet_block);
}

template <typename By>
__global__ void get(Work work, Lsa lsa) {
    work.src = lsa.at(TARGET, work.src);
    transfer(work, By::copy, quiet_block);
}

__global__ void p(Work work, Lsa lsa) {
    const Word word(*lsa.at(TARGET, work.words + index()));
    const Span span(work);
    for (uint64_t round = 0; round < work.rounds; round++) {
        word.store(work.value + round, cuda::memory_order_relaxed);
        if (work.each) fence();
    }
    fence();
    span.end();
}

__global__ void g(Work work, Lsa lsa) {
    work.words = lsa.at(TARGET, work.words);
    fetches(work, [](uint64_t *word) { return Word(*word).load(cuda::memory_order_relaxed); });
}

__global__ void add(Work work, Lsa lsa) {
    uint64_t *const word = lsa.at(TARGET, work.words + index());
    const Span span(work);
    for (uint64_t round = 0; round < work.rounds; round++) add_to(word, 1);
    quiet_block();
    span.end();
}

// Each atomic waits for the previous one. The words stay small, so the shift adds 0.
__global__ void fetch_add(Work work, Lsa lsa) {
    work.words = lsa.at(TARGET, work.words);
    uint64_t one = 1;
    fetches(work, [&](uint64_t *word) {
        const uint64_t old = atomicAdd_system(reinterpret_cast<unsigned long long *>(word), one);
        one += old >> 63;
        return old;
    });
}

__global__ void compare_swap(Work work, Lsa lsa) {
    work.words = lsa.at(TARGET, work.words);
    uint64_t next = 0;
    fetches(work, [&](uint64_t *word) {
        const uint64_t found = atomicCAS_system(reinterpret_cast<unsigned long long *>(word), next, next + 1);
        next = found + 1;
        return found;
    });
}

__global__ void ping_pong(Work work, Lsa lsa) {
    Barrier barrier(ncclCoopCta(), lsa.comm, ncclTeamTagLsa(), 0);
    sync(barrier);
    const int me = lsa.comm.lsaRank;
    if (me > 1) return;
    uint64_t *const there = lsa.at(1 - me, work.signal);
    const Span span(work);
    if (threadIdx.x == 0) {
        for (uint64_t now = 1; now <= work.rounds; now++) {
            if (me == 0) add_to(there, 1);
            wait_until(work.signal, now);
            if (me == 1) add_to(there, 1);
        }
    }
    span.end();
}

template <typename By>
__global__ void put_signal_ping_pong(Work work, Lsa lsa) {
    Barrier barrier(ncclCoopCta(), lsa.comm, ncclTeamTagLsa(), 0);
    sync(barrier);
    const int me = lsa.comm.lsaRank;
    if (me > 1) return;
    uint64_t *const dst = lsa.at(1 - me, work.dst);
    uint64_t *const there = lsa.at(1 - me, work.signal);
    const Span span(work);
    for (uint64_t now = 0; now < 2 * work.rounds; now++) {
        if ((now & 1) == uint64_t(me)) {
            By::copy(dst, work.src, work.len);
            __syncthreads();
            if (threadIdx.x == 0) fence(), add_to(there, 1);
        } else {
            if (threadIdx.x == 0) wait_until(work.signal, now / 2 + 1);
            __syncthreads();
        }
    }
    span.end();
}

__global__ void meet(Work work, Lsa lsa) {
    Barrier barrier(ncclCoopCta(), lsa.comm, ncclTeamTagLsa(), 0);
    collective(work, [&] { sync(barrier); });
}

__global__ void meet_checked(Work work, Lsa lsa) {
    const Word next(*lsa.at((lsa.comm.lsaRank + 1) % lsa.comm.lsaSize, work.words)), mine(*work.words);
    Barrier barrier(ncclCoopCta(), lsa.comm, ncclTeamTagLsa(), 0);
    const Span span(work);
    for (uint64_t round = 0; round <= work.rounds; round++) {
        const bool tells = (round & 1) == 1 && threadIdx.x == 0;
        if (tells) next.store(round, cuda::memory_order_relaxed);
        sync(barrier);
        if (tells && mine.load(cuda::memory_order_relaxed) != round) work.sums[0]++;
    }
    span.end();
}

template <typename By>
Kernels kernels_by() {
    const auto of = [](void (*kernel)(Work, Lsa)) { return reinterpret_cast<const void *>(kernel); };
    return {of(put<By>), of(get<By>), of(p), of(g), of(add), of(fetch_add),
            of(compare_swap), of(ping_pong), of(put_signal_ping_pong<By>), of(meet), of(meet_checked)};
}

// Makes the memory of a rank accessible to the others.
Lsa connect(int pes, ncclComm_t comm) {
    Lsa lsa;
    uint64_t words = 0;
    allocated([&](uint64_t count) { return words += count, static_cast<uint64_t *>(nullptr); });
    const uint64_t bytes = (8 * words + PAGE - 1) / PAGE * PAGE;
    NCCL(ncclMemAlloc(reinterpret_cast<void **>(&lsa.base), bytes));
    CUDA(cudaMemset(lsa.base, 0, bytes));
    NCCL(ncclCommWindowRegister(comm, lsa.base, bytes, &lsa.window, NCCL_WIN_COLL_SYMMETRIC));
#ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
#else
    ncclDevCommRequirements needs = {};
#endif
    needs.lsaBarrierCount = 1;
    NCCL(ncclDevCommCreate(comm, &needs, &lsa.comm));
    if (lsa.comm.lsaSize != pes) fail("only " + std::to_string(lsa.comm.lsaSize) + " ranks access each other's memory");
    return lsa;
}

Work within(const Lsa &lsa) {
    auto *next = reinterpret_cast<uint64_t *>(lsa.base);
    return allocated([&](uint64_t count) { return next += count, next - count; });
}

class NcclBed final : public Bed {
  public:
    NcclBed(int me, const Lsa &lsa, Meeting &meeting)
        : Bed(me, within(lsa), kernels_by<ByStores>()), lsa(lsa), meeting(meeting) {}

    // Measures each way to copy, and keeps the values of the faster one.
    bool measure_ways(Row &row) {
        kernels = kernels_by<ByStores>();
        if (!measure(row)) return false;
#ifdef HAS_LSA_COPY
        if (row.bench.rfind("put_", 0) != 0 && row.bench.rfind("get_", 0) != 0) return true;
        Row other = row;
        other.values.clear();
        kernels = kernels_by<ByLsaCopy>();
        measure(other);
        const bool is_time = row.unit() == std::string("us");
        if (is_time ? other.median() < row.median() : other.median() > row.median()) row.values = other.values;
#endif
        return true;
    }

  private:
    Lsa lsa;
    Meeting &meeting;

    void launch(const void *kernel, const Row &row, Work work, bool) override {
        void *arguments[] = {&work, &lsa};
        CUDA(cudaLaunchKernel(kernel, dim3(row.blocks), dim3(row.threads), arguments, 0, stream));
    }

    void sync_pes() override { meeting.wait(); }
};

}  // namespace

int main(int count, char **arguments) {
    if (count != 3) {
        std::fprintf(stderr, "usage: device PLAN RESULTS.json\n");
        return 2;
    }
    std::vector<Row> plan = read_plan(arguments[1]);
    // Rows of other kinds of jobs, which may have another number of PEs.
    const auto other = [](const Row &row) { return row.bench.rfind("init", 0) == 0 || row.bench.rfind("post", 0) == 0; };
    plan.erase(std::remove_if(plan.begin(), plan.end(), other), plan.end());
    if (plan.empty()) fail("the plan has no rows for NCCL");
    check_sizes(plan);
    const int pes = int(plan[0].pes);
    for (const Row &row : plan) {
        if (row.pes != uint64_t(pes)) fail("the rows are for jobs of different sizes");
    }
    // These rows have no use for NVLink multicast, which NCCL would set up.
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    // If a kernel were first loaded while another waits for it, loading would wait too.
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    alarm(LIMIT_SECONDS);
    run_ranks(pes, [&](int me, ncclComm_t comm, Meeting &meeting) {
        const Lsa lsa = connect(pes, comm);
        NcclBed bed(me, lsa, meeting);
        std::vector<Row> rows = plan, measured;
        for (Row &row : rows) {
            if (bed.measure_ways(row)) measured.push_back(row);
        }
        meeting.wait();
        if (me == 0) write_results(arguments[2], program() + " device API", measured);
        meeting.wait();
        NCCL(ncclDevCommDestroy(comm, &lsa.comm));
        NCCL(ncclCommWindowDeregister(comm, lsa.window));
        NCCL(ncclMemFree(lsa.base));
    });
    return 0;
}
