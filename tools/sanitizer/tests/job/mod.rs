//! A simulated job of three PEs for tests of the engine.

use std::panic::Location;

use rushmem_sanitizer::{
    Acquire, Actor, ActorId, Buffers, Call, Context, Engine, Kind, MeetingId, MissingOrder, Post, Scope, Span,
};

pub(crate) const JOB: MeetingId = MeetingId(0);
pub(crate) const GRID: MeetingId = MeetingId(1);

/// Returns a call of `name` at the line of the caller.
#[track_caller]
pub(crate) fn call(name: &'static str) -> Call {
    Call { name, site: Location::caller().into() }
}

/// Returns a 64-byte destination array at `pe`.
pub(crate) fn array(pe: u32) -> Span {
    Span::heap(pe, 0x100, 64)
}

/// Returns a 64-byte source array at `pe`.
pub(crate) fn source(pe: u32) -> Span {
    Span::heap(pe, 0x200, 64)
}

/// Returns the 8-byte flag word at `pe`.
pub(crate) fn flag(pe: u32) -> Span {
    Span::heap(pe, 0x300, 8)
}

/// A job of three PEs, each of which runs a kernel of two blocks with one thread.
pub(crate) struct Job {
    pub(crate) engine: Engine,
    pub(crate) hosts: Vec<ActorId>,
    /// Actor ID of thread 0 in block 0 of each PE.
    pub(crate) threads: Vec<ActorId>,
    /// Actor ID of thread 0 in block 1 of each PE.
    pub(crate) others: Vec<ActorId>,
}

impl Job {
    pub(crate) fn new() -> Self {
        let mut engine = Engine::new();
        engine.define_meeting(JOB, vec![0, 1, 2]);
        let hosts: Vec<_> = (0..3).map(|pe| engine.start(Actor::Host { pe, thread: 0 })).collect();
        let mut fork = |pe: u32, block| {
            engine.fork(hosts[pe as usize], Actor::Thread { pe, launch: 0, block, thread: 0 })
        };
        let threads = (0..3).map(|pe| fork(pe, 0)).collect();
        let others = (0..3).map(|pe| fork(pe, 1)).collect();
        Self { engine, hosts, threads, others }
    }

    pub(crate) fn context(pe: usize) -> Context {
        Context::Queues { pe: pe as u32, context: 0 }
    }

    /// Posts a put from the source of thread `pe`.
    #[track_caller]
    pub(crate) fn put(&mut self, pe: usize, to: Span) -> ActorId {
        let put = Post::put(Self::context(pe), Some(source(pe as u32)), to, call("put_nbi"));
        self.engine.post(self.threads[pe], put)
    }

    #[track_caller]
    pub(crate) fn put_signal(&mut self, pe: usize, to: Span, signal: Span) {
        let put = Post::put(Self::context(pe), Some(source(pe as u32)), to, call("put_signal_nbi"));
        let id = self.engine.post(self.threads[pe], put.with_signal(signal, Kind::Set));
        self.engine.deliver(id);
    }

    /// Puts a single value to `to`, and delivers it immediately.
    #[track_caller]
    pub(crate) fn p(&mut self, pe: usize, to: Span) {
        let put = Post::put(Self::context(pe), None, to, call("p"));
        let id = self.engine.post(self.threads[pe], put);
        self.engine.deliver(id);
    }

    #[track_caller]
    pub(crate) fn load(&mut self, pe: usize, span: Span) {
        self.engine.load(self.threads[pe], span, call("load"));
    }

    #[track_caller]
    pub(crate) fn store(&mut self, pe: usize, span: Span) {
        self.engine.store(self.threads[pe], span, call("store"));
    }

    #[track_caller]
    pub(crate) fn wait(&mut self, pe: usize, word: Span) {
        self.engine.observe(self.threads[pe], (word, None), Acquire::Now, call("wait_until"));
    }

    #[track_caller]
    pub(crate) fn fence(&mut self, pe: usize) {
        self.engine.fence(self.threads[pe], Self::context(pe), None, call("fence"));
        self.fence_system(pe);
    }

    pub(crate) fn quiet(&mut self, pe: usize) {
        self.engine.quiet(self.threads[pe], Self::context(pe), None);
        self.fence_system(pe);
    }

    pub(crate) fn fence_system(&mut self, pe: usize) {
        self.engine.fence_release(self.threads[pe], Scope::System);
        self.engine.fence_acquire(self.threads[pe], Scope::System);
    }

    pub(crate) fn flush(&mut self, pe: usize) {
        self.engine.flush(self.threads[pe], Self::context(pe), None);
    }

    #[track_caller]
    pub(crate) fn collective(&mut self, buffers: impl Fn(u32) -> Buffers) {
        let call = call("collective");
        for pe in 0..3 {
            self.engine.arrive(self.threads[pe as usize], JOB, pe);
        }
        for pe in 0..3 {
            self.engine.leave(self.threads[pe as usize], JOB, pe, &buffers(pe), call);
        }
    }

    pub(crate) fn sync_all(&mut self) {
        self.collective(|_| Buffers::default());
    }

    pub(crate) fn barrier_all(&mut self) {
        (0..3).for_each(|pe| self.quiet(pe));
        self.sync_all();
    }

    /// Checks that the reported races lack exactly these kinds of synchronization.
    #[track_caller]
    pub(crate) fn lacks(mut self, wanted: &[MissingOrder]) {
        let races = self.engine.take_races();
        let found: Vec<MissingOrder> = races.iter().map(|race| race.missing).collect();
        assert_eq!(found, wanted, "{races:#?}");
    }
}
