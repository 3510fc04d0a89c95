//! How bytes find their way: input by mode, kept remainders, and the work that one message makes for another connection.

use std::mem;

use super::client::{self, Head};
use super::conn::{Client, Conn, Gate, Mode, Role};
use super::dialogue::{self, Framed};
use super::frames::{self, HEADER};
use super::link::{Relay, Turn};
use super::linking::CRASHED;
use super::server::{collected, BAD_HEADER, UNKNOWN};
use super::types::{ConnId, CoreEvent};
use super::Core;

const DIRTY: &str = "idle server got dirty";

/// How much was used, and whether to look at the rest now.
type Step = (usize, bool);

impl Core {
    /// Plaintext bytes from a connection, in any chunking.
    pub fn received(&mut self, id: ConnId, data: &[u8]) {
        let Some(conn) = self.slots.get_mut(id) else {
            return;
        };
        conn.wire.last_activity = self.shared.now;
        match &conn.role {
            Role::Client(client) => {
                if let Some(pool) = self.pools.get_mut(client.pool) {
                    pool.stats.client_bytes += data.len() as u64;
                }
            }
            Role::Server(server) if conn.wire.mode == Mode::Linked => {
                if let Some(pool) = self.pools.get_mut(server.pool) {
                    pool.stats.server_bytes += data.len() as u64;
                }
            }
            Role::Server(_) => {}
        }
        if conn.wire.pending.is_empty() {
            let used = self.process(id, data);
            if used < data.len() {
                self.keep(id, &data[used..]);
            }
            self.settle_server(id);
        } else {
            conn.wire.pending.extend_from_slice(data);
            self.resume(id);
        }
        self.run_work();
    }

    /// Everything that earlier steps put off.
    pub(super) fn run_work(&mut self) {
        while let Some(id) = self.work.pop_front() {
            self.resume(id);
        }
    }

    /// Looks at what a connection has pending.
    pub(super) fn resume(&mut self, id: ConnId) {
        let Some(conn) = self.slots.get_mut(id) else {
            return;
        };
        let mut data = mem::take(&mut conn.wire.pending);
        if !data.is_empty() {
            let used = self.process(id, &data);
            data.drain(..used);
        }
        match self.slots.get_mut(id) {
            Some(conn) if !data.is_empty() => {
                conn.wire.pending = data;
                conn.wire.touch(&mut self.shared.touched);
            }
            _ => self.shared.buffers.give(data),
        }
        self.settle_server(id);
    }

    fn keep(&mut self, id: ConnId, rest: &[u8]) {
        let Some(conn) = self.slots.get_mut(id) else {
            return;
        };
        conn.wire.pending = self.shared.buffers.take();
        conn.wire.pending.extend_from_slice(rest);
        if rest.len() > dialogue::UNREAD_LIMIT {
            conn.wire.touch(&mut self.shared.touched);
        }
    }

    /// A server whose last bytes have been judged goes to whoever is next.
    #[inline]
    fn settle_server(&mut self, id: ConnId) {
        if let Some((_, server)) = self.slots.server(id) {
            if mem::take(&mut server.returning) {
                self.give(id);
            }
        }
    }

    fn process(&mut self, id: ConnId, data: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let Some(conn) = self.slots.get(id) else {
                return data.len();
            };
            let rest = &data[at..];
            let (used, again) = match (conn.wire.mode, &conn.role) {
                (Mode::Frozen | Mode::Closing, _) => return data.len(),
                (Mode::Linked, Role::Server(server)) => {
                    self.linked_server(server.partner, id, rest)
                }
                (Mode::Linked, Role::Client(client)) => {
                    self.linked_client(id, client.partner, rest)
                }
                (Mode::Parked, _) => self.parked(id, rest),
                (Mode::Dialogue, Role::Client(client)) => {
                    self.client_dialogue(id, client.gate, rest)
                }
                (Mode::Waiting | Mode::Linking, Role::Client(_)) => (0, false),
                (_, Role::Server(_)) if conn.wire.stream.left > 0 => self.skim(id, rest),
                (Mode::Dialogue, Role::Server(_)) => self.server_dialogue(id, rest),
                (Mode::Linking, Role::Server(_)) => self.linking_server(id, rest),
                (_, Role::Server(_)) => self.idle_server(id, rest),
                (_, Role::Client(_)) => (0, false),
            };
            at += used;
            if !again {
                return at;
            }
        }
    }

    // ---- linked

    #[inline]
    fn linked_client(&mut self, client: ConnId, server: ConnId, data: &[u8]) -> Step {
        let relay = Relay::new(
            &mut self.slots,
            &mut self.pools,
            &mut self.shared,
            client,
            server,
        );
        let Some(mut relay) = relay else {
            return (data.len(), false);
        };
        let (used, turn) = relay.read_client(data);
        match turn {
            Turn::More => return (used, false),
            Turn::Release => {
                self.unlink(client, server);
                self.depart(client);
                self.resume(server);
                // The next waiter goes before the rest of this client's input.
                self.work.push_back(client);
                return (used, false);
            }
            Turn::Leave => self.leave(client, "client close request"),
            Turn::Fault(key, detail) => self.fault(client, key, detail),
            Turn::Broken(_) | Turn::Forbidden(..) => {}
        }
        (data.len(), false)
    }

    #[inline]
    fn linked_server(&mut self, client: ConnId, server: ConnId, data: &[u8]) -> Step {
        let relay = Relay::new(
            &mut self.slots,
            &mut self.pools,
            &mut self.shared,
            client,
            server,
        );
        let Some(mut relay) = relay else {
            return (data.len(), false);
        };
        let (used, turn) = relay.read_server(data);
        match turn {
            Turn::More => return (used, false),
            Turn::Release => {
                self.unlink(client, server);
                self.depart(client);
                return (used, used < data.len());
            }
            Turn::Broken(reason) => self.crash(server, reason, "server_closed", reason.into()),
            Turn::Forbidden(key, reason) => self.crash(server, reason, key, String::new()),
            Turn::Leave | Turn::Fault(..) => {}
        }
        (data.len(), false)
    }

    // ---- parked clients

    fn parked(&mut self, id: ConnId, data: &[u8]) -> Step {
        let limit = self.shared.limits.max_packet_size;
        let Some((wire, client)) = self.slots.client(id) else {
            return (data.len(), false);
        };
        if wire.stream.left > 0 {
            let used = data.len().min(wire.stream.left as usize);
            wire.stream.left -= used as u32;
            return (used, wire.stream.left == 0);
        }
        if data.is_empty() {
            return (0, false);
        }
        let (kind, total) = match client::inspect(data, limit) {
            Head::More => return (0, false),
            Head::Fault(key, detail) => {
                self.fault(id, key, detail);
                return (data.len(), false);
            }
            Head::Ready { kind, total, .. } => (kind, total),
        };
        let answer: &[u8] = match kind {
            b'X' => {
                self.leave(id, "client close request");
                return (data.len(), false);
            }
            b'd' | b'c' | b'f' | b'H' => b"",
            b'S' => b"Z\0\0\0\x05I",
            b'Q' if self.shared.limits.disable_pqexec => {
                self.fault(id, "pqexec_disallowed", String::new());
                return (data.len(), false);
            }
            b'C' if self
                .pools
                .get(client.pool)
                .is_some_and(|pool| pool.tracking()) =>
            {
                match client::target(&data[HEADER..total]) {
                    None => {
                        self.fault(id, "broken_close", String::new());
                        return (data.len(), false);
                    }
                    Some((b'S', name)) => {
                        Self::forget_statement(client, name);
                        b"3\0\0\0\x04"
                    }
                    Some(_) => return (0, self.want_server(id)),
                }
            }
            _ => return (0, self.want_server(id)),
        };
        if !answer.is_empty() {
            wire.out(&mut self.shared.buffers).extend_from_slice(answer);
            wire.touch(&mut self.shared.touched);
        }
        let used = data.len().min(total);
        wire.stream.left = (total - used) as u32;
        wire.stream.forward = false;
        (used, true)
    }

    fn forget_statement(client: &mut Client, name: &[u8]) {
        if name.is_empty() {
            client.unnamed = None;
        } else {
            client.names.remove(name);
        }
    }

    // ---- dialogue

    fn client_dialogue(&mut self, id: ConnId, gate: Gate, data: &[u8]) -> Step {
        let first_is_tls = gate == Gate::Fresh && data.first() == Some(&dialogue::HANDSHAKE);
        let framed = match gate {
            _ if data.is_empty() => return (0, false),
            _ if first_is_tls => {
                self.announce(id);
                self.events.push(CoreEvent::DirectTls { conn: id });
                self.set_gate(id, Gate::Shut);
                return (0, false);
            }
            Gate::Shut => return (0, false),
            Gate::Fresh | Gate::Startup => dialogue::startup(data),
            // Type 0 is how a second startup packet begins: its seeming length would never come.
            Gate::Message(_) if data[0] == 0 && data.len() >= HEADER => {
                Framed::Oversize { seen: HEADER }
            }
            Gate::Message(limit) => dialogue::message(data, limit),
        };
        match framed {
            Framed::More => (0, false),
            Framed::Oversize { seen } => self.oversize(id, &data[..seen], data.len()),
            Framed::Whole { total } => {
                if self.refuses(id, gate, data) {
                    return (total, false);
                }
                self.announce(id);
                self.events.push(match gate {
                    Gate::Message(_) => CoreEvent::Message {
                        conn: id,
                        kind: data[0],
                        payload: data[HEADER..total].into(),
                    },
                    _ => CoreEvent::Packet {
                        conn: id,
                        payload: data[4..total].into(),
                    },
                });
                self.set_gate(id, Gate::Shut);
                (total, false)
            }
        }
    }

    /// Python does not know of this client yet.
    pub(super) fn is_unannounced(&self, id: ConnId) -> bool {
        match self.slots.get(id) {
            Some(Conn {
                wire,
                role: Role::Client(client),
            }) => wire.mode == Mode::Dialogue && !client.announced,
            _ => false,
        }
    }

    /// ACCEPTED comes with the first thing a client says.
    pub(super) fn announce(&mut self, id: ConnId) {
        if let Some((_, client)) = self.slots.client(id) {
            if !mem::replace(&mut client.announced, true) {
                let listener = client.listener;
                self.events.push(CoreEvent::Accepted { conn: id, listener });
            }
        }
    }

    /// Answers a request for encryption of a client Python need not know yet; never if something stands behind it.
    fn refuses(&mut self, id: ConnId, gate: Gate, data: &[u8]) -> bool {
        if !self.shared.limits.refuse_encryption || matches!(gate, Gate::Message(_)) {
            return false;
        }
        let Some(bit) = dialogue::encryption(data) else {
            return false;
        };
        let Some((wire, client)) = self.slots.client(id) else {
            return false;
        };
        if client.announced || client.answered & bit != 0 {
            return false;
        }
        client.answered |= bit;
        client.gate = Gate::Startup;
        wire.out(&mut self.shared.buffers).push(b'N');
        wire.touch(&mut self.shared.touched);
        true
    }

    pub(super) fn set_gate(&mut self, id: ConnId, gate: Gate) {
        if let Some((_, client)) = self.slots.client(id) {
            client.gate = gate;
        }
    }

    fn oversize(&mut self, id: ConnId, header: &[u8], used: usize) -> Step {
        self.announce(id);
        self.events.push(CoreEvent::Oversize {
            conn: id,
            header: header.into(),
        });
        self.set_mode(id, Mode::Frozen);
        (used, false)
    }

    fn server_dialogue(&mut self, id: ConnId, data: &[u8]) -> Step {
        let Some((_, server)) = self.slots.server(id) else {
            return (data.len(), false);
        };
        if data.is_empty() || server.shut {
            return (0, false);
        }
        if mem::take(&mut server.bare) {
            server.shut = true;
            self.events.push(CoreEvent::Message {
                conn: id,
                kind: data[0],
                payload: Vec::new(),
            });
            return (1, false);
        }
        let total = match dialogue::message(data, server.dialogue_limit) {
            Framed::More => return (0, false),
            Framed::Oversize { seen } => return self.oversize(id, &data[..seen], data.len()),
            Framed::Whole { total } => total,
        };
        let body = &data[HEADER..total];
        if server.pool != 0 {
            match (data[0], body) {
                (b'S', _) => self.idle_report(id, body),
                (b'C', b"DISCARD ALL\0") => {
                    server.forget_ours();
                    server.forget_statements();
                }
                (b'C', b"DEALLOCATE ALL\0") => server.forget_statements(),
                _ => {}
            }
        }
        self.events.push(CoreEvent::Message {
            conn: id,
            kind: data[0],
            payload: body.into(),
        });
        (total, true)
    }

    // ---- servers without a client, or not yet

    /// The rest of a message that nobody wants.
    fn skim(&mut self, id: ConnId, data: &[u8]) -> Step {
        let Some((wire, _)) = self.slots.server(id) else {
            return (data.len(), false);
        };
        let used = data.len().min(wire.stream.left as usize);
        wire.stream.left -= used as u32;
        (used, wire.stream.left == 0)
    }

    fn drop_message(&mut self, id: ConnId, have: usize, total: usize) -> Step {
        let Some((wire, _)) = self.slots.server(id) else {
            return (have, false);
        };
        let used = have.min(total);
        wire.stream.left = (total - used) as u32;
        wire.stream.forward = false;
        (used, true)
    }

    fn idle_report(&mut self, id: ConnId, body: &[u8]) {
        let Some((name, rest)) = frames::text(body) else {
            return;
        };
        let Some((value, _)) = frames::text(rest) else {
            return;
        };
        let Some(name) = self.shared.params.name(name) else {
            return;
        };
        if let Some((_, server)) = self.slots.server(id) {
            server.reported(&mut self.shared.params, name, value);
            server.agreed = None;
        }
    }

    fn idle_server(&mut self, id: ConnId, data: &[u8]) -> Step {
        let Some(&kind) = data.first() else {
            return (0, false);
        };
        let bad = |core: &mut Self, reason: &str| {
            core.shut(id, Some(reason));
            (data.len(), false)
        };
        if !matches!(kind, b'N' | b'A' | b'S') {
            return bad(self, DIRTY);
        }
        let Some((_, length)) = frames::header(data) else {
            return (0, false);
        };
        if !frames::server_length_ok(kind, length) {
            return bad(self, BAD_HEADER);
        }
        let total = length as usize + 1;
        if kind == b'S' {
            if data.len() < total {
                return (0, false);
            }
            self.idle_report(id, &data[HEADER..total]);
        }
        self.drop_message(id, data.len(), total)
    }

    /// The answers to the pooler's own SETs.
    fn linking_server(&mut self, id: ConnId, data: &[u8]) -> Step {
        let Some((kind, length)) = frames::header(data) else {
            return (0, false);
        };
        let total = length as usize + 1;
        let reason = match kind {
            _ if !frames::server_length_ok(kind, length) => Some(BAD_HEADER),
            _ if !frames::from_server(kind) => Some(UNKNOWN),
            b'Z' if data.len() >= total && data[HEADER] != b'I' => Some(UNKNOWN),
            _ => None,
        };
        if let Some(reason) = reason {
            self.crash(id, reason, "server_closed", reason.into());
            return (data.len(), false);
        }
        if collected(kind, total) && data.len() < total {
            return (0, false);
        }
        let body = &data[HEADER..total.min(data.len())];
        match kind {
            b'S' => self.linking_report(id, body),
            b'E' => {
                let text = frames::error_field(body, b'M').unwrap_or_default();
                let detail = String::from_utf8_lossy(text).into_owned();
                self.crash(id, "var change failed", "invalid_server_parameter", detail);
                return (data.len(), false);
            }
            b'Z' => {
                self.linking_done(id);
                return (total, true);
            }
            _ => {}
        }
        self.drop_message(id, data.len(), total)
    }

    // ---- ends

    /// The socket is gone: EOF ("") or an error text.
    pub fn ended(&mut self, id: ConnId, reason: &str) {
        let Some(conn) = self.slots.get(id) else {
            return;
        };
        let told = reason.starts_with("tls: ") || reason.starts_with("connect failed: ");
        match conn {
            Conn { wire, .. } if wire.mode == Mode::Closing => {}
            // Python has been told, and will close it.
            Conn { wire, .. } if wire.mode == Mode::Frozen => return,
            Conn {
                role: Role::Client(_),
                ..
            } => {
                self.leave(
                    id,
                    if told {
                        reason
                    } else {
                        "client unexpected eof"
                    },
                );
            }
            Conn {
                role: Role::Server(server),
                ..
            } => {
                let connecting = server.connecting;
                let text = match reason {
                    _ if told => reason.into(),
                    _ if connecting => format!("connect failed: {reason}"),
                    _ => String::from(CRASHED),
                };
                self.crash(id, &text, "server_crashed", String::new());
            }
        }
        self.gone(id);
        self.run_work();
    }
}
