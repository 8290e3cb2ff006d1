// Code shared by the programs of other libraries: errors, the plan that they read, and the results that they write.
//
// A program defines PROGRAM, the prefix of its error messages, before it includes this file.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

[[noreturn]] inline void fail(const std::string &what) {
    std::fprintf(stderr, PROGRAM ": %s\n", what.c_str());
    // The measured library may have logged the cause.
    std::fflush(nullptr);
    std::_Exit(1);
}

#define CUDA(call)                                                                           \
    do {                                                                                     \
        const cudaError_t error = (call);                                                    \
        if (error != cudaSuccess) fail(std::string(#call ": ") + cudaGetErrorString(error)); \
    } while (0)

// A row of `rushmem perf --list`, and its measured values.
struct Row {
    std::string bench;
    uint64_t bytes, blocks, threads, rounds, pes, runs;
    std::vector<double> values;

    // Whether the values are rates of operations.
    bool is_rate() const {
        const std::string end = "_rate";
        return bench.size() > end.size() && bench.compare(bench.size() - end.size(), end.size(), end) == 0;
    }

    const char *unit() const {
        if (bench == "put_bw" || bench == "get_bw") return "GB/s";
        return is_rate() ? "M/s" : "us";
    }

    double median() const {
        std::vector<double> sorted = values;
        std::sort(sorted.begin(), sorted.end());
        return sorted[sorted.size() / 2];
    }
};

inline std::vector<Row> read_plan(const char *path) {
    std::ifstream file(path);
    if (!file) fail(std::string("cannot read ") + path);
    std::vector<Row> rows;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') continue;
        std::istringstream words(line);
        Row row;
        if (!(words >> row.bench >> row.bytes >> row.blocks >> row.threads >> row.rounds >> row.pes >> row.runs)) {
            fail("a line of the plan is malformed: " + line);
        }
        rows.push_back(row);
    }
    return rows;
}

// Writes a file in the format that `rushmem perf --compare` reads.
inline void write_results(const char *path, const std::string &program, const std::vector<Row> &rows) {
    FILE *file = std::fopen(path, "w");
    if (file == nullptr) fail(std::string("cannot write ") + path);
    cudaDeviceProp device;
    CUDA(cudaGetDeviceProperties(&device, 0));
    std::fprintf(file, "{\"program\": \"%s\", \"machine\": \"%s\", \"rows\": [", program.c_str(), device.name);
    const char *separator = "\n";
    for (const Row &row : rows) {
        const auto range = std::minmax_element(row.values.begin(), row.values.end());
        std::fprintf(file,
                     "%s  {\"bench\": \"%s\", \"bytes\": %" PRIu64 ", \"blocks\": %" PRIu64 ", \"threads\": %" PRIu64
                     ", \"pes\": %" PRIu64 ", \"rounds\": %" PRIu64
                     ", \"unit\": \"%s\", \"value\": %.6g, \"low\": %.6g, \"high\": %.6g}",
                     separator, row.bench.c_str(), row.bytes, row.blocks, row.threads, row.pes, row.rounds, row.unit(),
                     row.median(), *range.first, *range.second);
        separator = ",\n";
    }
    std::fprintf(file, "\n]}\n");
    if (std::fclose(file) != 0) fail(std::string("cannot write ") + path);
}
