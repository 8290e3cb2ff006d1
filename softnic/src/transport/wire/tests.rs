//! Tests of forged packets, which a third party on the network can send from the peer's address.

use crate::cmd;
use crate::fuzz::Harness;
use crate::objects::qp::State;
use crate::report::Stats;
use crate::roce::{Aeth, AethSyndrome, Ext, Nak, Op, Psn, Reth, Service};
use rushmem_mlx5::prm::qp::{DestroyQp, ToErr, ToRst};
use rushmem_mlx5::prm::{Command, Response as _};

/// First PSN of the tested connection in both directions.
const PSN: u32 = 0x40_0000;

/// A connection with a memory key, to the peer of a [`Harness`]. An attacker has to guess the QPN, the PSN and the
/// rkey.
struct Victim {
    harness: Harness,
    qpn: u32,
    rkey: u32,
}

impl Victim {
    fn new() -> Victim {
        let mut harness = Harness::new(true, 0);
        let (qpn, rkey) = (harness.qpn(), harness.key());
        let Some(qp) = harness.core.path.objects.qps.get_mut(qpn) else { panic!("no QP") };
        qp.recv_psn = Psn::new(PSN);
        qp.begin_sending(Psn::new(PSN));
        Victim { harness, qpn, rkey }
    }

    /// Processes a request that appears to come from the peer, and returns the adapter's counters since.
    fn request(&mut self, dest_qpn: u32, psn: u32, op: Op, reth: Reth) -> Stats {
        let payload = if op == Op::WriteOnly { reth.len as usize } else { 0 };
        self.packet(dest_qpn, psn, op, &Ext::Reth(reth), payload)
    }

    fn packet(&mut self, dest_qpn: u32, psn: u32, op: Op, ext: &Ext, payload: usize) -> Stats {
        self.harness.core.path.report.stats = Stats::default();
        self.harness.receive_of(Service::Rc, op, dest_qpn, psn, ext, payload);
        self.harness.core.path.report.stats
    }

    fn write(&mut self, dest_qpn: u32, psn: u32, rkey: u32) -> Stats {
        self.request(dest_qpn, psn, Op::WriteOnly, Reth { addr: 0, rkey, len: 8 })
    }

    fn read(&mut self, psn: u32, rkey: u32, len: u32) -> Stats {
        self.request(self.qpn, psn, Op::ReadRequest, Reth { addr: 0, rkey, len })
    }

    /// Checks that the connection expects the same PSNs as before, and that the heap is untouched.
    fn check_unharmed(&self) {
        let qp = self.harness.core.path.objects.qps.get(self.qpn).unwrap();
        assert_eq!((qp.state, qp.recv_psn, qp.send_psn), (State::Rts, Psn::new(PSN), Psn::new(PSN)));
        assert_eq!(self.first_word(), [0; 8]);
    }

    fn command<C: Command>(&mut self, command: &C) {
        let mut output = C::Output::EMPTY;
        let owner = self.harness.core.path.objects.qps.get(self.qpn).unwrap().owner;
        cmd::execute(&mut self.harness.core, owner, command.encode().as_ref(), output.as_mut());
        C::Output::decode(output.as_ref()).unwrap();
    }

    fn first_word(&self) -> [u8; 8] {
        let key = self.harness.core.path.objects.mkeys.get(self.rkey >> 8).unwrap();
        let mut word = [0; 8];
        key.memory.read(key.base, &mut word).unwrap();
        word
    }
}

#[test]
fn forged_writes_change_nothing() {
    let mut victim = Victim::new();
    let (qpn, rkey) = (victim.qpn, victim.rkey);
    for wrong in [0, 1, qpn ^ 0x4000, 0xff_ffff] {
        assert_eq!(victim.write(wrong, PSN, rkey).dropped, 1, "QP {wrong:#x}");
    }
    for psn in [0, PSN + 1, PSN + 0x7f_ffff, PSN - 1, PSN - 0x3f_ffff] {
        let counted = victim.write(qpn, psn, rkey);
        assert_eq!(counted.out_of_order + counted.duplicates, 1, "PSN {psn:#x}");
        victim.check_unharmed();
    }
    // With all three numbers, the request is the peer's.
    victim.write(qpn, PSN, rkey);
    assert_eq!(victim.first_word(), [0xee; 8]);
}

#[test]
fn packets_after_a_gap_are_kept_and_reported() {
    let mut victim = Victim::new();
    let (qpn, rkey) = (victim.qpn, victim.rkey);
    for ahead in [5, 2, 2, 1, 256, 257, 300] {
        assert_eq!(victim.write(qpn, PSN + ahead, rkey).out_of_order, 1);
    }
    let qp = victim.harness.core.path.objects.qps.get(qpn).unwrap();
    let bits = qp.resp.early.bits(qp.recv_psn);
    let set: Vec<usize> = (0..8 * bits.len()).filter(|i| bits[i / 8] >> (i % 8) & 1 == 1).collect();
    assert_eq!(set, [0, 1, 4, 255], "the first packet behind the missing one is bit 0");
    assert_eq!(victim.first_word(), [0; 8], "nothing is executed early");
    // The missing packet, which releases all that follow without a gap.
    victim.write(qpn, PSN, rkey);
    let expected = |victim: &Victim| victim.harness.core.path.objects.qps.get(qpn).unwrap().recv_psn;
    assert_eq!(expected(&victim), Psn::new(PSN + 3));
    victim.write(qpn, PSN + 4, rkey);
    victim.write(qpn, PSN + 3, rkey);
    assert_eq!(expected(&victim), Psn::new(PSN + 6));
    for _ in 0..1000 {
        victim.harness.core.pass(|| false);
    }
}

#[test]
fn forged_repeated_reads_change_nothing() {
    let mut victim = Victim::new();
    let rkey = victim.rkey;
    for (psn, rkey, len) in [
        (PSN - 1, rkey ^ 1, 8),
        (PSN - 1, rkey ^ 0x100, 8),
        // Each of these would advance the expected PSN past requests that were never executed.
        (PSN - 1, rkey, 4096),
        (PSN - 100, rkey, 60 << 10),
        (PSN - 1, rkey, u32::MAX),
    ] {
        let counted = victim.read(psn, rkey, len);
        assert_eq!((counted.duplicates, counted.dropped), (1, 1), "{psn:#x} {rkey:#x} {len}");
        victim.harness.core.pass(|| false);
        victim.check_unharmed();
    }
}

#[test]
fn a_repeated_read_may_be_longer() {
    let mut victim = Victim::new();
    let rkey = victim.rkey;
    // With an MTU of 256 bytes, two packets have been seen, and the repetition from the second one asks for four.
    victim.read(PSN, rkey, 512);
    let reth = Reth { addr: 256, rkey, len: 1024 };
    assert_eq!(victim.request(victim.qpn, PSN + 1, Op::ReadRequest, reth).dropped, 0);
    assert_eq!(victim.harness.core.path.objects.qps.get(victim.qpn).unwrap().recv_psn, Psn::new(PSN + 5));
}

/// A program may stop a QP as soon as it has received a message, but the peer still needs the acknowledgement.
#[test]
fn answers_are_sent_before_a_qp_stops() {
    type Stop = fn(&mut Victim);
    let stops: [Stop; 3] = [
        |victim| victim.command(&ToErr { qpn: victim.qpn, ..ToErr::default() }),
        |victim| victim.command(&ToRst { qpn: victim.qpn, ..ToRst::default() }),
        |victim| victim.command(&DestroyQp { qpn: victim.qpn, ..DestroyQp::default() }),
    ];
    for stop in stops {
        let mut victim = Victim::new();
        assert_eq!(victim.read(PSN, victim.rkey, 8).packets_sent, 0);
        stop(&mut victim);
        assert_eq!(victim.harness.core.path.report.stats.packets_sent, 1);
    }
}

#[test]
fn forged_acknowledgements_change_nothing() {
    let mut victim = Victim::new();
    for syndrome in [AethSyndrome::Ack, AethSyndrome::Nak(Nak::RemoteAccess)] {
        for psn in [0, PSN, PSN + 1, PSN - 2] {
            let counted = victim.packet(victim.qpn, psn, Op::Ack, &Ext::Aeth(Aeth { syndrome, msn: 0 }), 0);
            assert_eq!(counted.stale, 1, "PSN {psn:#x}");
            victim.check_unharmed();
        }
    }
}
