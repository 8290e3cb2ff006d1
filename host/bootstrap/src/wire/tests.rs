use proptest::prelude::*;

use super::*;

fn samples() -> Vec<Message> {
    let lost = |pe| PeerLost {
        pe,
        reason: "killed by SIGKILL".into(),
        exit: pe.map(|_| 7),
        survivable: pe.is_some(),
    };
    let pes = || Pes(vec![1, 2, 5]);
    vec![
        Message::Hello { protocol: 1, nonce: [7; 32] },
        Message::Auth { protocol: 1, nonce: [8; 32], proof: [9; 32] },
        Message::Proof { proof: [3; 32] },
        Message::Refused { reason: "no".into() },
        Message::Join { pe: 3, n_pes: 4, build: "b".into(), origin: "pid 1 on h".into() },
        Message::Observe { node: 2 },
        Message::Gather { call: "allgather `x`".into(), bytes: vec![0, 1, 2] },
        Message::GiveUp { waited_ms: 1234 },
        Message::Abort { reason: "out of memory".into(), exit: Some(3) },
        Message::Finish,
        Message::Exited { pe: 1, how: "exited with code 3".into() },
        Message::Gathered { parts: vec![vec![], vec![1], vec![2, 2]] },
        Message::Failed(Failure::Lost(lost(Some(2)))),
        Message::Failed(Failure::Mismatch { calls: vec![("a".into(), pes()), ("b".into(), Pes(vec![0]))] }),
        Message::Failed(Failure::Missing {
            call: "c".into(),
            waited: Duration::from_millis(1500),
            missing: pes(),
            n_pes: 8,
        }),
        Message::Failed(Failure::Left { call: "d".into(), pes: pes() }),
        Message::Failed(Failure::Builds { first_pe: 0, first_build: "x".into(), pe: 1, build: "y".into() }),
        Message::Lost(lost(None)),
        Message::Left,
        Message::Noted { pe: 6 },
        Message::Send { to: 7, bytes: vec![1, 2] },
        Message::FromPeer(PeerMessage { from: 8, bytes: vec![3] }),
        Message::FormEpoch { admits: true },
        Message::Epoch(Epoch { number: 2, pes: vec![0, 3], joined: vec![3] }),
        Message::Ping { silence_ms: 800 },
        Message::Pong,
        Message::Past { call: "barrier `x`".into(), parts: vec![vec![7], vec![]] },
    ]
}

#[test]
fn every_message_kind_round_trips() {
    let mut stream = Vec::new();
    for message in samples() {
        assert_eq!(Message::decode(&message.encode()), Ok(message.clone()));
        write_frame(&mut stream, &message).unwrap();
    }
    let mut from = stream.as_slice();
    for message in samples() {
        assert_eq!(read_frame(&mut from, 256).unwrap(), Some(message));
    }
    assert_eq!(read_frame(&mut from, 256).unwrap(), None);
}

#[test]
fn samples_cover_every_message_kind() {
    let kinds: Vec<u8> = samples().iter().map(|message| message.encode()[0]).collect();
    assert_eq!(kinds, (1..=27).collect::<Vec<u8>>());
}

#[test]
fn rejects_shortened_and_lengthened_messages() {
    for message in samples() {
        let bytes = message.encode();
        for end in 0..bytes.len() {
            assert!(Message::decode(&bytes[..end]).is_err(), "{message:?} cut at {end}");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(Message::decode(&longer), Err(Malformed::Long), "{message:?}");
    }
}

#[test]
fn claimed_length_allocates_no_memory() {
    let mut list = vec![12];
    list.extend_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Message::decode(&list), Err(Malformed::Short));

    let claim = [0x00, 0x00, 0x00, 0x10, 1, 2, 3];
    let error = read_frame(&mut claim.as_slice(), usize::MAX).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    let error = read_frame(&mut claim.as_slice(), HANDSHAKE_LIMIT).unwrap_err();
    assert!(error.to_string().contains("268435456 bytes exceeds the limit of 256"), "{error}");
}

#[test]
fn long_text_is_truncated_at_a_character_boundary() {
    let message = Message::Abort { reason: "é".repeat(TEXT_LIMIT), exit: None };
    let Ok(Message::Abort { reason, .. }) = Message::decode(&message.encode()) else { panic!("not decoded") };
    assert_eq!(reason, "é".repeat(TEXT_LIMIT / 2));
}

#[test]
fn largest_contributions_fit_the_message_limits() {
    for n_pes in [1, 2, 16, 1000, 1 << 20] {
        let bytes = vec![0; part_limit(n_pes)];
        let gather = Message::Gather { call: "x".repeat(TEXT_LIMIT), bytes };
        assert!(gather.encode().len() <= server_limit(n_pes));
        assert!(5 + (4 + part_limit(n_pes)) * n_pes as usize <= client_limit(n_pes));
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_decode_or_fail(mut bytes: Vec<u8>, kind in 0u8..28) {
        check_any_bytes(&bytes);
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        check_any_bytes(&bytes);
    }

    #[test]
    fn changed_byte_never_panics(which in 0usize..27, at: usize, to: u8) {
        let mut bytes = frame(&samples()[which]);
        let at = at % bytes.len();
        bytes[at] = to;
        check_any_bytes(&bytes);
        check_any_bytes(&bytes[4..]);
    }
}

#[test]
fn fuzz_corpus() {
    let frames = samples().iter().map(frame).collect::<Vec<_>>();
    let messages = samples().iter().map(Message::encode).chain([frames.concat()]).collect::<Vec<_>>();
    rushmem_corpus::target!("..", "wire").messages(messages).run(50_000, check_any_bytes);
}
