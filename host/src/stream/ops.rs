//! Operations on a stream. Each is named after the call of the device API that it makes.

use bytemuck::Pod;
use rushmem_device::amo::{Addend, Amo, AmoWord};
use rushmem_device::{Cmp, Scalar, Signal, SignalOp, Strided, Sym, SymSlice};
use rushmem_runtime_kernels::code::{Atomic, Order, Set, Transfer};

use super::Stream;
use crate::work::Announcement;
use crate::{Result, Words};

/// All of these queue an operation and return at once.
///
/// # Errors
/// [`Error::Misuse`](crate::Error::Misuse) for what is wrong with the arguments: no such PE, an object that is not
/// allocated, lengths that differ; what keeps the machine from queueing. All else is for [`Stream::wait`].
impl Stream<'_> {
    /// Copies `src` of this PE to `dst` of `pe`; what follows on the stream may change `src`. Delivery is not implied:
    /// [`Stream::quiet`] does that. NVSHMEM's `nvshmemx_put_on_stream`.
    ///
    /// # Errors
    /// As all of these.
    pub fn put<T: Pod>(&self, dst: SymSlice<T>, src: SymSlice<T>, pe: u32) -> Result<()> {
        self.enqueue(self.pe().op_transfer("put on a stream", Transfer::Put, dst, src, pe)?)
    }

    /// Starts to copy `src` of this PE to `dst` of `pe`. `src` must not change before [`Stream::quiet`]. NVSHMEM's
    /// `nvshmemx_put_nbi_on_stream`.
    ///
    /// # Errors
    /// As all of these.
    pub fn put_nbi<T: Pod>(&self, dst: SymSlice<T>, src: SymSlice<T>, pe: u32) -> Result<()> {
        self.enqueue(self.pe().op_transfer("put_nbi on a stream", Transfer::PutNbi, dst, src, pe)?)
    }

    /// Copies `src` of `pe` to `dst` of this PE; what follows on the stream reads it. NVSHMEM's
    /// `nvshmemx_get_on_stream`.
    ///
    /// # Errors
    /// As all of these.
    pub fn get<T: Pod>(&self, dst: SymSlice<T>, src: SymSlice<T>, pe: u32) -> Result<()> {
        self.enqueue(self.pe().op_transfer("get on a stream", Transfer::Get, src, dst, pe)?)
    }

    /// Starts to copy `src` of `pe` to `dst` of this PE; [`Stream::quiet`] completes it. NVSHMEM's
    /// `nvshmemx_get_nbi_on_stream`.
    ///
    /// # Errors
    /// As all of these.
    pub fn get_nbi<T: Pod>(&self, dst: SymSlice<T>, src: SymSlice<T>, pe: u32) -> Result<()> {
        self.enqueue(self.pe().op_transfer("get_nbi on a stream", Transfer::GetNbi, src, dst, pe)?)
    }

    /// Copies the blocks of `src` of this PE to those of `dst` of `pe`; otherwise as [`Stream::put`]. NVSHMEM's
    /// `nvshmemx_iput_on_stream`; with blocks of several elements OpenSHMEM's `shmem_ibput`.
    ///
    /// # Errors
    /// As all of these.
    pub fn iput<T: Pod>(&self, dst: Strided<T>, src: Strided<T>, pe: u32) -> Result<()> {
        self.enqueue(self.pe().op_strided("iput on a stream", Transfer::Put, dst, src, pe)?)
    }

    /// Copies the blocks of `src` of `pe` to those of `dst` of this PE; otherwise as [`Stream::get`]. NVSHMEM's
    /// `nvshmemx_iget_on_stream`; with blocks of several elements OpenSHMEM's `shmem_ibget`.
    ///
    /// # Errors
    /// As all of these.
    pub fn iget<T: Pod>(&self, dst: Strided<T>, src: Strided<T>, pe: u32) -> Result<()> {
        self.enqueue(self.pe().op_strided("iget on a stream", Transfer::Get, src, dst, pe)?)
    }

    /// Writes one value, which is taken now, to `dst` of `pe`. NVSHMEM's `nvshmemx_p_on_stream`.
    ///
    /// # Errors
    /// As all of these.
    pub fn p<T: Scalar>(&self, dst: Sym<T>, value: T, pe: u32) -> Result<()> {
        self.enqueue(self.pe().op_p("p on a stream", dst, value, pe)?)
    }

    /// Reads `src` of `pe` into `into` of this PE: what follows on the stream finds it there, and the host after
    /// [`Stream::wait`]. NVSHMEM's `nvshmemx_g_on_stream`.
    ///
    /// # Errors
    /// As all of these.
    pub fn g<T: Scalar>(&self, into: Sym<T>, src: Sym<T>, pe: u32) -> Result<()> {
        let (src, into) = (src.as_slice(), into.as_slice());
        self.enqueue(self.pe().op_transfer("g on a stream", Transfer::Get, src, into, pe)?)
    }

    /// Copies `src` to `dst` of `pe`, and then changes `signal` there: whoever sees the signal's new value sees the data.
    /// What follows on the stream may change `src`. NVSHMEM's `nvshmemx_put_signal_on_stream`.
    ///
    /// # Errors
    /// As all of these.
    pub fn put_signal<T: Pod>(
        &self,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        signal: Sym<Signal>,
        op: SignalOp,
        value: u64,
        pe: u32,
    ) -> Result<()> {
        let announcement = Announcement { signal, op, value };
        self.enqueue(self.pe().op_put_signal("put_signal on a stream", false, dst, src, announcement, pe)?)
    }

    /// As [`Stream::put_signal`], but `src` must not change before [`Stream::quiet`]. NVSHMEM's
    /// `nvshmemx_put_signal_nbi_on_stream`.
    ///
    /// # Errors
    /// As all of these.
    pub fn put_signal_nbi<T: Pod>(
        &self,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        signal: Sym<Signal>,
        op: SignalOp,
        value: u64,
        pe: u32,
    ) -> Result<()> {
        let announcement = Announcement { signal, op, value };
        self.enqueue(self.pe().op_put_signal(
            "put_signal_nbi on a stream",
            true,
            dst,
            src,
            announcement,
            pe,
        )?)
    }

    /// Changes a signal word of `pe`. It says nothing about earlier puts, unless [`Stream::fence`] or
    /// [`Stream::quiet`] lies between. NVSHMEM's `nvshmemx_signal_op_on_stream`.
    ///
    /// # Errors
    /// As all of these.
    pub fn signal_op(&self, signal: Sym<Signal>, op: SignalOp, value: u64, pe: u32) -> Result<()> {
        let what = if op == SignalOp::Set { Atomic::Set } else { Atomic::Add };
        self.enqueue(self.pe().op_atomic("signal_op on a stream", what, signal, value, 0, None, pe)?)
    }

    /// Lets what follows on the stream begin once this PE's signal word compares so with `value`; then it sees what the
    /// signal announced. Other streams go on. NVSHMEM's `nvshmemx_signal_wait_until_on_stream`.
    ///
    /// # Errors
    /// As all of these; [`Stream::wait`] tells if the deadline passes.
    pub fn signal_wait_until(&self, signal: Sym<Signal>, cmp: Cmp, value: u64) -> Result<()> {
        let name = "signal_wait_until on a stream";
        self.enqueue(self.pe().op_wait(name, signal, cmp, value, None)?)
    }

    /// Lets what follows on the stream begin once a word of this PE compares so with `value`. NVSHMEM's
    /// `nvshmemx_wait_until_on_stream`.
    ///
    /// # Errors
    /// As [`Stream::signal_wait_until`].
    pub fn wait_until<T: Amo + PartialOrd>(&self, word: Sym<T>, cmp: Cmp, value: T) -> Result<()> {
        let name = "wait_until on a stream";
        self.enqueue(self.pe().op_wait(name, word, cmp, value, None)?)
    }

    /// Lets what follows on the stream begin once all words have been as wanted, each at some time; none at all is legal.
    /// NVSHMEM's `nvshmemx_wait_until_all_on_stream`, `nvshmemx_wait_until_all_vector_on_stream`.
    ///
    /// # Errors
    /// As [`Stream::signal_wait_until`].
    pub fn wait_until_all<T: Amo + PartialOrd>(&self, words: &Words<T>) -> Result<()> {
        let name = "wait_until_all on a stream";
        // SAFETY: no words at all.
        let none = unsafe { SymSlice::from_raw(0, 0) };
        self.enqueue(self.pe().op_words(name, Set::WaitAll, words, none)?)
    }

    /// Orders: what this PE issued before to each PE is delivered before what it issues to it afterwards.
    /// [`Ctx::fence`](rushmem_device::Ctx::fence) of the PE's default context.
    ///
    /// # Errors
    /// As all of these.
    pub fn fence(&self) -> Result<()> {
        self.enqueue(self.pe().op_order("fence on a stream", Order::Fence))
    }

    /// Completes: everything that this PE has issued on its default context before, by this stream's operations and
    /// kernels, those of others and the host, is delivered, and gets are here. NVSHMEM's `nvshmemx_quiet_on_stream`.
    ///
    /// # Errors
    /// As all of these.
    pub fn quiet(&self) -> Result<()> {
        self.enqueue(self.pe().op_order("quiet on a stream", Order::Quiet))
    }

    /// [`Stream::quiet`], and then waits until all PEs have come to it: a collective of all PEs, matched with those that
    /// kernels and hosts of the others call. One of them runs on a PE at a time: order two streams that both have some.
    /// NVSHMEM's `nvshmemx_barrier_all_on_stream`.
    ///
    /// # Errors
    /// As all of these.
    pub fn barrier_all(&self) -> Result<()> {
        self.enqueue(self.pe().op_order("barrier_all on a stream", Order::BarrierAll))
    }

    /// Waits until all PEs have come to it, and completes nothing; otherwise as [`Stream::barrier_all`]. NVSHMEM's
    /// `nvshmemx_sync_all_on_stream`.
    ///
    /// # Errors
    /// As all of these.
    pub fn sync_all(&self) -> Result<()> {
        self.enqueue(self.pe().op_order("sync_all on a stream", Order::SyncAll))
    }

    /// Writes `value` to a word of `pe` if it holds `compare`; the value found goes to `old` of this PE.
    /// `shmem_atomic_compare_swap`.
    ///
    /// # Errors
    /// As all of these.
    pub fn atomic_compare_swap<T: Amo>(
        &self,
        word: Sym<T>,
        compare: T,
        value: T,
        old: Sym<T>,
        pe: u32,
    ) -> Result<()> {
        let name = "atomic_compare_swap on a stream";
        self.enqueue(self.pe().op_atomic(name, Atomic::CompareSwap, word, value, compare, Some(old), pe)?)
    }

    /// Reads a word of `pe` atomically into `old` of this PE. `shmem_atomic_fetch`.
    ///
    /// # Errors
    /// As all of these.
    pub fn atomic_fetch<T: AmoWord>(&self, word: Sym<T>, old: Sym<T>, pe: u32) -> Result<()> {
        self.enqueue(self.pe().op_fetch("atomic_fetch on a stream", word, old, pe)?)
    }
}

macro_rules! atomics {
    ($($of:ident $what:ident $post:ident $fetch:ident $does:literal;)*) => {
        /// Atomics on a word of a PE. Those with `old` store the value found to this PE's `old`: what follows on the
        /// stream finds it there, and the host after [`Stream::wait`].
        impl Stream<'_> {$(
            #[doc = concat!($does, " `shmem_", stringify!($post), "`.")]
            ///
            /// # Errors
            /// As all operations of a stream.
            pub fn $post<T: $of>(&self, word: Sym<T>, value: T, pe: u32) -> Result<()> {
                const NAME: &str = concat!(stringify!($post), " on a stream");
                self.enqueue(self.pe().op_atomic(NAME, Atomic::$what, word, value, T::zeroed(), None, pe)?)
            }

            #[doc = concat!($does, " The value found goes to `old`. `shmem_", stringify!($fetch), "`.")]
            ///
            /// # Errors
            /// As all operations of a stream.
            pub fn $fetch<T: $of>(&self, word: Sym<T>, value: T, old: Sym<T>, pe: u32) -> Result<()> {
                const NAME: &str = concat!(stringify!($fetch), " on a stream");
                self.enqueue(self.pe().op_atomic(NAME, Atomic::$what, word, value, T::zeroed(), Some(old), pe)?)
            }
        )*}
    };
}
atomics! {
    AmoWord Set atomic_set atomic_swap "Sets the word.";
    Addend Add atomic_add atomic_fetch_add "Adds to the word, wrapping or rounding.";
    Amo And atomic_and atomic_fetch_and "Bitwise and.";
    Amo Or atomic_or atomic_fetch_or "Bitwise or.";
    Amo Xor atomic_xor atomic_fetch_xor "Bitwise exclusive or.";
}
