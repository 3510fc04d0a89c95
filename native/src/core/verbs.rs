//! The contract's verbs: what Python tells the core to do.

use std::rc::Rc;

use super::conn::{Client, Gate, Mode, Role, Server, Wire, UNNAMED_UNKNOWN};
use super::dialogue::SSL_REQUEST;
use super::params::ParamSet;
use super::pool::Pool;
use super::types::{ConnId, EngineLimits, PoolId, PoolSpec, Verb, VerbError};
use super::Core;

const NOT_DIALOGUE: VerbError = VerbError::Mode("the connection is not in dialogue");
const NOT_CLIENT: VerbError = VerbError::Mode("not a client");
const NOT_SERVER: VerbError = VerbError::Mode("not a server");

impl Core {
    fn alive_client(&mut self, id: ConnId) -> Verb<(&mut Wire, &mut Client)> {
        match self.slots.get_mut(id) {
            None => Err(VerbError::Dead),
            Some(conn) if conn.wire.mode == Mode::Closing => Err(VerbError::Dead),
            Some(conn) => match &mut conn.role {
                Role::Client(client) => Ok((&mut conn.wire, client)),
                Role::Server(_) => Err(NOT_CLIENT),
            },
        }
    }

    fn alive_server(&mut self, id: ConnId) -> Verb<(&mut Wire, &mut Server)> {
        match self.slots.get_mut(id) {
            None => Err(VerbError::Dead),
            Some(conn) if conn.wire.mode == Mode::Closing => Err(VerbError::Dead),
            Some(conn) => match &mut conn.role {
                Role::Server(server) => Ok((&mut conn.wire, server)),
                Role::Client(_) => Err(NOT_SERVER),
            },
        }
    }

    fn pool(&mut self, id: PoolId) -> Verb<&mut Pool> {
        self.pools.get_mut(id).ok_or(VerbError::Dead)
    }

    pub fn set_limits(&mut self, limits: EngineLimits) {
        let shared = &mut self.shared;
        shared.params.set_extras(&limits.extra_parameters);
        shared.limits = limits;
        for conn in self.slots.iter_mut() {
            if let Role::Server(server) = &mut conn.role {
                server.unreported = shared.params.unreported(server.params.as_deref());
            }
        }
    }

    // ---- dialogue

    fn open_gate(&mut self, id: ConnId, gate: Gate) -> Verb<()> {
        let (wire, client) = self.alive_client(id)?;
        if wire.mode != Mode::Dialogue {
            return Err(NOT_DIALOGUE);
        }
        client.gate = gate;
        self.touch(id);
        self.resume(id);
        Ok(())
    }

    /// A client's next message, of at most `limit` bytes.
    pub fn proceed(&mut self, id: ConnId, limit: u32) -> Verb<()> {
        self.open_gate(id, Gate::Message(limit))
    }

    /// A client's next packet in startup framing.
    pub fn proceed_startup(&mut self, id: ConnId) -> Verb<()> {
        self.open_gate(id, Gate::Startup)
    }

    pub fn set_dialogue_limit(&mut self, id: ConnId, limit: u32) -> Verb<()> {
        self.alive_server(id)?.1.dialogue_limit = limit;
        Ok(())
    }

    pub fn send(&mut self, id: ConnId, data: &[u8]) -> Verb<()> {
        let conn = self
            .slots
            .get_mut(id)
            .filter(|conn| conn.wire.mode != Mode::Closing);
        let conn = conn.ok_or(VerbError::Dead)?;
        if !matches!(conn.wire.mode, Mode::Dialogue | Mode::Waiting) {
            return Err(NOT_DIALOGUE);
        }
        conn.wire
            .out(&mut self.shared.buffers)
            .extend_from_slice(data);
        conn.wire.touch(&mut self.shared.touched);
        if let Role::Server(server) = &mut conn.role {
            server.bare = data == SSL_REQUEST;
            // What Python asks ends the unnamed statement, or parses its own.
            server.unnamed = UNNAMED_UNKNOWN;
            if std::mem::take(&mut server.shut) {
                self.resume(id);
            }
        }
        Ok(())
    }

    /// Sends `data`, flushes, closes; a linked partner is released, or closed with `reason`.
    pub fn close(&mut self, id: ConnId, data: &[u8], reason: &str) -> Verb<()> {
        let conn = self
            .slots
            .get(id)
            .filter(|conn| conn.wire.mode != Mode::Closing);
        let conn = conn.ok_or(VerbError::Dead)?;
        let (is_server, partner) = (conn.is_server(), conn.partner());
        if partner != 0 && !is_server {
            self.end_link_of_client(id, reason);
        }
        self.begin_closing(id);
        if partner != 0 && is_server {
            if let Some((_, client)) = self.slots.client(partner) {
                client.partner = 0;
            }
            self.fault(partner, "server_closed", reason.into());
        }
        if let Some(conn) = self.slots.get_mut(id).filter(|_| !data.is_empty()) {
            conn.wire
                .out(&mut self.shared.buffers)
                .extend_from_slice(data);
        }
        self.run_work();
        Ok(())
    }

    // ---- pools

    pub fn add_pool(&mut self, spec: PoolSpec) -> PoolId {
        self.pools.add(spec)
    }

    pub fn set_pool(&mut self, pool: PoolId, spec: PoolSpec) -> Verb<()> {
        self.pool(pool)?.spec = spec;
        Ok(())
    }

    pub fn drop_pool(&mut self, pool: PoolId) -> Verb<()> {
        if self.pool(pool)?.members > 0 {
            return Err(VerbError::Mode("the pool has connections"));
        }
        self.pools.drop(pool);
        Ok(())
    }

    pub fn pause_pool(&mut self, pool: PoolId, paused: bool) -> Verb<()> {
        self.pool(pool)?.paused = paused;
        self.serve_line(pool);
        Ok(())
    }

    /// RESTED, once, when a server of the pool becomes idle.
    pub fn tell_rest(&mut self, pool: PoolId) -> Verb<()> {
        self.pool(pool)?.rest_wanted = true;
        Ok(())
    }

    /// Hushed: no STARVED.
    pub fn hush_pool(&mut self, pool: PoolId, hushed: bool) -> Verb<()> {
        self.pool(pool)?.hushed = hushed;
        Ok(())
    }

    /// The set of these values, to admit clients with.
    pub fn parameter_set<T: AsRef<[u8]>>(&mut self, parameters: &[(T, T)]) -> Rc<ParamSet> {
        self.shared.params.set_of(parameters)
    }

    /// Dialogue -> parked. `query_wait_timeout_us`: -1 = the pool's.
    pub fn admit<T: AsRef<[u8]>>(
        &mut self,
        client_id: ConnId,
        pool_id: PoolId,
        parameters: &[(T, T)],
        client_idle_timeout_us: i64,
        query_wait_timeout_us: i64,
    ) -> Verb<()> {
        let params = self.parameter_set(parameters);
        let limits = (client_idle_timeout_us, query_wait_timeout_us);
        self.admit_with(client_id, pool_id, params, limits, b"")
    }

    /// As `admit`; `welcome` is sent before anything of the client is relayed.
    pub fn admit_with(
        &mut self,
        client_id: ConnId,
        pool_id: PoolId,
        params: Rc<ParamSet>,
        limits_us: (i64, i64),
        welcome: &[u8],
    ) -> Verb<()> {
        self.pool(pool_id)?;
        let (wire, _) = self.alive_client(client_id)?;
        if wire.mode != Mode::Dialogue {
            return Err(NOT_DIALOGUE);
        }
        let now = self.shared.now;
        let conn = self.slots.get_mut(client_id).ok_or(VerbError::Dead)?;
        let (wire, Role::Client(client)) = (&mut conn.wire, &mut conn.role) else {
            return Err(NOT_CLIENT);
        };
        // What came with a client from another process stands.
        let carried = client.params.is_some();
        client.params.get_or_insert(params);
        client.pool = pool_id;
        (client.idle_limit_us, client.wait_limit_us) = limits_us;
        wire.last_activity = now;
        if !welcome.is_empty() {
            wire.out(&mut self.shared.buffers)
                .extend_from_slice(welcome);
        }
        let kept = wire.pending.len() as u64;
        let pool = self.pool(pool_id)?;
        pool.members += 1;
        pool.stats.client_bytes += if carried { 0 } else { kept };
        self.set_mode(client_id, Mode::Parked);
        self.resume(client_id);
        self.run_work();
        Ok(())
    }

    pub fn readmit(
        &mut self,
        client: ConnId,
        client_idle_timeout_us: i64,
        query_wait_timeout_us: i64,
    ) -> Verb<()> {
        let (_, client) = self.alive_client(client)?;
        client.idle_limit_us = client_idle_timeout_us;
        client.wait_limit_us = query_wait_timeout_us;
        Ok(())
    }

    /// A freshly logged-in server: dialogue -> first waiter or idle list.
    pub fn enroll<T: AsRef<[u8]>>(
        &mut self,
        server_id: ConnId,
        pool_id: PoolId,
        parameters: &[(T, T)],
    ) -> Verb<()> {
        self.pool(pool_id)?;
        let (wire, server) = self.alive_server(server_id)?;
        if wire.mode != Mode::Dialogue || server.pool != 0 {
            return Err(NOT_DIALOGUE);
        }
        let params = self.shared.params.set_of(parameters);
        let unreported = self.shared.params.unreported(Some(&params));
        let (_, server) = self.alive_server(server_id)?;
        server.params = Some(params);
        server.unreported = unreported;
        server.pool = pool_id;
        let pool = self.pool(pool_id)?;
        pool.members += 1;
        pool.shift(true, None, Some(Mode::Dialogue));
        self.park_now(server_id);
        Ok(())
    }

    /// Dialogue -> first waiter or idle list.
    pub fn park(&mut self, server_id: ConnId) -> Verb<()> {
        let (wire, server) = self.alive_server(server_id)?;
        if wire.mode != Mode::Dialogue || server.pool == 0 {
            return Err(NOT_DIALOGUE);
        }
        self.park_now(server_id);
        Ok(())
    }

    /// What was read behind the dialogue is judged as an idle server's before anyone gets it.
    fn park_now(&mut self, id: ConnId) {
        self.set_mode(id, Mode::Idle);
        if let Some((_, server)) = self.slots.server(id) {
            server.returning = true;
            server.released = false;
            server.shut = false;
            server.bare = false;
        }
        self.resume(id);
        self.run_work();
    }

    /// Idle -> dialogue; false if it is not idle.
    pub fn take(&mut self, server_id: ConnId) -> Verb<bool> {
        let (wire, server) = self.alive_server(server_id)?;
        if wire.mode != Mode::Idle {
            return Ok(false);
        }
        let pool = server.pool;
        self.pool(pool)?.forget_idle(server_id);
        self.set_mode(server_id, Mode::Dialogue);
        Ok(true)
    }

    pub fn decide(&mut self, server: ConnId, decide: bool) -> Verb<()> {
        self.alive_server(server)?.1.decide = decide;
        Ok(())
    }

    /// Takes a waiting client out of the line and freezes it.
    pub fn unwait(&mut self, client: ConnId) -> Verb<()> {
        let (wire, _) = self.alive_client(client)?;
        if wire.mode != Mode::Waiting {
            return Err(VerbError::Mode("the client is not waiting"));
        }
        self.freeze(client);
        Ok(())
    }

    /// A cancel request is attached: nobody gets the server until `unhold`.
    pub fn hold(&mut self, server_id: ConnId) -> Verb<()> {
        let (wire, server) = self.alive_server(server_id)?;
        server.holds += 1;
        let (mode, pool) = (wire.mode, server.pool);
        if mode == Mode::Idle {
            self.pool(pool)?.forget_idle(server_id);
            self.set_mode(server_id, Mode::Held);
        }
        Ok(())
    }

    pub fn unhold(&mut self, server_id: ConnId) -> Verb<()> {
        let (wire, server) = self.alive_server(server_id)?;
        if server.holds == 0 {
            return Err(VerbError::Mode("the server is not held"));
        }
        server.holds -= 1;
        if server.holds == 0 && wire.mode == Mode::Held {
            self.give(server_id);
            self.run_work();
        }
        Ok(())
    }
}
