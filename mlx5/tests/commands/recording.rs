//! Recordings of the commands that a program sent, as `rushmem softnic --record` writes them.

use std::collections::{BTreeMap, BTreeSet};

use rushmem_mlx5::prm::dct::CreateDct;
use rushmem_mlx5::prm::qp::{CreateQp, CreateQpOut, Rst2Init, ServiceType};
use rushmem_mlx5::prm::{CmdOpcode, Command, Header, cq::CreateCq, mkey::CreateMkey};

use super::fields::{Value, values};

/// A command that succeeded.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) step: Step,
    pub(crate) input: Vec<u8>,
    /// QPN of the QP that the command creates or moves.
    qpn: Option<u32>,
    line: String,
}

/// A command and, if it is one on a QP, the transport service of that QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Step {
    pub(crate) opcode: CmdOpcode,
    pub(crate) service: Option<ServiceType>,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.service {
            Some(service) => write!(f, "{} of {service}", self.opcode),
            None => self.opcode.fmt(f),
        }
    }
}

/// Length of the mailboxes of all recorded commands, in bytes.
const MAILBOX: usize = 272;

/// Parses a recording. Returns the commands that set up CQs, QPs, DC targets and memory keys, and that succeeded.
///
/// # Panics
///
/// Panics if a line is malformed.
pub(crate) fn parse(text: &str) -> Vec<Sent> {
    let mut services = BTreeMap::new();
    let of_line = |line: &str| {
        let mut words = line.strip_prefix("command ")?.split(' ').skip(1);
        let mut bytes = || unhex(words.next().unwrap_or_else(|| panic!("no mailbox: {line}")));
        let (mut input, mut output) = (bytes(), bytes());
        input.resize(MAILBOX, 0);
        output.resize(16, 0);
        let opcode = Header::decode(&input).ok()?.opcode;
        if output[0] != 0 {
            return None;
        }
        let qpn = match opcode {
            CmdOpcode::CREATE_QP => {
                let qpn = CreateQpOut::decode(&output).ok()?.qpn;
                services.insert(qpn, CreateQp::decode(&input).ok()?.context.st);
                Some(qpn)
            }
            CmdOpcode::RST2INIT_QP | CmdOpcode::INIT2RTR_QP | CmdOpcode::RTR2RTS_QP => {
                // All transitions have one layout.
                let mailbox = input.first_chunk().expect("a mailbox of this length");
                Some(Rst2Init::read(mailbox).qpn)
            }
            CreateCq::OPCODE | CreateMkey::OPCODE | CreateDct::OPCODE => None,
            _ => return None,
        };
        let service = match qpn {
            Some(qpn) => Some(*services.get(&qpn)?),
            None => None,
        };
        Some(Sent { step: Step { opcode, service }, input, qpn, line: line.into() })
    };
    text.lines().filter_map(of_line).collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
    bytes.unwrap_or_else(|| panic!("no hexadecimal digits: {digits}"))
}

/// Returns the lines of a recording that set up one object of each kind: those whose compared fields differ.
pub(crate) fn reduce(text: &str) -> String {
    type Kind = Vec<(Step, Vec<Value>)>;
    let mut objects: Vec<(Option<u32>, Kind, Vec<String>)> = Vec::new();
    for sent in parse(text) {
        let field = (sent.step, values(sent.step.opcode, &sent.input));
        let is_new = sent.step.opcode == CmdOpcode::CREATE_QP || sent.qpn.is_none();
        match objects.iter_mut().rev().find(|(qpn, ..)| !is_new && *qpn == sent.qpn) {
            Some((_, kind, lines)) => {
                kind.push(field);
                lines.push(sent.line);
            }
            None => objects.push((sent.qpn, vec![field], vec![sent.line])),
        }
    }
    let mut seen = BTreeSet::new();
    objects.retain(|(_, kind, _)| seen.insert(kind.clone()));
    objects.into_iter().flat_map(|(.., lines)| lines).map(|line| line + "\n").collect()
}
