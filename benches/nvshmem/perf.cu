// The rows of `rushmem perf --list`, measured with NVSHMEM. PE 0 writes the results in the format that `rushmem perf
// --compare` reads.
//
//     perf PLAN RESULTS.json
//
// Skips rows without an NVSHMEM equivalent.
#include "job.cuh"
#include "kernels.cuh"

namespace {

constexpr unsigned LIMIT_SECONDS = 240;  // for everything

Kernels kernels_of_nvshmem() {
    const auto of = [](void (*kernel)(Work)) { return reinterpret_cast<const void *>(kernel); };
    return {of(put), of(get), of(p), of(g), of(add), of(fetch_add),
            of(compare_swap), of(ping_pong), of(put_signal_ping_pong), of(meet), of(meet_checked)};
}

class NvshmemBed final : public Bed {
  public:
    NvshmemBed() : Bed(nvshmem_my_pe(), allocated(symmetric<uint64_t>), kernels_of_nvshmem()) {}

  private:
    void launch(const void *kernel, const Row &row, Work work, bool is_collective) override {
        void *arguments[] = {&work};
        if (!is_collective) {
            CUDA(cudaLaunchKernel(kernel, dim3(row.blocks), dim3(row.threads), arguments, 0, stream));
        } else if (nvshmemx_collective_launch(kernel, dim3(row.blocks), dim3(row.threads), arguments, 0, stream) != 0) {
            fail(row.bench + ": the collective launch failed");
        }
    }

    void sync_pes() override { nvshmem_barrier_all(); }

    bool special(const Row &row, uint64_t run, const Work &work, double *ns) override {
        const std::string &bench = row.bench;
        if (bench.rfind("stream_", 0) == 0) return on_stream(row, run, work, ns);
        if (bench == "broadcast" || bench == "fcollect" || bench == "alltoall") {
            *ns = exchange(row, run, work);
        } else if (bench == "reduce") {
            *ns = reduce(row, run, work);
        } else {
            return false;
        }
        return true;
    }

    double exchange(const Row &row, uint64_t run, const Work &work) {
        const uint64_t pes = row.pes, len = work.len, all = row.bench == "alltoall" ? pes : 1;
        // Seed of the data that `from` sends to `to`.
        const auto seed = [&](uint64_t from, uint64_t to) { return ((run + 1) * pes + from) * pes + to; };
        for (uint64_t to = 0; to < all; to++) fill_with(work.src + to * len, len, seed(me, to));
        const void *kernel = row.bench == "broadcast"  ? (const void *)broadcast
                             : row.bench == "fcollect" ? (const void *)fcollect
                                                       : (const void *)alltoall;
        const double ns = timed(row, kernel, work, true);
        for (uint64_t from = 0; from < (row.bench == "broadcast" ? 1 : pes); from++) {
            // The root's own destination of a broadcast is not checked.
            if (row.bench == "broadcast" && me == 0) continue;
            verify(row, work.dst + from * len, len, seed(from, row.bench == "alltoall" ? me : 0));
        }
        return ns;
    }

    double reduce(const Row &row, uint64_t run, const Work &work) {
        // Small whole numbers, whose sums are exact.
        const auto value = [&](uint64_t pe, uint64_t i) { return float(i % 97) + float(pe) * float(run + 1); };
        std::vector<float> data(2 * work.len);
        for (uint64_t i = 0; i < data.size(); i++) data[i] = value(me, i);
        CUDA(cudaMemcpy(work.src, data.data(), 4 * data.size(), cudaMemcpyHostToDevice));
        const double ns = timed(row, (const void *)sum, work, true);
        CUDA(cudaMemcpy(data.data(), work.dst, 4 * data.size(), cudaMemcpyDeviceToHost));
        for (uint64_t i = 0; i < data.size(); i++) {
            float wanted = 0;
            for (uint64_t pe = 0; pe < row.pes; pe++) wanted += value(pe, i);
            if (data[i] != wanted) fail(row.bench + ": sum " + std::to_string(i) + " is wrong");
        }
        return ns;
    }

    // Runs the calls of a stream in a graph. Returns false if this program lacks the benchmark.
    bool on_stream(const Row &row, uint64_t run, const Work &work, double *ns) {
        const bool scatters = row.bench == "stream_reduce_scatter", sums = scatters || row.bench == "stream_reduce";
        const bool exchanges = row.bench == "stream_alltoall";
        const uint64_t pes = row.pes, len = sums ? 2 * work.len : work.len;
        float *floats = reinterpret_cast<float *>(work.src), *sum = reinterpret_cast<float *>(work.dst);
        const auto seed = [&](uint64_t from, uint64_t to) { return ((run + 1) * pes + from) * pes + to; };
        if (sums) fill_terms<<<132, 256, 0, stream>>>(floats, scatters ? pes * len : len, me, run);
        for (uint64_t to = 0; !sums && to < (exchanges ? pes : 1); to++) fill_with(work.src + to * len, len, seed(me, to));
        const auto call = [&] {
            if (scatters) return nvshmemx_float_sum_reducescatter_on_stream(NVSHMEM_TEAM_WORLD, sum, floats, len, stream);
            if (sums) return nvshmemx_float_sum_reduce_on_stream(NVSHMEM_TEAM_WORLD, sum, floats, len, stream);
            if (exchanges) {
                return nvshmemx_uint64_alltoall_on_stream(NVSHMEM_TEAM_WORLD, work.dst, work.src, len, stream);
            }
            if (row.bench == "stream_fcollect") {
                return nvshmemx_uint64_fcollect_on_stream(NVSHMEM_TEAM_WORLD, work.dst, work.src, len, stream);
            }
            return nvshmemx_uint64_broadcast_on_stream(NVSHMEM_TEAM_WORLD, work.dst, work.src, len, 0, stream);
        };
        CUDA(cudaStreamSynchronize(stream));
        nvshmem_barrier_all();
        cudaGraph_t graph;
        cudaGraphExec_t executable;
        CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (uint64_t round = 0; round <= row.rounds; round++) {
            if (call() != 0) fail(row.bench + ": the call failed");
            if (round == 0) stamp<<<1, 1, 0, stream>>>(work.spans);
        }
        stamp<<<1, 1, 0, stream>>>(work.spans + 1);
        CUDA(cudaStreamEndCapture(stream, &graph));
        CUDA(cudaGraphInstantiate(&executable, graph, 0));
        nvshmem_barrier_all();
        CUDA(cudaGraphLaunch(executable, stream));
        CUDA(cudaStreamSynchronize(stream));
        nvshmem_barrier_all();
        CUDA(cudaGraphExecDestroy(executable));
        CUDA(cudaGraphDestroy(graph));
        uint64_t times[2];
        CUDA(cudaMemcpy(times, work.spans, sizeof(times), cudaMemcpyDeviceToHost));
        *ns = double(times[1] - times[0]);
        if (sums) {
            CUDA(cudaMemsetAsync(wrong, 0, sizeof(*wrong), stream));
            check_sums<<<132, 256, 0, stream>>>(sum, len, scatters ? me * len : 0, pes, run, wrong);
            expect_none(row);
            return true;
        }
        const bool broadcasts = row.bench == "stream_broadcast";
        for (uint64_t from = 0; from < (broadcasts ? 1 : pes); from++) {
            if (broadcasts && me == 0) continue;
            verify(row, work.dst + from * len, len, seed(from, exchanges ? me : 0));
        }
        return true;
    }
};

std::string program() {
    int major, minor, patch;
    nvshmemx_vendor_get_version_info(&major, &minor, &patch);
    return "NVSHMEM " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

// Measures the rows on one PE. PE 0 writes the results.
void measure(int me, std::vector<Row> rows, const char *path) {
    NvshmemBed bed;
    std::vector<Row> measured;
    for (Row &row : rows) {
        if (bed.measure(row)) measured.push_back(row);
    }
    nvshmem_barrier_all();
    if (me == 0) write_results(path, program(), measured);
    nvshmem_barrier_all();
}

}  // namespace

int main(int count, char **arguments) {
    if (count != 3) {
        std::fprintf(stderr, "usage: perf PLAN RESULTS.json\n");
        return 2;
    }
    std::vector<Row> rows = read_plan(arguments[1]);
    const auto other = [](const Row &row) { return row.bench.rfind("init", 0) == 0 || row.bench.rfind("post", 0) == 0; };
    rows.erase(std::remove_if(rows.begin(), rows.end(), other), rows.end());
    if (rows.empty()) fail("the plan has no rows for NVSHMEM");
    check_sizes(rows);
    const int pes = int(rows[0].pes);
    setenv("NVSHMEM_SYMMETRIC_SIZE", "1G", 0);

    const auto of_other_job = [&](const Row &row) { return row.pes != uint64_t(pes); };
    rows.erase(std::remove_if(rows.begin(), rows.end(), of_other_job), rows.end());
    return run_job(pes, LIMIT_SECONDS, [&](int me) { measure(me, rows, arguments[2]); });
}
