//! Tests of jobs that survive losses.

use super::*;

fn epoch(number: u32, pes: &[u32]) -> Epoch {
    Epoch { number, pes: pes.to_vec(), joined: Vec::new() }
}

#[test]
fn job_goes_on_in_epochs() {
    both_ways(4, LONG, |pe| {
        let me = pe.pe();
        let losses = losses(&*pe);
        assert_eq!(pe.form_epoch_within(LONG).unwrap(), epoch(1, &[0, 1, 2, 3]));
        pe.barrier("begin").unwrap();
        if me == 1 {
            return pe.abort("out of cheese");
        }
        let reason = "aborted: out of cheese".into();
        let lost = PeerLost { pe: Some(1), reason, exit: None, survivable: true };
        assert_eq!(failure(pe.barrier("a")), Failure::Lost(lost.clone()));
        assert_eq!(failure(pe.allgather("b", b"x").map(drop)), Failure::Lost(lost.clone()));
        assert_eq!(losses.recv_timeout(LONG).unwrap(), lost);
        pe.send(1, b"dropped").unwrap();

        assert_eq!(pe.form_epoch_within(LONG).unwrap(), epoch(2, &[0, 2, 3]));
        assert_eq!(*pe.allgather("c", &[me as u8]).unwrap(), [vec![0], vec![], vec![2], vec![3]]);
        if me == 0 {
            return; // without finish()
        }
        // The PE may be lost before or while others wait for the epoch.
        assert_eq!(pe.form_epoch_within(LONG).unwrap(), epoch(3, &[2, 3]));
        pe.barrier("end").unwrap();
        pe.finish().unwrap();
        assert!(matches!(pe.form_epoch_within(LONG), Err(Error::Left { .. })));
    });
}

#[test]
fn finish_of_others_completes_an_epoch() {
    both_ways(2, LONG, |pe| {
        pe.form_epoch_within(LONG).unwrap();
        if pe.pe() == 1 {
            return pe.finish().unwrap();
        }
        assert_eq!(pe.form_epoch_within(LONG).unwrap(), epoch(2, &[0]));
        pe.barrier("alone").unwrap();
        pe.finish().unwrap();
    });
}

#[test]
fn missing_pe_of_an_epoch_is_named() {
    both_ways(2, LONG, |pe| {
        pe.form_epoch_within(LONG).unwrap();
        let (tell, messages) = channel();
        pe.on_message(Box::new(move |message| drop(tell.send(message)))).unwrap();
        let within = if pe.pe() == 0 { Duration::from_millis(50) } else { LONG };
        if pe.pe() == 1 {
            messages.recv_timeout(LONG).unwrap();
        }
        let failed = failure(pe.form_epoch_within(within).map(drop));
        let Failure::Missing { call, missing, .. } = &failed else { panic!("{failed}") };
        assert_eq!((call.as_str(), missing), ("form_epoch", &Pes(vec![1])));
        assert_eq!(failure(pe.barrier("x")), failed);
        pe.send(1 - pe.pe(), &[]).unwrap();
    });
}

#[test]
fn epoch_and_barrier_are_a_mismatch() {
    both_ways(2, LONG, |pe| {
        pe.form_epoch_within(LONG).unwrap();
        let call = if pe.pe() == 0 { pe.form_epoch_within(LONG).map(drop) } else { pe.barrier("x") };
        let calls = vec![("barrier `x`".into(), Pes(vec![1])), ("form_epoch".into(), Pes(vec![0]))];
        assert_eq!(failure(call), Failure::Mismatch { calls });
    });
}

#[test]
fn another_process_replaces_a_lost_pe() {
    let (server, token) = server(3, Duration::ZERO);
    let join = |pe| Tcp::join(member(&server, &token, pe, 3, LONG)).unwrap();
    let start = |pe: &Tcp| {
        let parts = pe.allgather("a", &[pe.pe() as u8 + 10]).unwrap();
        pe.barrier(START).unwrap();
        (parts.to_vec(), pe.form_epoch_within(LONG).unwrap())
    };
    let first = epoch(1, &[0, 1, 2]);
    let parts = vec![vec![10], vec![11], vec![12]];
    let (join, start, first, parts) = (&join, &start, &first, &parts);
    thread::scope(|scope| {
        let (tell, replaces) = channel();
        let mut replaces = Some(replaces);
        let lost = scope.spawn(move || {
            let pe = join(1);
            assert!(!pe.replaces());
            assert_eq!(start(&pe), (parts.clone(), first.clone()));
            pe.abort("restarts");
            let pe = join(1);
            assert!(pe.replaces());
            assert_eq!(*pe.recall("a").unwrap(), *parts);
            let (deliver, messages) = channel();
            pe.on_message(Box::new(move |message| drop(deliver.send(message)))).unwrap();
            tell.send(()).unwrap();
            let (again, taken_in) = start(&pe);
            assert_eq!((again, &taken_in.joined), (parts.clone(), &vec![1]));
            // Not the message for its predecessor.
            assert_eq!(messages.recv_timeout(LONG).unwrap().bytes, b"hello");
            assert_eq!(pe.allgather("b", b"x").unwrap().concat(), b"xxx");
            pe.finish().unwrap();
            taken_in
        });
        let living = [0, 2].map(|pe| {
            let wait = if pe == 0 { replaces.take() } else { None };
            scope.spawn(move || {
                let pe = join(pe);
                let losses = losses(&pe);
                assert_eq!(start(&pe), (parts.clone(), first.clone()));
                losses.recv_timeout(LONG).unwrap();
                let mut formed = pe.form_epoch_within(LONG).unwrap();
                if let Some(wait) = wait {
                    wait.recv_timeout(LONG).unwrap();
                    pe.send(1, b"for a lost PE").unwrap();
                }
                while formed.joined.is_empty() {
                    // A process that waits to replace a lost one takes no part in this.
                    pe.barrier("c").unwrap();
                    formed = pe.form_epoch_within(LONG).unwrap();
                }
                if pe.pe() == 0 {
                    pe.send(1, b"hello").unwrap();
                }
                assert_eq!(pe.allgather("b", b"x").unwrap().concat(), b"xxx");
                pe.finish().unwrap();
                formed
            })
        });
        let all = living.map(|pe| pe.join().unwrap());
        assert!(all.iter().all(|formed| formed.pes == [0, 1, 2] && *formed == all[0]), "{all:?}");
        assert_eq!(lost.join().unwrap(), all[0]);
        assert!(server.wait_for_pes(0, LONG).0.is_empty());
    });
}

#[test]
fn replacement_that_is_never_taken_in_is_turned_away() {
    let (server, token) = server(2, Duration::ZERO);
    let join = |pe| Tcp::join(member(&server, &token, pe, 2, LONG));
    thread::scope(|scope| {
        let (tell, waits) = channel();
        let pe = scope.spawn(move || {
            let pe = join(1).unwrap();
            pe.barrier(START).unwrap();
            pe.form_epoch_within(LONG).unwrap();
            pe.abort("restarts");
            let again = join(1).unwrap();
            let wrong = again.barrier("x").unwrap_err().to_string();
            assert!(wrong.contains("started with barrier `the start of the job`"), "{wrong}");
            again.abort("it makes other calls");
            let again = join(1).unwrap();
            again.barrier(START).unwrap();
            tell.send(()).unwrap();
            failure(again.form_epoch_within(LONG).map(drop))
        });
        let first = join(0).unwrap();
        first.barrier(START).unwrap();
        first.form_epoch_within(LONG).unwrap();
        waits.recv_timeout(LONG).unwrap();
        first.finish().unwrap();
        let failed = pe.join().unwrap();
        assert_eq!(failed.to_string(), "PE 1 was lost: no PE is left that could take its process in");
    });
}

#[test]
fn killed_pe_is_no_member_of_the_next_job() {
    let (server, token) = server(2, LONG);
    let join = |pe, timeout| Tcp::join(member(&server, &token, pe, 2, timeout));
    let observer = Observer::connect(&server.addr().to_string(), &token, 0, 2, LONG, false, |_| ()).unwrap();
    thread::scope(|scope| {
        let killed = scope.spawn(|| {
            let pe = join(1, LONG).unwrap();
            pe.form_epoch_within(LONG).unwrap();
            pe
        });
        let first = join(0, LONG).unwrap();
        first.form_epoch_within(LONG).unwrap();
        let killed = killed.join().unwrap();
        observer.exited(1, "was killed by SIGKILL");
        assert_eq!(first.form_epoch_within(LONG).unwrap().pes, [0]);
        drop(killed);
        first.finish().unwrap();
        let error = join(0, LONG).err().unwrap().to_string();
        assert_eq!(error, "PE 1 was lost: was killed by SIGKILL, before it joined the job");
    });
}
