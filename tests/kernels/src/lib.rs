//! The kernels of the test suites: each calls a part of the API, and leaves what it saw in symmetric memory.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![forbid(unsafe_code)]

mod atomics;
mod collectives;
mod context;
mod direct;
mod errors;
mod job;
mod names;
mod order;
mod program;
mod rma;
mod signals;
mod streams;
mod teams;
mod units;
mod views;

pub use atomics::{ATOMICS, atomics_i32, atomics_i64, atomics_u32, atomics_u64, atomics_usize, contend};
pub use collectives::{
    Disagreement, STEP_WORDS, Step, collective_names, collectives, disagree, half_barriers, reduce_floats,
    scattered, team_twice,
};
pub use context::{exclusive_turns, private_puts};
pub use direct::{add_everywhere, atomic_then_flag, store_everywhere, store_marks};
pub use errors::{Misuse, misuse, report_puts, send_to_all, stray_barrier, stray_block, wait_for_ever};
pub use job::{FACTS, count_up, end_the_job, put_and_leave, who_am_i};
pub use names::{NAMES, names};
pub use order::{barriers, fence_then_flag, grid_barriers};
pub use program::{Code, OP_WORDS, interpret};
pub use rma::{Call, move_pieces, no_elements, scalars, small_puts};
pub use signals::{await_all, compare_all, ping_pong};
pub use streams::{
    add_often, await_round, chain, expect, fill, meet, meet_with_all_blocks, next_round, put_cells,
    put_nowhere,
};
pub use teams::team_numbers;
pub use units::{Together, With};
pub use views::{reverse, swap_neighbours};
