// The rows of `rushmem perf --list`, measured with NVSHMEM. PE 0 writes the results in the format that `rushmem perf
// --compare` reads.
//
//     perf PLAN RESULTS.json
//
// Skips rows without an NVSHMEM equivalent.
#include "job.cuh"
#include "kernels.cuh"

namespace {

constexpr uint64_t WINDOW = 256ull << 20;  // bytes that data is spread over, more than the GPU's cache holds
constexpr uint64_t MAX_THREADS = 1 << 18;
constexpr uint64_t MAX_BLOCKS = 1 << 12;
constexpr uint64_t CHECKED = 10;
// The latency of a word depends on its cache line in GPU memory, so each run visits several lines, as Rushmem does.
constexpr uint64_t LINES = 64, PLACE = 37 * 16;
constexpr unsigned LIMIT_SECONDS = 240;  // for everything

class Bed {
  public:
    Bed() {
        me = nvshmem_my_pe();
        all.spans = symmetric<uint64_t>(2 * MAX_BLOCKS);
        all.dst = symmetric<uint64_t>(WINDOW / 8);
        all.src = symmetric<uint64_t>(WINDOW / 8);
        all.words = symmetric<uint64_t>(MAX_THREADS + LINES * PLACE);
        all.sums = symmetric<uint64_t>(MAX_THREADS);
        all.signal = symmetric<uint64_t>(LINES * PLACE);
        CUDA(cudaMalloc(&wrong, sizeof(*wrong)));
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }

    // Returns false if this program lacks the benchmark.
    bool measure(Row &row) {
        for (uint64_t run = 0; run <= row.runs; run++) {
            double ns = 0;
            const uint64_t launches = on_words(row) ? LINES : 1;
            for (uint64_t launch = run * launches; launch < (run + 1) * launches; launch++) {
                double time = 0;
                if (!once(row, launch, &time)) return false;
                ns += time / double(launches);
            }
            if (run == 0) continue;
            const double rounds = double(row.rounds);
            if (row.bench == "put_bw" || row.bench == "get_bw") {
                row.values.push_back(double(row.bytes) * rounds / ns);
            } else if (row.is_rate()) {
                row.values.push_back(double(row.blocks * row.threads) * rounds / ns * 1e3);
            } else {
                row.values.push_back(ns / rounds / 1e3);
            }
        }
        return true;
    }

    // Whether the row measures single words. Each run then visits all lines.
    static bool on_words(const Row &row) {
        for (const char *name : {"p_quiet", "g", "fetch_add", "compare_swap", "signal"}) {
            if (row.bench == name) return true;
        }
        return row.is_rate();
    }

  private:
    int me;
    Work all = {};
    unsigned long long *wrong = nullptr;
    cudaStream_t stream = nullptr;

    bool once(const Row &row, uint64_t run, double *ns) {
        Work work = all;
        work.words += run % LINES * PLACE;
        work.signal += run % LINES * PLACE;
        work.len = row.bytes / 8;
        work.rounds = row.rounds;
        work.places = std::max<uint64_t>(1, std::min(WINDOW / row.bytes, row.rounds));
        const uint64_t n = row.blocks * row.threads, rounds = row.rounds;
        const auto seed = [&](int pe) { return 2 * run + 1 + uint64_t(pe); };
        const std::string &bench = row.bench;
        if (bench == "put_bw" || bench == "put_quiet" || bench == "get_bw") {
            const bool gets = bench == "get_bw";
            work.each = bench == "put_quiet";
            fill_with(work.src, work.places * work.len, seed(me));
            *ns = timed(row, gets ? (const void *)get : (const void *)put, work, 1);
            if (me == (gets ? 0 : 1)) verify(row, work.dst, work.places * work.len, seed(gets ? 1 : 0));
        } else if (bench == "p_quiet" || bench == "p_rate") {
            work.each = bench == "p_quiet";
            work.value = (run + 1) << 32;
            *ns = timed(row, (const void *)p, work, 1);
            if (me == 1) expect(row, work.words, n, [&](uint64_t) { return work.value + rounds - 1; });
        } else if (bench == "g" || bench == "g_rate") {
            fill_with(work.words, n, run);
            *ns = timed(row, (const void *)g, work, 1);
            if (me == 0) expect(row, work.sums, n, [&](uint64_t i) { return pattern(run, i) * rounds; });
        } else if (bench == "add_rate") {
            zero(work.words, n);
            *ns = timed(row, (const void *)add, work, 1);
            if (me == 1) expect(row, work.words, n, [&](uint64_t) { return rounds; });
        } else if (bench == "fetch_add" || bench == "fetch_add_rate" || bench == "compare_swap") {
            zero(work.words, n);
            *ns = timed(row, bench == "compare_swap" ? (const void *)compare_swap : (const void *)fetch_add, work, 1);
            if (me == 1) expect(row, work.words, n, [&](uint64_t) { return rounds; });
            if (me == 0) expect(row, work.sums, n, [&](uint64_t) { return rounds * (rounds - 1) / 2; });
        } else if (bench == "signal") {
            zero(work.signal, 1);
            *ns = timed(row, (const void *)ping_pong, work, nvshmem_n_pes());
            if (me < 2) expect(row, work.signal, 1, [&](uint64_t) { return rounds; });
        } else if (bench == "put_signal") {
            zero(work.signal, 1);
            fill_with(work.src, work.len, seed(me));
            *ns = timed(row, (const void *)put_signal_ping_pong, work, nvshmem_n_pes());
            if (me < 2) {
                expect(row, work.signal, 1, [&](uint64_t) { return rounds; });
                verify(row, work.dst, work.len, seed(1 - me));
            }
        } else if (bench == "barrier_all" || bench == "sync_all") {
            work.complete = bench == "barrier_all";
            zero(work.words, 1);
            zero(work.sums, 1);
            Work checked = work;
            checked.rounds = CHECKED;
            timed(row, (const void *)meet_checked, checked, nvshmem_n_pes());
            expect(row, work.sums, 1, [](uint64_t) { return 0; });
            *ns = timed(row, (const void *)meet, work, nvshmem_n_pes());
        } else if (bench == "broadcast" || bench == "fcollect" || bench == "alltoall") {
            *ns = exchange(row, run, work);
        } else if (bench == "reduce") {
            *ns = reduce(row, run, work);
        } else if (bench.rfind("stream_", 0) == 0) {
            return on_stream(row, run, work, ns);
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
        const double ns = timed(row, kernel, work, int(pes));
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
        const double ns = timed(row, (const void *)sum, work, int(row.pes));
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

    void fill_with(uint64_t *data, uint64_t len, uint64_t seed) { fill<<<132, 256, 0, stream>>>(data, len, seed); }

    void zero(uint64_t *words, uint64_t n) { CUDA(cudaMemsetAsync(words, 0, 8 * n, stream)); }

    // Runs a kernel on the first `pes` PEs. Returns the nanoseconds from the start of the first block to the end of the
    // last.
    double timed(const Row &row, const void *kernel, Work work, int pes) {
        CUDA(cudaStreamSynchronize(stream));
        nvshmem_barrier_all();
        void *arguments[] = {&work};
        if (pes > 1) {
            if (nvshmemx_collective_launch(kernel, dim3(row.blocks), dim3(row.threads), arguments, 0, stream) != 0) {
                fail(row.bench + ": the collective launch failed");
            }
        } else if (me < pes) {
            CUDA(cudaLaunchKernel(kernel, dim3(row.blocks), dim3(row.threads), arguments, 0, stream));
        }
        CUDA(cudaStreamSynchronize(stream));
        nvshmem_barrier_all();
        std::vector<uint64_t> spans(2 * row.blocks);
        CUDA(cudaMemcpy(spans.data(), work.spans, 8 * spans.size(), cudaMemcpyDeviceToHost));
        uint64_t begin = UINT64_MAX, end = 0;
        for (uint64_t block = 0; block < row.blocks; block++) {
            begin = std::min(begin, spans[2 * block]);
            end = std::max(end, spans[2 * block + 1]);
        }
        return end > begin ? double(end - begin) : 1.0;
    }

    void verify(const Row &row, const uint64_t *data, uint64_t len, uint64_t seed) {
        CUDA(cudaMemsetAsync(wrong, 0, sizeof(*wrong), stream));
        check<<<132, 256, 0, stream>>>(data, len, seed, wrong);
        expect_none(row);
    }

    // Exits if a kernel has counted wrong elements.
    void expect_none(const Row &row) {
        unsigned long long found = 0;
        CUDA(cudaMemcpyAsync(&found, wrong, sizeof(found), cudaMemcpyDeviceToHost, stream));
        CUDA(cudaStreamSynchronize(stream));
        if (found != 0) fail(row.bench + ": " + std::to_string(found) + " words are wrong");
    }

    template <typename Wanted>
    void expect(const Row &row, const uint64_t *words, uint64_t n, Wanted wanted) {
        std::vector<uint64_t> found(n);
        CUDA(cudaMemcpy(found.data(), words, 8 * n, cudaMemcpyDeviceToHost));
        for (uint64_t i = 0; i < n; i++) {
            if (found[i] != wanted(i)) fail(row.bench + ": word " + std::to_string(i) + " is wrong");
        }
    }
};

std::string program() {
    int major, minor, patch;
    nvshmemx_vendor_get_version_info(&major, &minor, &patch);
    return "NVSHMEM " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

// Measures the rows on one PE. PE 0 writes the results.
void measure(int me, std::vector<Row> rows, const char *path) {
    Bed bed;
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
    for (const Row &row : rows) {
        if (row.bytes > WINDOW || row.blocks > MAX_BLOCKS || row.blocks * row.threads > MAX_THREADS) {
            fail("a row of the plan is too large: " + row.bench);
        }
    }
    const int pes = int(rows[0].pes);
    setenv("NVSHMEM_SYMMETRIC_SIZE", "1G", 0);

    const auto of_other_job = [&](const Row &row) { return row.pes != uint64_t(pes); };
    rows.erase(std::remove_if(rows.begin(), rows.end(), of_other_job), rows.end());
    return run_job(pes, LIMIT_SECONDS, [&](int me) { measure(me, rows, arguments[2]); });
}
