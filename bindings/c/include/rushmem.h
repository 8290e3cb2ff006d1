/*
 * The host API of Rushmem for C and C++: GPU-initiated networking, and one-sided communication between hosts.
 *
 * Unless its documentation says otherwise, a function returns a `rushmem_status` as int32_t: 0 for success.
 * `rushmem_error_message` then says what failed. Any thread may call any function. Collective functions must be called
 * by all PEs (processing elements, here processes) in the same order and with the same sizes.
 *
 * Symmetric memory and handles are looked up, so wrong, freed and finalized ones are errors. Any other pointer must be
 * null, or valid for what the function does with it: null is an error where a value is needed, and so is a misaligned
 * pointer. Strings are UTF-8. Memory of streams and of the caller must exist as long as the documentation demands.
 *
 * This file is generated: `UPDATE_DOCS=1 cargo test -p rushmem-c --test header`.
 */
#ifndef RUSHMEM_H
#define RUSHMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The team of all PEs of the job.
#define RUSHMEM_TEAM_WORLD 4294967296

/// The team of the PEs that load and store each other's symmetric memory, including this one.
#define RUSHMEM_TEAM_SHARED 4294967297

/// The team of the PEs on this PE's node.
#define RUSHMEM_TEAM_NODE 4294967298

/// The team of no PE, which `rushmem_team_split_strided` returns on PEs outside the new team.
#define RUSHMEM_TEAM_INVALID 4294967295

/// Length of a unique ID as text, including the final zero byte.
#define RUSHMEM_UNIQUE_ID_BYTES 129

/// Outcomes of functions. The numbers never change.
typedef enum rushmem_status {
  /// The call has succeeded.
  RUSHMEM_STATUS_SUCCESS = 0,
  /// An argument, a setting or the order of calls is invalid.
  RUSHMEM_STATUS_INVALID_VALUE = 1,
  /// The symmetric heap, host memory or GPU memory is full.
  RUSHMEM_STATUS_OUT_OF_MEMORY = 2,
  /// This machine or this build lacks a requested feature.
  RUSHMEM_STATUS_NOT_SUPPORTED = 3,
  /// The PEs made different collective calls, or differ in their builds or settings.
  RUSHMEM_STATUS_ASYMMETRIC = 4,
  /// There is no GPU, or not the requested one.
  RUSHMEM_STATUS_NO_GPU = 5,
  /// A kernel could not be launched, or was terminated from outside.
  RUSHMEM_STATUS_LAUNCH_FAILED = 6,
  /// This library broke one of its own guarantees.
  RUSHMEM_STATUS_INTERNAL = 7,
  /// A call in a kernel failed. The text of the error gives the reason.
  RUSHMEM_STATUS_KERNEL = 8,
  /// A NIC refused a request, or did not complete it.
  RUSHMEM_STATUS_NIC = 9,
  /// Other PEs did not arrive in time.
  RUSHMEM_STATUS_TIMEOUT = 10,
  /// A PE or the job's server was lost.
  RUSHMEM_STATUS_PEER_LOST = 11,
  /// The PEs of a job could not find each other.
  RUSHMEM_STATUS_BOOTSTRAP = 12,
  /// The operating system refused a request.
  RUSHMEM_STATUS_SYSTEM = 13,
  /// The application failed.
  RUSHMEM_STATUS_APPLICATION = 14,
} rushmem_status;

/// Where kernels run.
typedef enum rushmem_device_kind {
  /// As the setting `device` says. If it does not say, on a GPU, or natively if there is none.
  RUSHMEM_DEVICE_KIND_AUTO = 0,
  /// Natively, in the GPU emulator on the cores of this machine.
  RUSHMEM_DEVICE_KIND_NATIVE = 1,
  /// On a GPU. It is an error if there is none.
  RUSHMEM_DEVICE_KIND_GPU = 2,
} rushmem_device_kind;

/// Updates of a signal.
typedef enum rushmem_signal {
  /// The signal becomes the value.
  RUSHMEM_SIGNAL_SET = 0,
  /// The value is added to the signal.
  RUSHMEM_SIGNAL_ADD = 1,
} rushmem_signal;

/// Comparisons of a signal with a value.
typedef enum rushmem_cmp {
  /// The signal is equal to the value.
  RUSHMEM_CMP_EQ = 0,
  /// The signal is not equal to the value.
  RUSHMEM_CMP_NE = 1,
  /// The signal is greater than the value.
  RUSHMEM_CMP_GT = 2,
  /// The signal is greater than or equal to the value.
  RUSHMEM_CMP_GE = 3,
  /// The signal is less than the value.
  RUSHMEM_CMP_LT = 4,
  /// The signal is less than or equal to the value.
  RUSHMEM_CMP_LE = 5,
  /// The signal is at or past the value, by less than 2^63. For counters that wrap.
  RUSHMEM_CMP_REACHED = 6,
} rushmem_cmp;

/// Element types of reductions. Kernels use the same numbers.
typedef enum rushmem_type {
  /// `uint8_t`
  RUSHMEM_TYPE_UINT8 = 0,
  /// `int8_t`
  RUSHMEM_TYPE_INT8 = 1,
  /// `uint16_t`
  RUSHMEM_TYPE_UINT16 = 2,
  /// `int16_t`
  RUSHMEM_TYPE_INT16 = 3,
  /// `uint32_t`
  RUSHMEM_TYPE_UINT32 = 4,
  /// `int32_t`
  RUSHMEM_TYPE_INT32 = 5,
  /// `uint64_t`
  RUSHMEM_TYPE_UINT64 = 6,
  /// `int64_t`
  RUSHMEM_TYPE_INT64 = 7,
  /// IEEE 754 half precision, 2 bytes.
  RUSHMEM_TYPE_FLOAT16 = 8,
  /// bfloat16, 2 bytes.
  RUSHMEM_TYPE_BFLOAT16 = 9,
  /// `float`
  RUSHMEM_TYPE_FLOAT32 = 10,
  /// `double`
  RUSHMEM_TYPE_FLOAT64 = 11,
} rushmem_type;

/// Reductions. The bitwise ones are defined for integers only.
typedef enum rushmem_op {
  /// Sum of the elements.
  RUSHMEM_OP_SUM = 0,
  /// Product of the elements.
  RUSHMEM_OP_PROD = 1,
  /// Least element.
  RUSHMEM_OP_MIN = 2,
  /// Greatest element.
  RUSHMEM_OP_MAX = 3,
  /// Bitwise and.
  RUSHMEM_OP_AND = 4,
  /// Bitwise or.
  RUSHMEM_OP_OR = 5,
  /// Bitwise exclusive or.
  RUSHMEM_OP_XOR = 6,
} rushmem_op;

/// A PE (processing element) of this process, created by `rushmem_init`.
typedef struct rushmem_pe rushmem_pe;

/// Memory of the caller that all PEs have registered as symmetric memory, created by `rushmem_register_symmetric`.
typedef struct rushmem_window rushmem_window;

/// Options of `rushmem_init`. A member that is 0 keeps the value from the environment and the settings file.
typedef struct rushmem_init_options {
  /// `sizeof(rushmem_init_options)`. Later versions may append members.
  size_t size;
  /// Unique ID of the job as text, or null to find the other PEs through the launcher.
  const char *unique_id;
  /// Size of the symmetric heap in bytes.
  uint64_t heap_bytes;
  /// Number of this PE, if there is a unique ID.
  int32_t pe;
  /// Number of PEs in the job, if there is a unique ID.
  int32_t n_pes;
  /// Where kernels run: a `rushmem_device_kind`.
  int32_t device;
  /// Must be 0.
  uint32_t reserved;
} rushmem_init_options;

/// Symmetric memory with a name, for `rushmem_save` and `rushmem_restore`. It is saved as elements of one byte.
typedef struct rushmem_object {
  /// Name that no other object of the checkpoint has.
  const char *name;
  /// Address of this PE's copy.
  void *ptr;
  /// Size in bytes.
  size_t bytes;
} rushmem_object;

/// A team of PEs. Kernels get the same value as the host.
typedef uint64_t rushmem_team;

/*
 * Initialization, finalization and errors
 * ---------------------------------------
 */

/// Returns the version of the library, such as `0.1.0`. The text is static.
const char *rushmem_version(void);

/// Returns the text of the calling thread's last error, or an empty text if there was none.
///
/// It says what failed, with values, and then the remedy. A successful call does not change it. It is valid until the
/// next error of the thread.
const char *rushmem_error_message(void);

/// Writes a new unique ID to `out` as text, for a job without a launcher.
///
/// One PE makes this call and distributes the ID, which contains the job's secret. All PEs pass it to `rushmem_init`.
/// The process that makes the call serves the job, so it must also be a PE. `size` is the room at `out`, at least
/// `RUSHMEM_UNIQUE_ID_BYTES`.
int32_t rushmem_unique_id(char *out, size_t size);

/// Joins the job and starts the PE of this process, which `*pe` then refers to. Collective.
///
/// With null `options`, or without a unique ID in them, the launcher (`rushmem run`, `mpirun`, `srun`, `torchrun`)
/// provides the PE's number. Without a launcher, this process is a job of one PE. All other settings come from the
/// environment and the settings file. `rushmem_finalize` shuts the PE down.
int32_t rushmem_init(const rushmem_init_options *options, rushmem_pe **pe);

/// Shuts the PE down. Collective: returns after all PEs have made the call. The handle becomes invalid.
///
/// Kernels that use the PE's memory must have finished. If an operation in a stream has failed and was not waited for,
/// the call returns its error, and the job is aborted. A process that exits without this call is a lost PE.
int32_t rushmem_finalize(rushmem_pe *pe);

/// Terminates all processes of the job with exit code `code`, from 0 to 255. Not collective.
///
/// Nothing is completed or freed. Returns only if an argument is invalid.
int32_t rushmem_global_exit(rushmem_pe *pe, int32_t code);

/// Returns the number of this PE, from 0, or -1 if `pe` is invalid.
int32_t rushmem_my_pe(rushmem_pe *pe);

/// Returns the number of PEs in the job, or -1 if `pe` is invalid.
int32_t rushmem_n_pes(rushmem_pe *pe);

/// Returns 1 if the kernels of this PE run on a GPU, 0 if they run natively, or -1 if `pe` is invalid.
int32_t rushmem_is_gpu(rushmem_pe *pe);

/// Returns the CUDA ordinal of the GPU that runs the kernels of this PE, or -1 if they run natively or `pe` is invalid.
int32_t rushmem_gpu(rushmem_pe *pe);

/*
 * Symmetric memory
 * ----------------
 */

/// Allocates `bytes` zeroed bytes in the symmetric heap of every PE, at a multiple of `align`. Collective.
///
/// All PEs pass the same sizes. `*ptr` becomes the address of this PE's copy: an address of GPU memory if kernels run
/// on a GPU. `align` is 0 for 128 bytes, or a power of two from 8 bytes to 2 MiB. For 0 bytes, `*ptr` becomes null.
int32_t rushmem_malloc(rushmem_pe *pe, size_t bytes, size_t align, void **ptr);

/// Allocates `count` zeroed elements of `bytes` bytes each, as `rushmem_malloc` does. Collective.
int32_t rushmem_calloc(rushmem_pe *pe, size_t count, size_t bytes, void **ptr);

/// Frees an allocation on every PE. Collective, except that a null `ptr` has no effect.
///
/// `ptr` is an address from `rushmem_malloc` or `rushmem_calloc`. Kernels and operations that use the memory must have
/// finished on all PEs.
int32_t rushmem_free(rushmem_pe *pe, void *ptr);

/// Sets `*address` to the address at which this PE loads and stores the copy of `ptr` on PE `peer`.
///
/// Null if the memory of `peer` is not mapped into this PE, and reached through a NIC. The address cannot be passed to
/// functions of this library. OpenSHMEM's `shmem_ptr`.
int32_t rushmem_ptr(rushmem_pe *pe, const void *ptr, int32_t peer, void **address);

/*
 * Memory of the caller
 * --------------------
 */

/// Registers the `bytes` bytes at `ptr` of every PE as symmetric memory. Collective.
///
/// All PEs pass the same size; addresses may differ. The memory is host memory or memory of the PE's GPU, aligned to 16
/// bytes. Nothing is copied. From then on, addresses in it are addresses of symmetric memory. The memory must stay
/// allocated until `rushmem_unregister_symmetric` or `rushmem_finalize` has returned.
int32_t rushmem_register_symmetric(rushmem_pe *pe, void *ptr, size_t bytes, rushmem_window **window);

/// Unregisters a window on every PE. Collective. No PE accesses the memory after the call.
///
/// Kernels and operations that use it must have finished on all PEs. If the call fails, the window remains valid.
int32_t rushmem_unregister_symmetric(rushmem_pe *pe, rushmem_window *window);

/// Registers the `bytes` bytes at `ptr` for the local side of transfers by this PE. Not collective.
///
/// Addresses in them can be the source of a put and the destination of a get. The memory must stay allocated until
/// `rushmem_unregister` or `rushmem_finalize` has returned.
int32_t rushmem_register(rushmem_pe *pe, void *ptr, size_t bytes);

/// Unregisters the local buffer that starts at `ptr`. Not collective.
///
/// Kernels and operations that use it must have finished. If the call fails, the buffer remains registered.
int32_t rushmem_unregister(rushmem_pe *pe, void *ptr);

/*
 * Puts, gets and signals
 * ----------------------
 * Each function has a form for the host, which returns when the operation has finished, and one for a stream, which
 * queues the operation. A put has finished when its source may be reused; `rushmem_quiet` completes it. Symmetric
 * memory is named by its address on this PE.
 */

/// Copies `nbytes` bytes from `src` on this PE to `dst` on PE `peer`.
///
/// `dst` is in symmetric memory, and `src` in symmetric memory or a local buffer.
int32_t rushmem_putmem(rushmem_pe *pe, void *dst, const void *src, size_t nbytes, int32_t peer);

/// Queues `rushmem_putmem` in a stream.
int32_t rushmem_putmem_on_stream(rushmem_pe *pe, void *dst, const void *src, size_t nbytes, int32_t peer, void *stream);

/// Copies `nbytes` bytes from `src` on PE `peer` to `dst` on this PE. The data has arrived when the call has finished.
///
/// `src` is in symmetric memory, and `dst` in symmetric memory or a local buffer.
int32_t rushmem_getmem(rushmem_pe *pe, void *dst, const void *src, size_t nbytes, int32_t peer);

/// Queues `rushmem_getmem` in a stream.
int32_t rushmem_getmem_on_stream(rushmem_pe *pe, void *dst, const void *src, size_t nbytes, int32_t peer, void *stream);

/// Copies data as `rushmem_putmem` does, and then updates `signal` on PE `peer`.
///
/// `op` is a `rushmem_signal`. Whoever sees the new value of the signal also sees the data.
int32_t rushmem_putmem_signal(rushmem_pe *pe,
                              void *dst,
                              const void *src,
                              size_t nbytes,
                              uint64_t *signal,
                              uint64_t value,
                              int32_t op,
                              int32_t peer);

/// Queues `rushmem_putmem_signal` in a stream.
int32_t rushmem_putmem_signal_on_stream(rushmem_pe *pe,
                                        void *dst,
                                        const void *src,
                                        size_t nbytes,
                                        uint64_t *signal,
                                        uint64_t value,
                                        int32_t op,
                                        int32_t peer,
                                        void *stream);

/// Updates `signal` on PE `peer`. `op` is a `rushmem_signal`.
///
/// Only `rushmem_quiet` in between orders the update after earlier puts.
int32_t rushmem_signal_op(rushmem_pe *pe, uint64_t *signal, uint64_t value, int32_t op, int32_t peer);

/// Queues `rushmem_signal_op` in a stream.
int32_t rushmem_signal_op_on_stream(rushmem_pe *pe,
                                    uint64_t *signal,
                                    uint64_t value,
                                    int32_t op,
                                    int32_t peer,
                                    void *stream);

/// Waits until `signal` on this PE compares with `value` as the `rushmem_cmp` `cmp` says.
///
/// Data delivered before the signal can then be read. Fails after the setting `timeout`.
int32_t rushmem_signal_wait_until(rushmem_pe *pe, uint64_t *signal, int32_t cmp, uint64_t value);

/// Queues `rushmem_signal_wait_until` in a stream. Later work in the stream waits.
int32_t rushmem_signal_wait_until_on_stream(rushmem_pe *pe,
                                            uint64_t *signal,
                                            int32_t cmp,
                                            uint64_t value,
                                            void *stream);

/*
 * Completion, barriers and streams
 * --------------------------------
 * Streams are `CUstream` handles. A null stream is one that the PE creates for the purpose. Natively, only a null
 * stream is valid. A stream must exist until `rushmem_finalize`. Operations that fail in a stream are reported by
 * `rushmem_stream_synchronize`, and until then later operations in the stream do nothing.
 */

/// Completes all earlier operations of the host, of streams, and of kernels that have finished: puts are visible.
int32_t rushmem_quiet(rushmem_pe *pe);

/// Queues `rushmem_quiet` in a stream.
int32_t rushmem_quiet_on_stream(rushmem_pe *pe, void *stream);

/// Completes operations as `rushmem_quiet` does, and waits until all PEs have made the call. Collective.
int32_t rushmem_barrier_all(rushmem_pe *pe);

/// Queues `rushmem_barrier_all` in a stream. Collective.
int32_t rushmem_barrier_all_on_stream(rushmem_pe *pe, void *stream);

/// Waits until all PEs have made the call, without completing operations. Collective.
int32_t rushmem_sync_all(rushmem_pe *pe);

/// Queues `rushmem_sync_all` in a stream. Collective.
int32_t rushmem_sync_all_on_stream(rushmem_pe *pe, void *stream);

/// Waits on the host until all PEs have made the call, which uses the launcher's network. Collective.
///
/// Puts that a PE has completed by `rushmem_quiet` are visible afterwards. With live membership, the call succeeds on all
/// living PEs or on none, so it shows whether a collective call of kernels before it has succeeded on all.
int32_t rushmem_host_sync(rushmem_pe *pe);

/// Waits until everything in a stream has finished, and returns the error of the first operation that failed.
int32_t rushmem_stream_synchronize(rushmem_pe *pe, void *stream);

/*
 * Teams
 * -----
 */

/// Creates a team of the members `start + k * stride` of `parent`, for `k` from 0 to `size - 1`, in that order.
/// Collective over `parent`.
///
/// On PEs outside the new team, `*team` becomes `RUSHMEM_TEAM_INVALID`. The stride may be negative.
int32_t rushmem_team_split_strided(rushmem_pe *pe,
                                   rushmem_team parent,
                                   int32_t start,
                                   int32_t stride,
                                   int32_t size,
                                   rushmem_team *new_team);

/// Destroys a team, which kernels must not use any more. Collective over its members.
///
/// `RUSHMEM_TEAM_INVALID` and the predefined teams are ignored.
int32_t rushmem_team_destroy(rushmem_pe *pe, rushmem_team old_team);

/// Returns this PE's number in a team, or -1 if an argument is invalid.
int32_t rushmem_team_my_pe(rushmem_pe *pe, rushmem_team in_team);

/// Returns the number of members of a team, or -1 if an argument is invalid.
int32_t rushmem_team_n_pes(rushmem_pe *pe, rushmem_team of_team);

/// Returns the number in team `to` of member `index` of team `from`.
///
/// Returns -1 if that PE is not in `to`, or if an argument is invalid. With `RUSHMEM_TEAM_WORLD`, the result is the
/// PE's number in the job.
int32_t rushmem_team_translate_pe(rushmem_pe *pe, rushmem_team from, int32_t index, rushmem_team to);

/*
 * Collective operations
 * ---------------------
 * All members of the team make the call with the same sizes. Sources and destinations are in symmetric memory, and do
 * not overlap except where they are equal. At most one such call of a team may be in progress on each PE, be it from
 * the host, a stream or a kernel.
 */

/// Completes operations as `rushmem_quiet` does, and waits until all members of the team have made the call.
int32_t rushmem_barrier(rushmem_pe *pe, rushmem_team of_team);

/// Queues `rushmem_barrier` in a stream.
int32_t rushmem_barrier_on_stream(rushmem_pe *pe, rushmem_team of_team, void *stream);

/// Copies `nbytes` bytes from `src` on member `root` to `dst` on every member, including the root.
int32_t rushmem_broadcastmem(rushmem_pe *pe,
                             rushmem_team of_team,
                             void *dst,
                             const void *src,
                             size_t nbytes,
                             int32_t root);

/// Queues `rushmem_broadcastmem` in a stream.
int32_t rushmem_broadcastmem_on_stream(rushmem_pe *pe,
                                       rushmem_team of_team,
                                       void *dst,
                                       const void *src,
                                       size_t nbytes,
                                       int32_t root,
                                       void *stream);

/// Concatenates the `nbytes` bytes at `src` of all members, in team order, at `dst` on every member.
int32_t rushmem_fcollectmem(rushmem_pe *pe, rushmem_team of_team, void *dst, const void *src, size_t nbytes);

/// Queues `rushmem_fcollectmem` in a stream.
int32_t rushmem_fcollectmem_on_stream(rushmem_pe *pe,
                                      rushmem_team of_team,
                                      void *dst,
                                      const void *src,
                                      size_t nbytes,
                                      void *stream);

/// Sends part `j` of `src` to member `j`, and stores the part received from member `i` as part `i` of `dst`.
///
/// Each part has `nbytes` bytes.
int32_t rushmem_alltoallmem(rushmem_pe *pe, rushmem_team of_team, void *dst, const void *src, size_t nbytes);

/// Queues `rushmem_alltoallmem` in a stream.
int32_t rushmem_alltoallmem_on_stream(rushmem_pe *pe,
                                      rushmem_team of_team,
                                      void *dst,
                                      const void *src,
                                      size_t nbytes,
                                      void *stream);

/// Combines the `n` elements at `src` of all members with `op`, index by index, and stores the results at `dst` on
/// every member.
///
/// `type` is a `rushmem_type`, and `op` a `rushmem_op`. Elements are aligned to their size.
int32_t rushmem_reduce(rushmem_pe *pe,
                       rushmem_team of_team,
                       void *dst,
                       const void *src,
                       size_t n,
                       int32_t type,
                       int32_t op);

/// Queues `rushmem_reduce` in a stream.
int32_t rushmem_reduce_on_stream(rushmem_pe *pe,
                                 rushmem_team of_team,
                                 void *dst,
                                 const void *src,
                                 size_t n,
                                 int32_t type,
                                 int32_t op,
                                 void *stream);

/// Combines elements as `rushmem_reduce` does, and stores part `i` of the result at `dst` on member `i`.
///
/// Each part has `n` elements, so `src` has `n` elements for each member.
int32_t rushmem_reduce_scatter(rushmem_pe *pe,
                               rushmem_team of_team,
                               void *dst,
                               const void *src,
                               size_t n,
                               int32_t type,
                               int32_t op);

/// Queues `rushmem_reduce_scatter` in a stream.
int32_t rushmem_reduce_scatter_on_stream(rushmem_pe *pe,
                                         rushmem_team of_team,
                                         void *dst,
                                         const void *src,
                                         size_t n,
                                         int32_t type,
                                         int32_t op,
                                         void *stream);

/*
 * Lost PEs
 * --------
 * Calls of jobs with live membership (the setting `membership`), which continue without lost PEs. docs/membership.md
 * describes what holds after a loss.
 */

/// Agrees with all other living PEs on who is alive, and creates a team of these PEs, in the order of their numbers.
/// Collective over the living PEs.
///
/// Without a loss since the last call, returns the team of that call, at first `RUSHMEM_TEAM_WORLD`. After a loss,
/// `rushmem_host_sync`, `rushmem_malloc` and the like fail with `RUSHMEM_STATUS_PEER_LOST` until this call; from then on,
/// they are calls of the living PEs. Teams with lost members stay unusable.
///
/// A reduction or another call of a team may succeed on some members and fail on others when one is lost. If
/// `rushmem_host_sync` succeeds after it, it has succeeded on all.
int32_t rushmem_shrink(rushmem_pe *pe,
                       rushmem_team *team);

/// Agrees with all other living PEs on who is alive, as `rushmem_shrink` does, and takes in the processes that wait to replace lost
/// PEs. Stores the team of the living PEs in `*team`. Collective over them.
///
/// Always communicates, and stores the same team as the last call if nothing has changed. A lost PE is replaced at the earliest
/// by the call after the one that leaves it out; until then, no kernel may communicate with the lost PE or wait for it.
int32_t rushmem_grow(rushmem_pe *pe,
                     rushmem_team *team);

/// Returns 1 if this process replaces a lost PE, 0 if not, or -1 if `pe` is invalid.
///
/// Its first allocations return the objects of the other PEs, in the order of their allocation, and its first `rushmem_grow` the
/// team of the call by which they have taken it in.
int32_t rushmem_is_replacement(rushmem_pe *pe);

/// Returns the epoch in which the current processes of this PE and of `peer` met: 1, unless one of them replaces a lost PE. Equal on
/// both. Returns 0 with fixed membership, and -1 if an argument is invalid.
int32_t rushmem_together_since(rushmem_pe *pe,
                               int32_t peer);

/// Returns 1 if PE `peer` was lost, 0 if not, or -1 if an argument is invalid. Always 0 with fixed membership.
int32_t rushmem_is_lost(rushmem_pe *pe, int32_t peer);

/// Returns the number of this PE's epoch: 1 at the start, or 2 with vacant PEs, and one more after each `rushmem_shrink` that
/// follows a loss and each `rushmem_grow`.
///
/// PEs with the same number have the same list of living PEs. Returns 0 with fixed membership, and -1 if `pe` is invalid.
int32_t rushmem_epoch(rushmem_pe *pe);

/*
 * Files and checkpoints
 * ---------------------
 */

/// Saves symmetric objects of all PEs in the folder `path`, in place of the checkpoint that is there. Collective.
///
/// All PEs pass the same path and objects, and must see the same folder. It is created if there is none. Whatever fails,
/// the folder has the old or the new checkpoint; when the call returns, the new one has reached the disk. No PE and no
/// kernel may change the objects until then.
int32_t rushmem_save(rushmem_pe *pe,
                     const char *path,
                     const rushmem_object *objects,
                     size_t count);

/// Restores symmetric objects of all PEs from the checkpoint in the folder `path`. Collective.
///
/// There must be as many PEs, without lost ones, as when it was saved, and each object must have the same name and size.
/// Objects of the checkpoint that are not named are left out. If the call fails, no object has changed, unless a PE was
/// lost meanwhile, or data that had been verified could not be loaded.
int32_t rushmem_restore(rushmem_pe *pe,
                        const char *path,
                        const rushmem_object *objects,
                        size_t count);

/// Fills this PE's copies of symmetric objects from part `part` of the checkpoint in the folder `path`, however many PEs
/// have saved it. Not collective.
///
/// For jobs that go on with other PEs than those that saved. Nobody may replace the checkpoint during the call. Errors
/// are those of `rushmem_restore`.
int32_t rushmem_restore_part(rushmem_pe *pe,
                             const char *path,
                             int32_t part,
                             const rushmem_object *objects,
                             size_t count);

/// Returns the number of parts of the checkpoint in the folder `path`, one for each PE that saved it, or -1 if there is
/// none or if it is damaged.
int32_t rushmem_checkpoint_parts(const char *path);

/// Copies `bytes` bytes of a file, from offset `at` on, to this PE's copy of symmetric memory or to a local buffer.
///
/// Not collective. Kernels launched afterwards see the bytes. If the file is too short, nothing changes.
int32_t rushmem_read_file(rushmem_pe *pe, const char *path, uint64_t at, void *dst, size_t bytes);

/// Copies `bytes` bytes of this PE's copy of symmetric memory, or of a local buffer, to a file, from offset `at` on.
///
/// Not collective. The file is created if there is none, and its other bytes stay. PEs may write to different places of
/// one file at the same time. A crash of the machine may still lose the bytes when the call has returned.
int32_t rushmem_write_file(rushmem_pe *pe, const char *path, uint64_t at, const void *src, size_t bytes);

/*
 * Kernels of other languages
 * --------------------------
 */

/// Sets `*context` to the value that kernels pass to the device functions of Rushmem.
///
/// It is the same for each call and valid until `rushmem_finalize`, so captured graphs may contain it. Kernels reach
/// all symmetric memory that existed when they were launched. On a GPU, the first call waits for running kernels.
int32_t rushmem_context(rushmem_pe *pe, uint64_t *context);

/// Returns the error that kernels have recorded since the last call, if any. Does not wait for anything.
///
/// Call it after waiting for kernels that use `rushmem_context`.
int32_t rushmem_check(rushmem_pe *pe);

#ifdef __cplusplus
}
#endif

#endif /* RUSHMEM_H */
