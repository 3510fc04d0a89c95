//! Drivers own the sockets: io_uring, epoll, or none at all for tests.

pub mod bufring;
pub mod clock;
pub mod epoll;
pub mod flow;
pub mod manual;
pub mod ring;
pub mod sockets;
pub mod table;
pub mod uring;
pub mod watches;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::core::{ConnId, Core};
use crate::tls::TlsContext;

pub use sockets::{Address, SocketOptions};

/// `selectors.EVENT_READ` and `selectors.EVENT_WRITE`.
pub const READ: i32 = 1;
pub const WRITE: i32 = 2;

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woke {
    /// Something may be ready, or the time is over.
    Normally,
    /// A signal came; Python must get the chance to handle it.
    Interrupted,
}

/// What a driver does for the face. One thread; `wait` may run without the interpreter's lock.
pub trait Driver: Send {
    /// "uring", "epoll" or "manual".
    fn name(&self) -> &'static str;

    /// Acts on every connection the core has touched: sends, reading on or off, closing.
    fn flush(&mut self, core: &mut Core);

    /// Hands queued operations to the kernel without waiting.
    fn push(&mut self);

    /// True if `collect` would find something without waiting.
    fn has_ready(&mut self) -> bool;

    /// Waits until something is ready or `timeout` is over (None: for ever); touches no core.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Woke>;

    /// Takes what is ready to the core; watched descriptors go into `ready`.
    fn collect(&mut self, core: &mut Core, ready: &mut Vec<(RawFd, i32)>);

    fn watch(&mut self, fd: RawFd, mask: i32) -> io::Result<()>;
    fn unwatch(&mut self, fd: RawFd);

    /// Accepts from a duplicate of `fd`.
    fn listen(
        &mut self,
        fd: BorrowedFd<'_>,
        listener: u64,
        options: &SocketOptions,
    ) -> io::Result<()>;
    /// False if there is no such listener.
    fn pause_listener(&mut self, listener: u64, paused: bool) -> bool;
    fn unlisten(&mut self, listener: u64) -> bool;
    /// While on, what is accepted goes to Python instead of the core.
    fn divert(&mut self, on: bool);
    /// Takes a socket as if it had been accepted from that listener; false if there is no such listener.
    fn adopt(&mut self, core: &mut Core, fd: OwnedFd, listener: u64) -> io::Result<bool>;

    /// Gives a socket to a connection that the core has made.
    fn attach(&mut self, id: ConnId, fd: OwnedFd);
    /// The bytes of a connection are not encrypted.
    fn is_plain(&self, id: ConnId) -> bool;

    /// Begins a connection; the core hears `connected` or `ended`.
    fn connect(&mut self, core: &mut Core, address: &Address, options: &SocketOptions) -> ConnId;
    /// The socket of a connection, None if it has none.
    fn socket(&self, id: ConnId) -> Option<BorrowedFd<'_>>;
    /// Begins a handshake after what stands in the output; `early` are bytes of it already read.
    fn start_tls(
        &mut self,
        core: &mut Core,
        id: ConnId,
        context: &TlsContext,
        name: &str,
        early: Vec<u8>,
    ) -> Result<(), String>;
    /// Closes every socket.
    fn shutdown(&mut self);
}
