// An NVSHMEM job on this machine: its PEs are processes that share the GPUs. Several PEs on one GPU need MPS.
#pragma once

#include <nvshmem.h>
#include <nvshmemx.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#define PROGRAM "nvshmem"
#include "../common.cuh"

template <typename T>
T *symmetric(uint64_t count) {
    void *memory = nvshmem_calloc(count, sizeof(T));
    if (memory == nullptr) fail("NVSHMEM has no memory");
    return static_cast<T *>(memory);
}

// Starts NVSHMEM on PE `me`. PE 0 distributes the ID of the job through the pipes.
inline void start_pe(int me, int pes, const std::vector<std::pair<int, int>> &pipes, unsigned limit_seconds) {
    alarm(limit_seconds);
    int gpus = 0;
    CUDA(cudaGetDeviceCount(&gpus));
    CUDA(cudaSetDevice(me % gpus));
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    if (me == 0) {
        if (nvshmemx_get_uniqueid(&id) != 0) fail("NVSHMEM gives no unique id");
        for (int pe = 1; pe < pes; pe++) {
            if (write(pipes[pe].second, &id, sizeof(id)) != sizeof(id)) fail("a PE cannot be told the unique id");
        }
    } else if (read(pipes[me].first, &id, sizeof(id)) != sizeof(id)) {
        fail("no unique id came");
    }
    nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
    nvshmemx_set_attr_uniqueid_args(me, pes, &id, &attributes);
    if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes) != 0) fail("NVSHMEM does not start");
}

// Runs `body` on each PE, in a separate process, for at most `limit_seconds`. Returns the exit code of the job.
template <typename Body>
int run_job(int pes, unsigned limit_seconds, Body body) {
    // Fork before CUDA starts: a process that has initialized CUDA cannot be forked.
    std::vector<std::pair<int, int>> pipes;
    for (int pe = 0; pe < pes; pe++) {
        int ends[2];
        if (pipe(ends) != 0) fail("no pipe");
        pipes.emplace_back(ends[0], ends[1]);
    }
    std::vector<pid_t> children;
    for (int pe = 0; pe < pes; pe++) {
        const pid_t child = fork();
        if (child < 0) fail("no process");
        if (child == 0) {
            start_pe(pe, pes, pipes, limit_seconds);
            body(pe);
            nvshmem_finalize();
            std::fflush(nullptr);
            std::_Exit(0);
        }
        children.push_back(child);
    }
    int failed = 0;
    for (size_t left = children.size(); left > 0; left--) {
        int status = 0;
        const pid_t ended = wait(&status);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            failed = 1;
            // The other PEs would wait for it.
            for (const pid_t child : children) {
                if (child != ended) kill(child, SIGTERM);
            }
        }
    }
    return failed;
}
