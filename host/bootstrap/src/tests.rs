//! Tests of jobs whose PEs are threads or connect over TCP, and of cases that occur only over TCP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::dial::Dial;
use crate::wire::{HANDSHAKE_LIMIT, Message, PROTOCOL, read_frame, write_frame};
use rushmem_config::Config;

mod epochs;
mod heartbeats;

const LONG: Duration = Duration::from_secs(20);

type Pe = Box<dyn Bootstrap>;

/// Runs `body` as each PE of a job of `n` PEs: first as threads, then over TCP.
fn both_ways(n: u32, timeout: Duration, body: impl Fn(Pe) + Sync) {
    let pes = Threads::job(n, timeout).into_iter().map(|pe| Box::new(pe) as Pe).collect::<Vec<_>>();
    thread::scope(|scope| {
        for pe in pes {
            scope.spawn(|| body(pe));
        }
    });
    let (server, token) = server(n, Duration::ZERO);
    thread::scope(|scope| {
        for pe in 0..n {
            let member = member(&server, &token, pe, n, timeout);
            let body = &body;
            scope.spawn(move || body(Box::new(Tcp::join(member).unwrap())));
        }
    });
}

fn server(n_pes: u32, exit_wait: Duration) -> (Server, Token) {
    let token = Token::generate().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    (
        Server::start(ServerOptions {
            n_pes,
            host: None,
            token: token.clone(),
            listen,
            exit_wait,
            heartbeat: None,
        })
        .unwrap(),
        token,
    )
}

fn member(server: &Server, token: &Token, pe: u32, n_pes: u32, timeout: Duration) -> Member {
    let server = server.addr().to_string();
    Member { server, token: token.clone(), pe, n_pes, build_id: "b".into(), timeout, retry: false }
}

fn losses(pe: &dyn Bootstrap) -> Receiver<PeerLost> {
    let (tell, losses) = channel();
    pe.on_peer_lost(Box::new(move |lost| drop(tell.send(lost)))).unwrap();
    losses
}

fn failure(result: Result<(), Error>) -> Failure {
    match result {
        Err(Error::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_arrive_in_order_even_before_a_callback_is_set() {
    both_ways(3, LONG, |pe| {
        let (me, n) = (pe.pe(), pe.n_pes());
        for to in 0..n {
            pe.send(to, &[me as u8, 1]).unwrap();
        }
        pe.barrier("sent").unwrap();
        let (tell, messages) = channel();
        pe.on_message(Box::new(move |message| drop(tell.send(message)))).unwrap();
        assert!(matches!(pe.on_message(Box::new(|_| ())), Err(Error::CallbackExists)));
        for to in 0..n {
            pe.send(to, &[me as u8, 2]).unwrap();
        }
        let mut got: Vec<PeerMessage> = (0..2 * n).map(|_| messages.recv_timeout(LONG).unwrap()).collect();
        // The sort is stable, so it keeps the order of each sender's messages.
        got.sort_by_key(|message| message.from);
        let wanted = (0..n).flat_map(|from| [1, 2].map(|i| PeerMessage { from, bytes: vec![from as u8, i] }));
        assert_eq!(got, wanted.collect::<Vec<_>>());
        pe.barrier("read").unwrap();
        pe.finish().unwrap();
        assert!(matches!(pe.send(0, &[]), Err(Error::Left { .. })));
    });
}

#[test]
fn rejects_messages_to_missing_pes_and_oversized_messages() {
    both_ways(2, LONG, |pe| {
        let error = pe.send(2, &[]).unwrap_err();
        assert!(matches!(error, Error::NoPe { pe: 2, n_pes: 2 }), "{error}");
        let error = pe.send(0, &vec![0; wire::MESSAGE_LIMIT + 1]).unwrap_err();
        assert!(error.to_string().contains("message to PE 0"), "{error}");
        pe.barrier("done").unwrap();
        pe.finish().unwrap();
    });
}

#[test]
fn allgather_keeps_order_and_content() {
    both_ways(4, LONG, |pe| {
        let me = pe.pe();
        for round in 0..50u32 {
            let mine = vec![me as u8; (me * round) as usize];
            let all = pe.allgather("round", &mine).unwrap();
            let expected: Vec<Vec<u8>> = (0..4).map(|pe| vec![pe as u8; (pe * round) as usize]).collect();
            assert_eq!(*all, expected);
            pe.barrier("round").unwrap();
        }
        pe.finish().unwrap();
    });
}

#[test]
fn job_may_have_a_single_pe() {
    both_ways(1, LONG, |pe| {
        assert_eq!(*pe.allgather("a", b"x").unwrap(), vec![b"x".to_vec()]);
        pe.barrier("b").unwrap();
        pe.finish().unwrap();
        assert!(matches!(pe.barrier("c"), Err(Error::Left { .. })));
    });
}

#[test]
fn finishing_does_not_wait_for_pes_of_the_next_job() {
    let (server, token) = server(2, Duration::ZERO);
    let join = |pe| Tcp::join(member(&server, &token, pe, 2, LONG)).unwrap();
    let (mut first, mut second) = thread::scope(|scope| {
        let second = scope.spawn(|| join(1));
        (join(0), second.join().unwrap())
    });
    for job in 0..100 {
        (first, second) = thread::scope(|scope| {
            second.finish().unwrap();
            let next = scope.spawn(|| join(1));
            let waited = scope.spawn(|| {
                let begin = Instant::now();
                assert!(server.wait_for_pes(job, LONG).0.is_empty());
                begin.elapsed()
            });
            // By now, both threads are probably waiting. The test does not depend on it.
            thread::sleep(Duration::from_millis(5));
            first.finish().unwrap();
            let waited = waited.join().unwrap();
            assert!(waited < LONG / 2, "waited {waited:?} for nobody, at job {job}");
            (join(0), next.join().unwrap())
        });
    }
}

#[test]
fn joining_the_next_job_names_unfinished_pes() {
    let (server, token) = server(2, Duration::ZERO);
    let join = |pe, timeout| Tcp::join(member(&server, &token, pe, 2, timeout));
    thread::scope(|scope| {
        let slow = scope.spawn(|| join(0, LONG).unwrap());
        join(1, LONG).unwrap().finish().unwrap();
        let slow = slow.join().unwrap();

        let error = join(1, Duration::from_millis(300)).err().unwrap().to_string();
        assert!(error.contains("next job of these processes, but PE 0 did not finish"), "{error}");
        // The failed attempt does not affect the jobs.
        let next = scope.spawn(|| join(1, LONG).unwrap());
        thread::sleep(Duration::from_millis(300));
        slow.finish().unwrap();
        let first = join(0, LONG).unwrap();
        first.finish().unwrap();
        next.join().unwrap().finish().unwrap();
    });
}

#[test]
fn different_tags_fail_on_all_pes() {
    both_ways(3, LONG, |pe| {
        let tag = if pe.pe() == 1 { "qps" } else { "heap" };
        let message = failure(pe.barrier(tag)).to_string();
        assert!(message.contains("in qps") && message.contains("PE 1"), "{message}");
        let again = failure(pe.barrier("heap")).to_string();
        assert_eq!(again, message);
    });
}

#[test]
fn different_calls_with_the_same_tag_fail() {
    both_ways(2, LONG, |pe| {
        let result = if pe.pe() == 0 { pe.barrier("x") } else { pe.allgather("x", &[]).map(drop) };
        assert!(matches!(failure(result), Failure::Mismatch { .. }));
    });
}

#[test]
fn missed_deadline_names_the_missing_pe() {
    let (done, wait) = (std::sync::Barrier::new(3), Duration::from_millis(100));
    both_ways(3, LONG, |pe| {
        if pe.pe() != 2 {
            let begin = Instant::now();
            let failure = failure(pe.barrier_within("start", wait));
            assert!(begin.elapsed() < LONG / 2);
            assert!(failure.to_string().contains("of 3 did not arrive at start"), "{failure}");
            let Failure::Missing { missing, .. } = failure else { panic!("{failure}") };
            assert_eq!(missing.0.last(), Some(&2));
        }
        done.wait();
    });
}

#[test]
fn abort_is_reported_to_calls_and_callbacks() {
    both_ways(3, LONG, |pe| {
        if pe.pe() == 1 {
            pe.barrier("begin").unwrap();
            pe.abort("out of cheese");
            assert!(matches!(pe.barrier("x"), Err(Error::Left { .. })));
            return;
        }
        let losses = losses(&*pe);
        pe.barrier("begin").unwrap();
        let reason = "aborted: out of cheese".into();
        let lost = PeerLost { pe: Some(1), reason, exit: None, survivable: false };
        assert_eq!(failure(pe.barrier("end")), Failure::Lost(lost.clone()));
        assert_eq!(losses.recv_timeout(LONG).unwrap(), lost);
    });
}

#[test]
fn exit_is_reported_to_all_pes_with_its_code() {
    both_ways(3, LONG, |pe| {
        if pe.pe() == 1 {
            return pe.exit(7);
        }
        let lost = losses(&*pe).recv_timeout(LONG).unwrap();
        assert_eq!(
            (lost.pe, lost.exit, lost.reason.as_str()),
            (Some(1), Some(7), "ended the job with code 7")
        );
        assert_eq!(failure(pe.barrier("x")), Failure::Lost(lost));
    });
}

#[test]
fn processes_can_run_several_jobs() {
    let (server, token) = server(3, Duration::ZERO);
    thread::scope(|scope| {
        for pe in 0..3 {
            let member = member(&server, &token, pe, 3, LONG);
            scope.spawn(move || {
                for round in 0..20u8 {
                    let job = Tcp::join(member.clone()).unwrap();
                    // A fast PE joins while another has not left the last job.
                    thread::sleep(Duration::from_millis(u64::from(pe * 3)));
                    let all = job.allgather("round", &[round, pe as u8]).unwrap();
                    assert_eq!(*all, (0..3).map(|pe| vec![round, pe]).collect::<Vec<_>>());
                    job.finish().unwrap();
                }
            });
        }
    });
}

/// Joins the job of `id` as each of `n` PEs, and runs `body` as each.
fn with_an_id(id: UniqueId, n: u32, config: &Config, body: impl Fn(&Tcp) + Sync) {
    thread::scope(|scope| {
        // Any PE may serve the ID, and it need not be the first to join.
        for pe in (0..n).rev() {
            let body = &body;
            scope.spawn(move || {
                let LocalPes::Process(tcp) = with_id(id, pe, n, config, "b".into()).unwrap().pes else {
                    panic!("not a process")
                };
                body(&tcp);
            });
        }
    });
}

#[test]
fn jobs_of_different_ids_do_not_mix() {
    let config = Config::default();
    let ids = [UniqueId::with_config(&config).unwrap(), UniqueId::with_config(&config).unwrap()];
    thread::scope(|scope| {
        for (i, id) in ids.into_iter().enumerate() {
            let config = &config;
            scope.spawn(move || {
                with_an_id(id, 3, config, |tcp| {
                    let all = tcp.allgather("who", &[i as u8, tcp.pe() as u8]).unwrap();
                    assert_eq!(*all, (0..3).map(|pe| vec![i as u8, pe]).collect::<Vec<_>>());
                    tcp.barrier("end").unwrap();
                    tcp.finish().unwrap();
                });
            });
        }
    });
    // Each ID was for one job.
    assert!(with_id(ids[0], 1, 3, &config, "b".into()).is_err());
}

#[test]
fn ids_work_over_ipv6() {
    let mut config = Config::default();
    config.set("bootstrap_family", "ipv6").unwrap();
    let id = match UniqueId::with_config(&config) {
        Ok(id) => id,
        Err(error) => return eprintln!("SKIPPED ids_work_over_ipv6: {error}"),
    };
    assert!(id.addr().is_ipv6());
    with_an_id(id, 2, &config, |tcp| {
        tcp.barrier("here").unwrap();
        tcp.finish().unwrap();
    });
}

#[test]
fn pe_that_never_joins_is_named_at_the_deadline() {
    let mut config = Config::default();
    config.set("bootstrap_timeout", "500ms").unwrap();
    let id = UniqueId::with_config(&config).unwrap();
    let begin = Instant::now();
    thread::scope(|scope| {
        for pe in [0, 2] {
            let config = &config;
            scope.spawn(move || {
                let told = with_id(id, pe, 3, config, "b".into()).err().unwrap().to_string();
                assert!(told.contains("PE 1 of 3 did not arrive at joining the job within"), "{told}");
            });
        }
    });
    assert!(begin.elapsed() < LONG);
    let told = with_id(id, 3, u32::MAX, &config, "b".into()).err().unwrap().to_string();
    assert_eq!(
        told,
        "a job has at most 65536 PEs, and this one asks for 4294967295; lower the number of PEs"
    );
    config.set("pes", "4294967295").unwrap();
    assert!(matches!(from_env(&config, "b".into()), Err(Error::TooManyPes { n_pes: u32::MAX })));
    let told = with_id(id, 3, 3, &config, "b".into()).err().unwrap().to_string();
    assert_eq!(told, "there is no PE 3: the job has 3, numbered from 0");
}

#[test]
fn process_with_the_server_leaves_last() {
    let config = Config::default();
    let id = UniqueId::with_config(&config).unwrap();
    with_an_id(id, 3, &config, |tcp| {
        tcp.barrier("end").unwrap();
        if tcp.pe() != 0 {
            thread::sleep(Duration::from_millis(300));
        }
        tcp.finish().unwrap();
    });
    let id = UniqueId::with_config(&config).unwrap();
    with_an_id(id, 3, &config, |tcp| {
        // Any PE may run the server. The others learn of the exit, not of the loss of the server.
        if tcp.pe() == 0 {
            return tcp.exit(9);
        }
        let lost = losses(tcp).recv_timeout(LONG).unwrap();
        assert_eq!((lost.pe, lost.exit), (Some(0), Some(9)), "{lost:?}");
        // The runtime exits in the same way, and any of these PEs may run the server.
        tcp.exit(9);
    });
}

#[test]
fn leaving_without_finish_is_a_loss_even_for_late_callbacks() {
    both_ways(2, LONG, |pe| {
        pe.barrier("begin").unwrap();
        if pe.pe() == 1 {
            return;
        }
        let Failure::Lost(lost) = failure(pe.barrier("end")) else { panic!("no loss") };
        assert_eq!(lost.pe, Some(1));
        assert!(lost.reason.contains("without finish()"), "{lost}");
        assert_eq!(losses(&*pe).recv_timeout(LONG).unwrap(), lost);
        assert!(matches!(pe.on_peer_lost(Box::new(|_| ())), Err(Error::CallbackExists)));
    });
}

#[test]
fn panic_is_a_loss() {
    let panics = |pe: Pe| {
        let _pe = pe;
        std::panic::resume_unwind(Box::new("on purpose"));
    };
    both_ways(2, LONG, |pe| {
        if pe.pe() == 1 {
            assert!(thread::scope(|scope| scope.spawn(|| panics(pe)).join()).is_err());
            return;
        }
        let Failure::Lost(lost) = failure(pe.barrier("end")) else { panic!("no loss") };
        assert!(lost.reason.contains("panicked"), "{lost}");
    });
}

#[test]
fn finished_pe_receives_no_losses() {
    both_ways(2, LONG, |pe| {
        let losses = losses(&*pe);
        pe.barrier("end").unwrap();
        pe.finish().unwrap();
        drop(pe);
        assert!(losses.recv_timeout(LONG).is_err());
    });
}

#[test]
fn call_after_another_pe_finished_fails() {
    both_ways(2, LONG, |pe| {
        if pe.pe() == 1 {
            return pe.finish().unwrap();
        }
        let failure = failure(pe.barrier("more"));
        assert_eq!(failure, Failure::Left { call: "barrier `more`".into(), pes: Pes(vec![1]) });
        pe.finish().unwrap();
    });
}

#[test]
fn rejects_oversized_contributions() {
    both_ways(1, LONG, |pe| {
        let most = wire::part_limit(1);
        assert_eq!(pe.allgather("a", &vec![1; most]).unwrap()[0].len(), most);
        assert!(matches!(pe.allgather("a", &vec![1; most + 1]), Err(Error::TooLarge { .. })));
        pe.finish().unwrap();
    });
}

#[test]
fn wrong_token_is_rejected_without_affecting_the_job() {
    let (server, token) = server(1, Duration::ZERO);
    let wrong = member(&server, &Token::generate().unwrap(), 0, 1, LONG);
    let message = Tcp::join(wrong).err().unwrap().to_string();
    assert!(message.contains("its token is not this job's"), "{message}");
    Tcp::join(member(&server, &token, 0, 1, LONG)).unwrap().finish().unwrap();
}

#[test]
fn detects_a_fake_launcher() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string();
    let fake = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        write_frame(&mut stream, &Message::Hello { protocol: PROTOCOL, nonce: [0; 32] }).unwrap();
        read_frame(&mut stream, 256).unwrap();
        write_frame(&mut stream, &Message::Proof { proof: [0; 32] }).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        write_frame(&mut stream, &Message::Hello { protocol: PROTOCOL + 1, nonce: [0; 32] }).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let join = || {
        let token = Token::generate().unwrap();
        let (server, build_id) = (server.clone(), "b".to_string());
        let member = Member { server, token, pe: 0, n_pes: 1, build_id, timeout: LONG, retry: false };
        Tcp::join(member).err().unwrap().to_string()
    };
    assert!(join().contains("does not know this job's token"));
    assert!(join().contains(&format!("protocol {}", PROTOCOL + 1)));
    assert!(join().contains("is not this job's launcher"));
    fake.join().unwrap();
}

#[test]
fn rejects_two_builds_in_one_job() {
    let (server, token) = server(3, Duration::ZERO);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|pe| {
                let mut member = member(&server, &token, pe, 3, LONG);
                member.build_id = if pe == 1 { "new".into() } else { "old".into() };
                scope.spawn(|| Tcp::join(member).err().unwrap().to_string())
            })
            .collect();
        for thread in threads {
            let message = thread.join().unwrap();
            assert!(
                message.contains("two different builds") && message.contains("PE 1 is build new"),
                "{message}"
            );
        }
    });
}

#[test]
fn rejects_wrong_pe_numbers() {
    let (server, token) = server(2, Duration::ZERO);
    let join = |pe, n_pes| Tcp::join(member(&server, &token, pe, n_pes, LONG)).err().unwrap().to_string();
    assert!(join(0, 3).contains("this job has 2 PEs, and the process that joins as PE 0 expects 3"));
    assert!(join(2, 2).contains("there is no PE 2"));
    thread::scope(|scope| {
        let first = scope.spawn(|| Tcp::join(member(&server, &token, 0, 2, LONG)).map(drop));
        // The first PE 0 must join before the second.
        thread::sleep(Duration::from_millis(300));
        assert!(join(0, 2).contains("two processes join as PE 0"));
        Tcp::join(member(&server, &token, 1, 2, LONG)).unwrap().finish().unwrap();
        first.join().unwrap().unwrap();
    });
}

#[test]
fn missed_join_deadline_names_the_missing_pes() {
    let (server, token) = server(4, Duration::ZERO);
    let error = Tcp::join(member(&server, &token, 1, 4, Duration::from_secs(1))).err().unwrap();
    assert!(error.to_string().contains("PEs 0, 2-3 of 4 did not arrive at joining the job"), "{error}");
}

#[test]
fn missing_launcher_is_an_error_before_the_deadline() {
    let (server, token) = server(1, Duration::ZERO);
    let mut member = member(&server, &token, 0, 1, LONG);
    drop(server);
    let begin = Instant::now();
    let message = Tcp::join(member.clone()).err().unwrap().to_string();
    assert!(message.contains("cannot reach the job's launcher at 127.0.0.1:"), "{message}");
    assert!(begin.elapsed() < LONG / 2);
    (member.retry, member.timeout) = (true, Duration::from_secs(1));
    let begin = Instant::now();
    assert!(matches!(Tcp::join(member), Err(Error::Connect { .. })));
    assert!(begin.elapsed() > Duration::from_millis(800));
}

#[test]
fn lost_launcher_is_a_loss() {
    let (server, token) = server(1, Duration::ZERO);
    let pe = Tcp::join(member(&server, &token, 0, 1, LONG)).unwrap();
    let losses = losses(&pe);
    drop(server);
    assert_eq!(losses.recv_timeout(LONG).unwrap().pe, None);
    assert!(failure(pe.barrier("x")).to_string().contains("the job's launcher was lost"));
    assert!(pe.finish().is_err());
}

#[test]
fn loss_of_the_server_names_its_pe() {
    let token = Token::generate().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let (host, exit_wait) = (Some(0), Duration::ZERO);
    let options = ServerOptions { n_pes: 2, host, token: token.clone(), listen, exit_wait, heartbeat: None };
    let server = Server::start(options).unwrap();
    let join = |pe| Tcp::join(member(&server, &token, pe, 2, LONG)).unwrap();
    let (_first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| join(1));
        (join(0), second.join().unwrap())
    });
    let losses = losses(&second);
    drop(server);
    let lost = losses.recv_timeout(LONG).unwrap();
    assert_eq!(lost.to_string(), "PE 0 was lost: it ran the job's server, and it closed the connection");
    assert_eq!(failure(second.barrier("x")), Failure::Lost(lost));
    assert!(second.finish().is_err());
}

#[test]
fn observer_reports_exits_and_receives_losses() {
    let (server, token) = server(2, LONG);
    let (tell, events) = channel();
    let observer = Observer::connect(&server.addr().to_string(), &token, 0, 2, LONG, false, move |event| {
        tell.send(event).unwrap();
    })
    .unwrap();
    thread::scope(|scope| {
        let lost = scope.spawn(|| Tcp::join(member(&server, &token, 1, 2, LONG)).map(drop));
        let pe = Tcp::join(member(&server, &token, 0, 2, LONG)).unwrap();
        lost.join().unwrap().unwrap();
        observer.exited(1, "was killed by SIGKILL");
        let Failure::Lost(lost) = failure(pe.barrier("x")) else { panic!("no loss") };
        assert_eq!(lost.reason, "was killed by SIGKILL, before it had finished the job");
        assert_eq!(events.recv_timeout(LONG).unwrap(), ServerEvent::Lost(lost));
        assert_eq!(events.recv_timeout(LONG).unwrap(), ServerEvent::Noted(1));
        pe.finish().unwrap();
    });
    observer.exited(0, "exited with code 0");
    observer.finish(LONG).unwrap();
    assert_eq!(events.try_iter().collect::<Vec<_>>(), [ServerEvent::Noted(0)]);
    assert!(server.wait_for_observers(1, Some(LONG)).is_empty());
    assert_eq!(server.wait_for_observers(2, Some(Duration::from_millis(10))), vec![1]);

    let (tell, events) = channel();
    let again = Observer::connect(&server.addr().to_string(), &token, 0, 2, LONG, false, move |event| {
        tell.send(event).unwrap();
    });
    let ServerEvent::Refused(reason) = events.recv_timeout(LONG).unwrap() else { panic!("not refused") };
    assert!(reason.contains("two launchers use node number 0"), "{reason}");
    drop(again);
}

#[test]
fn exit_before_joining_is_a_loss() {
    let (server, token) = server(2, LONG);
    let observer = Observer::connect(&server.addr().to_string(), &token, 0, 2, LONG, false, |_| ()).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| Tcp::join(member(&server, &token, 0, 2, LONG)).map(drop));
        observer.exited(1, "exited with code 3");
        let message = waiting.join().unwrap().unwrap_err().to_string();
        assert_eq!(message, "PE 1 was lost: exited with code 3, before it joined the job");
    });
}

#[test]
fn idle_connections_do_not_stop_a_job() {
    let (server, token) = server(2, Duration::ZERO);
    let connect = |_| TcpStream::connect(server.addr()).unwrap();
    let idle: Vec<_> = (0..200).map(connect).collect();
    thread::scope(|scope| {
        for pe in 0..2 {
            let member = member(&server, &token, pe, 2, LONG);
            scope.spawn(|| Tcp::join(member).unwrap().finish().unwrap());
        }
        // More connections arrive during the handshakes of the PEs.
        drop((0..200).map(connect).collect::<Vec<_>>());
    });
    // The server closed the oldest connections.
    idle[0].set_read_timeout(Some(LONG)).unwrap();
    let closed = (&idle[0]).read_to_end(&mut Vec::new());
    assert!(!closed.is_err_and(|error| dial::is_timeout(&error)));
}

#[test]
fn idle_connections_do_not_close_an_authenticated_one() {
    let (server, token) = server(1, Duration::ZERO);
    let address = server.addr().to_string();
    let dial = Dial { server: &address, token: &token, n_pes: 1, within: LONG, retry: false };
    let mut authenticated = dial.open().unwrap();
    let idle: Vec<_> = (0..200).map(|_| TcpStream::connect(server.addr()).unwrap()).collect();
    // The server has closed the oldest of them, so it would have closed an older one before.
    idle[0].set_read_timeout(Some(LONG)).unwrap();
    assert!(!(&idle[0]).read_to_end(&mut Vec::new()).is_err_and(|error| dial::is_timeout(&error)));
    let join = Message::Join { pe: 0, n_pes: 1, build: "b".into(), origin: String::new() };
    write_frame(&mut authenticated, &join).unwrap();
    authenticated.set_read_timeout(Some(LONG)).unwrap();
    assert!(read_frame(&mut authenticated, HANDSHAKE_LIMIT).unwrap().is_some(), "it was closed");
}

#[test]
fn pe_retries_after_a_closed_handshake() {
    let token = Token::generate().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = listener.local_addr().unwrap();
    let drop_two = thread::spawn(move || {
        drop(listener.accept().unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        write_frame(&mut stream, &Message::Hello { protocol: PROTOCOL, nonce: [0; 32] }).unwrap();
        drop(stream);
        listener
    });
    let options = ServerOptions {
        n_pes: 1,
        host: None,
        token: token.clone(),
        listen,
        exit_wait: Duration::ZERO,
        heartbeat: None,
    };
    thread::scope(|scope| {
        let server = listen.to_string();
        let build_id = "b".to_string();
        let member = Member { server, token, pe: 0, n_pes: 1, build_id, timeout: LONG, retry: false };
        let pe = scope.spawn(|| Tcp::join(member).unwrap().finish().unwrap());
        let _server = Server::on(drop_two.join().unwrap(), options).unwrap();
        pe.join().unwrap();
    });
}

#[test]
fn garbage_from_other_programs_does_not_affect_the_job() {
    let (server, token) = server(1, Duration::ZERO);
    let mut strangers = Vec::new();
    for noise in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 64], &[1, 0, 0, 0, 99], &[0; 4096]] {
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        stream.write_all(noise).unwrap();
        strangers.push(stream);
    }
    Tcp::join(member(&server, &token, 0, 1, LONG)).unwrap().finish().unwrap();
    drop(server);
    for mut stream in strangers {
        // The connection is closed or reset.
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert!(!dial::is_timeout(&error), "{error}"),
        }
    }
}
