//! All litmus tests, grouped like the sections of the memory model.

mod atomics;
mod completion;
mod edges;
mod order;
mod publication;
mod signals;
mod together;
mod visibility;
mod wrong;

pub use wrong::{acknowledged_only, weak_memory, wrong};

use crate::program::{Op, Test, fill, p, put, put_nbi};

/// Returns the litmus tests of all groups.
pub fn all() -> Vec<Test> {
    let sections = [
        order::all,
        completion::all,
        signals::all,
        visibility::all,
        atomics::all,
        together::all,
        edges::all,
        publication::all,
    ];
    sections.into_iter().flat_map(|section| section()).collect()
}

/// A put call, with the number of words it transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    P,
    Put(u64),
    Nbi(u64),
}

impl Form {
    const ALL: [Self; 3] = [Self::P, Self::Put(32), Self::Nbi(5)];

    fn words(self) -> u64 {
        match self {
            Self::P => 1,
            Self::Put(n) | Self::Nbi(n) => n,
        }
    }

    /// Returns operations that write `value` to `to` on a role's PE by this call, using `from` as the source.
    fn write(self, to: u64, from: u64, value: u64, role: u32) -> Vec<Op> {
        match self {
            Self::P => vec![p(to, value).at(role)],
            Self::Put(n) => vec![fill(from, n, value), put(to, from, n).at(role)],
            Self::Nbi(n) => vec![fill(from, n, value), put_nbi(to, from, n).at(role)],
        }
    }

    fn name(self) -> String {
        match self {
            Self::P => "p".into(),
            Self::Put(n) => format!("put of {n}"),
            Self::Nbi(n) => format!("put_nbi of {n}"),
        }
    }
}

fn ops<const N: usize>(parts: [Vec<Op>; N]) -> Vec<Op> {
    parts.into_iter().flatten().collect()
}
