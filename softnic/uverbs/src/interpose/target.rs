//! Resolution of a program's path to a device node, a file of the launcher's tree, or a file of the system.

use crate::abi::MAJOR;
use crate::errno::Errno;
use crate::live::LiveFile;
use crate::node;
use crate::process::current;
use crate::{cm, paths, umad};
use libc::{c_char, c_int};
use std::ffi::{CStr, CString};

/// A device node in `/dev/infiniband`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// uverbs node of a device, by device index.
    Verbs(u32),
    /// umad node of a device, by device index.
    Umad(u32),
    /// Node of the RDMA connection manager.
    Cm,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    Node(Node),
    /// A sysfs file that is generated when opened, and its place in the launcher's tree.
    Live(LiveFile, CString),
    /// Any other file of the launcher's tree, by its path there.
    Moved(CString),
    /// A file that does not belong to this library.
    Other,
}

impl Node {
    /// Returns the node at an absolute path, by name or by device number.
    fn find(path: &[u8]) -> Option<Node> {
        let number = |prefix: &str| -> Option<u32> {
            std::str::from_utf8(path.strip_prefix(prefix.as_bytes())?).ok()?.parse().ok()
        };
        if path == b"/dev/infiniband/rdma_cm" {
            return Some(Node::Cm);
        }
        if let Some(index) = number("/dev/infiniband/umad") {
            return Some(Node::Umad(index));
        }
        // libibverbs tries the second path if the first fails to open.
        let verbs = number("/dev/infiniband/uverbs");
        verbs
            .or_else(|| number(&format!("/dev/char/{MAJOR}:"))?.checked_sub(node::FIRST_MINOR))
            .map(Node::Verbs)
    }

    /// Returns the device number, or `ENOENT` if this process has no such device.
    pub(super) fn device_number(self) -> Result<libc::dev_t, Errno> {
        let number = match self {
            Node::Verbs(index) => node::device_number(index),
            Node::Umad(index) => node::umad_number(index),
            Node::Cm => cm::device_number(),
        };
        if current().has(self.device()) { Ok(number) } else { Err(Errno::ENOENT) }
    }

    /// Returns the device index. The connection manager exists whenever a device does.
    fn device(self) -> u32 {
        match self {
            Node::Verbs(index) | Node::Umad(index) => index,
            Node::Cm => 0,
        }
    }

    /// Checks that a program may open the node with these rights, a combination of `R_OK`, `W_OK` and `X_OK`.
    pub(super) fn may_open(self, mode: c_int) -> Result<(), Errno> {
        current().may_open(self.device(), mode)
    }

    pub(super) fn open(self, flags: c_int) -> Result<c_int, Errno> {
        let close_on_exec = flags & libc::O_CLOEXEC != 0;
        self.device_number()?;
        match self {
            Node::Umad(index) => umad::open(index, flags),
            Node::Verbs(index) => current().open(index, close_on_exec),
            Node::Cm => cm::open(close_on_exec),
        }
    }
}

impl Target {
    /// Resolves a path relative to the directory `at`.
    ///
    /// # Safety
    ///
    /// `path` is null or a C string.
    pub(super) unsafe fn of(at: c_int, path: *const c_char) -> Target {
        if path.is_null() {
            return Target::Other;
        }
        // SAFETY: the caller passes a C string.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        if path.starts_with(b"/") {
            return Target::of_absolute(path);
        }
        if !may_be_ours(path) {
            return Target::Other;
        }
        let Some(folder) = paths::folder(at) else { return Target::Other };
        match paths::original(&folder) {
            // The system resolves it within the tree. Only nodes and generated files differ from the tree's own.
            Some(folder) => match Target::of_absolute(&[&folder, &b"/"[..], path].concat()) {
                Target::Moved(_) => Target::Other,
                target => target,
            },
            None if folder == b"/" => Target::of_absolute(&[b"/", path].concat()),
            None => Target::Other,
        }
    }

    fn of_absolute(path: &[u8]) -> Target {
        if let Some(node) = Node::find(path) {
            return Target::Node(node);
        }
        let Some(place) = paths::moved(path) else { return Target::Other };
        match LiveFile::find(path) {
            Some(file) if current().has(file.device) => Target::Live(file, place),
            _ => Target::Moved(place),
        }
    }

    /// Returns the path in the launcher's tree, or `None` for a device node or a file of the system.
    pub(super) fn place(&self) -> Option<&CStr> {
        match self {
            Target::Live(_, place) | Target::Moved(place) => Some(place),
            Target::Node(_) | Target::Other => None,
        }
    }
}

/// Whether a relative path may be one of this library's files. Quickly rules out almost all paths of a program.
fn may_be_ours(path: &[u8]) -> bool {
    let (first, last) = (path.split(|byte| *byte == b'/').next(), path.rsplit(|byte| *byte == b'/').next());
    matches!(first, Some(b"sys" | b"dev"))
        || last.is_some_and(|last| {
            last.starts_with(b"uverbs")
                || last.starts_with(b"umad")
                || last.starts_with(b"231:")
                || last == b"rdma_cm"
        })
        || LiveFile::may_be(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_by_name_and_number() {
        assert_eq!(Node::find(b"/dev/infiniband/uverbs3"), Some(Node::Verbs(3)));
        assert_eq!(Node::find(b"/dev/char/231:194"), Some(Node::Verbs(2)));
        assert_eq!(Node::find(b"/dev/infiniband/umad1"), Some(Node::Umad(1)));
        assert_eq!(Node::find(b"/dev/infiniband/rdma_cm"), Some(Node::Cm));
        for path in ["/dev/infiniband", "/dev/infiniband/uverbs", "/dev/char/231:1", "/dev/null"] {
            assert_eq!(Node::find(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn few_relative_paths_need_their_folder() {
        for path in
            ["sys", "sys/class/infiniband", "dev/infiniband/uverbs0", "uverbs1", "231:192", "gids/3", "state"]
        {
            assert!(may_be_ours(path.as_bytes()), "{path}");
        }
        for path in ["", "src/main.rs", "system", "device", "lib/libc.so", "node_guid"] {
            assert!(!may_be_ours(path.as_bytes()), "{path}");
        }
    }
}
