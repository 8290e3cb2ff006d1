//! Encoding of the requests that the host posts to the service kernel. Each has eight 64-bit words.

use rushmem_mlx5::{AtomicOp, Width};

pub(crate) const WORDS: usize = 8;

/// Largest payload of a store, and largest result in the ring, in bytes.
pub const INLINE: usize = 32;

/// A request to the service kernel.
///
/// | word | content |
/// |---|---|
/// | 0 | operation in bits 0 to 7, option in bits 8 to 15, length in bits 16 to 63 |
/// | 1 | target address |
/// | 2 | source address of a copy, or result address of an atomic; 0 for none |
/// | 4 to 7 | bytes of a store, or operands of an atomic |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request(pub(crate) [u64; WORDS]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Copy,
    Store,
    Add,
    CompareSwap,
}

/// A decoded request, for a host that executes it itself.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A copy between two addresses; see [`Request::copy`].
    Copy {
        /// Target address.
        to: u64,
        /// Source address.
        from: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A store of bytes in the request; see [`Request::store`].
    Store {
        /// Target address.
        to: u64,
        /// Bytes to store, of which the first `len` count.
        bytes: [u8; INLINE],
        /// Length in bytes.
        len: usize,
    },
    /// An atomic operation on one word; see [`Request::atomic`].
    Atomic {
        /// Address of the word.
        at: u64,
        /// Width of the word.
        width: Width,
        /// Atomic operation, with its operands.
        op: AtomicOp,
        /// Address for the old value; 0 for none.
        result: u64,
    },
}

/// Marks an atomic as 4 bytes wide.
const NARROW: u64 = 1 << 8;

impl Request {
    /// Creates a copy of `len` bytes. Both addresses are the GPU's, in GPU memory or page-locked host memory.
    #[must_use]
    pub fn copy(to: u64, from: u64, len: u64) -> Self {
        Self([Kind::Copy as u64 | len << 16, to, from, 0, 0, 0, 0, 0])
    }

    /// Creates a store of `data`, or returns `None` if `data` is longer than [`INLINE`].
    #[must_use]
    pub fn store(to: u64, data: &[u8]) -> Option<Self> {
        let mut bytes = [0; INLINE];
        bytes.get_mut(..data.len())?.copy_from_slice(data);
        let (words, _) = bytes.as_chunks::<8>();
        let mut request = Self([Kind::Store as u64 | (data.len() as u64) << 16, to, 0, 0, 0, 0, 0, 0]);
        for (to, word) in request.0.iter_mut().skip(4).zip(words) {
            *to = u64::from_le_bytes(*word);
        }
        Some(request)
    }

    /// Creates an atomic on the aligned word at `at`. The old value is written to `result`, unless that is 0: 8 bytes
    /// in little-endian order, or 4 bytes in big-endian order, as a ConnectX returns them.
    #[must_use]
    pub fn atomic(at: u64, width: Width, op: AtomicOp, result: u64) -> Self {
        let option = if width == Width::Four { NARROW } else { 0 };
        match op {
            AtomicOp::Add { add, boundary } => {
                Self([Kind::Add as u64 | option, at, result, 0, add, boundary, 0, 0])
            }
            AtomicOp::CompareSwap { compare, swap, compare_mask, swap_mask } => {
                let first = Kind::CompareSwap as u64 | option;
                Self([first, at, result, 0, compare, swap, compare_mask, swap_mask])
            }
        }
    }

    /// Decodes the request.
    #[cfg(not(target_arch = "nvptx64"))]
    #[must_use]
    pub fn operation(&self) -> Operation {
        let (to, other) = (self.target(), self.other());
        match self.kind() {
            Kind::Copy => Operation::Copy { to, from: other, len: self.len() },
            Kind::Store => {
                let mut bytes = [0; INLINE];
                for (to, word) in bytes.chunks_exact_mut(8).zip(self.words()) {
                    to.copy_from_slice(&word.to_le_bytes());
                }
                Operation::Store { to, bytes, len: self.len() as usize }
            }
            Kind::Add | Kind::CompareSwap => {
                Operation::Atomic { at: to, width: self.width(), op: self.op(), result: other }
            }
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.0[0] & 0xff {
            0 => Kind::Copy,
            1 => Kind::Store,
            2 => Kind::Add,
            _ => Kind::CompareSwap,
        }
    }

    /// Length of a copy or a store, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.0[0] >> 16
    }

    pub(crate) fn target(&self) -> u64 {
        self.0[1]
    }

    /// Source of a copy, or result address of an atomic.
    pub(crate) fn other(&self) -> u64 {
        self.0[2]
    }

    pub(crate) fn width(&self) -> Width {
        if self.0[0] & NARROW == 0 { Width::Eight } else { Width::Four }
    }

    /// Payload of a store, or operands of an atomic.
    pub(crate) fn words(&self) -> [u64; INLINE / 8] {
        [self.0[4], self.0[5], self.0[6], self.0[7]]
    }

    pub(crate) fn op(&self) -> AtomicOp {
        let [a, b, c, d] = self.words();
        match self.kind() {
            Kind::CompareSwap => AtomicOp::CompareSwap { compare: a, swap: b, compare_mask: c, swap_mask: d },
            _ => AtomicOp::Add { add: a, boundary: b },
        }
    }
}
