// Two ranks of NCCL on the first GPU, with the queues that kernels post to (GIN, by NCCL's copy of DOCA GPUNetIO). Sends
// nothing: NCCL creates and connects these queues when a communicator for kernels is created.
#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int RANKS = 2;
constexpr size_t BYTES = 1 << 21;
constexpr unsigned LIMIT_SECONDS = 60;

void check(const char *call, const char *error) {
    if (error == nullptr) return;
    std::printf("%s: %s\n", call, error);
    std::fflush(stdout);
    std::_Exit(1);
}

#define CUDA(call) check(#call, [](cudaError_t e) { return e == cudaSuccess ? nullptr : cudaGetErrorString(e); }(call))
#define NCCL(call) check(#call, [](ncclResult_t r) { return r == ncclSuccess ? nullptr : ncclGetErrorString(r); }(call))

void run(int rank, const int (&ends)[2]) {
    alarm(LIMIT_SECONDS);
    // NCCL allows two ranks on one GPU only if it believes that they are on different machines.
    setenv("NCCL_HOSTID", rank == 0 ? "host0" : "host1", 1);
    ncclUniqueId id;
    if (rank == 0) {
        NCCL(ncclGetUniqueId(&id));
        check("write", write(ends[1], &id, sizeof(id)) == sizeof(id) ? nullptr : "no unique ID sent");
    } else {
        check("read", read(ends[0], &id, sizeof(id)) == sizeof(id) ? nullptr : "no unique ID received");
    }
    CUDA(cudaSetDevice(0));
    ncclComm_t comm;
    NCCL(ncclCommInitRank(&comm, RANKS, id, rank));
    void *memory;
    ncclWindow_t window;
    NCCL(ncclMemAlloc(&memory, BYTES));
    NCCL(ncclCommWindowRegister(comm, memory, BYTES, &window, NCCL_WIN_COLL_SYMMETRIC));
    ncclDevCommRequirements_t wanted = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    wanted.ginForceEnable = true;
    wanted.ginContextCount = 1;
    wanted.ginSignalCount = 1;
    wanted.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
    ncclDevComm_t kernels;
    NCCL(ncclDevCommCreate(comm, &wanted, &kernels));
    std::printf("PASS rank %d has queues for kernels\n", rank);
    std::fflush(stdout);
    std::_Exit(0);
}

}  // namespace

int main() {
    int ends[2];
    if (pipe(ends) != 0) return 1;
    // Fork before CUDA starts: a process that has initialized CUDA cannot be forked.
    for (int rank = 0; rank < RANKS; rank++) {
        if (fork() == 0) run(rank, ends);
    }
    int failed = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        int status = 0;
        wait(&status);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) failed = 1;
    }
    return failed;
}
