//! Correction of answers to capability queries, so programs see only what adapter and port both support.

use crate::abi::gid_type;
use crate::errno::Errno;
use crate::fault::Fault;
use crate::live::GID_SLOTS;
use crate::open_device::OpenDevice;
use crate::settings::LinkLayer;
use rushmem_mlx5::prm::caps::{
    AtomicCaps, CapPage, CapType, GeneralCap2, HcaCap, PortType, QueryHcaCap, QueryHcaCapOut,
    QueryRoceAddress, QueryRoceAddressOut, RoceAddr, RoceCap, RoceVersion,
};
use rushmem_mlx5::prm::{CmdError, CmdStatus};
use rushmem_softnic::ip_of_gid;

/// Masks the answer to QUERY_HCA_CAP.
pub(super) fn correct(opened: &OpenDevice, input: &[u8], output: &mut [u8]) {
    let (Ok(question), Ok(answer)) = (QueryHcaCap::decode(input), QueryHcaCapOut::decode(output)) else {
        return;
    };
    let atomics = !opened.device.has(Fault::NoAtomics);
    let ethernet = opened.device.settings.link == LinkLayer::Ethernet;
    let page = match question.cap_type {
        CapType::GENERAL => {
            let caps: HcaCap = answer.page.get();
            let privileged = !opened.device.has(Fault::VirtualFunction);
            CapPage::new(HcaCap {
                ece_support: caps.ece_support && privileged,
                dp_ordering_ooo_rw_rc: caps.dp_ordering_ooo_rw_rc && privileged,
                init2_lag_tx_port_affinity: caps.init2_lag_tx_port_affinity && privileged,
                atomic: atomics,
                roce: ethernet,
                port_type: if ethernet { PortType::ETHERNET } else { PortType::IB },
                // Code of 16 entries, the size of the GID table.
                gid_table_size: 1,
                ..caps
            })
        }
        CapType::GENERAL_2 if opened.device.has(Fault::NoRecord) => {
            let caps: GeneralCap2 = answer.page.get();
            CapPage::new(GeneralCap2 { send_dbr_mode_no_dbr_ext: true, ..caps })
        }
        CapType::ROCE => {
            let caps: RoceCap = answer.page.get();
            CapPage::new(RoceCap { roce_address_table_size: GID_SLOTS as u16, ..caps })
        }
        CapType::ATOMIC if !atomics => {
            let caps: AtomicCaps = answer.page.get();
            CapPage::new(AtomicCaps { atomic_operations: 0, ..caps })
        }
        _ => return,
    };
    let answer = QueryHcaCapOut { page }.encode();
    output.iter_mut().zip(answer).for_each(|(to, from)| *to = from);
}

/// Handles QUERY_ROCE_ADDRESS from the GID table.
pub(super) fn roce_address(opened: &OpenDevice, input: &[u8], output: &mut [u8]) -> Result<(), Errno> {
    let question = QueryRoceAddress::decode(input).map_err(|_| Errno::EINVAL)?;
    let nic = &opened.session()?.adapter.nic;
    let table = opened.device.gids(nic);
    let index = u32::from(question.roce_address_index);
    if opened.device.settings.link != LinkLayer::Ethernet || index >= GID_SLOTS {
        CmdError { status: CmdStatus::BAD_PARAM, syndrome: 0 }.write(output);
        return Ok(());
    }
    // Unused entries are all zero.
    let address =
        table.iter().find(|entry| entry.gid_index == index).map_or(RoceAddr::default(), |entry| RoceAddr {
            source_l3_address: entry.gid,
            source_mac: nic.mac(),
            roce_l3_type: u8::from(
                ip_of_gid(entry.gid).is_none_or(|ip| entry.gid != ip.to_ipv6_mapped().octets()),
            ),
            roce_version: if entry.gid_type == gid_type::ROCE_V2 { RoceVersion::V2 } else { RoceVersion::V1 },
            ..RoceAddr::default()
        });
    let answer = QueryRoceAddressOut { address }.encode();
    output.iter_mut().zip(answer).for_each(|(to, from)| *to = from);
    Ok(())
}
