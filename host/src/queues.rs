//! Bring-up of a PE's queue pairs: memory, keys, queues, connections; and what kernels are told of them.
//!
//! ```text
//! prepare   heap and queue memory registered, PD, key, UARs, CREATE_CQ, CREATE_QP   (this PE alone)
//! connect   RST2INIT, INIT2RTR, RTR2RTS towards what the other PEs said              (after an exchange)
//! ```

use std::time::Duration;

use bytemuck::Zeroable;
use rushmem_device::abi::{DevAddr, DeviceState, PeerDesc, QpDesc, QpState, peer_flags, qp_flags, reserved};
use rushmem_mlx5::doorbell::Record;
use rushmem_mlx5::prm::caps::AtomicCaps;
use rushmem_mlx5::prm::{cq, qp};

use crate::Result;
use crate::config::{Config, CqKind, QueuePlace};
use crate::machine::{Machine, Region};
use crate::provider::{
    self, Key, Object, Pd, PortAddress, Provider, QUEUE_ALIGN, Uar, Umem, create, execute,
};

const WQEBB_BYTES: u64 = 64;
const CQE_BYTES: u64 = 64;
/// A doorbell record, alone in its line.
const RECORD_BYTES: u64 = 64;

/// How many QPs there are, and how deep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) n_pes: u32,
    pub(crate) shared_sets: u32,
    pub(crate) block_sets: u32,
    pub(crate) exclusive_sets: u32,
    pub(crate) depth: u64,
    pub(crate) collapsed: bool,
}

impl Shape {
    pub(crate) fn new(config: &Config, n_pes: u32) -> Self {
        Self {
            n_pes,
            shared_sets: config.qps_per_peer.get(),
            block_sets: config.block_qps,
            exclusive_sets: config.exclusive_qps,
            depth: config.sq_depth.get().into(),
            collapsed: config.cq == CqKind::Collapsed,
        }
    }

    pub(crate) fn qps(&self) -> u64 {
        let sets = u64::from(self.shared_sets) + u64::from(self.block_sets) + u64::from(self.exclusive_sets);
        sets * u64::from(self.n_pes)
    }

    /// Bytes of the heap that the runtime keeps for itself.
    pub(crate) fn reserved(&self) -> u64 {
        reserved::bytes(self.qps(), self.depth)
    }

    fn log_depth(&self) -> u8 {
        self.depth.trailing_zeros() as u8
    }

    /// Bytes of host memory that the queues of a PE need, words that kernels update included.
    pub(crate) fn memory(&self) -> u64 {
        let words = size_of::<QpState>() as u64 + size_of::<QpDesc>() as u64 + 2 * 8 * self.depth;
        self.qps().saturating_mul(self.queue_bytes() + words).saturating_add(self.reserved())
    }

    /// Bytes of queue memory that one QP needs: SQ, CQ, and a line for each doorbell record.
    fn queue_bytes(&self) -> u64 {
        (self.depth * WQEBB_BYTES).next_multiple_of(QUEUE_ALIGN)
            + (self.depth * CQE_BYTES + 2 * RECORD_BYTES).next_multiple_of(QUEUE_ALIGN)
    }
}

/// What a PE tells the others of its queue pairs.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Card {
    pub(crate) port: PortAddress,
    pub(crate) rkey: u32,
    /// QP numbers, set by set, one towards each PE.
    pub(crate) qpns: Vec<u32>,
}

struct Pair {
    object: Box<dyn Object>,
    _cq: Box<dyn Object>,
    uar: Box<dyn Uar>,
    qpn: u32,
}

/// The queue pairs of a PE. Fields drop in order: pairs, then keys, then memory.
pub(crate) struct Queues {
    pairs: Vec<Pair>,
    key: Box<dyn Key>,
    pd: Box<dyn Pd>,
    umem: Box<dyn Umem>,
    nic: Box<dyn Provider>,
    queues: Region,
    shape: Shape,
    eqn: u8,
    /// Bits of [`qp_flags`] that this NIC makes necessary.
    flags: u32,
}

impl Queues {
    /// Makes everything that needs no peer.
    ///
    /// # Errors
    /// What the machine or the NIC refuses.
    pub(crate) fn prepare(
        nic: Box<dyn Provider>,
        machine: &dyn Machine,
        heap: &Region,
        shape: Shape,
        place: QueuePlace,
    ) -> Result<Self> {
        let eqn = nic.eqn()?;
        let atomics: AtomicCaps = provider::capabilities(&*nic)?;
        let big_endian = atomics.atomic_req_8b_endianness_mode == 0;
        let (queues, umem) =
            provider::queue_memory(&*nic, machine, place, shape.qps() * shape.queue_bytes())?;
        let pd = nic.alloc_pd()?;
        let key = pd.register(heap)?;
        let mut flags = if shape.collapsed { qp_flags::COLLAPSED } else { 0 };
        flags |= if big_endian { qp_flags::BIG_ENDIAN_8 } else { 0 };
        let mut this = Self { pairs: Vec::new(), key, pd, umem, nic, queues, shape, eqn, flags };
        for i in 0..shape.qps() {
            let pair = this.pair(machine, i)?;
            this.pairs.push(pair);
        }
        Ok(this)
    }

    /// CREATE_CQ and CREATE_QP of pair number `i`.
    fn pair(&self, machine: &dyn Machine, i: u64) -> Result<Pair> {
        let (s, umem) = (&self.shape, self.umem.id());
        let at = self.place(i);
        self.queues.write(at.cq, &vec![0xff; (s.depth * CQE_BYTES) as usize])?;
        let uar = self.nic.alloc_uar(machine)?;
        let (cq_object, out) = create(
            &*self.nic,
            &cq::CreateCq {
                context: cq::CqContext {
                    dbr_umem_valid: true,
                    dbr_umem_id: umem,
                    dbr_addr: at.cq_record,
                    cc: s.collapsed,
                    oi: true,
                    c_eqn: self.eqn,
                    log_cq_size: s.log_depth(),
                    uar_page: uar.page_id(),
                    ..Default::default()
                },
                umem_offset: at.cq,
                umem_id: umem,
                umem_valid: true,
                ..Default::default()
            },
        )?;
        let (object, created) = create(
            &*self.nic,
            &qp::CreateQp {
                context: qp::QpContext {
                    st: qp::ServiceType::RC,
                    pm_state: qp::PmState::MIGRATED,
                    pd: self.pd.number(),
                    log_sq_size: s.log_depth(),
                    rq_type: qp::RqType::ZERO_SIZE,
                    uar_page: uar.page_id(),
                    user_index: i as u32,
                    cqn_snd: out.cqn,
                    dbr_umem_valid: true,
                    dbr_umem_id: umem,
                    dbr_addr: at.sq_record,
                    ..Default::default()
                },
                wq_umem_offset: at.sq,
                wq_umem_id: umem,
                wq_umem_valid: true,
                ..Default::default()
            },
        )?;
        Ok(Pair { object, _cq: cq_object, uar, qpn: created.qpn })
    }

    /// Where the queues of pair `i` lie in the queue memory.
    fn place(&self, i: u64) -> Place {
        let sq = i * self.shape.queue_bytes();
        let cq = sq + (self.shape.depth * WQEBB_BYTES).next_multiple_of(QUEUE_ALIGN);
        let sq_record = cq + self.shape.depth * CQE_BYTES;
        Place { sq, cq, sq_record, cq_record: sq_record + RECORD_BYTES }
    }

    /// The NIC, for messages.
    pub(crate) fn nic_name(&self) -> String {
        self.nic.name()
    }

    /// What the others must know.
    pub(crate) fn card(&self) -> Card {
        Card {
            port: self.nic.port(),
            rkey: self.key.rkey(),
            qpns: self.pairs.iter().map(|p| p.qpn).collect(),
        }
    }

    /// Connects every pair: number `(set, pe)` of this PE `me` with number `(set, me)` of that one.
    ///
    /// # Errors
    /// What the NIC refuses.
    pub(crate) fn connect(&self, me: u32, cards: &[Card], timeout: Duration) -> Result<(), provider::Error> {
        let n = self.shape.n_pes as usize;
        for (i, pair) in self.pairs.iter().enumerate() {
            let (set, pe) = (i / n, i % n);
            let card = &cards[pe];
            let remote_qpn = card.qpns[set * n + me as usize];
            connect(&*self.nic, pair, &card.port, remote_qpn, ack_timeout(timeout))?;
        }
        Ok(())
    }

    /// The descriptors of all pairs, for kernels.
    pub(crate) fn descriptors(&self, state: &StateMap, cards: &[Card]) -> Vec<QpDesc> {
        let s = &self.shape;
        let describe = |(i, pair): (usize, &Pair)| {
            let (i, peer) = (i as u64, i % s.n_pes as usize);
            let at = self.place(i);
            QpDesc {
                sq: self.queues.addr.add(at.sq),
                dbr: self.queues.addr.add(at.sq_record + Record::SND_OFFSET as u64),
                uar: pair.uar.register(),
                cq: self.queues.addr.add(at.cq),
                state: state.qp(i),
                ends: state.ends(i),
                fetch_busy: state.fetch_busy(i),
                fetch: reserved::FETCH + i * s.depth * 8,
                lkey: self.key.lkey(),
                rkey: cards[peer].rkey,
                qpn: pair.qpn,
                peer: peer as u32,
                log_depth: s.log_depth().into(),
                log_cq: s.log_depth().into(),
                flags: self.flags,
                reserved: 0,
                pe_state: state.device_state(),
                reserved_too: [0; 6],
            }
        };
        self.pairs.iter().enumerate().map(describe).collect()
    }
}

struct Place {
    sq: u64,
    cq: u64,
    sq_record: u64,
    cq_record: u64,
}

fn connect(
    nic: &dyn Provider,
    pair: &Pair,
    peer: &PortAddress,
    remote_qpn: u32,
    ack_timeout: u8,
) -> Result<(), provider::Error> {
    /// log2 of the READs and atomics in flight.
    const LOG_READS: u8 = 4;
    let vhca_port_num = nic.port().number;
    let (primary_address_path, mtu) = nic.path(peer)?;
    let init = qp::Rst2Init {
        qpn: pair.qpn,
        context: qp::QpContext {
            pm_state: qp::PmState::MIGRATED,
            primary_address_path: qp::AddressPath { vhca_port_num, ..Default::default() },
            atomic_mode: qp::AtomicMode::UP_TO_8B,
            rre: true,
            rwe: true,
            rae: true,
            ..Default::default()
        },
        ..Default::default()
    };
    let rtr = qp::Init2Rtr {
        qpn: pair.qpn,
        context: qp::QpContext {
            mtu,
            log_msg_max: 30,
            remote_qpn,
            log_rra_max: LOG_READS,
            min_rnr_nak: 12,
            primary_address_path,
            ..Default::default()
        },
        ..Default::default()
    };
    let rts = qp::Rtr2Rts {
        qpn: pair.qpn,
        context: qp::QpContext {
            log_sra_max: LOG_READS,
            retry_count: 7,
            rnr_retry: 7,
            primary_address_path: qp::AddressPath { ack_timeout, ..Default::default() },
            ..Default::default()
        },
        ..Default::default()
    };
    execute(nic, &*pair.object, &init)?;
    execute(nic, &*pair.object, &rtr)?;
    execute(nic, &*pair.object, &rts)?;
    Ok(())
}

/// The QP's `ack_timeout` (4.096 us * 2^v) with which all eight tries of a WQE end in half of a kernel's deadline, so
/// that the NIC's own verdict, which names the cause, comes first.
fn ack_timeout(deadline: Duration) -> u8 {
    let each = deadline.as_secs_f64() / 2.0 / 8.0;
    (each / 4.096e-6).log2().floor().clamp(8.0, 20.0) as u8
}

/// Where the words that kernels update lie: one region, near the kernel.
pub(crate) struct StateMap {
    pub(crate) region: Region,
    shape: Shape,
}

impl StateMap {
    pub(crate) fn new(machine: &dyn Machine, shape: Shape) -> Result<Self> {
        let bytes = Self::descriptors_at(&shape)
            + shape.qps() * size_of::<QpDesc>() as u64
            + u64::from(shape.n_pes) * size_of::<PeerDesc>() as u64;
        Ok(Self { region: machine.local(bytes)?, shape })
    }

    pub(crate) fn device_state(&self) -> DevAddr {
        self.region.addr
    }

    /// Writes what kernels need of this PE when they wait or fail, and clears all their words.
    pub(crate) fn write_pe(&self, pe: u32, control: DevAddr, timeout: Duration) -> Result<()> {
        let deadline_ns = timeout.as_nanos().min(u64::MAX.into()) as u64;
        let state = DeviceState { control, deadline_ns, pe, ..Zeroable::zeroed() };
        self.region.write(0, bytemuck::bytes_of(&state))
    }

    /// How many records kernels have claimed; starts again at 0. Clears the grid barrier too, which an error may
    /// have left half entered.
    pub(crate) fn take_record_count(&self) -> Result<u64> {
        let mut state = DeviceState::zeroed();
        self.region.read(0, bytemuck::bytes_of_mut(&mut state))?;
        let count = state.records.word;
        state.records = Zeroable::zeroed();
        state.grid_arrived = Zeroable::zeroed();
        self.region.write(0, bytemuck::bytes_of(&state))?;
        Ok(count)
    }

    const QPS_AT: u64 = size_of::<DeviceState>() as u64;

    fn qp(&self, i: u64) -> DevAddr {
        self.region.addr.add(Self::QPS_AT + i * size_of::<QpState>() as u64)
    }

    fn words_at(shape: &Shape) -> u64 {
        Self::QPS_AT + shape.qps() * size_of::<QpState>() as u64
    }

    fn ends(&self, i: u64) -> DevAddr {
        self.region.addr.add(Self::words_at(&self.shape) + 2 * i * self.shape.depth * 8)
    }

    fn fetch_busy(&self, i: u64) -> DevAddr {
        self.ends(i).add(self.shape.depth * 8)
    }

    fn descriptors_at(shape: &Shape) -> u64 {
        (Self::words_at(shape) + 2 * shape.qps() * shape.depth * 8).next_multiple_of(128)
    }

    /// Writes the descriptors; their addresses are [`StateMap::qp_table`] and [`StateMap::peer_table`].
    pub(crate) fn describe(&self, qps: &[QpDesc], peers: &[PeerDesc]) -> Result<()> {
        let at = Self::descriptors_at(&self.shape);
        self.region.write(at, bytemuck::cast_slice(qps))?;
        self.region.write(at + size_of_val(qps) as u64, bytemuck::cast_slice(peers))
    }

    /// Changes the key of `pe`'s heap in the descriptors.
    pub(crate) fn corrupt_rkey(&self, pe: u32) -> Result<()> {
        let n = u64::from(self.shape.n_pes);
        for i in (u64::from(pe)..self.shape.qps()).step_by(n as usize) {
            let desc = Self::descriptors_at(&self.shape) + i * size_of::<QpDesc>() as u64;
            let key = desc + std::mem::offset_of!(QpDesc, rkey) as u64;
            self.region.write(key, bytemuck::bytes_of(&0xbad_0e11u32))?;
        }
        Ok(())
    }

    pub(crate) fn qp_table(&self) -> DevAddr {
        self.region.addr.add(Self::descriptors_at(&self.shape))
    }

    pub(crate) fn peer_table(&self) -> DevAddr {
        self.qp_table().add(self.shape.qps() * size_of::<QpDesc>() as u64)
    }
}

/// How each PE is reached: this PE's own memory directly, every other one through the NIC. Atomics go through the NIC
/// as soon as there is another PE, since processor atomics and the NIC's are not atomic with each other.
pub(crate) fn peers(me: u32, n_pes: u32, heap: DevAddr, direct_self: bool) -> Vec<PeerDesc> {
    let alone = n_pes == 1;
    let describe = |pe: u32| {
        let direct = pe == me && direct_self;
        PeerDesc {
            direct: if direct { heap } else { DevAddr(0) },
            flags: if direct && alone { peer_flags::DIRECT_ATOMICS } else { 0 },
            reserved: 0,
        }
    };
    (0..n_pes).map(describe).collect()
}
