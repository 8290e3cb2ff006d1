//! The commands that a probe sent to a NIC and the CQEs that the NIC wrote, as a report shows them.

use std::fmt::Write;

use rushmem::inspect::{Completion, Exchange};
use rushmem_mlx5::prm::{CmdError, DecodeError, Header};
use rushmem_mlx5::{CqeWord, Syndrome};
use serde::{Deserialize, Serialize};

/// The mailboxes of a command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Command {
    /// Name of the opcode, such as `INIT2RTR_QP`.
    command: String,
    /// Status in the output mailbox, such as `BAD_PARAM`.
    status: String,
    /// Syndrome in the output mailbox. The firmware's number for the check that failed.
    syndrome: String,
    /// Why the command did not reach the NIC, or the answer not the process.
    error: Option<String>,
    input: Mailbox,
    output: Mailbox,
}

/// The bytes of a mailbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Mailbox {
    bytes: usize,
    /// Hexadecimal digits, without the zeros at the end.
    hex: String,
}

/// A CQE.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cqe {
    qpn: u32,
    /// Opcode, such as `REQ` for success.
    opcode: String,
    /// Syndrome of an error CQE.
    syndrome: Option<String>,
    hex: String,
}

impl Command {
    pub(crate) fn new(exchange: &Exchange) -> Command {
        let (status, syndrome) = match CmdError::check(&exchange.output) {
            Err(DecodeError::Refused(CmdError { status, syndrome })) => (status.to_string(), syndrome),
            Ok(()) if exchange.error.is_none() => ("OK".into(), 0),
            _ => ("unknown".into(), 0),
        };
        Command {
            command: Header::decode(&exchange.input).map_or("unknown".into(), |it| it.opcode.to_string()),
            status,
            syndrome: format!("{syndrome:#x}"),
            error: exchange.error.clone(),
            input: Mailbox::new(&exchange.input),
            output: Mailbox::new(&exchange.output),
        }
    }
}

impl Mailbox {
    fn new(bytes: &[u8]) -> Mailbox {
        let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        Mailbox { bytes: bytes.len(), hex: hex(&bytes[..used]) }
    }
}

impl Cqe {
    pub(crate) fn new(completion: &Completion) -> Cqe {
        let entry = &completion.entry;
        let last = entry.last_chunk().map_or(CqeWord(0), |word| CqeWord(u64::from_le_bytes(*word)));
        let opcode = last.op_own().opcode();
        // The byte before the last word.
        let syndrome = entry.iter().rev().nth(8).filter(|_| opcode.is_error()).map(|&byte| Syndrome(byte));
        Cqe {
            qpn: completion.qpn,
            opcode: opcode.to_string(),
            syndrome: syndrome.map(|syndrome| format!("{:#04x}", syndrome.0)),
            hex: hex(entry),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use rushmem_mlx5::prm::{CmdStatus, qp};

    use super::*;

    #[test]
    fn refusals_show_status_and_syndrome() {
        let input = qp::QueryQp { qpn: 0x42, ..Default::default() }.encode().as_ref().to_vec();
        let mut output = vec![0; 16];
        CmdError { status: CmdStatus::BAD_PARAM, syndrome: 0x1234 }.write(&mut output);
        let shown = Command::new(&Exchange { input, output: output.clone(), error: None });
        assert_eq!((&*shown.command, &*shown.status, &*shown.syndrome), ("QUERY_QP", "BAD_PARAM", "0x1234"));
        assert_eq!((shown.output.bytes, &*shown.output.hex), (16, "0300000000001234"));
        let error = Some("Linux refused it".into());
        let lost = Command::new(&Exchange { input: Vec::new(), output: vec![0; 16], error });
        assert_eq!((&*lost.command, &*lost.status, &*lost.output.hex), ("unknown", "unknown", ""));
    }

    #[test]
    fn error_cqes_show_the_syndrome() {
        let mut entry = vec![0; 64];
        entry[55] = Syndrome::REMOTE_ACCESS_ERR.0;
        entry[63] = 0xd << 4;
        let cqe = |entry: &[u8]| Cqe::new(&Completion { qpn: 7, entry: entry.into() });
        assert_eq!(cqe(&entry).syndrome.as_deref(), Some("0x13"));
        entry[63] = 0;
        assert_eq!(cqe(&entry).syndrome, None);
        assert_eq!(cqe(&[]).hex, "");
    }
}
