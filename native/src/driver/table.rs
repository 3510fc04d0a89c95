//! The sockets of a driver, found by connection number.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::core::ConnId;
use crate::tls::TlsStream;

/// The connection is being made.
pub const CONNECTING: u8 = 1;
/// A receive is with the kernel (io_uring).
pub const RECEIVING: u8 = 2;
/// The receive is being cancelled.
pub const CANCELLING: u8 = 4;
/// Bytes of `out` are with the kernel, or wait for room.
pub const SENDING: u8 = 8;
/// Something was wanted while a send was under way: look again when it is done (io_uring).
pub const MISSED: u8 = 16;
/// The core holds a number of unsent bytes that is not 0.
pub const REPORTED: u8 = 32;
/// What is being sent goes at once, without a completion, unless it fails (io_uring).
pub const QUICK: u8 = 64;
/// Made by `connect`: somebody may watch a duplicate of the socket.
pub const MADE: u8 = 128;

/// One socket.
pub struct Sock {
    pub id: ConnId,
    pub fd: OwnedFd,
    pub flags: u8,
    /// Operations with the kernel that name this socket (io_uring).
    pub operations: u8,
    /// What epoll watches it for.
    pub interest: u32,
    /// Bytes on their way; a buffer in use by the kernel is never touched.
    pub out: Vec<u8>,
    /// How much of `out` is sent.
    pub done: usize,
    pub tls: Option<Box<TlsStream>>,
}

impl Sock {
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Sockets by slot, the low 24 bits of a connection number.
#[derive(Default)]
pub struct Table {
    slots: Vec<Option<Sock>>,
}

const SLOT_MASK: u64 = (1 << 24) - 1;

fn slot(id: ConnId) -> usize {
    (id & SLOT_MASK) as usize
}

impl Table {
    pub fn insert(&mut self, id: ConnId, fd: OwnedFd, flags: u8) -> &mut Sock {
        let slot = slot(id);
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot].insert(Sock {
            id,
            fd,
            flags,
            operations: 0,
            interest: 0,
            out: Vec::new(),
            done: 0,
            tls: None,
        })
    }

    pub fn get(&self, id: ConnId) -> Option<&Sock> {
        match self.slots.get(slot(id)) {
            Some(Some(sock)) if sock.id == id => Some(sock),
            _ => None,
        }
    }

    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Sock> {
        match self.slots.get_mut(slot(id)) {
            Some(Some(sock)) if sock.id == id => Some(sock),
            _ => None,
        }
    }

    pub fn fd(&self, id: ConnId) -> Option<BorrowedFd<'_>> {
        self.get(id).map(|sock| sock.fd.as_fd())
    }

    pub fn remove(&mut self, id: ConnId) -> Option<Sock> {
        self.get(id)?;
        self.slots[slot(id)].take()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Sock> {
        self.slots.iter().flatten()
    }

    pub fn clear(&mut self) {
        self.slots.clear();
    }
}
