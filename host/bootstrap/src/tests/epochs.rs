//! Tests of jobs that survive losses.

use super::*;

#[test]
fn job_goes_on_in_epochs() {
    both_ways(4, LONG, |pe| {
        let me = pe.pe();
        let losses = losses(&*pe);
        assert_eq!(pe.form_epoch_within(LONG).unwrap(), Epoch { number: 1, pes: vec![0, 1, 2, 3] });
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

        assert_eq!(pe.form_epoch_within(LONG).unwrap(), Epoch { number: 2, pes: vec![0, 2, 3] });
        assert_eq!(*pe.allgather("c", &[me as u8]).unwrap(), [vec![0], vec![], vec![2], vec![3]]);
        if me == 0 {
            return; // without finish()
        }
        // The PE may be lost before or while others wait for the epoch.
        assert_eq!(pe.form_epoch_within(LONG).unwrap(), Epoch { number: 3, pes: vec![2, 3] });
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
        assert_eq!(pe.form_epoch_within(LONG).unwrap(), Epoch { number: 2, pes: vec![0] });
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
fn lost_pe_may_join_the_next_job() {
    let (server, token) = server(2, Duration::ZERO);
    let join = |pe| Tcp::join(member(&server, &token, pe, 2, LONG));
    thread::scope(|scope| {
        let pe = scope.spawn(|| {
            let pe = join(1).unwrap();
            pe.form_epoch_within(LONG).unwrap();
            pe.abort("restarts");
            let error = join(1).err().unwrap().to_string();
            assert!(error.contains("PE 1 was lost"), "{error}");
        });
        let first = join(0).unwrap();
        first.form_epoch_within(LONG).unwrap();
        pe.join().unwrap();
        first.finish().unwrap();
        let next = scope.spawn(|| join(1).unwrap().finish().unwrap());
        join(0).unwrap().finish().unwrap();
        next.join().unwrap();
        assert!(server.wait_for_pes(1, LONG).0.is_empty());
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
