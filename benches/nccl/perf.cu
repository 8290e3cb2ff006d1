// The rows `stream_...` of `rushmem perf --list`, measured with NCCL. Rank 0 writes the results in the format that
// `rushmem perf --compare` reads.
//
//     perf PLAN RESULTS.json [plain|windows]
//
// Ranks are threads, assigned to the GPUs round-robin. Several ranks on one GPU need NCCL_MULTI_RANK_GPU_ENABLE=1. Both
// programs launch their calls in a CUDA graph, and read the GPU's clock before and after. With `windows`, the buffers
// are symmetric windows, for which NCCL has special kernels.
#include "job.cuh"

namespace {

constexpr uint64_t WINDOW = 256ull << 20;
constexpr unsigned LIMIT_SECONDS = 240;  // for everything

__global__ void stamp(uint64_t *to) {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    *to = now;
}

// Small whole numbers, whose sums are exact.
__device__ float term(uint64_t pe, uint64_t run, uint64_t i) { return float(i % 97) + float(pe) * float(run + 1); }

__global__ void fill(float *data, uint64_t len, uint64_t pe, uint64_t run) {
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < len; i += gridDim.x * blockDim.x) {
        data[i] = term(pe, run, i);
    }
}

// Expected contents of `data`: the sum of elements from `first` on, or the elements of one PE.
struct Wanted {
    uint64_t first, pes, from;
    bool sums;
};

__global__ void check(const float *data, uint64_t len, Wanted wanted, uint64_t run, unsigned long long *wrong) {
    unsigned long long n = 0;
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < len; i += gridDim.x * blockDim.x) {
        float value = 0;
        if (wanted.sums) {
            for (uint64_t pe = 0; pe < wanted.pes; pe++) value += term(pe, run, wanted.first + i);
        } else {
            value = term(wanted.from, run, wanted.first + i);
        }
        n += data[i] != value;
    }
    if (n != 0) atomicAdd(wrong, n);
}

class Bed {
  public:
    Bed(int me, int n, ncclComm_t comm, bool windows, Meeting &meeting) : me(me), n(n), comm(comm), meeting(meeting) {
        NCCL(ncclMemAlloc((void **)&dst, WINDOW));
        NCCL(ncclMemAlloc((void **)&src, WINDOW));
        CUDA(cudaMalloc(&spans, 2 * sizeof(*spans)));
        CUDA(cudaMalloc(&wrong, sizeof(*wrong)));
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        if (windows) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
            ncclWindow_t of_dst, of_src;
            NCCL(ncclCommWindowRegister(comm, dst, WINDOW, &of_dst, NCCL_WIN_COLL_SYMMETRIC));
            NCCL(ncclCommWindowRegister(comm, src, WINDOW, &of_src, NCCL_WIN_COLL_SYMMETRIC));
#else
            fail("this NCCL has no windows");
#endif
        }
    }

    // Returns false if this program lacks the benchmark.
    bool measure(Row &row) {
        for (uint64_t run = 0; run <= row.runs; run++) {
            const uint64_t len = row.bytes / 4, pes = n;
            const bool scatters = row.bench == "stream_reduce_scatter", exchanges = row.bench == "stream_alltoall";
            fill<<<132, 256, 0, stream>>>(src, scatters || exchanges ? len * pes : len, me, run);
            CUDA(cudaGetLastError());
            double ns = 0;
            if (!timed(row, len, &ns)) return false;
            if (row.bench == "stream_reduce") verify(row, dst, len, {0, pes, 0, true}, run);
            if (scatters) verify(row, dst, len, {me * len, pes, 0, true}, run);
            if (row.bench == "stream_broadcast") verify(row, dst, len, {0, pes, 0, false}, run);
            for (uint64_t from = 0; from < pes; from++) {
                if (row.bench == "stream_fcollect") verify(row, dst + from * len, len, {0, pes, from, false}, run);
                if (exchanges) verify(row, dst + from * len, len, {me * len, pes, from, false}, run);
            }
            if (run > 0) row.values.push_back(ns / double(row.rounds) / 1e3);
        }
        return true;
    }

  private:
    int me, n;
    ncclComm_t comm;
    Meeting &meeting;
    float *dst = nullptr, *src = nullptr;
    uint64_t *spans = nullptr;
    unsigned long long *wrong = nullptr;
    cudaStream_t stream = nullptr;

    bool call(const Row &row, uint64_t len) {
        if (row.bench == "stream_reduce") {
            NCCL(ncclAllReduce(src, dst, len, ncclFloat, ncclSum, comm, stream));
        } else if (row.bench == "stream_reduce_scatter") {
            NCCL(ncclReduceScatter(src, dst, len, ncclFloat, ncclSum, comm, stream));
        } else if (row.bench == "stream_broadcast") {
            NCCL(ncclBroadcast(src, dst, len, ncclFloat, 0, comm, stream));
        } else if (row.bench == "stream_fcollect") {
            NCCL(ncclAllGather(src, dst, len, ncclFloat, comm, stream));
        } else if (row.bench == "stream_alltoall") {
            NCCL(ncclGroupStart());
            for (int pe = 0; pe < n; pe++) {
                NCCL(ncclSend(src + pe * len, len, ncclFloat, pe, comm, stream));
                NCCL(ncclRecv(dst + pe * len, len, ncclFloat, pe, comm, stream));
            }
            NCCL(ncclGroupEnd());
        } else {
            return false;
        }
        return true;
    }

    // Measures the nanoseconds of the rounds, after one warm-up call.
    bool timed(const Row &row, uint64_t len, double *ns) {
        CUDA(cudaStreamSynchronize(stream));
        meeting.wait();
        // NCCL connects to peers during the first call of an algorithm, which enables peer access. A thread that is
        // capturing may not.
        if (!call(row, len)) return false;
        CUDA(cudaStreamSynchronize(stream));
        meeting.wait();
        cudaGraph_t graph;
        CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        call(row, len);
        stamp<<<1, 1, 0, stream>>>(spans);
        for (uint64_t round = 0; round < row.rounds; round++) call(row, len);
        stamp<<<1, 1, 0, stream>>>(spans + 1);
        CUDA(cudaStreamEndCapture(stream, &graph));
        cudaGraphExec_t executable;
        CUDA(cudaGraphInstantiate(&executable, graph, 0));
        meeting.wait();
        CUDA(cudaGraphLaunch(executable, stream));
        CUDA(cudaStreamSynchronize(stream));
        meeting.wait();
        CUDA(cudaGraphExecDestroy(executable));
        CUDA(cudaGraphDestroy(graph));
        uint64_t times[2];
        CUDA(cudaMemcpy(times, spans, sizeof(times), cudaMemcpyDeviceToHost));
        *ns = double(times[1] - times[0]);
        return true;
    }

    void verify(const Row &row, const float *data, uint64_t len, Wanted wanted, uint64_t run) {
        CUDA(cudaMemsetAsync(wrong, 0, sizeof(*wrong), stream));
        check<<<132, 256, 0, stream>>>(data, len, wanted, run, wrong);
        unsigned long long found = 0;
        CUDA(cudaMemcpyAsync(&found, wrong, sizeof(found), cudaMemcpyDeviceToHost, stream));
        CUDA(cudaStreamSynchronize(stream));
        if (found != 0) fail(row.bench + ": " + std::to_string(found) + " elements are wrong");
        // Nobody may overwrite data that another rank still checks.
        meeting.wait();
    }
};

}  // namespace

int main(int count, char **arguments) {
    const std::string kind = count == 4 ? arguments[3] : "plain";
    if (count < 3 || count > 4 || (kind != "plain" && kind != "windows")) {
        std::fprintf(stderr, "usage: perf PLAN RESULTS.json [plain|windows]\n");
        return 2;
    }
    const bool windows = kind == "windows";
    std::vector<Row> plan = read_plan(arguments[1]);
    const auto other = [](const Row &row) { return row.bench.rfind("stream_", 0) != 0; };
    plan.erase(std::remove_if(plan.begin(), plan.end(), other), plan.end());
    if (plan.empty()) fail("the plan has no rows for NCCL");
    const int pes = int(plan[0].pes);
    for (const Row &row : plan) {
        if (row.pes != uint64_t(pes)) fail("the rows are for jobs of different sizes");
        if (row.bytes > WINDOW) fail("a row of the plan is too large: " + row.bench);
    }
    alarm(LIMIT_SECONDS);
    run_ranks(pes, [&](int me, ncclComm_t comm, Meeting &meeting) {
        Bed bed(me, pes, comm, windows, meeting);
        std::vector<Row> rows = plan, measured;
        for (Row &row : rows) {
            if (bed.measure(row)) measured.push_back(row);
        }
        meeting.wait();
        if (me == 0) write_results(arguments[2], program() + (windows ? " with windows" : ""), measured);
    });
    return 0;
}
