//! A text file of executed send WQEs, one of each shape.
//!
//! Lines that start with `#` are comments. Every other line is a WQE: its service (`rc`, `uc`, `ud`, `dc`, `xrc`), its
//! index as four hexadecimal digits, and the bytes of its segments.

use crate::error::Error;
use crate::roce::Service;
use rushmem_mlx5::wqe::{Data, View};
use rushmem_mlx5::{Opcode, Segment};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// An open WQE log. A write error stops the log, but not the execution.
pub(crate) struct WqeLog {
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

impl WqeLog {
    pub(crate) fn open(path: &Path) -> Result<WqeLog, Error> {
        let failed = |source| Error::Record { path: path.to_owned(), source };
        // Several adapters may write to one file, so each line is appended by a single write.
        let mut file = File::options().create(true).append(true).open(path).map_err(failed)?;
        file.write_all(b"# send WQEs: service, index, bytes\n").map_err(failed)?;
        Ok(WqeLog { file: Some(file), seen: HashSet::new() })
    }

    /// Logs a WQE that is about to be executed, unless one of its shape was logged.
    pub(crate) fn entry(&mut self, service: Service, view: &View<'_>) {
        let Some(file) = &mut self.file else { return };
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
        for byte in Segment::bytes_of(view.segments()) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{byte:02x}");
        }
        line.push('\n');
        // Unbuffered, because programs exit without stopping their adapters.
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::error!(%error, "the WQE log failed");
            self.file = None;
        }
    }
}
