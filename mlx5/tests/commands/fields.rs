//! The fields of the compared commands, from the layouts of `rushmem-mlx5`.

use rushmem_mlx5::prm::cq::{CqContext, CreateCq};
use rushmem_mlx5::prm::dct::{CreateDct, DctContext};
use rushmem_mlx5::prm::mkey::{CreateMkey, MkeyContext};
use rushmem_mlx5::prm::qp::{AddressPath, CreateQp, QpContext, Rst2Init};
use rushmem_mlx5::prm::{CmdOpcode, FieldInfo, Layout};

/// A field of a mailbox.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// Name with the structure that it belongs to, such as `path.rlid`.
    pub(crate) name: String,
    offset: usize,
    width: usize,
}

/// The value of a field as it is compared: hexadecimal digits, or `set` for a number that differs between objects.
pub(crate) type Value = String;

/// Fields that have another value in each object: only whether they are zero is compared.
const NUMBERS: &[&str] = &[
    "uid",
    "pd",
    "qpn",
    "remote_qpn",
    "cqn",
    "cqn_snd",
    "cqn_rcv",
    "uar_page",
    "dbr_umem_id",
    "umem_id",
    "wq_umem_id",
    "srqn_rmpn_xrqn",
    "srqn_xrqn",
    "xrcd",
    "c_eqn",
    "counter_set_id",
    "len",
    "rgid_rip",
    "rlid",
    "dc_access_key",
    "translations_octword_size",
    "translations_octword_actual_size",
];

/// Fields that have another value in each object, and where zero means nothing: they are not compared. The stand-in
/// for Linux does not know the MAC address of an adapter of another process.
const FREE: &[&str] = &[
    "dbr_addr",
    "umem_offset",
    "wq_umem_offset",
    "user_index",
    "next_rcv_psn",
    "next_send_psn",
    "start_addr",
    "mkey_7_0",
    "page_offset",
    "udp_sport",
    "rmac",
];

/// Structures within a mailbox: the field, its prefix in names, and its fields.
const NESTED: &[(&str, &str, &[FieldInfo])] = &[
    ("context of CREATE_CQ", "cqc.", CqContext::FIELDS),
    ("context of CREATE_QP", "qpc.", QpContext::FIELDS),
    ("context of CREATE_DCT", "dctc.", DctContext::FIELDS),
    ("context of CREATE_MKEY", "mkc.", MkeyContext::FIELDS),
    ("primary_address_path", "path.", AddressPath::FIELDS),
    ("secondary_address_path", "alternate path.", AddressPath::FIELDS),
];

/// Returns the fields of a command's mailbox, with the bits between them as fields named `reserved`.
pub(crate) fn fields(opcode: CmdOpcode) -> Vec<Field> {
    let (name, table) = match opcode {
        CmdOpcode::CREATE_CQ => ("CREATE_CQ", CreateCq::FIELDS),
        CmdOpcode::CREATE_DCT => ("CREATE_DCT", CreateDct::FIELDS),
        CmdOpcode::CREATE_MKEY => ("CREATE_MKEY", CreateMkey::FIELDS),
        // The transitions have the fields of one structure.
        CmdOpcode::CREATE_QP => ("CREATE_QP", CreateQp::FIELDS),
        _ => ("CREATE_QP", Rst2Init::FIELDS),
    };
    let mut found = Vec::new();
    let bits = |offset, width| FieldInfo { name: "opcode", offset, width };
    add(&mut found, &[bits(0, 16)], "", 0, name);
    add(&mut found, table, "", 0, name);
    found.sort_by_key(|field| field.offset);
    let mut gaps = Vec::new();
    let mut at = 0;
    for field in &found {
        push_gap(&mut gaps, at, field.offset);
        at = field.offset + field.width;
    }
    push_gap(&mut gaps, at, 272 * 8);
    found.extend(gaps);
    found.sort_by_key(|field| field.offset);
    found
}

/// Adds the fields of a structure at bit `base`, and of the structures within it, whose names may depend on `command`.
fn add(found: &mut Vec<Field>, table: &[FieldInfo], prefix: &str, base: usize, command: &str) {
    for &FieldInfo { name, offset, width } in table {
        let of_command = format!("{name} of {command}");
        let nested = NESTED.iter().find(|(field, ..)| *field == name || *field == of_command);
        match nested {
            Some((_, prefix, table)) => add(found, table, prefix, base + offset, command),
            None => found.push(Field { name: format!("{prefix}{name}"), offset: base + offset, width }),
        }
    }
}

/// Adds the bits `start..end`, split at word boundaries.
fn push_gap(gaps: &mut Vec<Field>, mut start: usize, end: usize) {
    while start < end {
        let stop = end.min(start / 32 * 32 + 32);
        let name = format!("reserved {start:#x}");
        gaps.push(Field { name, offset: start, width: stop - start });
        start = stop;
    }
}

impl Field {
    /// Returns the field's value in a mailbox, as it is compared. `None` if the field is not compared.
    pub(crate) fn value(&self, mailbox: &[u8]) -> Option<Value> {
        let name = self.name.rsplit('.').next().unwrap_or_default();
        if FREE.contains(&name) || name == "opcode" {
            return None;
        }
        let bit = |at: usize| mailbox[at / 8] >> (7 - at % 8) & 1;
        let bits: Vec<u8> = (self.offset..self.offset + self.width).map(bit).collect();
        let is_zero = bits.iter().all(|&bit| bit == 0);
        if is_zero {
            return Some("0".into());
        }
        if NUMBERS.contains(&name) {
            return Some("set".into());
        }
        let digit = |four: &[u8]| four.iter().fold(0, |digit, &bit| u32::from(bit) + digit * 2);
        let digits = bits.rchunks(4).rev().map(|four| char::from_digit(digit(four), 16).unwrap_or('?'));
        let digits: String = digits.collect();
        let digits = digits.trim_start_matches('0');
        Some(if digits.len() == 1 && digits < "a" { digits.into() } else { format!("0x{digits}") })
    }
}

/// Returns the values of all compared fields.
pub(crate) fn values(opcode: CmdOpcode, mailbox: &[u8]) -> Vec<Value> {
    fields(opcode).iter().filter_map(|field| field.value(mailbox)).collect()
}
