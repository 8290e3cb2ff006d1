//! The arguments of a uverbs ioctl: a header and a list of attributes, each with an ID.
//!
//! Inputs of up to eight bytes are stored in the attribute itself, longer ones are passed by pointer. Outputs are
//! always passed by pointer. Handles and file descriptors are the attribute's value. The attributes do not distinguish
//! these, so each method asks for its attributes as what they are.

use crate::errno::Errno;
use crate::user;
use bytemuck::{NoUninit, Pod, Zeroable};
use std::mem::offset_of;
use std::os::fd::RawFd;

/// Request code of the ioctl: magic 0x1b, number 1, both directions, 24 bytes.
pub(crate) const REQUEST: libc::c_ulong = 0xc018_1b01;

/// Maximum number of attributes of a call, similar to the kernel's limit.
const MAX_ATTRS: usize = 64;

/// Maximum length of an output, in bytes.
const MAX_BYTES: usize = 64 << 10;

/// Flag of an output that the kernel has filled.
const VALID_OUTPUT: u16 = 2;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    length: u16,
    object: u16,
    method: u16,
    attrs: u16,
    reserved: u64,
    driver: u32,
    reserved2: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Attr {
    id: u16,
    len: u16,
    flags: u16,
    extra: u16,
    data: u64,
}

const HEADER: usize = size_of::<Header>();
const ATTR: usize = size_of::<Attr>();
const _: () = assert!(HEADER == 24 && ATTR == 16);

/// An ioctl that a program has made: method and attributes, with the program's address of the attributes.
pub(crate) struct Call {
    pub(crate) object: u16,
    pub(crate) method: u16,
    attrs: Vec<Attr>,
    /// Address of the first attribute.
    at: u64,
}

impl Call {
    /// Reads the header and the attributes at address `at`.
    pub(crate) fn read(at: u64) -> Result<Call, Errno> {
        let header: Header = user::read_value(at)?;
        let count = usize::from(header.attrs);
        if header.reserved != 0 || header.reserved2 != 0 {
            return Err(Errno::EPROTONOSUPPORT);
        }
        if count > MAX_ATTRS || usize::from(header.length) != HEADER + ATTR * count {
            return Err(Errno::EINVAL);
        }
        let mut attrs = vec![Attr::zeroed(); count];
        let at = at + HEADER as u64;
        user::read(at, bytemuck::cast_slice_mut(&mut attrs))?;
        Ok(Call { object: header.object, method: header.method, attrs, at })
    }

    fn find(&self, id: u16) -> Option<(usize, &Attr)> {
        self.attrs.iter().enumerate().find(|(_, attr)| attr.id == id)
    }

    fn need(&self, id: u16) -> Result<(usize, &Attr), Errno> {
        self.find(id).ok_or(Errno::EINVAL)
    }

    pub(crate) fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    pub(crate) fn handle(&self, id: u16) -> Result<u32, Errno> {
        let (_, attr) = self.need(id)?;
        u32::try_from(attr.data).map_err(|_| Errno::EINVAL)
    }

    /// Returns a file descriptor, or `None` if the attribute is absent or negative.
    pub(crate) fn optional_fd(&self, id: u16) -> Result<Option<i32>, Errno> {
        match self.find(id) {
            None => Ok(None),
            Some((_, attr)) if (attr.data as i64) < 0 => Ok(None),
            Some((_, attr)) => {
                let fd = i32::try_from(attr.data).map_err(|_| Errno::EINVAL)?;
                user::descriptor(fd).map(Some)
            }
        }
    }

    /// Returns the input in attribute `id` as a `T`, padded with zeros if the program passed fewer bytes.
    pub(crate) fn input<T: Pod>(&self, id: u16) -> Result<T, Errno> {
        Ok(user::prefix(&self.bytes(id)?))
    }

    /// Like [`Call::input`], or `None` if the attribute is absent.
    pub(crate) fn optional<T: Pod>(&self, id: u16) -> Result<Option<T>, Errno> {
        if self.has(id) { self.input(id).map(Some) } else { Ok(None) }
    }

    pub(crate) fn bytes(&self, id: u16) -> Result<Vec<u8>, Errno> {
        let (_, attr) = self.need(id)?;
        let len = usize::from(attr.len);
        if len <= 8 {
            return Ok(attr.data.to_ne_bytes()[..len].to_vec());
        }
        let mut bytes = vec![0; len];
        user::read(attr.data, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the buffer length of an output, or 0 if it is absent.
    pub(crate) fn room(&self, id: u16) -> usize {
        self.find(id).map_or(0, |(_, attr)| usize::from(attr.len).min(MAX_BYTES))
    }

    /// Writes an output, truncated to its buffer. Does nothing if the attribute is absent.
    pub(crate) fn output<T: NoUninit>(&self, id: u16, value: &T) -> Result<(), Errno> {
        self.output_bytes(id, bytemuck::bytes_of(value))
    }

    /// Like [`Call::output`], for bytes.
    pub(crate) fn output_bytes(&self, id: u16, value: &[u8]) -> Result<(), Errno> {
        let Some((index, attr)) = self.find(id) else { return Ok(()) };
        let len = value.len().min(usize::from(attr.len));
        user::write(attr.data, &value[..len])?;
        self.put(index, Attr { flags: attr.flags | VALID_OUTPUT, ..*attr })
    }

    /// Passes a new file descriptor to the program in the buffer of output attribute `id`.
    pub(crate) fn output_file(&self, id: u16, fd: RawFd) -> Result<(), Errno> {
        let (_, attr) = self.need(id)?;
        user::hand_over(fd, attr.data);
        self.output(id, &fd)
    }

    /// Passes a new file descriptor to the program as the value of attribute `id`.
    pub(crate) fn return_file(&self, id: u16, fd: RawFd) -> Result<(), Errno> {
        let (index, _) = self.need(id)?;
        user::hand_over(fd, self.at + (index * ATTR + offset_of!(Attr, data)) as u64);
        self.return_handle(id, fd as u32)
    }

    /// Passes a new object's handle to the program as the value of attribute `id`.
    pub(crate) fn return_handle(&self, id: u16, handle: u32) -> Result<(), Errno> {
        let (index, attr) = self.need(id)?;
        self.put(index, Attr { data: handle.into(), flags: attr.flags | VALID_OUTPUT, ..*attr })
    }

    fn put(&self, index: usize, attr: Attr) -> Result<(), Errno> {
        user::write_value(self.at + (index * ATTR) as u64, &attr)
    }
}
