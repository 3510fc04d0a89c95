//! No sockets at all: tests play the wire.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::core::{ConnId, Core};
use crate::driver::{Address, Driver, SocketOptions, Woke};
use crate::tls::TlsContext;

/// Connections live in the core only; the face moves the bytes.
#[derive(Default)]
pub struct Manual {
    listeners: Vec<u64>,
    touched: Vec<ConnId>,
}

impl Driver for Manual {
    fn name(&self) -> &'static str {
        "manual"
    }

    fn flush(&mut self, core: &mut Core) {
        core.take_touched(&mut self.touched);
        for id in self.touched.drain(..) {
            // The last bytes stay to be taken; a connection with nothing left to send is gone.
            if core.must_reset(id) || (core.is_closing(id) && core.output(id).is_empty()) {
                core.gone(id);
            } else if core.is_moving(id) && core.output(id).is_empty() {
                core.moved(id, -1);
            }
        }
    }

    fn push(&mut self) {}

    fn has_ready(&mut self) -> bool {
        true
    }

    fn wait(&mut self, _timeout: Option<Duration>) -> io::Result<Woke> {
        Ok(Woke::Normally)
    }

    fn collect(&mut self, _core: &mut Core, _ready: &mut Vec<(RawFd, i32)>) {}

    fn watch(&mut self, _fd: RawFd, _mask: i32) -> io::Result<()> {
        Ok(())
    }

    fn unwatch(&mut self, _fd: RawFd) {}

    fn listen(
        &mut self,
        _fd: BorrowedFd<'_>,
        listener: u64,
        _options: &SocketOptions,
    ) -> io::Result<()> {
        self.listeners.push(listener);
        Ok(())
    }

    fn pause_listener(&mut self, listener: u64, _paused: bool) -> bool {
        self.listeners.contains(&listener)
    }

    fn unlisten(&mut self, listener: u64) -> bool {
        let before = self.listeners.len();
        self.listeners.retain(|known| *known != listener);
        before != self.listeners.len()
    }

    fn divert(&mut self, _on: bool) {}

    fn adopt(&mut self, _core: &mut Core, _fd: OwnedFd, _listener: u64) -> io::Result<bool> {
        Ok(false)
    }

    fn attach(&mut self, _id: ConnId, _fd: OwnedFd) {}

    fn is_plain(&self, _id: ConnId) -> bool {
        true
    }

    fn connect(&mut self, core: &mut Core, _address: &Address, _options: &SocketOptions) -> ConnId {
        core.dialing()
    }

    fn socket(&self, _id: ConnId) -> Option<BorrowedFd<'_>> {
        None
    }

    fn start_tls(
        &mut self,
        _core: &mut Core,
        _id: ConnId,
        _context: &TlsContext,
        _name: &str,
        _early: Vec<u8>,
    ) -> Result<(), String> {
        Err("the manual driver has no TLS".into())
    }

    fn shutdown(&mut self) {
        self.listeners.clear();
    }
}
