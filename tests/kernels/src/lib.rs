//! The kernels of the test suites. Each exercises one part of the API and stores its results in symmetric memory.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![forbid(unsafe_code)]

mod arguments;
mod atomics;
mod collectives;
mod context;
mod cuts;
mod endless;
mod errors;
mod generic;
mod job;
mod locks;
mod losses;
mod memory;
mod names;
mod order;
mod p2p;
mod posting;
mod print;
mod program;
mod rma;
pub mod sanitizer;
mod signals;
mod streams;
mod strided;
mod strong;
mod teams;
mod units;
mod views;
mod waits;

pub use arguments::{Cells, Fill, fill_structured};
pub use atomics::{
    ATOMICS, atomics_i32, atomics_i64, atomics_u32, atomics_u64, atomics_usize, contend, float_atomics,
    many_tickets, masked, starting_u32, starting_u64,
};
pub use collectives::{
    Disagreement, STEP_WORDS, Step, collective_names, collectives, disagree, grid_collectives, grid_fails,
    half_barriers, many_sums, reduce_floats, scattered, team_twice, words_with_flags,
};
pub use context::{
    exchange_by, exclusive_turns, hold_context, hold_per_block, private_puts, take_context_twice,
    three_contexts, undeclared_per_block,
};
pub use cuts::{CUT_WORDS, FIXED, FIXED_VALUE, LONGEST, LOST, PAIRS, Queues, TICKETS, WRONG, cross_cuts};
pub use endless::{EndlessLoop, endless, recurse};
pub use errors::{
    Misuse, fail_in_one_thread, fill_slots, misuse, report_puts, send_to_all, stray_barrier, stray_block,
    wait_for_ever,
};
pub use generic::{PutScaledInstance, convert, put_scaled};
pub use job::{
    FACTS, count_up, end_the_job, few_threads, put_and_leave, report_job, store_coordinates, store_extents,
};
pub use locks::{locked_sum, sign_in};
pub use losses::{AFTER_LOSS, after_loss};
pub use memory::{fill, gather, put_beyond, reach, reach_from_own};
pub use names::{MORE_NAMES, NAMES, more_names, names};
pub use order::{barriers, fence_then_flag, grid_barriers, hand_over};
pub use p2p::{
    add_everywhere, atomic_then_flag, store_everywhere, store_marks, store_to_members, update_node,
};
pub use posting::{Free, batched, held_back, part_ways, queue_handles, reuse_sources};
pub use print::{print_and_wait, print_numbers, print_values};
pub use program::{OP_WORDS, Operation, interpret};
pub use rma::{Transfer, move_pieces, no_elements, ready_pieces, scalars, small_puts};
pub use signals::{await_all, compare_all, ping_pong};
pub use streams::{
    add_often, await_round, chain, expect, fill_with, look_up, meet, meet_with_all_blocks, next_round,
    put_cells, put_nowhere, wait_in_all_blocks,
};
pub use strided::{StridedCall, move_strided, thread_strides};
pub use strong::{Announcement, announce_all, shadows};
pub use teams::team_numbers;
pub use units::{GroupKind, QueueSharing};
pub use views::{reverse, swap_neighbours};
pub use waits::{
    VainTest, WaitKind, any_in_turn, collect, flicker, take_lock, test_in_vain, test_sets, wait_in_vain,
    wrap_around,
};
