// The least time of collective calls of two GPUs on streams.
//
// Each GPU runs a graph of kernels, one for each call, as `rushmem perf` does; kernels before and after read the clock.
// Sources change between launches of the graph, and each launch's results are verified. A kernel that waits too long ends
// the program.

#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "common.cuh"

namespace calls {

// Nodes of a graph whose time counts. One more warms up, and lets the GPUs start together.
constexpr int NODES = 20;
constexpr int LAUNCHES = 15, THREADS = 512, MOST_BLOCKS = 64;
constexpr int MOST_PAIRS = MOST_BLOCKS * THREADS;
constexpr long long LIMIT_CYCLES = 2000000000;
// Distance between words of blocks.
constexpr int APART = 32;

// Memory of one GPU.
struct Side {
    float2 *src, *dst;
    ulonglong2 *slots;  // two halves, used in turn
    u64 *flags;         // one for each block, set by the peer
    u64 *epochs;        // one for each block: the number of calls
    u64 *stamps;        // begin and end
};

struct Pair {
    int device[2];
    Side side[2];
    cudaStream_t streams[2];
};

// Bounds the time of a wait.
struct Deadline {
    long long begin;
    __device__ Deadline() { begin = clock64(); }
    __device__ void check() const {
        if (clock64() - begin > LIMIT_CYCLES) __trap();
    }
};

// The number of this call, which is the same at the peer.
struct Epoch {
    u64 *word, now;
    __device__ explicit Epoch(const Side &me) : word(me.epochs + APART * blockIdx.x), now(load(word) + 1) {}
    // The last thing that a block does.
    __device__ void end() const {
        __syncthreads();
        if (threadIdx.x == 0) *word = now;
    }
};

__device__ inline int index() { return blockIdx.x * blockDim.x + threadIdx.x; }

// LL protocol: each word holds a value and the epoch as its flag. Words of 8 bytes arrive whole, even of a longer store.
__device__ inline void send(ulonglong2 *slot, float2 value, u64 epoch) {
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(slot), "l"(epoch << 32 | __float_as_uint(value.x)),
                 "l"(epoch << 32 | __float_as_uint(value.y)) : "memory");
}

// Receives the values `first`, `first + step` and so on up to `count`, at most `PER`.
template <int PER>
__device__ void receive(float2 *values, const ulonglong2 *slots, int first, int step, int count, u64 epoch) {
    const Deadline deadline;
    for (bool came = false; !came; deadline.check()) {
        came = true;
        for (int k = 0; k < PER; k++) {
            if (first + k * step >= count) break;
            u64 x, y;
            asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
                         : "=l"(x), "=l"(y) : "l"(slots + first + k * step) : "memory");
            came = came && x >> 32 == epoch && y >> 32 == epoch;
            values[k] = make_float2(__uint_as_float(uint32_t(x)), __uint_as_float(uint32_t(y)));
        }
    }
}

// Exchanges flags with the same block of the peer.
__device__ inline void exchange(const Side &me, const Side &peer, u64 flag) {
    store(peer.flags + APART * blockIdx.x, flag);
    for (const Deadline deadline; load(me.flags + APART * blockIdx.x) < flag;) deadline.check();
}

__device__ inline void meet(const Side &me, const Side &peer, u64 flag) {
    __syncthreads();
    if (threadIdx.x == 0) release_sys(), exchange(me, peer, flag), acquire_sys();
    __syncthreads();
}

__global__ static void nothing() {}

__global__ static void stamp(u64 *to) { *to = now_ns(); }

__global__ static void flags(Side me, Side peer) {
    const Epoch epoch(me);
    if (threadIdx.x == 0) exchange(me, peer, epoch.now);
    epoch.end();
}

// Sums `pairs` pairs of both GPUs, those from `kept` on here and those from `sent` on at the peer. Each thread has up to
// `PER`, and loads them while it learns the epoch.
//
// A half of the slots is reused two calls later. The peer has read it by then, since it has sent for the call between.
template <int PER>
__global__ void __launch_bounds__(THREADS) sum_by_ll(Side me, Side peer, int kept, int sent, int pairs) {
    const int step = gridDim.x * blockDim.x, first = index();
    float2 own[PER], to_peer[PER], other[PER];
    for (int k = 0; k < PER; k++) {
        const int i = first + k * step;
        if (i < pairs) own[k] = me.src[kept + i], to_peer[k] = me.src[sent + i];
    }
    const Epoch epoch(me);
    const int half = int(epoch.now & 1) * MOST_PAIRS;
    for (int k = 0; k < PER; k++) {
        const int i = first + k * step;
        if (i < pairs) send(peer.slots + half + i, to_peer[k], epoch.now);
    }
    receive<PER>(other, me.slots + half, first, step, pairs, epoch.now);
    for (int k = 0; k < PER; k++) {
        const int i = first + k * step;
        if (i < pairs) me.dst[i] = make_float2(own[k].x + other[k].x, own[k].y + other[k].y);
    }
    epoch.end();
}

static void launch_ll(int blocks, cudaStream_t stream, Side me, Side peer, int kept, int sent, int pairs) {
    constexpr void (*kernels[])(Side, Side, int, int, int) = {sum_by_ll<1>, sum_by_ll<2>, sum_by_ll<4>, sum_by_ll<8>,
                                                              sum_by_ll<16>};
    int which = 0;
    while (blocks * THREADS << which < pairs) which++;
    kernels[which]<<<blocks, THREADS, 0, stream>>>(me, peer, kept, sent, pairs);
}

// Does the same by loads from the peer, up to four of each thread in flight.
__global__ static void sum_by_loads(Side me, Side peer, int kept, int pairs) {
    const Epoch epoch(me);
    const auto *own = reinterpret_cast<const float4 *>(me.src + kept);
    const auto *other = reinterpret_cast<const float4 *>(peer.src + kept);
    auto *dst = reinterpret_cast<float4 *>(me.dst);
    const int step = gridDim.x * blockDim.x, count = pairs / 2;
    meet(me, peer, 2 * epoch.now - 1);
    for (int at = index(); at < count; at += 4 * step) {
        float4 a[4], b[4];
        for (int k = 0; k < 4 && at + k * step < count; k++) a[k] = own[at + k * step], b[k] = other[at + k * step];
        for (int k = 0; k < 4 && at + k * step < count; k++) {
            dst[at + k * step] = make_float4(a[k].x + b[k].x, a[k].y + b[k].y, a[k].z + b[k].z, a[k].w + b[k].w);
        }
    }
    meet(me, peer, 2 * epoch.now);
    epoch.end();
}

// Small whole numbers, whose sums are exact.
__device__ __host__ inline float term(int d, int launch, int i) { return float(i % 97 + d * (launch + 1)); }

__global__ static void fill(float *src, int count, int d, int launch) {
    for (int i = index(); i < count; i += gridDim.x * blockDim.x) src[i] = term(d, launch, i);
}

static Pair connect(int first, int second) {
    Pair pair = {{first, second}, {}, {}};
    for (int d = 0; d < 2; d++) {
        const auto memory = [&](size_t bytes) { return device_memory(pair.device[d], bytes); };
        pair.side[d] = {static_cast<float2 *>(memory(2 * MOST_PAIRS * sizeof(float2))),
                        static_cast<float2 *>(memory(MOST_PAIRS * sizeof(float2))),
                        static_cast<ulonglong2 *>(memory(2 * MOST_PAIRS * sizeof(ulonglong2))),
                        static_cast<u64 *>(memory(MOST_BLOCKS * APART * 8)),
                        static_cast<u64 *>(memory(MOST_BLOCKS * APART * 8)),
                        static_cast<u64 *>(memory(2 * 8))};
        CHECK(cudaStreamCreateWithFlags(&pair.streams[d], cudaStreamNonBlocking));
        CHECK(cudaDeviceSynchronize());
    }
    return pair;
}

// Calls `f(d)` for both GPUs, and waits for what it starts.
template <typename F>
static void on_both(const Pair &pair, F f) {
    for (int d = 0; d < 2; d++) {
        CHECK(cudaSetDevice(pair.device[d]));
        f(d);
        CHECK(cudaGetLastError());
    }
    for (int d = 0; d < 2; d++) CHECK(cudaStreamSynchronize(pair.streams[d]));
}

// Forgets all calls. Other numbers of blocks would count differently.
static void reset(const Pair &pair) {
    on_both(pair, [&](int d) {
        const Side &side = pair.side[d];
        CHECK(cudaMemsetAsync(side.slots, 0, 2 * MOST_PAIRS * sizeof(*side.slots), pair.streams[d]));
        CHECK(cudaMemsetAsync(side.flags, 0, MOST_BLOCKS * APART * 8, pair.streams[d]));
        CHECK(cudaMemsetAsync(side.epochs, 0, MOST_BLOCKS * APART * 8, pair.streams[d]));
    });
}

// Exits if a GPU lacks the sums of `pairs` pairs. GPU 1 has those of the elements from `pairs` on if they are scattered.
static void verify(const Pair &pair, int pairs, bool scattered, int launch) {
    std::vector<float> found(2 * pairs);
    for (int d = 0; d < 2; d++) {
        CHECK(cudaMemcpy(found.data(), pair.side[d].dst, 4 * found.size(), cudaMemcpyDeviceToHost));
        const int first = scattered ? d * 2 * pairs : 0;
        for (int i = 0; i < 2 * pairs; i++) {
            if (found[i] == term(0, launch, first + i) + term(1, launch, first + i)) continue;
            fprintf(stderr, "bounds: GPU %d has a wrong sum in element %d\n", pair.device[d], i);
            exit(1);
        }
    }
}

// Nanoseconds of a node, the median of the launches. `node(d, me, peer, stream)` launches a kernel, and `check(launch)`
// verifies what the nodes have computed.
template <typename Node, typename Check>
static double time_of(const Pair &pair, Node node, Check check) {
    cudaGraphExec_t graphs[2];
    reset(pair);
    on_both(pair, [&](int d) {
        const cudaStream_t stream = pair.streams[d];
        const auto call = [&] { node(d, pair.side[d], pair.side[1 - d], stream); };
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        call();
        stamp<<<1, 1, 0, stream>>>(pair.side[d].stamps);
        for (int i = 0; i < NODES; i++) call();
        stamp<<<1, 1, 0, stream>>>(pair.side[d].stamps + 1);
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&graphs[d], graph, 0));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaGraphUpload(graphs[d], stream));
    });
    std::vector<double> times;
    for (int launch = 0; launch < LAUNCHES; launch++) {
        on_both(pair, [&](int d) {
            const Side &side = pair.side[d];
            CHECK(cudaMemsetAsync(side.dst, 0, MOST_PAIRS * sizeof(*side.dst), pair.streams[d]));
            fill<<<64, 256, 0, pair.streams[d]>>>(&side.src->x, 4 * MOST_PAIRS, d, launch);
        });
        on_both(pair, [&](int d) { CHECK(cudaGraphLaunch(graphs[d], pair.streams[d])); });
        check(launch);
        for (int d = 0; d < 2; d++) {
            u64 stamps[2];
            CHECK(cudaMemcpy(stamps, pair.side[d].stamps, sizeof(stamps), cudaMemcpyDeviceToHost));
            times.push_back(double(stamps[1] - stamps[0]) / NODES);
        }
    }
    for (cudaGraphExec_t graph : graphs) CHECK(cudaGraphExecDestroy(graph));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

struct Best {
    double ns = 1e300;
    int blocks = 0;
    void offer(double other, int of_blocks) {
        if (other < ns) ns = other, blocks = of_blocks;
    }
};

static void say_best(const std::string &what, const Best &best) {
    say((what + ", " + std::to_string(best.blocks) + " x " + std::to_string(THREADS) + " threads").c_str(), best.ns / 1e3,
        "us");
}

static void all_reduce(const Pair &pair, int bytes) {
    const int pairs = bytes / 8;
    Best best;
    for (int blocks = 1; blocks <= 16; blocks *= 2) {
        const auto node = [&](int, Side me, Side peer, cudaStream_t stream) {
            launch_ll(blocks, stream, me, peer, 0, 0, pairs);
        };
        best.offer(time_of(pair, node, [&](int launch) { verify(pair, pairs, false, launch); }), blocks);
    }
    say_best("sum of f32 of " + std::to_string(bytes >> 10) + " KiB by the LL protocol", best);
}

static void reduce_scatter(const Pair &pair, int bytes) {
    const int pairs = bytes / 8 / 2;
    Best by_ll, by_loads;
    for (int blocks = 8; blocks <= MOST_BLOCKS; blocks *= 2) {
        const auto check = [&](int launch) { verify(pair, pairs, true, launch); };
        const auto ll = [&](int d, Side me, Side peer, cudaStream_t stream) {
            launch_ll(blocks, stream, me, peer, d * pairs, (1 - d) * pairs, pairs);
        };
        const auto loads = [&](int d, Side me, Side peer, cudaStream_t stream) {
            sum_by_loads<<<blocks, THREADS, 0, stream>>>(me, peer, d * pairs, pairs);
        };
        by_ll.offer(time_of(pair, ll, check), blocks);
        by_loads.offer(time_of(pair, loads, check), blocks);
    }
    const std::string what = "reduce-scatter of f32 of " + std::to_string(bytes >> 10) + " KiB by ";
    say_best(what + "the LL protocol", by_ll);
    say_best(what + "loads, with flags before and behind", by_loads);
}

// Prints the rows of two GPUs that reach each other's memory.
inline void measure(int first, int second) {
    const Pair pair = connect(first, second);
    const auto unchecked = [](int) {};
    printf("kernels of a graph, launched on both GPUs\n");
    say("no work", time_of(pair, [](int, Side, Side, cudaStream_t s) { nothing<<<1, 32, 0, s>>>(); }, unchecked) / 1e3, "us");
    const auto node = [](int, Side me, Side peer, cudaStream_t s) { flags<<<1, 32, 0, s>>>(me, peer); };
    say("flags exchanged", time_of(pair, node, unchecked) / 1e3, "us");
    for (int bytes : {1 << 10, 4 << 10, 16 << 10, 64 << 10}) all_reduce(pair, bytes);
    reduce_scatter(pair, 512 << 10);
}

}  // namespace calls
