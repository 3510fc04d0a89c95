//! Who gets which server: joining, releasing, handing over, and every way a link or a connection ends.

use std::rc::Rc;

use super::conn::{Conn, Mode, Role, UNNAMED_UNKNOWN};
use super::link::{Relay, BACKLOG_HIGH};
use super::types::{ConnId, CoreEvent, PoolId};
use super::Core;

pub const CRASHED: &str = "server conn crashed?";
const NOT_READY: &str = "client disconnect while server was not ready";

impl Core {
    /// The one door between modes.
    #[inline]
    pub(super) fn set_mode(&mut self, id: ConnId, mode: Mode) {
        let Some(conn) = self.slots.get_mut(id) else {
            return;
        };
        let before = std::mem::replace(&mut conn.wire.mode, mode);
        if before == mode {
            return;
        }
        let quiet =
            |mode: Mode| matches!(mode, Mode::Parked | Mode::Linked | Mode::Idle | Mode::Held);
        if !(quiet(before) && quiet(mode)) {
            conn.wire.touch(&mut self.shared.touched);
        }
        let (pool, server) = (conn.pool(), conn.is_server());
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.shift(server, Some(before), Some(mode));
        }
    }

    /// A parked client has something to say: true if it is linked now.
    pub(super) fn want_server(&mut self, id: ConnId) -> bool {
        let Some((_, client)) = self.slots.client(id) else {
            return false;
        };
        let pool_id = client.pool;
        let Some(pool) = self.pools.get_mut(pool_id) else {
            return false;
        };
        if !pool.paused && pool.counts.cl_waiting == 0 {
            if let Some(server) = pool.next_idle() {
                self.link(id, server);
                return self
                    .slots
                    .get(id)
                    .is_some_and(|conn| conn.wire.mode == Mode::Linked);
            }
        }
        pool.next_ticket += 1;
        client.ticket = pool.next_ticket;
        client.waiting_since = self.shared.now;
        client.notified = false;
        pool.line.push_back((id, client.ticket));
        if !pool.hushed && !std::mem::replace(&mut pool.starved, true) {
            self.events.push(CoreEvent::Starved { pool: pool_id });
        }
        self.set_mode(id, Mode::Waiting);
        false
    }

    fn next_waiter(&mut self, pool: PoolId) -> Option<ConnId> {
        let pool = self.pools.get_mut(pool)?;
        while let Some((id, ticket)) = pool.line.pop_front() {
            if let Some((wire, client)) = self.slots.client(id) {
                if wire.mode == Mode::Waiting && client.ticket == ticket {
                    return Some(id);
                }
            }
        }
        None
    }

    /// Joins two; the server is in no list any more.
    fn link(&mut self, client_id: ConnId, server_id: ConnId) {
        let now = self.shared.now;
        let relay = Relay::new(
            &mut self.slots,
            &mut self.pools,
            &mut self.shared,
            client_id,
            server_id,
        );
        let Some(mut relay) = relay else { return };
        if relay.cw.mode == Mode::Waiting {
            relay.pool.stats.wait_time_us += now.saturating_sub(relay.client.waiting_since);
        }
        relay.pool.stats.server_assignment_count += 1;
        relay.client.partner = server_id;
        relay.server.partner = client_id;
        relay.server.link.begin();
        if !relay.pooled() {
            // Nobody looks at what it parses.
            relay.server.unnamed = UNNAMED_UNKNOWN;
        }
        relay.throttle();
        let agreed = match (&relay.client.params, &relay.server.agreed) {
            (Some(wanted), Some(agreed)) => Rc::ptr_eq(wanted, agreed),
            _ => false,
        };
        let mode = if agreed || !relay.change_parameters() {
            Mode::Linked
        } else {
            Mode::Linking
        };
        let kept = !relay.cw.pending.is_empty();
        self.set_mode(server_id, mode);
        self.set_mode(client_id, mode);
        if kept && mode == Mode::Linked {
            self.work.push_back(client_id);
        }
    }

    /// ParameterStatus while linking.
    pub(super) fn linking_report(&mut self, server: ConnId, body: &[u8]) {
        let client = self.slots.get(server).map_or(0, Conn::partner);
        let relay = Relay::new(
            &mut self.slots,
            &mut self.pools,
            &mut self.shared,
            client,
            server,
        );
        if let Some(mut relay) = relay {
            relay.report(body);
        }
    }

    /// The SETs have succeeded.
    pub(super) fn linking_done(&mut self, server: ConnId) {
        let client = self.slots.get(server).map_or(0, Conn::partner);
        let relay = Relay::new(
            &mut self.slots,
            &mut self.pools,
            &mut self.shared,
            client,
            server,
        );
        let Some(mut relay) = relay else { return };
        relay.parameters_changed();
        self.set_mode(server, Mode::Linked);
        self.set_mode(client, Mode::Linked);
        self.work.push_back(client);
    }

    /// Parts two; the server is then given on by `settle_server` once its input has been judged.
    pub(super) fn unlink(&mut self, client_id: ConnId, server_id: ConnId) {
        if let Some((wire, client)) = self.slots.client(client_id) {
            client.partner = 0;
            wire.last_activity = self.shared.now;
            if std::mem::take(&mut wire.throttled) {
                wire.touch(&mut self.shared.touched);
            }
        }
        if let Some((wire, server)) = self.slots.server(server_id) {
            server.partner = 0;
            server.returning = true;
            server.released = true;
            if std::mem::take(&mut wire.throttled) {
                wire.touch(&mut self.shared.touched);
            }
        }
        self.set_mode(client_id, Mode::Parked);
        self.set_mode(server_id, Mode::Idle);
    }

    /// Gives a free server to whoever is next: a hold, Python, the first waiter, the idle list.
    pub(super) fn give(&mut self, id: ConnId) {
        let now = self.shared.now;
        let Some((wire, server)) = self.slots.server(id) else {
            return;
        };
        if matches!(wire.mode, Mode::Closing | Mode::Frozen) {
            return;
        }
        let pool_id = server.pool;
        let Some(pool) = self.pools.get_mut(pool_id) else {
            return;
        };
        server.idle_since = now;
        if server.holds > 0 {
            return self.set_mode(id, Mode::Held);
        }
        if std::mem::take(&mut server.released) && (server.decide || pool.spec.decide) {
            server.decide = false;
            self.events.push(CoreEvent::Returned { server: id });
            return self.set_mode(id, Mode::Dialogue);
        }
        if !pool.paused && pool.counts.cl_waiting > 0 {
            if let Some(client) = self.next_waiter(pool_id) {
                return self.link(client, id);
            }
        }
        if let Some(pool) = self.pools.get_mut(pool_id) {
            pool.idle.push_back(id);
            if std::mem::take(&mut pool.rest_wanted) {
                self.events.push(CoreEvent::Rested { pool: pool_id });
            }
        }
        self.set_mode(id, Mode::Idle);
    }

    /// Serves the line of a pool that may be served again.
    pub(super) fn serve_line(&mut self, pool_id: PoolId) {
        while let Some(pool) = self.pools.get_mut(pool_id) {
            if pool.paused || pool.counts.cl_waiting == 0 || pool.idle.is_empty() {
                return;
            }
            let (Some(server), Some(client)) = (pool.next_idle(), self.next_waiter(pool_id)) else {
                return;
            };
            self.link(client, server);
            self.run_work();
        }
    }

    // ---- ends

    /// A client goes: its CLOSED, unless it was never announced, and what becomes of its server.
    pub(super) fn leave(&mut self, id: ConnId, reason: &str) {
        if !self.is_unannounced(id) {
            self.events.push(CoreEvent::Closed {
                conn: id,
                reason: reason.into(),
            });
        }
        self.end_link_of_client(id, "");
        self.shut(id, None);
    }

    /// A client cannot go on: it freezes, unlinked; Python tells it and closes it.
    pub(super) fn fault(&mut self, id: ConnId, key: &'static str, detail: String) {
        self.events.push(CoreEvent::Fault {
            client: id,
            key,
            detail,
        });
        self.end_link_of_client(id, "");
        self.freeze(id);
    }

    pub(super) fn freeze(&mut self, id: ConnId) {
        self.set_mode(id, Mode::Frozen);
        if let Some((wire, client)) = self.slots.client(id) {
            client.partner = 0;
            wire.stream.left = 0;
            let pending = std::mem::take(&mut wire.pending);
            self.shared.buffers.give(pending);
        }
    }

    /// A client leaves its link: a clean server is released, another one closed, with `reason` if there is one.
    pub(super) fn end_link_of_client(&mut self, client: ConnId, reason: &str) {
        let Some(conn) = self.slots.get(client) else {
            return;
        };
        let (mode, server) = (conn.wire.mode, conn.partner());
        let relay = Relay::new(
            &mut self.slots,
            &mut self.pools,
            &mut self.shared,
            client,
            server,
        );
        let Some(relay) = relay else { return };
        let unclean = if mode == Mode::Linked {
            relay.unclean()
        } else {
            Some(NOT_READY)
        };
        self.unlink(client, server);
        match unclean {
            None => {
                self.freeze(client);
                self.resume(server);
            }
            Some(own) => self.shut(server, Some(if reason.is_empty() { own } else { reason })),
        }
    }

    /// A server cannot go on: its CLOSED, then its client's FAULT.
    pub(super) fn crash(&mut self, id: ConnId, reason: &str, key: &'static str, detail: String) {
        let client = self.slots.get(id).map_or(0, Conn::partner);
        self.shut(id, Some(reason));
        if client != 0 {
            if let Some((_, partner)) = self.slots.client(client) {
                partner.partner = 0;
            }
            self.fault(client, key, detail);
        }
    }

    /// The engine closes a connection itself, at once; no reason: no event.
    pub(super) fn shut(&mut self, id: ConnId, reason: Option<&str>) {
        if let Some(reason) = reason {
            self.events.push(CoreEvent::Closed {
                conn: id,
                reason: reason.into(),
            });
        }
        self.begin_closing(id);
        if let Some(conn) = self.slots.get_mut(id) {
            let output = std::mem::take(&mut conn.wire.output);
            self.shared.buffers.give(output);
        }
    }

    /// From here on the connection is dead to Python; what is in the output is still sent.
    pub(super) fn begin_closing(&mut self, id: ConnId) {
        self.leave_pool(id);
        let Some(conn) = self.slots.get_mut(id) else {
            return;
        };
        conn.wire.mode = Mode::Closing;
        conn.wire.closing_since = self.shared.now;
        conn.wire.touch(&mut self.shared.touched);
        conn.wire.stream.left = 0;
        let pending = std::mem::take(&mut conn.wire.pending);
        self.shared.buffers.give(pending);
    }

    fn leave_pool(&mut self, id: ConnId) {
        let Some(conn) = self.slots.get_mut(id) else {
            return;
        };
        let (mode, is_server) = (conn.wire.mode, conn.is_server());
        let (pool_id, params) = match &mut conn.role {
            Role::Client(client) => {
                client.names = Default::default();
                client.unnamed = None;
                client.partner = 0;
                (std::mem::take(&mut client.pool), client.params.take())
            }
            Role::Server(server) => {
                server.agreed = None;
                server.partner = 0;
                server.returning = false;
                server.link.begin();
                server.cache = Default::default();
                (std::mem::take(&mut server.pool), server.params.take())
            }
        };
        self.shared.params.release(params);
        if let Some(pool) = self.pools.get_mut(pool_id) {
            pool.shift(is_server, Some(mode), None);
            pool.members -= 1;
            if is_server && mode == Mode::Idle {
                pool.forget_idle(id);
            }
        }
    }

    /// Reading resumes on the partner of a connection whose output has drained.
    pub(super) fn unthrottle_partner(&mut self, id: ConnId) {
        let partner = self.slots.get(id).map_or(0, Conn::partner);
        if let Some(conn) = self.slots.get_mut(partner) {
            if std::mem::take(&mut conn.wire.throttled) {
                conn.wire.touch(&mut self.shared.touched);
            }
        }
    }
}

impl Relay<'_> {
    /// Sends the SETs this client needs; false if it needs none.
    fn change_parameters(&mut self) -> bool {
        let Some(wanted) = self.client.params.clone() else {
            return false;
        };
        let changes =
            self.shared
                .params
                .changes(&wanted, self.server.params.as_deref(), &self.server.ours);
        if changes.is_empty() {
            self.server.agreed = Some(wanted);
            return false;
        }
        let out = self.sw.out(&mut self.shared.buffers);
        self.shared.params.put_query(out, &changes);
        // A simple Query ends the unnamed statement.
        self.server.unnamed = 0;
        self.sw.touch(&mut self.shared.touched);
        self.server.link.changes = changes;
        debug_assert!(self.sw.backlog() < BACKLOG_HIGH * 64);
        true
    }

    /// What was set on a server is remembered if it does not tell it; else the client takes the server's spelling.
    fn parameters_changed(&mut self) {
        for change in std::mem::take(&mut self.server.link.changes) {
            self.server.ours.retain(|our| our.0 != change.name);
            let reported = self
                .server
                .params
                .as_ref()
                .and_then(|set| set.get(change.name));
            if let (Some(told), Some(_)) = (reported, &change.value) {
                let before = self.client.params.take();
                let params = &mut self.shared.params;
                self.client.params = Some(params.with(before.as_deref(), change.name, told));
                params.release(before);
            }
            if change.value.is_some()
                && (reported.is_none() || self.shared.params.is_extra(change.name))
            {
                self.server.ours.push((change.name, change.value));
            }
        }
        self.server.agreed = self.client.params.clone();
    }
}
