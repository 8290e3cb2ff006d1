// A job of NCCL on this machine. Its ranks are threads, assigned to the GPUs round-robin. Several ranks on one GPU need
// NCCL_MULTI_RANK_GPU_ENABLE=1.
#pragma once

#include <nccl.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#define PROGRAM "nccl"
#include "../common.cuh"

#define NCCL(call)                                                                           \
    do {                                                                                     \
        const ncclResult_t error = (call);                                                   \
        if (error != ncclSuccess) fail(std::string(#call ": ") + ncclGetErrorString(error)); \
    } while (0)

// Synchronises all ranks.
class Meeting {
  public:
    explicit Meeting(int n) : n(n) {}
    void wait() {
        std::unique_lock<std::mutex> lock(mutex);
        const uint64_t mine = generation;
        if (++arrived == n) {
            arrived = 0;
            generation++;
            all.notify_all();
        } else {
            all.wait(lock, [&] { return generation != mine; });
        }
    }

  private:
    std::mutex mutex;
    std::condition_variable all;
    int n, arrived = 0;
    uint64_t generation = 0;
};

// The name and version of the library.
inline std::string program() {
    int version = 0;
    NCCL(ncclGetVersion(&version));
    return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

// Runs `body(me, comm, meeting)` on each rank.
template <typename Body>
void run_ranks(int pes, Body body) {
    int gpus = 0;
    CUDA(cudaGetDeviceCount(&gpus));
    ncclUniqueId id;
    NCCL(ncclGetUniqueId(&id));
    Meeting meeting(pes);
    std::vector<std::thread> ranks;
    for (int me = 0; me < pes; me++) {
        ranks.emplace_back([&, me] {
            CUDA(cudaSetDevice(me % gpus));
            ncclComm_t comm;
            NCCL(ncclCommInitRank(&comm, pes, id, me));
            body(me, comm, meeting);
            meeting.wait();
            NCCL(ncclCommDestroy(comm));
        });
    }
    for (std::thread &rank : ranks) rank.join();
}
