//! Tests of heartbeats in jobs that survive losses.

use super::*;

const HEARTBEAT: Duration = Duration::from_secs(1);

fn server_with_heartbeats(n_pes: u32) -> (Server, Token) {
    let token = Token::generate().unwrap();
    let (listen, heartbeat) = ("127.0.0.1:0".parse().unwrap(), Some(HEARTBEAT));
    let options = ServerOptions {
        n_pes,
        host: None,
        token: token.clone(),
        listen,
        exit_wait: Duration::ZERO,
        heartbeat,
    };
    (Server::start(options).unwrap(), token)
}

/// Joins the job as PE 1 of 3 and waits for the first epoch, without answers to heartbeats.
fn silent_pe(server: &Server, token: &Token) -> TcpStream {
    let address = server.addr().to_string();
    let mut stream = Dial { server: &address, token, n_pes: 3, within: LONG, retry: false }.open().unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let join = Message::Join { pe: 1, n_pes: 3, build: "b".into(), origin: String::new() };
    write_frame(&mut stream, &join).unwrap();
    assert!(matches!(read(&mut stream), Some(Message::Gathered { .. })));
    write_frame(&mut stream, &Message::FormEpoch { admits: true }).unwrap();
    assert!(matches!(read(&mut stream), Some(Message::Epoch(_))));
    stream
}

fn read(stream: &mut TcpStream) -> Option<Message> {
    read_frame(stream, HANDSHAKE_LIMIT).unwrap()
}

#[test]
fn silent_pe_is_lost_and_cut_off() {
    let (server, token) = server_with_heartbeats(3);
    thread::scope(|scope| {
        for pe in [0, 2] {
            let member = member(&server, &token, pe, 3, LONG);
            scope.spawn(|| {
                let pe = Tcp::join(member).unwrap();
                let losses = losses(&pe);
                pe.form_epoch_within(LONG).unwrap();
                let reason = "no sign of life for 1s".into();
                let lost = PeerLost { pe: Some(1), reason, exit: None, survivable: true };
                assert_eq!(losses.recv_timeout(LONG).unwrap(), lost);
                assert_eq!(
                    pe.form_epoch_within(LONG).unwrap(),
                    Epoch { number: 2, pes: vec![0, 2], joined: vec![] }
                );
                pe.finish().unwrap();
            });
        }
        let mut silent = silent_pe(&server, &token);
        assert_eq!(read(&mut silent), Some(Message::Ping { silence_ms: 4000 }));
        // A single ping is unanswered when the server closes the connection.
        assert_eq!(read(&mut silent), None);
    });
}

#[test]
fn silent_pe_without_heartbeats_is_not_lost() {
    let (server, token) = server(3, Duration::ZERO);
    thread::scope(|scope| {
        for pe in [0, 2] {
            let member = member(&server, &token, pe, 3, LONG);
            scope.spawn(|| {
                let pe = Tcp::join(member).unwrap();
                pe.form_epoch_within(LONG).unwrap();
                pe.barrier("end").unwrap();
                pe.finish().unwrap();
            });
        }
        let mut silent = silent_pe(&server, &token);
        thread::sleep(2 * HEARTBEAT);
        write_frame(&mut silent, &Message::Gather { call: "barrier `end`".into(), bytes: Vec::new() })
            .unwrap();
        assert!(matches!(read(&mut silent), Some(Message::Gathered { .. })));
        write_frame(&mut silent, &Message::Finish).unwrap();
        assert_eq!(read(&mut silent), Some(Message::Left));
    });
}

#[test]
fn heartbeats_keep_an_idle_pe_alive() {
    let (server, token) = server_with_heartbeats(2);
    thread::scope(|scope| {
        for pe in 0..2 {
            let member = member(&server, &token, pe, 2, LONG);
            scope.spawn(|| {
                let pe = Tcp::join(member).unwrap();
                // Heartbeats do not limit the time before the first epoch.
                thread::sleep(2 * HEARTBEAT);
                pe.form_epoch_within(LONG).unwrap();
                thread::sleep(2 * HEARTBEAT);
                pe.barrier("end").unwrap();
                pe.finish().unwrap();
            });
        }
    });
}

#[test]
fn silent_server_is_lost() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (server, token) = (listener.local_addr().unwrap().to_string(), Token::generate().unwrap());
    let known = token.clone();
    let (end, is_over) = channel::<()>();
    let silent = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        write_frame(&mut stream, &Message::Hello { protocol: PROTOCOL, nonce: [7; 32] }).unwrap();
        let Some(Message::Auth { nonce, .. }) = read(&mut stream) else { panic!("no proof") };
        let proof = known.proof(Role::Launcher, &[7; 32], &nonce);
        write_frame(&mut stream, &Message::Proof { proof }).unwrap();
        assert!(matches!(read(&mut stream), Some(Message::Join { .. })));
        write_frame(&mut stream, &Message::Gathered { parts: vec![Vec::new()] }).unwrap();
        write_frame(&mut stream, &Message::Ping { silence_ms: 50 }).unwrap();
        assert_eq!(read(&mut stream), Some(Message::Pong));
        // Keep the connection open.
        is_over.recv().unwrap_err();
    });
    let build_id = "b".to_string();
    let member = Member { server, token, pe: 0, n_pes: 1, build_id, timeout: LONG, retry: false };
    let pe = Tcp::join(member).unwrap();
    let lost = losses(&pe).recv_timeout(LONG).unwrap();
    assert_eq!(lost.to_string(), "the job's launcher was lost: it gave no sign of life for 50ms");
    assert_eq!(failure(pe.barrier("x")), Failure::Lost(lost));
    drop(end);
    silent.join().unwrap();
}
