//! Tests the promises of the sanitizer: each racy program is reported with the synchronization that is missing, and its
//! correct twin is clean.

mod job;

use job::{GRID, JOB, Job, array, call, flag, source};
use rushmem_sanitizer::{
    Acquire, Actor, Buffers, Call, Context, Engine, Kind, MissingOrder, Post, Scope, Space, Span, Until, Wait,
};

#[test]
fn a_source_is_free_after_quiet_or_flush() {
    let run = |between: fn(&mut Job)| {
        let mut job = Job::new();
        job.put(0, array(1));
        between(&mut job);
        job.store(0, source(0));
        job
    };
    run(|_| ()).lacks(&[MissingOrder::SourceInUse]);
    run(|job| job.fence(0)).lacks(&[MissingOrder::SourceInUse]);
    run(|job| job.quiet(0)).lacks(&[]);
    run(|job| job.flush(0)).lacks(&[]);
}

#[test]
fn a_source_may_be_read_at_any_time() {
    let mut job = Job::new();
    job.put(0, array(1));
    job.load(0, source(0));
    job.lacks(&[]);
}

#[test]
fn a_blocking_put_frees_its_source() {
    let mut job = Job::new();
    let put = job.put(0, array(1));
    job.engine.free_source(job.threads[0], put);
    job.store(0, source(0));
    job.lacks(&[]);
}

#[test]
fn flush_delivers_nothing() {
    let mut job = Job::new();
    job.put(0, array(1));
    job.flush(0);
    job.sync_all();
    job.load(1, array(1));
    job.lacks(&[MissingOrder::Completion { pe: 1 }]);
}

#[test]
fn a_destination_is_read_after_its_signal() {
    let run = |waits: bool| {
        let mut job = Job::new();
        job.put_signal(0, array(1), flag(1));
        if waits {
            job.wait(1, flag(1));
        }
        job.load(1, array(1));
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::Arrival]);
}

#[test]
fn a_signal_covers_no_earlier_put() {
    let run = |fences: bool| {
        let mut job = Job::new();
        job.put(0, Span::heap(1, 0x400, 8));
        if fences {
            job.fence(0);
        }
        job.put_signal(0, array(1), flag(1));
        job.wait(1, flag(1));
        job.load(1, Span::heap(1, 0x400, 8));
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::Fence { pe: 1 }]);
}

#[test]
fn a_destination_is_read_after_quiet_and_a_barrier() {
    let run = |completes: bool| {
        let mut job = Job::new();
        job.put(0, array(1));
        if completes {
            job.barrier_all()
        } else {
            job.sync_all()
        }
        job.load(1, array(1));
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::Completion { pe: 1 }]);
}

#[test]
fn a_fence_orders_a_flag_after_its_put() {
    let run = |order: fn(&mut Job)| {
        let mut job = Job::new();
        job.put(0, array(1));
        order(&mut job);
        job.p(0, flag(1));
        job.wait(1, flag(1));
        job.load(1, array(1));
        job
    };
    run(|_| ()).lacks(&[MissingOrder::Fence { pe: 1 }]);
    run(|job| job.fence(0)).lacks(&[]);
    run(|job| job.quiet(0)).lacks(&[]);
    let to_another =
        |job: &mut Job| job.engine.fence(job.threads[0], Job::context(0), Some(2), call("fence_pe"));
    run(to_another).lacks(&[MissingOrder::Fence { pe: 1 }]);
}

#[test]
fn a_fence_orders_nothing_between_two_targets() {
    let run = |order: fn(&mut Job)| {
        let mut job = Job::new();
        job.put(0, array(1));
        order(&mut job);
        job.p(0, flag(2));
        job.wait(2, flag(2));
        let get = Post::get(Job::context(2), array(1), Some(source(2)), call("get"));
        job.engine.post(job.threads[2], get);
        job
    };
    run(|job| job.fence(0)).lacks(&[MissingOrder::Completion { pe: 1 }]);
    run(|job| job.quiet(0)).lacks(&[]);
}

#[test]
fn a_fence_of_another_thread_counts_after_a_barrier() {
    let run = |syncs: bool| {
        let mut job = Job::new();
        job.put(0, array(1));
        if syncs {
            job.engine.sync(&[job.threads[0], job.others[0]]);
        }
        job.engine.fence(job.others[0], Job::context(0), None, call("fence"));
        job.engine.fence_release(job.others[0], Scope::System);
        let p = Post::put(Job::context(0), None, flag(1), call("p"));
        let p = job.engine.post(job.others[0], p);
        job.engine.deliver(p);
        job.wait(1, flag(1));
        job.load(1, array(1));
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::Arrival]);
}

#[test]
fn a_fence_covers_its_own_context_only() {
    let mut job = Job::new();
    job.put(0, array(1));
    let other = Context::Queues { pe: 0, context: 1 };
    job.engine.fence(job.threads[0], other, None, call("fence"));
    job.p(0, flag(1));
    job.wait(1, flag(1));
    job.load(1, array(1));
    job.lacks(&[MissingOrder::Fence { pe: 1 }]);
}

#[test]
fn a_strong_signal_covers_earlier_puts() {
    let run = |strong: bool| {
        let mut job = Job::new();
        job.put(0, array(1));
        let signal = Post::signal(Job::context(0), flag(1), Kind::Atomic, call("signal"));
        let signal = if strong { signal.after_all() } else { signal };
        let signal = job.engine.post(job.threads[0], signal);
        job.engine.deliver(signal);
        job.wait(1, flag(1));
        job.load(1, array(1));
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::Fence { pe: 1 }]);
}

#[test]
fn stores_to_a_peer_are_ordered_like_puts() {
    let run = |fences: bool| {
        let mut job = Job::new();
        let stores = Context::Stores(job.threads[0]);
        job.engine.post(job.threads[0], Post::put(stores, None, array(1), call("RemoteView::store")));
        if fences {
            job.fence(0);
        }
        job.p(0, flag(1));
        job.wait(1, flag(1));
        job.load(1, array(1));
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::Fence { pe: 1 }]);
}

#[test]
fn the_last_word_of_a_put_announces_itself_only() {
    let word = Span::heap(1, 0x138, 8);
    let run = |read: Span| {
        let mut job = Job::new();
        let put = job.put(0, array(1));
        job.engine.deliver(put);
        job.wait(1, word);
        job.load(1, read);
        job
    };
    run(word).lacks(&[]);
    run(array(1)).lacks(&[MissingOrder::WordOrder]);
}

#[test]
fn a_quiet_of_another_block_needs_the_barrier_of_the_grid() {
    let run = |meets: bool| {
        let mut job = Job::new();
        let both = [job.threads[0], job.others[0]];
        job.put(0, array(1));
        job.engine.sync(&both);
        job.engine.quiet(job.others[0], Job::context(0), None);
        if meets {
            job.engine.sync(&both);
        }
        job.store(0, source(0));
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::GridSync]);
}

#[test]
fn a_flag_in_another_context_needs_quiet() {
    let mut job = Job::new();
    job.put(0, array(1));
    let flag_put = Post::put(Context::Queues { pe: 0, context: 1 }, None, flag(1), call("p"));
    let id = job.engine.post(job.threads[0], flag_put);
    job.engine.deliver(id);
    job.wait(1, flag(1));
    job.load(1, array(1));
    job.lacks(&[MissingOrder::Completion { pe: 1 }]);
}

#[test]
fn the_result_of_a_get_is_read_after_quiet() {
    let run = |completes: bool| {
        let mut job = Job::new();
        let get = Post::get(Job::context(0), array(1), Some(source(0)), call("get_nbi"));
        let get = job.engine.post(job.threads[0], get);
        job.engine.deliver(get);
        if completes {
            job.engine.complete(job.threads[0], get);
        }
        job.load(0, source(0));
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::ResultPending]);
}

#[test]
fn fences_order_no_gets() {
    let mut job = Job::new();
    job.engine.post(job.threads[0], Post::get(Job::context(0), array(1), Some(source(0)), call("get_nbi")));
    job.fence(0);
    job.p(0, array(1));
    job.lacks(&[MissingOrder::Completion { pe: 1 }]);
}

#[test]
fn puts_of_two_pes_need_a_barrier() {
    let run = |meets: bool, second: Span| {
        let mut job = Job::new();
        job.put(0, array(1));
        if meets {
            job.barrier_all();
        }
        job.put(2, second);
        job
    };
    let overlapping = Span::heap(1, 0x13c, 64);
    run(false, overlapping).lacks(&[MissingOrder::Barrier]);
    run(true, overlapping).lacks(&[]);
    run(false, Span::heap(1, 0x140, 64)).lacks(&[]);
}

#[test]
fn a_put_and_a_get_of_two_pes_need_a_barrier() {
    let mut job = Job::new();
    job.put(0, array(1));
    job.engine.post(job.threads[2], Post::get(Job::context(2), array(1), Some(source(2)), call("get")));
    job.lacks(&[MissingOrder::Barrier]);
}

#[test]
fn atomics_conflict_with_plain_stores() {
    let run = |plain: bool| {
        let mut job = Job::new();
        let add = |job: &mut Job, pe: usize| {
            let add = Post::atomic(Job::context(pe), flag(1), call("atomic_add"));
            let add = job.engine.post(job.threads[pe], add);
            job.engine.deliver(add);
        };
        add(&mut job, 0);
        if plain {
            job.store(1, flag(1))
        } else {
            add(&mut job, 1)
        }
        add(&mut job, 2);
        job
    };
    run(false).lacks(&[]);
    run(true).lacks(&[MissingOrder::Atomicity]);
}

#[test]
fn atomics_carry_a_lock() {
    let run = |completes: bool| {
        let mut job = Job::new();
        for pe in [0, 2] {
            let lock = Post::fetch(Job::context(pe), flag(1), Kind::Atomic, call("atomic_compare_swap"));
            let lock = job.engine.post(job.threads[pe], lock);
            job.engine.deliver(lock);
            job.engine.complete(job.threads[pe], lock);
            job.engine.observe(
                job.threads[pe],
                (flag(1), None),
                Acquire::AtFence,
                call("atomic_compare_swap"),
            );
            job.engine.fence_acquire(job.threads[pe], Scope::System);
            job.put(pe, array(1));
            if completes {
                job.quiet(pe);
            }
            let unlock = Post::atomic(Job::context(pe), flag(1), call("atomic_set"));
            let unlock = job.engine.post(job.threads[pe], unlock);
            job.engine.deliver(unlock);
        }
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::Completion { pe: 1 }]);
}

#[test]
fn a_wait_sees_no_plain_store() {
    let mut job = Job::new();
    job.engine.store(job.others[0], flag(0), call("store"));
    job.wait(0, flag(0));
    job.lacks(&[MissingOrder::Atomicity]);
}

#[test]
fn release_and_acquire_fences_order_blocks() {
    let run = |fences: bool| {
        let mut job = Job::new();
        let (writer, reader) = (job.threads[0], job.others[0]);
        job.store(0, source(0));
        if fences {
            job.engine.fence_release(writer, Scope::Gpu);
        }
        job.engine.store_relaxed(writer, flag(0), call("store_relaxed"));
        job.engine.observe(reader, (flag(0), None), Acquire::AtFence, call("load_relaxed"));
        job.engine.fence_acquire(reader, Scope::Gpu);
        job.engine.load(reader, flag(0), call("load"));
        job.engine.load(reader, source(0), call("load"));
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::Release]);
}

#[test]
fn threads_of_a_block_need_its_barrier() {
    let run = |syncs: bool| {
        let mut job = Job::new();
        let second = Actor::Thread { pe: 0, launch: 0, block: 0, thread: 1 };
        let second = job.engine.fork(job.hosts[0], second);
        job.store(0, source(0));
        if syncs {
            job.engine.sync(&[job.threads[0], second]);
        }
        job.engine.load(second, source(0), call("load"));
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::BlockSync]);
}

#[test]
fn the_grid_barrier_orders_blocks() {
    let run = |syncs: bool| {
        let mut job = Job::new();
        job.engine.define_meeting(GRID, vec![0, 1]);
        job.store(0, source(0));
        if syncs {
            let call = call("sync_grid");
            for (block, thread) in [(0, job.threads[0]), (1, job.others[0])] {
                job.engine.arrive(thread, GRID, block);
            }
            for (block, thread) in [(1, job.others[0]), (0, job.threads[0])] {
                job.engine.leave(thread, GRID, block, &Buffers::default(), call);
            }
        }
        job.engine.load(job.others[0], source(0), call("load"));
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::GridSync]);
}

#[test]
fn the_host_waits_for_its_launch() {
    let run = |waits: bool| {
        let mut job = Job::new();
        job.store(0, source(0));
        job.engine.end(job.threads[0]);
        if waits {
            job.engine.join(job.hosts[0], job.threads[0]);
        }
        job.engine.load(job.hosts[0], source(0), call("Pe::read"));
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::LaunchEnd]);
}

#[test]
fn events_order_streams() {
    let run = |follows: bool| {
        let mut job = Job::new();
        let stream = |job: &mut Job, stream| job.engine.fork(job.hosts[0], Actor::Stream { pe: 0, stream });
        let (first, second) = (stream(&mut job, 0), stream(&mut job, 1));
        let launch = |job: &mut Job, stream, launch| {
            let thread = Actor::Thread { pe: 0, launch, block: 0, thread: 0 };
            let thread = job.engine.fork(stream, thread);
            job.engine.store(thread, source(0), call("store"));
            job.engine.end(thread);
            job.engine.join(stream, thread);
        };
        launch(&mut job, first, 1);
        launch(&mut job, first, 2);
        let event = job.engine.release(first);
        if follows {
            job.engine.acquire(second, &event);
        }
        launch(&mut job, second, 3);
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::StreamEvent]);
}

#[test]
fn collective_buffers_belong_to_the_call() {
    let buffers = |pe| Buffers { reads: vec![source(pe)], writes: vec![array(pe)], root: None, moves: true };
    let run = |before: bool, meets: bool| {
        let mut job = Job::new();
        // A block outside the call stores to the source.
        if before {
            job.engine.store(job.others[1], source(1), call("store"));
        }
        job.collective(buffers);
        job.load(0, array(0));
        job.store(0, source(0));
        if meets {
            job.sync_all();
        }
        // The members leave at different times.
        job.put(2, array(1));
        job
    };
    run(false, true).lacks(&[]);
    run(false, false).lacks(&[MissingOrder::CollectiveEnd]);
    run(true, true).lacks(&[MissingOrder::CollectiveEnd]);
}

#[test]
fn a_put_before_a_collective_call_is_complete() {
    let buffers = |pe| Buffers { reads: vec![source(pe)], writes: vec![array(pe)], root: None, moves: true };
    let run = |completes: bool| {
        let mut job = Job::new();
        job.put(0, array(1));
        if completes {
            job.quiet(0);
        }
        job.collective(buffers);
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::CollectiveEnd]);
}

#[test]
fn a_member_reads_after_its_own_arrival_and_writes_after_that_of_the_root() {
    let run = |target: fn(u32) -> Span, writer: usize| {
        let mut job = Job::new();
        job.put(writer, target(1));
        job.quiet(writer);
        job.collective(|pe| Buffers {
            reads: vec![source(pe)],
            writes: vec![array(pe)],
            root: Some(0),
            moves: true,
        });
        job
    };
    run(source, 1).lacks(&[]);
    run(source, 0).lacks(&[MissingOrder::CollectiveEnd]);
    run(array, 0).lacks(&[]);
    run(array, 2).lacks(&[MissingOrder::CollectiveEnd]);
}

#[test]
fn memory_is_freed_after_its_use() {
    let run = |completes: bool| {
        let mut job = Job::new();
        job.put(0, array(1));
        if completes {
            job.quiet(0);
        }
        for pe in 0..3 {
            job.engine.end(job.threads[pe]);
            job.engine.join(job.hosts[pe], job.threads[pe]);
            job.engine.arrive(job.hosts[pe], JOB, pe as u32);
        }
        let call = call("free");
        for pe in 0..3 {
            job.engine.leave(job.hosts[pe], JOB, pe as u32, &Buffers::default(), call);
            job.engine.free(job.hosts[pe], array(pe as u32), call);
        }
        job
    };
    run(true).lacks(&[]);
    run(false).lacks(&[MissingOrder::Lifetime]);
}

#[test]
fn new_memory_has_no_past() {
    let mut job = Job::new();
    job.put(0, array(1));
    job.engine.alloc(array(1));
    job.load(1, array(1));
    job.lacks(&[]);
}

#[test]
fn each_pair_of_lines_is_reported_once() {
    let mut job = Job::new();
    for i in 0..8 {
        let (read, write) = (call("load"), call("store"));
        job.engine.store(job.threads[0], Span::heap(0, 8 * i, 8), write);
        job.engine.load(job.others[0], Span::heap(0, 8 * i, 8), read);
    }
    assert_eq!(job.engine.race_count(), 1);
}

/// A wait for the data of a put proves that the put has read its source, but nothing that the poster did before.
#[test]
fn a_put_publishes_only_its_own_read() {
    for loads in [false, true] {
        let mut job = Job::new();
        let word = Span::heap(1, 0x200, 8);
        if loads {
            job.load(1, word);
        }
        let put = Post::put(Job::context(1), Some(word), flag(0), call("put_nbi"));
        let put = job.engine.post(job.threads[1], put);
        job.engine.deliver(put);
        job.wait(0, flag(0));
        job.p(0, word);
        assert_eq!(job.engine.race_count(), usize::from(loads));
    }
}

#[test]
fn a_report_is_one_block_of_text() {
    let mut job = Job::new();
    let at = |line| Call { name: "put_nbi", site: rushmem_sanitizer::Site { file: "src/send.rs", line } };
    let local = Span { memory: rushmem_sanitizer::Memory { pe: 0, space: Space::Local }, ..source(0) };
    job.engine.post(job.threads[0], Post::put(Job::context(0), Some(local), array(1), at(10)));
    let flag_call = Call { name: "p", ..at(11) };
    job.engine.post(job.threads[0], Post::put(Job::context(0), None, array(1), flag_call));
    let races = job.engine.take_races();
    assert_eq!(
        races[0].to_string(),
        "race on 64 bytes in the heap of PE 1, 0x100..0x140\n  \
         first:   PE 0 put_nbi (an operation in flight to PE 1) writes in `put_nbi` at src/send.rs:10\n  \
         second:  PE 0 p (an operation in flight to PE 1) writes in `p` at src/send.rs:11\n  \
         missing: nothing orders the deliveries\n  \
         remedy:  add `ctx.fence_pe(1)` or `ctx.fence()` behind the first, before the data is announced"
    );
    let json = serde_json::to_value(races[0]).unwrap();
    assert_eq!(json["missing"]["fence"]["pe"], 1);
    assert_eq!(json["first"]["call"]["site"]["line"], 10);
    assert_eq!(json["bytes"]["end"], 0x140);
}

#[test]
fn memory_of_the_engine_is_bounded() {
    let mut job = Job::new();
    for pe in 0..3 {
        let threads = [job.threads[pe], job.others[pe]];
        job.engine.awaits(job.hosts[pe], &threads);
    }
    for _ in 0..5000 {
        job.put_signal(0, array(1), flag(1));
        job.wait(1, flag(1));
        job.load(1, array(1));
        job.p(1, flag(0));
        job.wait(0, flag(0));
        job.quiet(0);
        job.quiet(1);
        job.sync_all();
        for pe in 0..3 {
            job.engine.sync(&[job.threads[pe], job.others[pe]]);
        }
    }
    job.engine.settle();
    let (actors, intervals) = job.engine.size();
    assert!(actors < 64 && intervals < 64, "{actors} actors, {intervals} intervals");
    job.lacks(&[]);
}

#[test]
fn a_launch_that_nobody_has_joined_is_kept() {
    let mut engine = Engine::new();
    let host = engine.start(Actor::Host { pe: 0, thread: 0 });
    let thread = engine.fork(host, Actor::Thread { pe: 0, launch: 0, block: 0, thread: 0 });
    engine.awaits(host, &[thread]);
    engine.store(thread, source(0), call("store"));
    engine.end(thread);
    engine.settle();
    engine.join(host, thread);
    engine.load(host, source(0), call("Pe::read"));
    engine.settle();
    assert_eq!((engine.race_count(), engine.size()), (0, (1, 1)));
}

#[test]
fn a_wait_that_nobody_can_end_is_a_deadlock() {
    let mut job = Job::new();
    let until = Until::Word { word: flag(1), wanted: "== 1".into(), value: None };
    let wait = Wait { call: call("wait_until"), until };
    job.engine.wait(job.threads[1], wait.clone());
    assert!(job.engine.deadlock().is_none());
    let signal = Post::signal(Job::context(0), flag(1), Kind::Set, call("signal_op"));
    let signal = job.engine.post(job.threads[0], signal);
    for (pe, actors) in
        [(0, &job.threads), (2, &job.threads), (0, &job.others), (1, &job.others), (2, &job.others)]
    {
        job.engine.end(actors[pe]);
    }
    for pe in 0..3 {
        let until = Until::Ends { actors: vec![job.threads[pe], job.others[pe]] };
        job.engine.wait(job.hosts[pe], Wait { call: call("Launch::wait"), until });
    }
    assert!(job.engine.deadlock().is_none(), "two hosts go on");
    for pe in [0, 2] {
        let until = Until::Members { at: "`host_sync`".into(), pes: vec![1] };
        job.engine.wait(job.hosts[pe], Wait { call: call("host_sync"), until });
    }
    assert!(job.engine.deadlock().is_none(), "the signal is on its way");
    job.engine.deliver(signal);
    assert!(job.engine.deadlock().is_none(), "the thread must look again");
    job.engine.wait(job.threads[1], wait);
    let mut deadlock = job.engine.deadlock().unwrap();
    assert_eq!(deadlock.stuck.len(), 4, "{deadlock}");
    job.engine.explain(&mut deadlock);
    let word = deadlock.stuck.iter().find_map(|stuck| stuck.word.as_ref()).unwrap();
    assert_eq!(word.writer.as_ref().map(|writer| writer.call.name), Some("signal_op"), "{deadlock}");
    let json = serde_json::to_value(&deadlock).unwrap();
    assert_eq!(json["stuck"].as_array().unwrap().len(), 4);
    job.wait(1, flag(1));
    assert!(job.engine.deadlock().is_none());
}
