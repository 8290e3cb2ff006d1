//! Work requests that change memory keys.

use super::{Counter, Setup, VA, connect, driver};
use crate::driver::{Driver, PAGE};
use rushmem_mlx5::be::{Be16, Be64};
use rushmem_mlx5::cqe::Cqe;
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, DestroyMkey, MkeyContext, key};
use rushmem_mlx5::prm::pd::AllocPd;
use rushmem_mlx5::prm::qp::{AddressPath, ToRst};
use rushmem_mlx5::prm::umem::Mtt;
use rushmem_mlx5::seg::DataSeg;
use rushmem_mlx5::umr::{UmrSeg, mask};
use rushmem_mlx5::{CqeOpcode, CtrlSeg, Flags, Opcode, Segment, Syndrome, Wqe};
use std::sync::Arc;

/// First address that the changed key maps.
const START: u64 = 0x1_0000_0000;

/// Number of 64-byte blocks of each WQE that changes a key.
const BLOCKS: u16 = 3;

/// A key that is free, and a QP that can change it.
struct Free {
    setup: Setup,
    index: u32,
    /// Number of blocks posted, and of WQEs.
    posted: u16,
    completed: u64,
}

impl Free {
    fn new(driver: &mut Driver) -> Free {
        let setup = Setup::new(driver);
        let context = MkeyContext {
            free: true,
            umr_en: true,
            pd: setup.pd,
            qpn: MkeyContext::ANY_QP,
            translations_octword_size: 4,
            ..MkeyContext::default()
        };
        let create =
            CreateMkey { context: context.with_access_mode(AccessMode::MTT), ..CreateMkey::default() };
        let index = driver.call(&create).unwrap().mkey_index;
        Free { setup, index, posted: 0, completed: 0 }
    }

    /// Posts blocks, and returns the completion.
    fn post(&mut self, driver: &mut Driver, segments: &[Segment]) -> Cqe {
        for (i, segment) in segments.iter().enumerate() {
            let at = (u64::from(self.posted) * 64 + i as u64 * 16) % (64 << super::LOG_SIZE);
            driver.put(self.setup.sq + at, bytemuck::bytes_of(segment));
        }
        self.posted += segments.len().div_ceil(4) as u16;
        self.setup.ring(driver, self.posted);
        self.completed += 1;
        self.setup.cqe(driver, self.completed - 1)
    }

    /// Changes the key. The list of translations goes through memory, unless the flags say inline.
    fn change(&mut self, driver: &mut Driver, umr: UmrSeg, context: MkeyContext, list: &[[u8; 8]]) -> Cqe {
        let qpn = self.setup.qpn;
        let mut bytes = [0; MkeyContext::LEN];
        context.write(&mut bytes);
        let umr = UmrSeg { octowords: Be16::new(list.len().div_ceil(2) as u16), ..umr };
        let mut segments = vec![Segment::ZERO];
        segments.extend(umr.to_segments());
        segments.extend(bytemuck::cast::<_, [Segment; 4]>(bytes));
        let entries: Vec<u8> = list.concat();
        if umr.flags & UmrSeg::INLINE != 0 {
            let rest = entries.chunks(16).map(|part| {
                let mut segment = [0; 16];
                segment[..part.len()].copy_from_slice(part);
                Segment::from_bytes(segment)
            });
            segments.extend(rest);
        } else {
            // The second page of the data holds the list.
            driver.put(self.setup.data[1], &entries);
            let at = VA + PAGE - 0x800;
            segments.push(DataSeg::new(at, self.setup.lkey, entries.len() as u32).to_segment());
        }
        segments.resize(usize::from(BLOCKS) * 4, Segment::ZERO);
        let ds = if umr.flags & UmrSeg::INLINE != 0 { 12 } else { 9 };
        let old = key(self.index, 0);
        segments[0] = CtrlSeg::new(0, Opcode::UMR, self.posted, qpn, ds, Flags::SIGNALED, old).to_segment();
        self.post(driver, &segments)
    }

    /// Makes the key map `pages` from `START` on.
    fn enable(&mut self, driver: &mut Driver, pages: &[u64], flags: u8) -> Cqe {
        let umr = UmrSeg {
            flags,
            mask: Be64::new(
                mask::LEN
                    | mask::PAGE_SIZE
                    | mask::START_ADDR
                    | mask::KEY
                    | mask::FREE
                    | mask::LR
                    | mask::LW
                    | mask::RR
                    | mask::RW,
            ),
            ..UmrSeg::default()
        };
        let context = MkeyContext {
            lr: true,
            rw: true,
            mkey_7_0: 0x5a,
            start_addr: START,
            len: PAGE * pages.len() as u64,
            log_page_size: 12,
            ..MkeyContext::default()
        };
        let list: Vec<[u8; 8]> =
            pages.iter().map(|page| Mtt { address: *page, read: true, write: true }.encode()).collect();
        self.change(driver, umr, context, &list)
    }

    fn disable(&mut self, driver: &mut Driver) -> Cqe {
        let flags = UmrSeg::INLINE | UmrSeg::CHECK_FREE;
        let umr = UmrSeg { flags, mask: Be64::new(mask::FREE), ..UmrSeg::default() };
        self.change(driver, umr, MkeyContext { free: true, ..MkeyContext::default() }, &[])
    }

    /// Writes 8 bytes through the key.
    fn write(&mut self, driver: &mut Driver, raddr: u64, rkey: u32) -> Cqe {
        let wqe = Wqe::Write { raddr, rkey, laddr: VA, lkey: self.setup.lkey, len: 8 };
        self.post_one(driver, &wqe)
    }

    /// Posts a WQE of one block.
    fn post_one(&mut self, driver: &mut Driver, wqe: &Wqe) -> Cqe {
        let emitted = wqe.emit(self.posted, self.setup.qpn, Flags::SIGNALED);
        let mut segments = emitted.segments().to_vec();
        segments.resize(4, Segment::ZERO);
        self.post(driver, &segments)
    }
}

fn succeeded(cqe: &Cqe) -> bool {
    cqe.op_own().opcode() == CqeOpcode::REQ
}

fn syndrome(cqe: &Cqe) -> Syndrome {
    assert_eq!(cqe.op_own().opcode(), CqeOpcode::REQ_ERR);
    cqe.as_error().expect("an error").syndrome
}

#[test]
fn a_work_request_maps_pages_and_frees_the_key() {
    for flags in [UmrSeg::CHECK_NOT_FREE, UmrSeg::CHECK_NOT_FREE | UmrSeg::INLINE] {
        let mut driver = driver();
        let mut free = Free::new(&mut driver);
        let pages = driver.pages(2);
        assert!(succeeded(&free.enable(&mut driver, &pages, flags)));
        driver.put(free.setup.data[0] + 0x800, b"rushmem!");
        // The last bytes of the first page, and the first of the second, which does not follow it.
        let rkey = key(free.index, 0x5a);
        assert!(succeeded(&free.write(&mut driver, START + PAGE - 4, rkey)));
        assert_eq!((&driver.get(pages[0] + PAGE - 4), &driver.get(pages[1])), (b"rush", b"mem!"));
        assert!(succeeded(&free.disable(&mut driver)));
        assert_eq!(syndrome(&free.write(&mut driver, START, rkey)), Syndrome::REMOTE_ACCESS_ERR);
    }
}

#[test]
fn a_connection_to_another_adapter_changes_keys_in_order() {
    let mut drivers = [(); 2].map(|()| Driver::connected(Arc::new(Counter::default())));
    let [own, other] = &mut drivers;
    let (mut free, target) = (Free::new(own), Setup::new(other));
    let lids = [own.nic.lid(), other.nic.lid()].map(|lid| lid.expect("the address has a LID"));
    let path = |rlid| AddressPath { rlid, ack_timeout: 14, ..AddressPath::default() };
    for (driver, qpn, remote, lid) in
        [(&mut *own, free.setup.qpn, target.qpn, lids[1]), (&mut *other, target.qpn, free.setup.qpn, lids[0])]
    {
        driver.call(&ToRst { qpn, ..ToRst::default() }).unwrap();
        connect(driver, qpn, remote, path(lid));
    }
    let pages = own.pages(2);
    own.put(pages[0] + 8, b"rushmem!");
    let cqe = free.enable(own, &pages, 0);
    assert!(succeeded(&cqe), "{:?}", cqe.as_error());
    let wqe =
        Wqe::Write { raddr: VA, rkey: target.lkey, laddr: START + 8, lkey: key(free.index, 0x5a), len: 8 };
    let cqe = free.post_one(own, &wqe);
    assert!(succeeded(&cqe), "{:?}", cqe.as_error());
    assert_eq!(&other.get(target.data[0] + 0x800), b"rushmem!");
    assert!(succeeded(&free.disable(own)));
    assert_eq!(syndrome(&free.disable(own)), Syndrome::MW_BIND_ERR, "it is free already");
}

#[test]
fn a_change_that_does_not_fit_fails() {
    let outcome = |change: &dyn Fn(&mut Free, &mut Driver) -> Cqe| {
        let mut driver = driver();
        let mut free = Free::new(&mut driver);
        let pages = driver.pages(2);
        assert!(succeeded(&free.enable(&mut driver, &pages, 0)));
        syndrome(&change(&mut free, &mut driver))
    };
    let bind = Syndrome::MW_BIND_ERR;
    // The key is in use.
    assert_eq!(outcome(&|free, driver| free.enable(driver, &[0], UmrSeg::CHECK_NOT_FREE)), bind);
    // It has room for eight pages.
    assert_eq!(
        outcome(&|free, driver| free.enable(driver, &[0; 9], UmrSeg::INLINE)),
        Syndrome::LOCAL_LENGTH_ERR
    );
    assert_eq!(outcome(&|free, driver| free.enable(driver, &[0; 10], 0)), bind);
    let longer = |mask: u64, context: MkeyContext| {
        outcome(&|free, driver| {
            let umr = UmrSeg { flags: UmrSeg::INLINE, mask: Be64::new(mask), ..UmrSeg::default() };
            free.change(driver, umr, context, &[])
        })
    };
    assert_eq!(longer(mask::LEN, MkeyContext { len: 2 * PAGE + 1, ..MkeyContext::default() }), bind);
    assert_eq!(longer(mask::PAGE_SIZE, MkeyContext { log_page_size: 5, ..MkeyContext::default() }), bind);
    assert_eq!(longer(1 << 12, MkeyContext::default()), bind, "signatures");
    // Only the QP for such changes may move a key to another protection domain.
    assert_eq!(longer(mask::PD, MkeyContext { pd: 1, ..MkeyContext::default() }), bind);
}

#[test]
fn only_keys_made_for_it_can_be_changed() {
    let mut driver = driver();
    let mut free = Free::new(&mut driver);
    let other = driver.call(&AllocPd::default()).unwrap().pd;
    let context = MkeyContext { free: true, umr_en: true, pd: other, ..MkeyContext::default() };
    let create = |context: MkeyContext| CreateMkey {
        context: context.with_access_mode(AccessMode::MTT),
        ..CreateMkey::default()
    };
    // A free key that nothing could ever change is refused.
    assert!(driver.call(&create(MkeyContext { umr_en: false, ..context })).is_err());
    let huge = MkeyContext { translations_octword_size: u32::MAX, ..context };
    assert!(driver.call(&create(huge)).is_err());
    let foreign = driver.call(&create(context)).unwrap().mkey_index;
    let own = std::mem::replace(&mut free.index, foreign);
    assert_eq!(syndrome(&free.disable(&mut driver)), Syndrome::MW_BIND_ERR);
    for mkey_index in [own, foreign] {
        driver.call(&DestroyMkey { mkey_index, ..DestroyMkey::default() }).unwrap();
    }
}
