//! The sans-IO core: every decision per byte and per message, as docs/topics/link.md rules.

mod buffers;
mod client;
mod conn;
mod dialogue;
mod facts;
mod flow;
mod frames;
mod link;
mod linking;
mod moving;
mod params;
mod pool;
mod prepared;
mod queue;
mod reading;
mod renewal;
mod server;
mod statements;
mod timeouts;
pub mod types;
mod verbs;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::mem;

pub use types::*;

pub use params::ParamSet;

use conn::{Client, Mode, Role, Server, Slots};
use link::{Shared, BACKLOG_LOW};
use pool::Pools;

/// One engine's connections, pools and links; single thread, no sockets, no clock.
#[derive(Default)]
pub struct Core {
    slots: Slots,
    pools: Pools,
    shared: Shared,
    events: Vec<CoreEvent>,
    /// Connections whose kept input may be looked at now.
    work: VecDeque<ConnId>,
    /// Accepted since the last `overdue`; most of them have spoken, and been announced, since.
    silent: Vec<ConnId>,
}

impl Core {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn set_now(&mut self, us: u64) {
        self.shared.now = us;
    }

    pub fn now(&self) -> u64 {
        self.shared.now
    }

    // ---- driver -> core; see flow.rs for `received` and `ended`

    pub fn accepted(&mut self, listener: u64) -> ConnId {
        let role = Role::Client(Client::new(listener));
        let conn = self.slots.add(role, self.shared.now);
        self.silent.push(conn);
        self.touch(conn);
        conn
    }

    /// Our own connect has begun.
    pub fn dialing(&mut self) -> ConnId {
        self.slots
            .add(Role::Server(Box::new(Server::new())), self.shared.now)
    }

    pub fn connected(&mut self, id: ConnId) {
        if let Some((_, server)) = self.slots.server(id) {
            if mem::take(&mut server.connecting) {
                self.events.push(CoreEvent::Connected { conn: id });
                self.touch(id);
            }
        }
    }

    /// The driver holds `unsent` bytes of this connection that are not on the wire yet (to be called after taking
    /// output, too).
    pub fn sent(&mut self, id: ConnId, unsent: usize) {
        let Some(conn) = self.slots.get_mut(id) else {
            return;
        };
        conn.wire.unsent = unsent;
        if conn.wire.mode == Mode::Moving {
            conn.wire.touch(&mut self.shared.touched);
        }
        if conn.wire.mode == Mode::Linked && conn.wire.backlog() < BACKLOG_LOW {
            self.unthrottle_partner(id);
        }
    }

    pub fn secured(&mut self, id: ConnId, facts: TlsFacts) {
        if !self.is_alive(id) {
            return;
        }
        if let Some((_, server)) = self.slots.server(id) {
            server.shut = false;
        }
        self.events.push(CoreEvent::Secured { conn: id, facts });
    }

    pub fn listener_failed(&mut self, listener: u64, text: String) {
        self.events.push(CoreEvent::AcceptFailed { listener, text });
    }

    /// An accepted socket that does not become a connection here.
    pub fn diverted(&mut self, fd: i32, listener: u64) {
        self.events.push(CoreEvent::Diverted { fd, listener });
    }

    // ---- core -> driver, after every batch of the above and of verbs

    /// Connections whose output, wish to read or closing has changed.
    pub fn take_touched(&mut self, into: &mut Vec<ConnId>) {
        for &id in &self.shared.touched {
            if let Some(conn) = self.slots.get_mut(id) {
                conn.wire.touched = false;
            }
        }
        into.append(&mut self.shared.touched);
    }

    /// What is to be sent; swap it out when no send is under way, and give buffers back by `recycle`.
    ///
    /// # Panics
    /// If the connection is not there: drivers ask for what they were told of in the same batch.
    pub fn output(&mut self, id: ConnId) -> &mut Vec<u8> {
        match self.slots.get_mut(id) {
            Some(conn) => &mut conn.wire.output,
            None => panic!("no connection {id}"),
        }
    }

    /// The whole output, empty if there is none or the connection is gone.
    pub fn take_output(&mut self, id: ConnId) -> Vec<u8> {
        self.slots
            .get_mut(id)
            .map_or_else(Vec::new, |conn| mem::take(&mut conn.wire.output))
    }

    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.shared.buffers.give(buffer);
    }

    pub fn wants_read(&self, id: ConnId) -> bool {
        let Some(conn) = self.slots.get(id) else {
            return false;
        };
        match (conn.wire.mode, &conn.role) {
            (Mode::Dialogue, Role::Server(server)) if server.connecting => false,
            (Mode::Dialogue, _) => {
                conn.wire.pending.len() <= dialogue::UNREAD_LIMIT || self.framing(id)
            }
            (Mode::Waiting | Mode::Linking, Role::Client(_))
            | (Mode::Moving | Mode::Frozen | Mode::Closing, _) => false,
            (Mode::Linked, _) => !conn.wire.throttled,
            _ => true,
        }
    }

    /// A message in dialogue is under way, so more must be read however much is kept.
    fn framing(&self, id: ConnId) -> bool {
        match self.slots.get(id).map(|conn| &conn.role) {
            Some(Role::Client(client)) => client.gate != conn::Gate::Shut,
            Some(Role::Server(server)) => !server.shut,
            None => false,
        }
    }

    /// Flush, close the socket, then `gone`.
    pub fn is_closing(&self, id: ConnId) -> bool {
        self.slots
            .get(id)
            .is_some_and(|conn| conn.wire.mode == Mode::Closing)
    }

    /// It has been closing for too long: drop the socket without flushing, then `gone`.
    pub fn must_reset(&self, id: ConnId) -> bool {
        self.slots.get(id).is_some_and(|conn| conn.wire.reset)
    }

    /// The socket of a closing connection is closed; its slot is free.
    pub fn gone(&mut self, id: ConnId) {
        if self.is_alive(id) {
            self.begin_closing(id);
        }
        if let Some(conn) = self.slots.remove(id) {
            self.shared.buffers.give(conn.wire.output);
            self.shared.buffers.give(conn.wire.pending);
        }
    }

    /// Verbs may be used on it.
    pub fn is_alive(&self, id: ConnId) -> bool {
        self.slots
            .get(id)
            .is_some_and(|conn| conn.wire.mode != Mode::Closing)
    }

    /// `start_tls` is possible.
    pub fn in_dialogue(&self, id: ConnId) -> bool {
        self.slots
            .get(id)
            .is_some_and(|conn| conn.wire.mode == Mode::Dialogue)
    }

    /// Bytes read in dialogue that stand behind what was given up.
    pub fn unread(&self, id: ConnId) -> usize {
        self.slots.get(id).map_or(0, |conn| conn.wire.pending.len())
    }

    /// The unread bytes: after DIRECT_TLS, the handshake.
    pub fn take_unread(&mut self, id: ConnId) -> Vec<u8> {
        self.slots
            .get_mut(id)
            .map_or_else(Vec::new, |conn| mem::take(&mut conn.wire.pending))
    }

    fn touch(&mut self, id: ConnId) {
        if let Some(conn) = self.slots.get_mut(id) {
            conn.wire.touch(&mut self.shared.touched);
        }
    }
}
