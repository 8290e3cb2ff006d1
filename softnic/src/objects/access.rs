//! Checks whether a QP and its memory keys permit an access of the QP's peer.

use super::qp::Qp;
use crate::dma::{Dma, Mkeys, Rights, Span, User, resolve};
use crate::memory::MemoryError;
use crate::request::{AtomicRequest, RemoteError, RemoteRange};

fn user(qp: &Qp) -> User {
    User { pd: qp.pd, qpn: qp.number() }
}

/// Checks an RDMA WRITE and returns its memory range. `None` means no bytes, for which no key is checked.
#[inline]
pub(crate) fn writable<'a>(
    qp: &Qp,
    mkeys: &'a Mkeys,
    at: RemoteRange,
) -> Result<Option<Span<'a>>, RemoteError> {
    remote(qp, mkeys, at, qp.attrs.remote_write, Rights::REMOTE_WRITE)
}

/// Checks an RDMA READ and returns its memory range. `None` means no bytes, for which no key is checked.
#[inline]
pub(crate) fn readable<'a>(
    qp: &Qp,
    mkeys: &'a Mkeys,
    at: RemoteRange,
) -> Result<Option<Span<'a>>, RemoteError> {
    remote(qp, mkeys, at, qp.attrs.remote_read, Rights::REMOTE_READ)
}

#[inline]
fn remote<'a>(
    qp: &Qp,
    mkeys: &'a Mkeys,
    at: RemoteRange,
    enabled: bool,
    need: Rights,
) -> Result<Option<Span<'a>>, RemoteError> {
    if !enabled {
        return Err(RemoteError::Invalid);
    }
    if at.len == 0 {
        return Ok(None);
    }
    let user = User { pd: at.pd, qpn: qp.number() };
    resolve(mkeys, user, at.rkey, at.addr, at.len, need).map(Some).map_err(RemoteError::Access)
}

pub(crate) fn atomic(
    qp: &Qp,
    mkeys: &Mkeys,
    dma: &mut Dma,
    request: &AtomicRequest,
) -> Result<u64, RemoteError> {
    let span = atomic_word(qp, mkeys, request)?;
    dma.atomic(&span, request.width, request.op).map_err(atomic_error)
}

/// Checks an atomic and returns the range of its operand.
pub(crate) fn atomic_word<'a>(
    qp: &Qp,
    mkeys: &'a Mkeys,
    request: &AtomicRequest,
) -> Result<Span<'a>, RemoteError> {
    let bytes = request.width.bytes();
    if !qp.attrs.allows_atomic(bytes, request.extended) || !request.addr.is_multiple_of(bytes) {
        return Err(RemoteError::Invalid);
    }
    resolve(mkeys, user(qp), request.rkey, request.addr, bytes, Rights::REMOTE_ATOMIC)
        .map_err(RemoteError::Access)
}

/// Converts the error of executing an atomic into the error that is sent to the requester.
pub(crate) fn atomic_error(error: MemoryError) -> RemoteError {
    match error {
        MemoryError::Misaligned { .. } => RemoteError::Invalid,
        error => RemoteError::Failed(error),
    }
}
