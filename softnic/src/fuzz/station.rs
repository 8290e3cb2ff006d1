//! An adapter without an engine thread, whose function has an Ethernet port with one queue in each direction.

use crate::address::{Ip, Mac};
use crate::bus::{Attached, Bus};
use crate::cmd;
use crate::config::Config;
use crate::dma::Umem;
use crate::engine::core::Core;
use crate::memory::{HostBuffer, Memory, PAGE};
use crate::objects::UarPage;
use crate::roce::{self, Ext};
use crate::transport::ethernet::frame_header;
use rushmem_mlx5::doorbell::{Doorbell, record_word};
use rushmem_mlx5::prm::cq::{CqContext, CreateCq};
use rushmem_mlx5::prm::flow::{
    CreateFlowGroup, CreateFlowTable, Destination, DestinationType, FlowContext, FlowTableContext,
    SetFlowTableEntry, SetFlowTableRoot,
};
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, MkeyContext, key};
use rushmem_mlx5::prm::pd::AllocPd;
use rushmem_mlx5::prm::rmp::{Wq, WqType};
use rushmem_mlx5::prm::sq::{CreateRq, CreateSq, ModifyRq, ModifySq, QueueState, RqContext, SqContext};
use rushmem_mlx5::prm::tir::{
    AllocTransportDomain, CreateRqt, CreateTir, CreateTis, Dispatch, HashFields, HashFunction, RqtContext,
    TirContext, TisContext,
};
use rushmem_mlx5::prm::vport::ModifyNicVportContext;
use rushmem_mlx5::prm::{Bytes, CmdOpcode, Command, DecodeError, Response};
use rushmem_mlx5::seg::DataSeg;
use rushmem_mlx5::{Cqe, CtrlSeg, Flags, Opcode, Segment};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

/// Size of the memory that the key maps, in bytes.
pub(crate) const HEAP: u64 = 64 << 10;
/// Length of each receive, which starts at this multiple of its index in the heap.
pub(crate) const RECEIVE: u32 = 2048;
/// Number of receives, and of entries of the send queue.
pub(crate) const ENTRIES: u64 = 16;
const LOG_ENTRIES: u8 = 4;

// Offsets in the control memory.
const SEND: u64 = 0;
const RECEIVES: u64 = 4 << 10;
const RECORDS: u64 = 8 << 10;
const CQS: u64 = 16 << 10;
/// Distance between the CQs, of 64 entries each.
const CQ_BYTES: u64 = 4 << 10;

const OTHER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 77, 77, 77), 4791);

/// Returns the opcodes of the commands of Ethernet, and some others.
pub(super) fn opcodes() -> Vec<CmdOpcode> {
    CmdOpcode::ALL.iter().copied().filter(|opcode| opcode.0 >= 0x900 || opcode.0 & 0xff0 == 0x750).collect()
}

/// Numbers of the objects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) pd: u32,
    pub(crate) control: u32,
    pub(crate) uar: u32,
    pub(crate) cqns: [u32; 2],
    pub(crate) domain: u32,
    pub(crate) tisn: u32,
    pub(crate) sqn: u32,
    pub(crate) rqn: u32,
    pub(crate) rqtn: u32,
    pub(crate) tirn: u32,
    pub(crate) table: u32,
    pub(crate) group: u32,
}

pub(crate) struct Station {
    pub(crate) core: Core,
    pub(crate) context: u32,
    pub(crate) key: u32,
    pub(crate) numbers: Numbers,
    pub(crate) heap: Arc<HostBuffer>,
    control: Arc<HostBuffer>,
    page: Arc<HostBuffer>,
    posted: u16,
    /// Number of CQEs of each CQ that were taken.
    taken: [u64; 2],
}

fn register(core: &mut Core, owner: u32, len: usize) -> (Arc<HostBuffer>, u32) {
    let memory = Arc::new(HostBuffer::new(len));
    let umem = Umem { owner, memory: Arc::clone(&memory) as _, offset: 0, len: len as u64, users: 0 };
    (memory, core.path.objects.umems.insert(umem).expect("numbers are left"))
}

impl Station {
    pub(crate) fn new() -> Station {
        let config = Config { ip: Ip::LoopbackOnly, ..Config::default() };
        let mut core = Core::new(config, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), None, None);
        let context = core.contexts.open();
        let bus =
            Bus { memory: Arc::new(HostBuffer::new(PAGE)), doorbells: Arc::new(HostBuffer::new(64 * PAGE)) };
        core.path.objects.buses.insert(context, Attached::new(bus, context));
        let (heap, heap_umem) = register(&mut core, context, HEAP as usize);
        let (control, control_umem) = register(&mut core, context, 32 << 10);
        let page = Arc::new(HostBuffer::new(PAGE));
        let Ok(uar) = UarPage::new(context, &(Arc::clone(&page) as Arc<dyn Memory>), 0) else {
            unreachable!("a page is a page")
        };
        let uar = core.path.objects.uars.insert(uar).expect("numbers are left");
        let numbers = Numbers { control: control_umem, uar, ..Numbers::default() };
        let (posted, taken) = (0, [0; 2]);
        let mut station = Station { core, context, key: 0, numbers, heap, control, page, posted, taken };
        station.create_memory(heap_umem);
        station.create_queues();
        station.create_steering();
        station
    }

    fn create_memory(&mut self, umem_id: u32) {
        self.numbers.pd = self.call(&AllocPd::default()).pd;
        let context = MkeyContext {
            lw: true,
            lr: true,
            qpn: MkeyContext::ANY_QP,
            pd: self.numbers.pd,
            len: HEAP,
            ..MkeyContext::default()
        };
        let context = context.with_access_mode(AccessMode::MTT);
        let create = CreateMkey { umem_valid: true, umem_id, context, ..CreateMkey::default() };
        self.key = key(self.call(&create).mkey_index, 0);
        let umem = self.numbers.control;
        for number in 0..2 {
            let context = CqContext {
                dbr_umem_valid: true,
                dbr_umem_id: umem,
                dbr_addr: RECORDS + 64 * (2 + number),
                oi: true,
                log_cq_size: 6,
                uar_page: self.numbers.uar,
                ..CqContext::default()
            };
            let (umem_id, umem_offset) = (umem, CQS + CQ_BYTES * number);
            let create = CreateCq { umem_id, umem_offset, umem_valid: true, context, ..CreateCq::default() };
            self.numbers.cqns[number as usize] = self.call(&create).cqn;
        }
    }

    /// Returns the settings of a ring at the start of a dedicated umem.
    fn wq(&mut self, ring: u64, record: u64, log_wq_stride: u8) -> Wq {
        let (owner, memory) = (self.context, Arc::clone(&self.control) as Arc<dyn Memory>);
        let umem = Umem { owner, memory, offset: ring, len: 4 << 10, users: 0 };
        let wq_umem_id = self.core.path.objects.umems.insert(umem).expect("numbers are left");
        Wq {
            wq_type: WqType::CYCLIC,
            pd: self.numbers.pd,
            uar_page: self.numbers.uar,
            dbr_addr: record,
            log_wq_stride,
            log_wq_sz: LOG_ENTRIES,
            dbr_umem_valid: true,
            wq_umem_valid: true,
            dbr_umem_id: self.numbers.control,
            wq_umem_id,
            ..Wq::default()
        }
    }

    fn create_queues(&mut self) {
        let transport_domain = self.call(&AllocTransportDomain::default()).transport_domain;
        let tis = TisContext { transport_domain, ..TisContext::default() };
        let tisn = self.call(&CreateTis { context: tis, ..CreateTis::default() }).tisn;
        let [send_cq, receive_cq] = self.numbers.cqns;
        let wq = self.wq(SEND, RECORDS, 6);
        let (flush_in_error_en, cqn) = (true, send_cq);
        let sqc =
            SqContext { flush_in_error_en, cqn, tis_lst_sz: 1, tis_num_0: tisn, wq, ..SqContext::default() };
        let sqn = self.call(&CreateSq { context: sqc, ..CreateSq::default() }).sqn;
        let wq = self.wq(RECEIVES, RECORDS + 64, 4);
        let rqc = RqContext { flush_in_error_en, cqn: receive_cq, wq, ..RqContext::default() };
        let rqn = self.call(&CreateRq { context: rqc, ..CreateRq::default() }).rqn;
        let state = QueueState::RDY;
        let ready = SqContext { state, ..SqContext::default() };
        self.call(&ModifySq { sqn, context: ready, ..ModifySq::default() });
        let ready = RqContext { state, ..RqContext::default() };
        self.call(&ModifyRq { rqn, context: ready, ..ModifyRq::default() });
        self.numbers = Numbers { domain: transport_domain, tisn, sqn, rqn, ..self.numbers };
    }

    /// Steers all frames for the function to the receive queue.
    fn create_steering(&mut self) {
        let context = RqtContext { rqt_max_size: 4, rqt_actual_size: 1, ..RqtContext::default() };
        let list = self.numbers.rqn.to_be_bytes();
        let create = CreateRqt { context, ..CreateRqt::default() };
        let rqtn = self.call_with(&create, &list).expect("the queue exists").rqtn;
        let selected = HashFields::SOURCE_IP | HashFields::DESTINATION_IP;
        let context = TirContext {
            disp_type: Dispatch::INDIRECT,
            indirect_table: rqtn,
            rx_hash_fn: HashFunction::TOEPLITZ,
            rx_hash_toeplitz_key: Bytes(std::array::from_fn(|i| i as u8 | 1)),
            outer: HashFields { selected, ..HashFields::default() },
            transport_domain: self.numbers.domain,
            ..TirContext::default()
        };
        let tirn = self.call(&CreateTir { context, ..CreateTir::default() }).tirn;
        let context = FlowTableContext { log_size: 3, ..FlowTableContext::default() };
        let table_id = self.call(&CreateFlowTable { context, ..CreateFlowTable::default() }).table_id;
        let group = CreateFlowGroup { table_id, end_flow_index: 7, ..CreateFlowGroup::default() };
        let group = self.call(&group).group_id;
        self.call(&SetFlowTableRoot { table_id, ..SetFlowTableRoot::default() });
        self.numbers = Numbers { rqtn, tirn, table: table_id, group, ..self.numbers };
        self.set_entry(0, DestinationType::TIR, tirn).expect("the TIR exists");
        self.call(&ModifyNicVportContext::default());
    }

    /// Writes an entry of the flow table, which forwards all frames.
    pub(crate) fn set_entry(
        &mut self,
        flow_index: u32,
        destination_type: DestinationType,
        destination_id: u32,
    ) -> Result<(), DecodeError> {
        let (group_id, action) = (self.numbers.group, FlowContext::FORWARD);
        let context = FlowContext { group_id, action, destination_list_size: 1, ..FlowContext::default() };
        let table_id = self.numbers.table;
        let set = SetFlowTableEntry { table_id, flow_index, context, ..SetFlowTableEntry::default() };
        let mut list = [0; Destination::LEN];
        Destination { destination_type, destination_id }.write(&mut list);
        self.call_with(&set, &list).map(drop)
    }

    pub(crate) fn call<C: Command>(&mut self, command: &C) -> C::Output {
        self.call_with(command, &[]).unwrap_or_else(|error| panic!("{}: {error}", C::OPCODE))
    }

    /// Executes a command whose mailbox is followed by a list.
    pub(crate) fn call_with<C: Command>(
        &mut self,
        command: &C,
        list: &[u8],
    ) -> Result<C::Output, DecodeError> {
        let input = [command.encode().as_ref(), list].concat();
        let mut output = <C::Output as Response>::EMPTY;
        cmd::execute(&mut self.core, self.context, &input, output.as_mut());
        <C::Output as Response>::decode(output.as_ref())
    }

    /// Executes a command of Ethernet with this body, in which small numbers become those of the objects.
    pub(super) fn fuzzed_command(&mut self, choice: u8, body: &[u8]) {
        let opcodes = opcodes();
        let Numbers { pd, control, uar, cqns, domain, tisn, sqn, rqn, rqtn, tirn, table, group } =
            self.numbers;
        let known = [pd, control, uar, cqns[0], cqns[1], domain, tisn, sqn, rqn, rqtn, tirn, table, group];
        let mut input = vec![0; 1100];
        input[8..8 + body.len()].copy_from_slice(body);
        for word in input[8..].as_chunks_mut::<4>().0 {
            let value = u32::from_be_bytes(*word);
            if let Some(number) = known.get(value as usize & 0xf).filter(|_| value & 0xf0 == 0xa0) {
                *word = (value & 0xff00_0000 | number).to_be_bytes();
            }
        }
        input[..2].copy_from_slice(&opcodes[usize::from(choice) % opcodes.len()].0.to_be_bytes());
        cmd::execute(&mut self.core, self.context, &input, &mut [0; 600]);
    }

    /// Returns the MAC address of the function.
    pub(crate) fn mac(&self) -> Mac {
        self.core.path.mac()
    }

    /// Posts all receives.
    pub(crate) fn post_receives(&self) {
        for index in 0..ENTRIES {
            self.set_receive(index, DataSeg::new(u64::from(RECEIVE) * index, self.key, RECEIVE));
        }
        self.control.store_u32((RECORDS + 64) as usize, record_word(ENTRIES as u16));
    }

    /// Replaces the data segment of a receive.
    pub(crate) fn set_receive(&self, index: u64, data: DataSeg) {
        let bytes = data.to_segment().to_bytes();
        self.control.write(RECEIVES + 16 * index, &bytes).expect("in range");
    }

    /// Posts an entry of one block, which consists of `segments` after its control segment, and runs the queue.
    pub(crate) fn post(&mut self, opcode: Opcode, segments: &[Segment]) {
        let ds = 1 + segments.len() as u8;
        let ctrl = CtrlSeg::new(0, opcode, self.posted, self.numbers.sqn, ds, Flags::SIGNALED, 0);
        let entry = [&[ctrl.to_segment()], segments].concat();
        self.post_bytes(Segment::bytes_of(&entry));
    }

    /// Posts a block of bytes as a frame, with a valid control segment and keys.
    pub(super) fn fuzzed_entry(&mut self, body: &[u8]) {
        let mut segments = [Segment::ZERO; 3];
        for (segment, bytes) in segments.iter_mut().zip(body.get(1..).unwrap_or_default().as_chunks().0) {
            *segment = Segment::from_bytes(*bytes);
        }
        for segment in &mut segments[1..] {
            let data = DataSeg::from_segment(*segment);
            let (addr, len) = (data.addr.get() & 0x1_ffff, data.len.get() & 0x8000_0fff);
            *segment = DataSeg::new(addr, self.key, len).to_segment();
        }
        let choice = body.first().copied().unwrap_or(0);
        let opcode = [Opcode::SEND, Opcode::TSO, Opcode::NOP, Opcode::RDMA_WRITE][usize::from(choice & 3)];
        self.post(opcode, &segments[..usize::from(choice >> 2 & 3)]);
    }

    /// Posts up to one block of bytes, and runs the queue.
    pub(super) fn post_bytes(&mut self, bytes: &[u8]) {
        self.post_bytes_at(SEND + 64 * (u64::from(self.posted) % ENTRIES), bytes);
    }

    fn post_bytes_at(&mut self, at: u64, bytes: &[u8]) {
        self.control.write(at, &bytes[..bytes.len().min(64)]).expect("in range");
        self.posted = self.posted.wrapping_add(1);
        self.control.store_u32(RECORDS as usize + 4, record_word(self.posted));
        self.page.store_u64(0x800, Doorbell::producer(self.numbers.sqn, self.posted).raw());
        self.core.pass(|| false);
    }

    /// Posts a frame whose bytes are in the heap, with these offloads.
    pub(crate) fn send(&mut self, opcode: Opcode, offloads: [u8; 16], frame: &[u8]) {
        let at = HEAP - 8192;
        self.heap.write(at, frame).expect("it fits");
        let data = DataSeg::new(at, self.key, frame.len() as u32).to_segment();
        self.post(opcode, &[Segment::from_bytes(offloads), data]);
    }

    /// Processes a frame from another adapter.
    pub(crate) fn receive(&mut self, frame: &[u8]) {
        let bth = frame_header();
        let mut packet = vec![0; roce::packet_len(bth.len(), frame.len())];
        roce::emit(&bth, &Ext::None, frame.len(), &mut packet).copy_from_slice(frame);
        self.core.transports.packet(&mut self.core.path, OTHER, &packet);
    }

    /// Takes the new CQEs of a CQ: 0 for the send queue, 1 for the receive queue.
    pub(crate) fn completions(&mut self, cq: usize) -> Vec<Cqe> {
        let produced = self.core.path.objects.cqs.get(self.numbers.cqns[cq]).map_or(0, |cq| cq.produced);
        let new = std::mem::replace(&mut self.taken[cq], produced)..produced;
        new.map(|index| {
            let mut bytes = [0; 64];
            self.control.read(CQS + CQ_BYTES * cq as u64 + 64 * (index % 64), &mut bytes).expect("in range");
            Cqe::from_bytes(bytes)
        })
        .collect()
    }

    /// Returns bytes of the heap.
    pub(crate) fn stored(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.heap.read(at, &mut bytes).expect("in range");
        bytes
    }
}

#[cfg(test)]
impl Station {
    /// Gives the queues and the TIR to a program, for which the driver has made a user context of the function.
    pub(crate) fn give_to_program(&mut self) {
        let user = self.core.contexts.open();
        let objects = &mut self.core.path.objects;
        let attached = objects.buses[&self.context].user();
        objects.buses.insert(user, attached);
        for number in [self.numbers.sqn, self.numbers.rqn] {
            objects.qps.get_mut(number).expect("it exists").owner = user;
        }
        objects.ethernet.tirs.get_mut(self.numbers.tirn).expect("it exists").owner = user;
    }

    /// Writes bytes where [`Station::post_long`] and [`Station::send`] read them.
    pub(crate) fn heap_write(&self, bytes: &[u8]) {
        self.heap.write(HEAP - 8192, bytes).expect("they fit");
    }

    /// Posts an entry for segmentation offload, of two blocks: the segment with the offloads, inline headers, and a
    /// data segment.
    pub(crate) fn post_long(&mut self, inline: &[u8; 80], len: u32) {
        let (index, sqn) = (self.posted, self.numbers.sqn);
        let ctrl = CtrlSeg::new(0, Opcode::TSO, index, sqn, 7, Flags::SIGNALED, 0).to_segment().to_bytes();
        let data = DataSeg::new(HEAP - 8192, self.key, len).to_segment().to_bytes();
        let entry = [&ctrl[..], inline, &data].concat();
        self.control.write(SEND + 64, &entry[64..]).expect("in range");
        self.posted += 1;
        self.post_bytes_at(SEND, &entry[..64]);
    }

    /// Posts a frame whose bytes are in this data segment.
    pub(crate) fn post_send_of(&mut self, data: DataSeg) {
        self.post(Opcode::SEND, &[Segment::ZERO, data.to_segment()]);
    }

    /// Counts posted entries from 0 again, as a driver does after a reset.
    pub(crate) fn restart(&mut self) {
        self.posted = 0;
        self.control.store_u32(RECORDS as usize + 4, 0);
    }
}
