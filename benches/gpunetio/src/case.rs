//! The operations to compare with GPUNetIO, and their expected effects on the initiator's and the target's heap.

use std::fmt;

use crate::bed::{HEAD, HEAP_BYTES};

/// Offset of the data in the initiator's heap. Thread `i` uses `LADDR + i * stride`.
pub const LADDR: u64 = HEAD + 0x10;
/// Offset of the data in the target's heap.
pub const RADDR: u64 = 0x8120;
/// Offset of the signal word in the target's heap.
pub const SIGNAL: u64 = 0x7008;
/// The value that inline puts store and that signals add.
pub const VALUE: u64 = 0x0123_4567_89ab_cdef;
/// Initial value of the signal word. It is a palindrome in bytes, because NICs may return the old value in either byte
/// order.
const SIGNAL_BEFORE: u64 = 0x0101_0101_0101_0101;

/// The operation that every thread of a [`Case`] performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Puts bytes to the target.
    Put,
    /// Puts bytes to the target, with NVIDIA's warp-scope call.
    PutWarp,
    /// Puts the low 1, 2, 4 or 8 bytes of [`VALUE`], inline in the WQE.
    PutValue,
    /// Adds [`VALUE`] to the target's signal word.
    Signal,
    /// Puts bytes to the target, then adds [`VALUE`] to its signal word.
    PutSignal,
    /// Puts [`VALUE`] inline, then adds it to the target's signal word.
    PutValueSignal,
    /// Gets bytes from the target.
    Get,
    /// Gets bytes from the target. NVIDIA's call posts a DUMP WQE after the READ.
    GetDump,
    /// Gets bytes from the target, with NVIDIA's warp-scope call.
    GetWarp,
}

/// An operation and its size, to be posted by NVIDIA's device code and by ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The operation that every thread performs.
    pub op: Op,
    /// Number of bytes that each thread transfers.
    pub bytes: u64,
}

/// All operations and sizes that are compared.
pub const CASES: &[Case] = &[
    Case { op: Op::Put, bytes: 0 },
    Case { op: Op::Put, bytes: 1 },
    Case { op: Op::Put, bytes: 300 },
    Case { op: Op::Put, bytes: 16 << 10 },
    Case { op: Op::PutWarp, bytes: 64 },
    Case { op: Op::PutValue, bytes: 1 },
    Case { op: Op::PutValue, bytes: 2 },
    Case { op: Op::PutValue, bytes: 4 },
    Case { op: Op::PutValue, bytes: 8 },
    Case { op: Op::Signal, bytes: 8 },
    Case { op: Op::PutSignal, bytes: 300 },
    Case { op: Op::PutValueSignal, bytes: 8 },
    Case { op: Op::Get, bytes: 1 },
    Case { op: Op::Get, bytes: 300 },
    Case { op: Op::Get, bytes: 16 << 10 },
    Case { op: Op::GetDump, bytes: 300 },
    Case { op: Op::GetWarp, bytes: 64 },
];

impl Case {
    /// Number of threads that perform the operation concurrently.
    pub fn threads(&self) -> u32 {
        if matches!(self.op, Op::PutWarp | Op::GetWarp) { 32 } else { 1 }
    }

    /// Distance between the data of consecutive threads in either heap, in bytes.
    pub fn stride(&self) -> u64 {
        self.bytes
    }

    /// Number of WQEs that our device code posts.
    pub fn our_wqes(&self) -> usize {
        match self.op {
            Op::Put if self.bytes == 0 => 0,
            Op::PutSignal | Op::PutValueSignal => 2,
            _ => self.threads() as usize,
        }
    }

    /// Number of WQEs that NVIDIA's device code posts for the operation.
    pub fn their_wqes(&self) -> usize {
        match self.op {
            Op::Put if self.bytes == 0 => 1,
            Op::GetDump => 2,
            _ => self.our_wqes(),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes;
        match self.op {
            Op::Put => write!(f, "put {bytes} B"),
            Op::PutWarp => write!(f, "put {bytes} B by each lane of a warp"),
            Op::PutValue => write!(f, "put {bytes} B inline"),
            Op::Signal => write!(f, "signal (add)"),
            Op::PutSignal => write!(f, "put {bytes} B and signal"),
            Op::PutValueSignal => write!(f, "put {bytes} B inline and signal"),
            Op::Get => write!(f, "get {bytes} B"),
            Op::GetDump => write!(f, "get {bytes} B with DUMP"),
            Op::GetWarp => write!(f, "get {bytes} B by each lane of a warp"),
        }
    }
}

/// The contents of the initiator's and the target's heap.
#[derive(Clone, PartialEq, Eq)]
pub struct Images {
    /// Contents of the initiator's heap.
    pub initiator: Vec<u8>,
    /// Contents of the target's heap.
    pub target: Vec<u8>,
}

impl Images {
    /// Returns the heaps' contents before an operation: pseudo-random bytes.
    pub fn before() -> Self {
        let mut this = Self { initiator: pattern(1), target: pattern(2) };
        word(&mut this.initiator, 0).fill(0);
        word(&mut this.target, SIGNAL).copy_from_slice(&SIGNAL_BEFORE.to_le_bytes());
        this
    }

    /// Returns the heaps' expected contents after the operation of `case`.
    pub fn after(case: &Case) -> Self {
        let mut this = Self::before();
        for thread in 0..u64::from(case.threads()) {
            this.apply(case, thread);
        }
        this
    }

    fn apply(&mut self, case: &Case, thread: u64) {
        let range = |base: u64| {
            let start = (base + thread * case.stride()) as usize;
            start..start + case.bytes as usize
        };
        let (here, there) = (range(LADDR), range(RADDR));
        let value = &VALUE.to_le_bytes()[..case.bytes.min(8) as usize];
        match case.op {
            Op::Put | Op::PutWarp => self.target[there].copy_from_slice(&self.initiator[here]),
            Op::PutValue => self.target[there].copy_from_slice(value),
            Op::Signal => self.add(),
            Op::PutSignal => {
                self.target[there].copy_from_slice(&self.initiator[here]);
                self.add();
            }
            Op::PutValueSignal => {
                self.target[there].copy_from_slice(value);
                self.add();
            }
            Op::Get | Op::GetDump | Op::GetWarp => self.initiator[here].copy_from_slice(&self.target[there]),
        }
    }

    fn add(&mut self) {
        let old = SIGNAL_BEFORE;
        word(&mut self.target, SIGNAL).copy_from_slice(&old.wrapping_add(VALUE).to_le_bytes());
        word(&mut self.initiator, rushmem_device::abi::reserved::SINK).copy_from_slice(&old.to_le_bytes());
    }
}

fn word(image: &mut [u8], at: u64) -> &mut [u8] {
    &mut image[at as usize..at as usize + 8]
}

fn pattern(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..HEAP_BYTES).map(next).collect()
}
