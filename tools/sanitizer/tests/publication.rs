//! Tests what relaxed words publish, and what fences release and acquire.
#![allow(dead_code, reason = "the harness serves other tests, too")]

mod job;

use job::{Job, array, call, flag, source};
use rushmem_sanitizer::{Actor, Buffers, Kind, MissingOrder, Post, Scope};

/// Stores a word on PE 0, runs `between`, and announces the word to PE 1, which gets it.
fn announced(between: fn(&mut Job), announce: fn(&mut Job)) -> Job {
    let mut job = Job::new();
    job.store(0, source(0));
    between(&mut job);
    announce(&mut job);
    job.wait(1, flag(1));
    job.engine.post(job.threads[1], Post::get(Job::context(1), source(0), Some(array(1)), call("get")));
    job
}

#[test]
fn relaxed_words_announce_what_a_fence_has_released() {
    let announcements: [fn(&mut Job); 3] = [
        |job| job.p(0, flag(1)),
        |job| {
            let add =
                job.engine.post(job.threads[0], Post::atomic(Job::context(0), flag(1), call("atomic_inc")));
            job.engine.deliver(add);
        },
        |job| {
            let signal = Post::signal(Job::context(0), flag(1), Kind::Set, call("signal_op"));
            let signal = job.engine.post(job.threads[0], signal);
            job.engine.deliver(signal);
        },
    ];
    for announce in announcements {
        announced(|_| (), announce).lacks(&[MissingOrder::Release]);
        announced(|job| job.engine.fence_release(job.threads[0], Scope::Gpu), announce)
            .lacks(&[MissingOrder::Release]);
        announced(|job| job.fence(0), announce).lacks(&[]);
        announced(|job| job.quiet(0), announce).lacks(&[]);
    }
}

#[test]
fn signals_of_puts_and_strong_signals_release() {
    announced(|_| (), |job| job.put_signal(0, array(1), flag(1))).lacks(&[]);
    announced(
        |_| (),
        |job| {
            let signal = Post::signal(Job::context(0), flag(1), Kind::Atomic, call("signal_strong"));
            let signal = job.engine.post(job.threads[0], signal.after_all());
            job.engine.deliver(signal);
        },
    )
    .lacks(&[]);
}

#[test]
fn fetching_atomics_acquire_at_the_next_fence() {
    let run = |acquired: Option<Scope>| {
        let mut job = Job::new();
        let put = Post::put(Job::context(0), Some(source(0)), array(1), call("put_signal_nbi"));
        let put = job.engine.post(job.threads[0], put.with_signal(flag(1), Kind::Atomic));
        job.engine.deliver(put);
        let fetch = Post::fetch(Job::context(1), flag(1), Kind::Fetch, call("atomic_fetch"));
        let fetch = job.engine.post(job.threads[1], fetch);
        job.engine.deliver(fetch);
        job.engine.complete(job.threads[1], fetch);
        acquired.into_iter().for_each(|scope| job.engine.fence_acquire(job.threads[1], scope));
        job.load(1, array(1));
        job
    };
    run(None).lacks(&[MissingOrder::Acquire]);
    run(Some(Scope::Gpu)).lacks(&[MissingOrder::Acquire]);
    run(Some(Scope::System)).lacks(&[]);
}

#[test]
fn a_set_drops_what_an_update_has_published() {
    let run = |replaces: bool| {
        let mut job = Job::new();
        job.put_signal(0, array(2), flag(2));
        let atomic = Post::atomic(Job::context(0), flag(2), call("atomic"));
        let atomic = if replaces { atomic.replacing() } else { atomic };
        let atomic = job.engine.post(job.threads[0], atomic);
        job.engine.deliver(atomic);
        job.wait(2, flag(2));
        job.load(2, array(2));
        job
    };
    // The signal of the put adds in both cases.
    let missing = |job: Job| {
        let mut engine = job.engine;
        engine.take_races().iter().filter(|race| race.second.call.name == "load").count()
    };
    assert_eq!((missing(run(false)), missing(run(true))), (0, 1));
}

#[test]
fn calls_that_move_data_publish_nothing_else() {
    let run = |moves: bool| {
        let mut job = Job::new();
        job.store(0, source(0));
        let buffers = |pe| match moves {
            true => Buffers { reads: vec![flag(pe)], moves, ..Buffers::default() },
            false => Buffers::default(),
        };
        job.collective(buffers);
        job.engine.post(job.threads[1], Post::get(Job::context(1), source(0), Some(array(1)), call("get")));
        job
    };
    run(false).lacks(&[]);
    run(true).lacks(&[MissingOrder::Arrival]);
}

#[test]
fn a_kernel_publishes_writes_of_the_host_and_not_those_of_earlier_kernels() {
    let run = |by_host: bool| {
        let mut job = Job::new();
        if by_host {
            job.engine.store(job.hosts[0], source(0), call("Pe::write"));
        } else {
            job.store(0, source(0));
        }
        job.engine.end(job.threads[0]);
        job.engine.join(job.hosts[0], job.threads[0]);
        job.threads[0] =
            job.engine.fork(job.hosts[0], Actor::Thread { pe: 0, launch: 1, block: 0, thread: 0 });
        job.p(0, flag(1));
        job.wait(1, flag(1));
        job.engine.post(job.threads[1], Post::get(Job::context(1), source(0), Some(array(1)), call("get")));
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::Release]);
}
