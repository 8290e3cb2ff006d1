//! Checks which missing order the races of some programs report, because the remedy for another one would not help.

use rushmem::sanitizer::MissingOrder;

type Check = fn(MissingOrder) -> bool;

/// Groups of programs, each with a check of the missing order that their races report.
const REMEDIES: &[(Check, &[&str])] = &[
    (
        |missing| matches!(missing, MissingOrder::Completion { .. }),
        &[
            "fence_orders_one_pe_only",
            "flag_in_another_context",
            "strong_signal_after_puts_of_another_context",
            "put_in_another_context_under_a_lock",
        ],
    ),
    (
        |missing| missing == MissingOrder::BlockSync,
        &[
            "put_of_a_ready_group",
            "put_of_stores_of_another_thread",
            "threads_put_one_word",
            "blocks_send_without_their_threads",
        ],
    ),
    (|missing| missing == MissingOrder::LaunchEnd, &["host_reads_before_stream_wait"]),
    (|missing| missing == MissingOrder::StreamEvent, &["quiet_of_another_stream", "kernels_of_two_streams"]),
    (|missing| missing == MissingOrder::GridSync, &["put_seen_by_another_block"]),
    (|missing| missing == MissingOrder::LostUpdate, &["word_put_beside_get"]),
    (
        |missing| missing == MissingOrder::Release,
        &["store_announced_by_atomic", "store_announced_by_p", "last_block_without_release"],
    ),
    (
        |missing| missing == MissingOrder::Acquire,
        &["last_block_without_acquire", "swap_takes_data_without_acquire"],
    ),
    (|missing| missing == MissingOrder::PartsOverlap, &["alltoallv_with_overlapping_parts"]),
    (|missing| missing == MissingOrder::WordOrder, &["last_word_as_flag"]),
];

/// Whether the order that a program's race reports as missing would actually help.
pub(crate) fn helps(program: &str, missing: MissingOrder) -> bool {
    REMEDIES.iter().all(|(is_right, programs)| !programs.contains(&program) || is_right(missing))
}
