// What limits the figures of docs/performance.md: the least time that a GPU needs for each, without any library.
//
//     nvcc -O3 -std=c++17 -arch=native -o bounds benches/bounds/bounds.cu && ./bounds
//
// The rows of peers use two GPUs that reach each other's memory or, where there are none, two blocks of one GPU. The
// latency of a word depends on its cache line, so these rows are medians of seven runs with words in different lines.
// Waits give up after a while, and the row then says so.

#include <algorithm>

#include "calls.cuh"
#include "common.cuh"
#include "entries.cuh"

constexpr int ROUNDS = 2000, WARM = 200, THREADS = 256, RUNS = 7;
// Distance between words, in words. No two of them are in neighbouring lines.
constexpr int APART = 16 * 37;
constexpr u64 MAX_POLLS = 1 << 24;
// Words of values and flags in one run: two per thread.
constexpr int CELLS = 2 * THREADS;

// Memory of one GPU. Polled words are in separate lines.
struct Side {
    u64 *word;       // polled here
    u64 *counter;    // touched by one thread
    uint4 *data;     // 64 KiB and more, source and destination
    u64 *cells;      // words of a value and a flag
    double *out;     // in host memory: nanoseconds a round
};

// What a NIC would provide: a queue and a doorbell record in GPU memory, a doorbell in host memory.
struct Queue {
    uint4 *slots;
    uint32_t *record;
    u64 *doorbell, *state;
};

__device__ void add(u64 *p, u64 v) { asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
__device__ u64 fetch_add(u64 *p, u64 v) {
    u64 old;
    asm volatile("atom.relaxed.sys.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
    return old;
}
__device__ u64 swap_if(u64 *p, u64 old, u64 v) {
    u64 found;
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;" : "=l"(found) : "l"(p), "l"(old), "l"(v) : "memory");
    return found;
}

// Returns false if the value never arrives.
__device__ bool wait(const u64 *p, u64 value) {
    for (u64 turn = 0; turn < MAX_POLLS; turn++) {
        if (load(p) >= value) return true;
    }
    return false;
}

// Nanoseconds per round of `f(round)`, over all calling threads; -1 if a round fails.
template <typename F>
__device__ double timed(F f) {
    u64 begin = 0;
    for (int round = 0; round < WARM + ROUNDS; round++) {
        if (round == WARM) begin = now_ns();
        if (!f(u64(round))) return -1;
    }
    return double(now_ns() - begin) / ROUNDS;
}

// One thread that accesses words of a peer.
__global__ void alone(Side me, Side peer) {
    u64 sum = 0;
    me.out[0] = timed([&](u64) { return fence_sys(), true; });
    me.out[1] = timed([&](u64 i) { return store(peer.counter, i), release_sys(), true; });
    me.out[2] = timed([&](u64) { return sum += load(peer.counter), sum != ~0ull; });
    me.out[3] = timed([&](u64) { return sum += fetch_add(peer.counter, 1), sum != ~0ull; });
    *me.counter = sum;
}

// Latency of an atomic for each of 64 lines of the peer's memory: the smallest and the largest.
__global__ void by_line(Side me, Side peer) {
    double least = 1e9, most = 0;
    u64 sum = 0;
    for (int line = 0; line < 64; line++) {
        u64 *word = reinterpret_cast<u64 *>(peer.data) + APART * line;
        const double ns = timed([&](u64) { return sum += fetch_add(word, 1), sum != ~0ull; });
        least = min(least, ns);
        most = max(most, ns);
    }
    me.out[12] = least;
    me.out[13] = most;
    *me.counter = sum;
}

// A store and a fence by a block, the minimum for a put of 8 bytes and quiet.
__global__ void of_block(Side me, Side peer) {
    const bool leader = threadIdx.x == 0;
    const double ns = timed([&](u64 i) {
        __syncthreads();
        if (leader) store(peer.counter, i);
        __syncthreads();
        if (leader) release_sys();
        __syncthreads();
        return true;
    });
    if (leader) me.out[4] = ns;
}

// Ping-pong with an addition to a word at the peer. The words have already counted `before`.
template <bool ACQUIRES>
__global__ void signals(Side me, Side peer, u64 before, bool begins, int row) {
    me.out[row] = timed([&](u64 i) {
        if (begins) add(peer.word, 1);
        const bool came = wait(me.word, before + i + 1);
        if (ACQUIRES) acquire_sys();
        if (!begins) add(peer.word, 1);
        return came;
    });
}

// Ping-pong with data, a fence and a flag.
__global__ void messages(Side me, Side peer, u64 before, bool begins, int row, int count) {
    const bool leader = threadIdx.x == 0;
    const auto send = [&] {
        for (int at = threadIdx.x; at < count; at += 4 * blockDim.x) {
            uint4 v[4];
            for (int k = 0; k < 4; k++) v[k] = me.data[min(at + k * int(blockDim.x), count - 1)];
            for (int k = 0; k < 4; k++) {
                if (at + k * int(blockDim.x) < count) peer.data[(1 << 16) + at + k * blockDim.x] = v[k];
            }
        }
        __syncthreads();
        if (leader) release_sys(), add(peer.word, 1);
    };
    const double ns = timed([&](u64 i) {
        if (begins) send();
        bool came = true;
        if (leader) {
            came = wait(me.word, before + i + 1);
            acquire_sys();
        }
        came = __syncthreads_and(came);
        if (!begins) send();
        return came;
    });
    if (leader) me.out[row] = ns;
}

// Both PEs at the same time: a flag with block barriers, as in a barrier of two PEs; and the same without the fence.
template <bool FENCES>
__global__ void meetings(Side me, Side peer, u64 before, int row) {
    const bool leader = threadIdx.x == 0;
    const double ns = timed([&](u64 i) {
        __syncthreads();
        bool came = true;
        if (leader) {
            if (FENCES) release_sys();
            store(peer.word, before + i + 1);
            came = wait(me.word, before + i + 1);
        }
        return bool(__syncthreads_and(came));
    });
    if (leader) me.out[row] = ns;
}

// 1 KiB from each to the other, 8 bytes at a time, with the flag beside the data: no fence.
__global__ void cells(Side me, Side peer, int row) {
    const double ns = timed([&](u64 i) {
        const u64 flag = i + 1, half = (i & 1) * THREADS + threadIdx.x;
        const u64 value = reinterpret_cast<uint32_t *>(me.data)[threadIdx.x];
        store(peer.cells + half, flag << 32 | value);
        bool came = false;
        u64 found = 0;
        for (u64 turn = 0; turn < MAX_POLLS && !came; turn++) {
            found = load(me.cells + half);
            came = found >> 32 == flag;
        }
        reinterpret_cast<uint32_t *>(me.data + 4096)[threadIdx.x] = uint32_t(found);
        return bool(__syncthreads_and(came));
    });
    if (threadIdx.x == 0) me.out[row] = ns;
}

__global__ void stream(const uint4 *from, uint4 *to, size_t count) {
    const size_t step = size_t(gridDim.x) * blockDim.x;
    size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    for (; at + 7 * step < count; at += 8 * step) {
        uint4 v[8];
        for (int k = 0; k < 8; k++) v[k] = from[at + k * step];
        for (int k = 0; k < 8; k++) to[at + k * step] = v[k];
    }
    for (; at < count; at += step) to[at] = from[at];
}

// Stores by one block that need no loads.
__global__ void stores(uint4 *to, size_t count) {
    const uint4 v = make_uint4(threadIdx.x, 1, 2, 3);
    for (size_t at = threadIdx.x; at < count; at += blockDim.x) to[at] = v;
}

// Copies in chunks with the bulk copy engines of the SMs. One thread of each warp uses separate buffers, all but one of
// which are loaded ahead. `count` is a multiple of what the grid copies in one step.
constexpr int BUFFERS = 4, CHUNK = 4096, SHARED = THREADS / 32 * BUFFERS * CHUNK;
__global__ void bulk(const uint4 *from, uint4 *to, size_t count) {
    extern __shared__ __align__(128) unsigned char buffers[];
    __shared__ u64 full[32 * BUFFERS];
    const unsigned warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const unsigned first = blockIdx.x * warps + warp, all = gridDim.x * warps;
    if (threadIdx.x % 32 != 0) return;
    const auto shared = [](const void *p) { return uint32_t(__cvta_generic_to_shared(p)); };
    const auto place = [&](unsigned i) { return (size_t(i) * all + first) * (CHUNK / 16); };
    const auto buffer = [&](unsigned i) { return shared(buffers + (warp * BUFFERS + i % BUFFERS) * CHUNK); };
    const auto barrier = [&](unsigned i) { return shared(&full[warp * BUFFERS + i % BUFFERS]); };
    for (int i = 0; i < BUFFERS; i++) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier(i)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    const unsigned chunks = count / (CHUNK / 16) / all;
    unsigned loaded = 0;
    for (unsigned i = 0; i < chunks; i++) {
        for (; loaded < chunks && loaded < i + BUFFERS - 1; loaded++) {
            // The buffer's previous contents have been stored.
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier(loaded)), "n"(CHUNK) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                             buffer(loaded)), "l"(from + place(loaded)), "n"(CHUNK), "r"(barrier(loaded)) : "memory");
        }
        unsigned came = 0;
        while (!came) {
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(came) : "r"(barrier(i)), "r"(i / BUFFERS & 1) : "memory");
        }
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to + place(i)), "r"(buffer(i)),
                     "n"(CHUNK) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

__device__ void write(const Queue &q, u64 i) {
    uint4 *slot = q.slots + (i & 1023) * 4;
    for (int k = 0; k < 4; k++) slot[k] = make_uint4(i, i, i, k);
}
__device__ void record(const Queue &q, u64 i) {
    asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(q.record), "r"(uint32_t(i)) : "memory");
}
__device__ void ring(const Queue &q, u64 i) { entries::ring(q.doorbell, i); }

// BlueFlame: the whole entry goes to the doorbell register.
__device__ uint4 *blue_flame(const Queue &q) { return reinterpret_cast<uint4 *>(q.doorbell); }

// Fence, record, fence, doorbell.
template <typename Fence>
__device__ void announce(const Queue &q, u64 i, Fence fence) {
    fence(), record(q, i), fence(), ring(q, i);
}

// Posting by one thread: entry, fence, record, fence, doorbell, and the bookkeeping around them.
__global__ void posting(Queue q, double *out) {
    volatile u64 *counter = q.state;
    out[0] = timed([&](u64 i) { return write(q, i), announce(q, i, release_gpu), true; });
    out[1] = timed([&](u64 i) { return write(q, i), announce(q, i, release_sys), true; });
    out[2] = timed([&](u64) {
        const u64 i = *counter;
        *counter = i + 1;
        return write(q, i), announce(q, i, release_gpu), true;
    });
    u64 bell = *(q.state + 32);
    out[3] = timed([&](u64) {
        const u64 i = atomicAdd(q.state + 16, 1ull);
        write(q, i);
        if (swap_if(q.state + 32, bell, bell + 1) != bell) return false;
        announce(q, i, release_gpu), release_gpu();
        if (swap_if(q.state + 32, bell + 1, bell + 2) != bell + 1) return false;
        bell += 2;
        return true;
    });
    out[4] = timed([&](u64 i) { return write(q, i), release_gpu(), ring(q, i), true; });
    out[5] = timed([&](u64 i) {
        return write(q, i), release_gpu(), record(q, i), release_gpu(), entries::store_by_thread(blue_flame(q), i), true;
    });
    __shared__ alignas(64) uint4 entry[4];
    out[6] = timed([&](u64 i) {
        return write(q, i), release_gpu(), record(q, i), release_gpu(), entries::copy_in_bulk(blue_flame(q), entry, i), true;
    });
}

static double *host_memory() {
    void *p;
    CHECK(cudaHostAlloc(&p, 4096, cudaHostAllocPortable | cudaHostAllocMapped));
    return static_cast<double *>(p);
}

static void posts() {
    Queue q;
    q.slots = static_cast<uint4 *>(device_memory(0, 64 << 10));
    q.record = static_cast<uint32_t *>(device_memory(0, 64));
    q.state = static_cast<u64 *>(device_memory(0, 4096));
    q.doorbell = reinterpret_cast<u64 *>(host_memory());
    double *out = host_memory();
    posting<<<1, 1>>>(q, out);
    CHECK(cudaDeviceSynchronize());
    say("post by one thread: entry, fence, record, fence, doorbell, at GPU scope", out[0] / 1e3, "us");
    say("the same at system scope", out[1] / 1e3, "us");
    say("at GPU scope, and a count of the queue's own", out[2] / 1e3, "us");
    say("at GPU scope, in a queue of all: an add before; compare and swap, released at the end", out[3] / 1e3, "us");
    say("at GPU scope, without a record and its fence", out[4] / 1e3, "us");
    say("at GPU scope, with the entry as the doorbell, by four stores", out[5] / 1e3, "us");
    say("the same by the bulk copy engine, from shared memory", out[6] / 1e3, "us");
}

// GB/s of a kernel that moves `bytes`.
template <typename F>
static double rate(size_t bytes, F launch) {
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    float ms;
    launch();
    CHECK(cudaEventRecord(begin));
    for (int i = 0; i < 20; i++) launch();
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return 20.0 * bytes / ms / 1e6;
}

static void one_block(uint4 *from, uint4 *to) {
    const size_t bytes = 16 << 20, count = bytes / 16;
    CHECK(cudaFuncSetAttribute(bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
    const double stored = rate(bytes, [&] { stores<<<1, THREADS>>>(to, count); });
    const double copied = rate(bytes, [&] { stream<<<1, THREADS>>>(from, to, count); });
    const double in_bulk = rate(bytes, [&] { bulk<<<1, THREADS, SHARED>>>(from, to, count); });
    CHECK(cudaGetLastError());
    say("16 MiB by a block of 256: stores alone", stored, "GB/s");
    say("the same, copied by vector loads and stores", copied, "GB/s");
    say("the same, copied by the bulk copy engine", in_bulk, "GB/s");
}

// Sums `count` values here and at the peer, and stores the result in both.
__global__ void sum_for_both(const float4 *mine, const float4 *theirs, float4 *to_me, float4 *to_peer, size_t count) {
    const size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x; at < count; at += 4 * step) {
        float4 a[4], b[4];
        for (int k = 0; k < 4; k++) {
            const size_t i = min(at + k * step, count - 1);
            a[k] = mine[i], b[k] = theirs[i];
        }
        for (int k = 0; k < 4; k++) {
            if (at + k * step >= count) break;
            const float4 sum = make_float4(a[k].x + b[k].x, a[k].y + b[k].y, a[k].z + b[k].z, a[k].w + b[k].w);
            to_me[at + k * step] = sum, to_peer[at + k * step] = sum;
        }
    }
}

// What the link carries in each direction while both GPUs use it.
static void both_ways(const int *device, cudaStream_t *streams) {
    constexpr size_t BYTES = 256 << 20, COUNT = BYTES / 16, TIMES = 10;
    uint4 *src[2], *dst[2];
    for (int d = 0; d < 2; d++) {
        src[d] = static_cast<uint4 *>(device_memory(device[d], BYTES));
        dst[d] = static_cast<uint4 *>(device_memory(device[d], BYTES));
    }
    // Gigabytes per second into each GPU.
    const auto measure = [&](auto launch) {
        cudaEvent_t begin, end;
        CHECK(cudaSetDevice(device[0]));
        CHECK(cudaEventCreate(&begin));
        CHECK(cudaEventCreate(&end));
        for (size_t i = 0; i <= TIMES; i++) {
            for (int d = 0; d < 2; d++) {
                CHECK(cudaSetDevice(device[d]));
                // The first launch warms up.
                if (d == 0 && i == 1) CHECK(cudaEventRecord(begin, streams[0]));
                launch(d, 1 - d);
            }
        }
        CHECK(cudaSetDevice(device[0]));
        CHECK(cudaEventRecord(end, streams[0]));
        for (int d = 0; d < 2; d++) CHECK(cudaStreamSynchronize(streams[d]));
        CHECK(cudaGetLastError());
        float ms;
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        return double(TIMES * BYTES) / ms / 1e6;
    };
    for (int d = 0; d < 2; d++) {
        CHECK(cudaSetDevice(device[d]));
        CHECK(cudaFuncSetAttribute(bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
    }
    const auto values = [](uint4 *p) { return reinterpret_cast<float4 *>(p); };
    for (const int blocks : {64, 128}) {
        char what[128];
        const auto row = [&](const char *how, double found, int threads = 512) {
            snprintf(what, sizeof what, "both GPUs at a time, %d x %d threads: %s", blocks, threads, how);
            say(what, found, "GB/s");
        };
        row("256 MiB stored to the peer", measure([&](int d, int peer) {
                stream<<<blocks, 512, 0, streams[d]>>>(src[d], dst[peer], COUNT);
            }));
        row("256 MiB loaded from the peer", measure([&](int d, int peer) {
                stream<<<blocks, 512, 0, streams[d]>>>(src[peer], dst[d], COUNT);
            }));
        row("256 MiB stored to the peer in bulk", measure([&](int d, int peer) {
                bulk<<<blocks, THREADS, SHARED, streams[d]>>>(src[d], dst[peer], COUNT);
            }), THREADS);
        row("256 MiB loaded from the peer in bulk", measure([&](int d, int peer) {
                bulk<<<blocks, THREADS, SHARED, streams[d]>>>(src[peer], dst[d], COUNT);
            }), THREADS);
        row("sum of 256 MiB, half loaded and half stored", measure([&](int d, int peer) {
                const size_t at = d * COUNT / 2;
                sum_for_both<<<blocks, 512, 0, streams[d]>>>(values(src[d]) + at, values(src[peer]) + at, values(dst[d]) + at,
                                                             values(dst[peer]) + at, COUNT / 2);
            }));
    }
    say("both GPUs at a time, copy engines: 256 MiB to the peer", measure([&](int d, int peer) {
            CHECK(cudaMemcpyPeerAsync(dst[peer], device[peer], src[d], device[d], BYTES, streams[d]));
        }), "GB/s");
}

static void peers(int second) {
    const int device[2] = {0, second};
    Side side[2];
    cudaStream_t streams[2];
    const size_t big = 256 << 20;
    for (int d = 0; d < 2; d++) {
        CHECK(cudaSetDevice(device[d]));
        if (second != 0) CHECK(cudaDeviceEnablePeerAccess(device[1 - d], 0));
        CHECK(cudaStreamCreateWithFlags(&streams[d], cudaStreamNonBlocking));
        u64 *words = static_cast<u64 *>(device_memory(device[d], 2 * RUNS * APART * 8));
        side[d] = {words, words + RUNS * APART, static_cast<uint4 *>(device_memory(device[d], 2 << 20)),
                   static_cast<u64 *>(device_memory(device[d], RUNS * CELLS * 8)), host_memory()};
    }
    const Side &a = side[0];
    double medians[14];
    // The rows from the first to the last, measured together.
    const auto measure = [&](int first, int last, auto launch) {
        double runs[14][RUNS];
        for (int run = 0; run < RUNS; run++) {
            const auto at = [&](int d) {
                Side there = side[d];
                there.word += run * APART, there.counter += run * APART, there.cells += run * CELLS;
                return there;
            };
            for (int d = 0; d < 2; d++) {
                CHECK(cudaSetDevice(device[d]));
                launch(d, at(d), at(1 - d), streams[d]);
                CHECK(cudaGetLastError());
            }
            for (int d = 0; d < 2; d++) CHECK(cudaStreamSynchronize(streams[d]));
            for (int row = first; row <= last; row++) runs[row][run] = a.out[row];
        }
        for (int row = first; row <= last; row++) {
            std::sort(runs[row], runs[row] + RUNS);
            medians[row] = runs[row][0] < 0 ? -1 : runs[row][RUNS / 2];
        }
    };
    // The words keep counting from here.
    u64 before = 0;
    const auto both = [&](int row, auto launch) {
        measure(row, row, launch);
        before += WARM + ROUNDS;
    };
    measure(0, 3, [&](int d, Side me, Side peer, auto s) { if (d == 0) alone<<<1, 1, 0, s>>>(me, peer); });
    measure(12, 13, [&](int d, Side me, Side peer, auto s) { if (d == 0) by_line<<<1, 1, 0, s>>>(me, peer); });
    measure(4, 4, [&](int d, Side me, Side peer, auto s) { if (d == 0) of_block<<<1, THREADS, 0, s>>>(me, peer); });
    both(5, [&](int d, Side me, Side peer, auto s) { signals<false><<<1, 1, 0, s>>>(me, peer, before, d == 0, 5); });
    both(6, [&](int d, Side me, Side peer, auto s) { signals<true><<<1, 1, 0, s>>>(me, peer, before, d == 0, 6); });
    both(7, [&](int d, Side me, Side peer, auto s) {
        messages<<<1, THREADS, 0, s>>>(me, peer, before, d == 0, 7, 1024 / 16);
    });
    both(8, [&](int d, Side me, Side peer, auto s) {
        messages<<<1, THREADS, 0, s>>>(me, peer, before, d == 0, 8, 65536 / 16);
    });
    both(9, [&](int, Side me, Side peer, auto s) { meetings<true><<<1, THREADS, 0, s>>>(me, peer, before, 9); });
    both(10, [&](int, Side me, Side peer, auto s) { meetings<false><<<1, THREADS, 0, s>>>(me, peer, before, 10); });
    measure(11, 11, [&](int, Side me, Side peer, auto s) { cells<<<1, THREADS, 0, s>>>(me, peer, 11); });

    const char *what[] = {
        "fence at system scope, with nothing outstanding",
        "store to a peer, and fence, by one thread",
        "load from a peer, to its result",
        "atomic at a peer, to its result",
        "store to a peer by a block of 256, and fence, with a barrier before, between and behind",
        "word added to at the peer, to and fro, each polling",
        "the same, each acquiring what it announces",
        "1 KiB by a block of 256, fence, flag, to and fro",
        "64 KiB by a block of 256, fence, flag, to and fro",
        "fence and flags exchanged by two blocks of 256",
        "flags exchanged by two blocks of 256",
        "1 KiB exchanged by two blocks of 256, 8 bytes at a time with flags beside the data",
        "atomic at a peer, to the nearest of 64 lines",
        "atomic at a peer, to the farthest of 64 lines",
    };
    printf("peers: GPU %d and GPU %d\n", device[0], device[1]);
    for (int row = 0; row < 14; row++) say(what[row], medians[row] / 1e3, "us");

    auto *from = static_cast<uint4 *>(device_memory(device[0], big));
    auto *to = static_cast<uint4 *>(device_memory(device[1], big));
    CHECK(cudaSetDevice(0));
    say("256 MiB to a peer by vector stores, 64 x 512 threads",
        rate(big, [&] { stream<<<64, 512>>>(from, to, big / 16); }), "GB/s");
    one_block(from, to);
    if (second != 0) both_ways(device, streams);
}

int main() {
    // If a kernel were first loaded while another waits for it, loading would wait too.
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    int devices = 0, reach = 0;
    CHECK(cudaGetDeviceCount(&devices));
    posts();
    entries::count_parts();
    if (devices > 1) CHECK(cudaDeviceCanAccessPeer(&reach, 0, 1));
    peers(reach ? 1 : 0);
    if (reach) {
        calls::measure(0, 1);
    } else {
        printf("collective calls: not measured, because no two GPUs reach each other's memory\n");
    }
}
