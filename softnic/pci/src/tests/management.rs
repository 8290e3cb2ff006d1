//! Management datagrams of QP 0 and QP 1.

use super::{Setup, VA, driver};
use crate::driver::{Driver, PAGE};
use crate::function::Region;
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::be::{Be16, Be32};
use rushmem_mlx5::cqe::Cqe;
use rushmem_mlx5::doorbell::{Doorbell, record_word, uar};
use rushmem_mlx5::prm::port::{
    HcaVportContext, ModifyHcaVportContext, QueryHcaVportContext, QueryHcaVportContextOut,
};
use rushmem_mlx5::prm::qp::{
    AddressPath, CreateQp, Init2Rtr, QpContext, RqType, Rst2Init, Rtr2Rts, ServiceType, opt_param,
};
use rushmem_mlx5::seg::DataSeg;
use rushmem_mlx5::{CqeOpcode, CtrlSeg, Flags, Opcode, Segment};
use rushmem_softnic::mad::{admin_attribute, at, class, method, status, subnet_attribute};

const MAD: usize = 256;
/// Length of the area for a global route header in front of a received datagram.
const GRH: u64 = 40;
/// Offset of received datagrams from `VA`.
const RECEIVED: u64 = 1024;
const QP1_QKEY: u32 = 0x8001_0000;

/// QP 0 or 1 of a function, with one receive posted.
struct Special {
    setup: Setup,
    qpn: u32,
    records: u64,
    sq: u64,
}

impl Special {
    fn new(driver: &mut Driver, st: ServiceType, q_key: u32) -> Special {
        let setup = Setup::new(driver);
        let memory = driver.pages(1)[0];
        let records = driver.pages(1)[0];
        let context = QpContext {
            st,
            pd: setup.pd,
            log_sq_size: 4,
            log_rq_size: 2,
            uar_page: setup.page(),
            cqn_snd: setup.cqn,
            cqn_rcv: setup.cqn,
            rq_type: RqType::REGULAR,
            dbr_addr: records,
            ..QpContext::default()
        };
        let create = CreateQp { context, ..CreateQp::default() };
        let qpn = driver.call_with(&create, &[memory]).unwrap().qpn;
        let context = QpContext { q_key, ..QpContext::default() };
        let opt_param_mask = opt_param::Q_KEY;
        driver.call(&Rst2Init { qpn, context, opt_param_mask, ..Rst2Init::default() }).unwrap();
        let context = QpContext { primary_address_path: AddressPath::default(), ..QpContext::default() };
        driver.call(&Init2Rtr { qpn, context, ..Init2Rtr::default() }).unwrap();
        driver.call(&Rtr2Rts { qpn, ..Rtr2Rts::default() }).unwrap();
        let receive = DataSeg::new(VA + RECEIVED, setup.lkey, (GRH + MAD as u64) as u32);
        driver.put(memory, bytemuck::bytes_of(&receive));
        driver.put(records, &record_word(1).to_ne_bytes());
        Special { setup, qpn, records, sq: memory + 64 }
    }

    /// Sends a datagram to QP `dqpn` of the adapter at `lid`. Returns the datagram that arrives.
    fn ask(&self, driver: &mut Driver, dqpn: u32, lid: u16, mad: &[u8; MAD]) -> (Cqe, [u8; MAD]) {
        let page =
            |offset: u64| self.setup.data[((0x800 + offset) / PAGE) as usize] + (0x800 + offset) % PAGE;
        driver.put(page(0), mad);
        let ctrl = CtrlSeg::new(0, Opcode::SEND, 0, self.qpn, 5, Flags::NONE, 0);
        let av = AvSeg {
            // The QP's own key.
            qkey: Be32::new(1 << 31),
            dqpn: Be32::new(AvSeg::EXTENDED | dqpn),
            rlid: Be16::new(lid),
            ..AvSeg::default()
        };
        let data = DataSeg::new(VA, self.setup.lkey, MAD as u32);
        let [a, b, c] = bytemuck::cast::<AvSeg, [Segment; 3]>(av);
        let segments = [ctrl.to_segment(), a, b, c, bytemuck::cast(data)];
        driver.put(self.sq, bytemuck::cast_slice(&segments));
        driver.put(self.records + 4, &record_word(2).to_ne_bytes());
        let doorbell = Doorbell::producer(self.qpn, 2).raw();
        driver.function.write(Region::Bar0, self.setup.uar + uar::DB as u64, &doorbell.to_ne_bytes());
        let cqe = self.setup.first_cqe(driver);
        (cqe, driver.get(page(RECEIVED + GRH)))
    }
}

fn query(class: u8, attribute: u16) -> [u8; MAD] {
    let mut mad = [0; MAD];
    (mad[at::CLASS], mad[at::METHOD]) = (class, method::GET);
    mad[at::ATTRIBUTE..][..2].copy_from_slice(&attribute.to_be_bytes());
    mad
}

#[test]
fn subnet_administration_answers_at_its_lid() {
    let mut driver = driver();
    let special = Special::new(&mut driver, ServiceType::QP1, QP1_QKEY);
    let asked = query(class::ADMINISTRATION, admin_attribute::CLASS_PORT_INFO);
    let (cqe, answer) = special.ask(&mut driver, 1, 1, &asked);
    assert_eq!((cqe.op_own().opcode(), cqe.byte_cnt()), (CqeOpcode::RESP_SEND, 40 + MAD as u32));
    assert_eq!((answer[at::METHOD], answer[at::STATUS + 1]), (method::GET_RESPONSE, 0));
}

#[test]
fn directed_routes_lead_to_the_switch() {
    let mut driver = driver();
    let special = Special::new(&mut driver, ServiceType::QP0, 0);
    let mut asked = query(class::SUBNET_DIRECTED, subnet_attribute::NODE_INFO);
    (asked[at::HOP_COUNT], asked[at::INITIAL_PATH + 1]) = (1, 1);
    let (_, answer) = special.ask(&mut driver, 0, 0xffff, &asked);
    let code = u16::from_be_bytes([answer[at::STATUS], answer[at::STATUS + 1]]);
    assert_eq!((code, answer[at::DATA + 2]), (status::RESPONSE, 2), "a switch");
}

#[test]
fn a_driver_sets_capabilities_of_its_port() {
    const CM: u32 = 1 << 16;
    const SM: u32 = 1 << 1;
    let mut driver = driver();
    driver.bring_up();
    let mask = |driver: &mut Driver| {
        let QueryHcaVportContextOut { context } = driver.call(&QueryHcaVportContext::default()).unwrap();
        (context.cap_mask1 & (CM | SM), context.cap_mask1_field_select & (CM | SM))
    };
    assert_eq!(mask(&mut driver), (0, CM));
    let mut change = |cap_mask1, cap_mask1_field_select| {
        let context = HcaVportContext { cap_mask1, cap_mask1_field_select, ..HcaVportContext::default() };
        driver.call(&ModifyHcaVportContext { context, ..ModifyHcaVportContext::default() })
    };
    assert!(change(u32::MAX, SM).is_err());
    change(u32::MAX, CM).unwrap();
    assert_eq!(mask(&mut driver), (CM, CM));
    driver.function.reset();
    driver.set_queue();
    driver.top -= PAGE;
    driver.bring_up();
    assert_eq!(mask(&mut driver), (0, CM));
}
