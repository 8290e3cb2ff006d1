//! A text file of executed commands and of executed send WQEs, one of each shape.
//!
//! Lines that start with `#` are comments. A line that starts with `command` is a command: its opcode, its input mailbox
//! without the list that may follow, and the start of its output mailbox, both without trailing zeros. Every other line is
//! a WQE: its service (`rc`, `uc`, `ud`, `dc`, `xrc`), its index as four hexadecimal digits, and the bytes of its
//! segments.

use crate::error::Error;
use crate::roce::Service;
use rushmem_mlx5::prm::Header;
use rushmem_mlx5::wqe::{Data, View};
use rushmem_mlx5::{Opcode, Segment};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// Length of the longest input mailbox without its list, in bytes.
const INPUT_BYTES: usize = 272;
/// Length of the logged part of an output mailbox, which holds the status and the number of a new object, in bytes.
const OUTPUT_BYTES: usize = 16;

/// An open log. A write error stops the log, but not the execution.
pub(crate) struct Log {
    file: Option<File>,
    seen: HashSet<WqeShape>,
}

/// What distinguishes logged WQEs: everything except numbers and payload.
#[derive(PartialEq, Eq, Hash)]
struct WqeShape {
    service: u8,
    opcode: Opcode,
    opmod: u8,
    flags: u8,
    ds: u8,
    /// Length of each piece of inline data, or `None` for a data segment that points to memory.
    data: Vec<Option<usize>>,
}

impl Log {
    pub(crate) fn open(path: &Path) -> Result<Log, Error> {
        let failed = |source| Error::Record { path: path.to_owned(), source };
        // Several adapters may write to one file, so each line is appended by a single write.
        let mut file = File::options().create(true).append(true).open(path).map_err(failed)?;
        file.write_all(b"# commands: opcode, input, output; send WQEs: service, index, bytes\n")
            .map_err(failed)?;
        Ok(Log { file: Some(file), seen: HashSet::new() })
    }

    /// Logs a WQE that is about to be executed, unless one of its shape was logged.
    pub(crate) fn wqe(&mut self, service: Service, view: &View<'_>) {
        if self.file.is_none() {
            return;
        }
        let ctrl = view.ctrl();
        let shape = WqeShape {
            service: service as u8,
            opcode: ctrl.opcode(),
            opmod: ctrl.opmod(),
            flags: ctrl.flags().0,
            ds: ctrl.ds(),
            data: view
                .data()
                .map(|data| match data {
                    Data::Pointer(_) => None,
                    Data::Inline(bytes) => Some(bytes.len()),
                })
                .collect(),
        };
        if !self.seen.insert(shape) {
            return;
        }
        let name = match service {
            Service::Rc => "rc",
            Service::Uc => "uc",
            Service::Ud => "ud",
            Service::Raw => "raw",
            Service::Dc => "dc",
            Service::Xrc => "xrc",
        };
        let mut line = format!("{name} {:04x} ", ctrl.index());
        push_hex(&mut line, Segment::bytes_of(view.segments()));
        self.append(line);
    }

    /// Logs a command that was executed or refused.
    pub(crate) fn command(&mut self, input: &[u8], output: &[u8]) {
        let Ok(Header { opcode, .. }) = Header::decode(input) else { return };
        let mut line = format!("command {opcode} ");
        push_hex(&mut line, without_zeros(input, INPUT_BYTES));
        line.push(' ');
        push_hex(&mut line, without_zeros(output, OUTPUT_BYTES));
        self.append(line);
    }

    fn append(&mut self, mut line: String) {
        let Some(file) = &mut self.file else { return };
        line.push('\n');
        // Unbuffered, because programs exit without stopping their adapters.
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::error!(%error, "the log of commands and WQEs failed");
            self.file = None;
        }
    }
}

fn push_hex(line: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(line, "{byte:02x}");
    }
}

/// Returns the first `most` bytes without trailing zeros, but at least one byte.
fn without_zeros(bytes: &[u8], most: usize) -> &[u8] {
    let bytes = &bytes[..bytes.len().min(most)];
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(1, |last| last + 1);
    &bytes[..used.min(bytes.len())]
}
