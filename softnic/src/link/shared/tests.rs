//! Tests of packet rings and their connections, including hostile peers.

use super::mapping::Mapping;
use super::ring::{Consumer, MAX_BYTES, MIN_BYTES, Producer, SLOT, SLOT_AT};
use super::*;
use crate::roce::MAX_PACKET;
use std::convert::Infallible;
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::{FromRawFd, OwnedFd};

/// Returns a loopback address that no other test uses.
fn address() -> SocketAddrV4 {
    use std::sync::atomic::AtomicU16;
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let port = NEXT.fetch_add(1, Ordering::Relaxed);
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(127, 99, high, low), port)
}

fn link() -> SharedLink {
    SharedLink::open(address()).unwrap()
}

/// Sends a packet of `len` bytes, all equal to `value`. Returns whether it went into a ring instead of UDP.
fn send(link: &mut SharedLink, to: SocketAddrV4, value: u8, len: usize) -> bool {
    link.room(to, Instant::now());
    let filled = link.send(to, len, false, |packet| {
        packet.fill(value);
        Ok::<(), Infallible>(())
    });
    link.publish();
    filled.is_some()
}

/// Handles connections and receives packets. Returns each sender with its packet.
fn receive(link: &mut SharedLink) -> Vec<(SocketAddrV4, Vec<u8>)> {
    let mut got = Vec::new();
    link.attend(|from, bytes, _| got.push((from, bytes.to_vec())));
    link.receive(|from, bytes, _| got.push((from, bytes.to_vec())));
    got
}

#[test]
fn packets_arrive_in_order() {
    let (producer, file) = Producer::create(MIN_BYTES).unwrap();
    let mut consumer = Consumer::adopt(&file).unwrap();
    let len_of = |number: u32| 4 + (number as usize * 2_654_435 % (MAX_PACKET - 3));
    const PACKETS: u32 = 20_000;
    let sending = std::thread::spawn(move || {
        let mut producer = producer;
        for number in 0..PACKETS {
            let len = len_of(number);
            loop {
                if let Some(packet) = producer.reserve(len) {
                    packet.fill(number as u8);
                    packet[..4].copy_from_slice(&number.to_le_bytes());
                    producer.commit(len, number % 3 == 0);
                    break;
                }
                producer.publish();
                std::thread::yield_now();
            }
            if number % 5 == 0 || producer.is_ripe() {
                producer.publish();
            }
        }
        producer.publish();
    });
    let mut slot = [0; SLOT];
    for number in 0..PACKETS {
        let (len, is_sealed) = loop {
            if let Some(got) = consumer.pop(&mut slot).unwrap() {
                break got;
            }
            consumer.release();
            consumer.look().unwrap();
            std::thread::yield_now();
        };
        let packet = &slot[SLOT_AT..SLOT_AT + len];
        assert_eq!((len, is_sealed), (len_of(number), number % 3 == 0));
        assert_eq!(packet[..4], number.to_le_bytes());
        assert!(packet[4..].iter().all(|byte| *byte == number as u8));
    }
    sending.join().unwrap();
}

#[test]
fn a_full_ring_signals_when_it_has_room() {
    let (mut producer, file) = Producer::create(MIN_BYTES).unwrap();
    let mut consumer = Consumer::adopt(&file).unwrap();
    let mut packets = 0;
    while producer.room().unwrap() > 0 {
        producer.reserve(MAX_PACKET).unwrap().fill(0);
        producer.commit(MAX_PACKET, false);
        packets += 1;
    }
    assert!(packets >= MIN_BYTES / MAX_PACKET - 2, "{packets}");
    assert!(!producer.publish(), "the consumer is awake");
    let (mut slot, mut told) = ([0; SLOT], 0);
    assert!(consumer.look().unwrap());
    while consumer.pop(&mut slot).unwrap().is_some() {
        told += u32::from(consumer.release());
    }
    assert_eq!(told, 1, "the producer wakes once");
    assert!(producer.room().unwrap() > packets / 2);
    consumer.doze(true);
    producer.reserve(8).unwrap().fill(0);
    producer.commit(8, false);
    assert!(producer.publish(), "the consumer sleeps");
    assert!(!producer.publish());
}

#[test]
fn only_sealed_memory_of_a_ring_is_mapped() {
    let adopt = |file: &OwnedFd| Consumer::adopt(file).map(|_| ()).map_err(|error| error.kind());
    let (_ring, file) = Producer::create(MIN_BYTES).unwrap();
    assert_eq!(adopt(&file), Ok(()));
    // Nobody can shrink it, which would kill its users with SIGBUS.
    let file = File::from(file);
    assert_eq!(file.set_len(0).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(file.set_len(1 << 30).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    for len in [0, 1, 4096, MIN_BYTES, MIN_BYTES + 8192, MAX_BYTES * 2 + 4096] {
        let (_mapping, file) = if len == 0 { continue } else { Mapping::create(len).unwrap() };
        assert_eq!(adopt(&file), Err(io::ErrorKind::InvalidData), "{len}");
    }
    let unsealed = memory_file(MIN_BYTES + 4096);
    assert_eq!(adopt(&unsealed), Err(io::ErrorKind::InvalidData));
    let other = OwnedFd::from(File::open("/proc/self/exe").unwrap());
    assert!(adopt(&other).is_err());
}

/// Creates a memory file without seals.
#[allow(unsafe_code, reason = "a system call")]
fn memory_file(len: usize) -> OwnedFd {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string; the result is a new descriptor.
    let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), flags)) };
    let file = File::from(file);
    file.set_len(len as u64).unwrap();
    file.into()
}

#[test]
fn the_first_packet_finds_the_peer() {
    let (mut a, mut b) = (link(), link());
    assert!(send(&mut a, b.local, 7, 100));
    assert_eq!(receive(&mut b), [(a.local, vec![7; 100])]);
    assert!(send(&mut b, a.local, 8, 50) && send(&mut b, a.local, 9, 51));
    assert_eq!(receive(&mut a), [(b.local, vec![8; 50]), (b.local, vec![9; 51])]);
}

#[test]
fn a_peer_without_shared_memory_is_reached_by_udp() {
    let mut a = link();
    let nobody = address();
    assert!(!send(&mut a, nobody, 1, 100));
    // The adapter does not try to connect for every packet, but later it does.
    let mut late = SharedLink::open(nobody).unwrap();
    assert!(!send(&mut a, nobody, 2, 100));
    assert!(a.room(nobody, Instant::now() + RECONNECT_INTERVAL).is_some());
    assert!(send(&mut a, nobody, 3, 100));
    assert_eq!(receive(&mut late), [(a.local, vec![3; 100])]);
}

#[test]
fn a_dead_peer_leaves_its_packets() {
    let (mut a, mut b) = (link(), link());
    let of_a = a.local;
    assert!(send(&mut a, b.local, 1, 100));
    assert_eq!(receive(&mut b).len(), 1);
    assert!(send(&mut b, of_a, 2, 100));
    receive(&mut a);
    for value in 3..103 {
        assert!(send(&mut a, b.local, value, 100));
    }
    drop(a);
    let got = receive(&mut b);
    assert_eq!(got.iter().map(|(_, bytes)| bytes[0]).collect::<Vec<_>>(), (3..103).collect::<Vec<_>>());
    assert_eq!((b.consumers.count(), b.producers.count()), (0, 0));
    assert!(!send(&mut b, of_a, 4, 100), "nobody listens there any more");
}

#[test]
fn connections_without_a_ring_are_closed() {
    let mut a = link();
    let stranger = address();
    let greeting_of = |file: &OwnedFd| rendezvous::connect(stranger, a.local, file).unwrap();
    let unsealed = greeting_of(&memory_file(MIN_BYTES + 4096));
    let short = greeting_of(&memory_file(1));
    let (_ring, file) = Producer::create(MIN_BYTES).unwrap();
    let good = greeting_of(&file);
    assert_eq!(receive(&mut a), []);
    assert_eq!(a.consumers.count(), 1);
    let ended = |socket| rendezvous::hear(socket).map_err(|error| error.kind());
    assert_eq!(ended(&unsealed), Err(io::ErrorKind::UnexpectedEof));
    assert_eq!(ended(&short), Err(io::ErrorKind::UnexpectedEof));
    assert_eq!(ended(&good), Err(io::ErrorKind::WouldBlock));
}

#[test]
fn a_corrupt_ring_ends_with_its_connection() {
    let (mut a, mut b) = (link(), link());
    assert!(send(&mut a, b.local, 1, 100));
    assert_eq!(receive(&mut b).len(), 1);
    let Some(outgoing) = a.producers.get_mut(0) else { panic!("no ring") };
    outgoing.ring.claim(1 << 40);
    assert_eq!(receive(&mut b), []);
    assert_eq!(b.consumers.count(), 0);
    assert_eq!(receive(&mut a), []);
    assert_eq!(a.producers.count(), 0);
    // The next packet creates a new ring.
    assert!(send(&mut a, b.local, 2, 100));
    assert_eq!(receive(&mut b), [(a.local, vec![2; 100])]);
}

#[test]
fn many_peers_take_bounded_memory() {
    let mut a = link();
    let mut peers: Vec<SharedLink> = (0..127).map(|_| link()).collect();
    for peer in &mut peers {
        assert!(send(&mut a, peer.local, 5, 1000), "{} rings", a.producers.count());
        assert!(send(peer, a.local, 6, 1000));
    }
    let bytes: usize = a.producers.values.iter().flatten().map(|outgoing| outgoing.ring.bytes()).sum();
    assert!(bytes <= 14 << 20, "{bytes}");
    // The epoll reports only a few at a time.
    let got: usize = (0..127).map(|_| receive(&mut a).len()).sum();
    assert_eq!(got, 127);
    for peer in &mut peers {
        assert_eq!(receive(peer), [(a.local, vec![5; 1000])]);
    }
}

#[test]
fn a_sleeping_peer_is_woken() {
    let (mut a, mut b) = (link(), link());
    assert!(send(&mut a, b.local, 1, 100));
    assert_eq!(receive(&mut b).len(), 1);
    b.doze(true);
    assert_eq!(b.epoll.ready().count(), 0);
    assert!(send(&mut a, b.local, 2, 100));
    assert_eq!(b.epoll.ready().count(), 1, "the packet ends the sleep");
    assert_eq!(receive(&mut b).len(), 1);
    b.doze(false);
    assert!(send(&mut a, b.local, 3, 100));
    assert_eq!(b.epoll.ready().count(), 0, "an adapter that is awake looks by itself");
    assert_eq!(receive(&mut b).len(), 1);
}
