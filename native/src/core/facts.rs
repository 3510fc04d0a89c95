//! What the core can tell about connections and pools.

use super::conn::{Conn, Mode, Role};
use super::params::Listing;
use super::types::{ConnFacts, ConnId, CoreEvent, PoolCounts, PoolId, PoolStats, Verb, VerbError};
use super::Core;

fn status_name(status: u8) -> &'static str {
    match status {
        b'T' => "T",
        b'E' => "E",
        _ => "I",
    }
}

impl Core {
    /// All events so far, in order.
    pub fn events(&mut self) -> Vec<CoreEvent> {
        let starved = self
            .events
            .iter()
            .any(|event| matches!(event, CoreEvent::Starved { .. }));
        if starved {
            self.pools.iter_mut().for_each(|pool| pool.starved = false);
        }
        std::mem::take(&mut self.events)
    }

    /// Descriptors in events that nobody will take.
    pub fn drop_descriptors(&mut self, close: impl Fn(i32)) {
        self.events.retain(|event| match event {
            CoreEvent::Diverted { fd, .. } | CoreEvent::Moved { fd, .. } => {
                close(*fd);
                false
            }
            _ => true,
        });
    }

    pub fn pending(&self) -> bool {
        !self.events.is_empty()
    }

    /// There are events, all of them STARVED.
    pub fn only_starved(&self) -> bool {
        let starved = |event: &CoreEvent| matches!(event, CoreEvent::Starved { .. });
        self.pending() && self.events.iter().all(starved)
    }

    /// The partner while linked, else 0.
    pub fn link_of(&self, id: ConnId) -> Verb<ConnId> {
        let conn = self.slots.get(id).ok_or(VerbError::Dead)?;
        Ok(if conn.wire.mode == Mode::Linked {
            conn.partner()
        } else {
            0
        })
    }

    pub fn pool_counts(&self, id: PoolId) -> Verb<PoolCounts> {
        let pool = self.pools.get(id).ok_or(VerbError::Dead)?;
        let mut counts = pool.counts;
        if let Some(Role::Client(client)) = self.line(id).next().map(|conn| &conn.role) {
            counts.oldest_wait_us = self.shared.now.saturating_sub(client.waiting_since);
        }
        Ok(counts)
    }

    pub fn pool_stats(&self, pool: PoolId) -> Verb<PoolStats> {
        Ok(self.pools.get(pool).ok_or(VerbError::Dead)?.stats)
    }

    /// (server, idle since), longest idle first.
    pub fn idle_servers(&self, pool: PoolId) -> Verb<Vec<(ConnId, u64)>> {
        let pool = self.pools.get(pool).ok_or(VerbError::Dead)?;
        Ok(pool
            .idle
            .iter()
            .map(|&id| (id, self.slots.get(id).map_or(0, idle_since)))
            .collect())
    }

    pub fn waiting_clients(&self, pool: PoolId) -> Verb<Vec<ConnId>> {
        self.pools.get(pool).ok_or(VerbError::Dead)?;
        Ok(self.line(pool).map(|conn| conn.wire.id).collect())
    }

    fn line(&self, pool: PoolId) -> impl Iterator<Item = &Conn> {
        let entries = self
            .pools
            .get(pool)
            .into_iter()
            .flat_map(|pool| pool.line.iter());
        entries.filter_map(|&(id, ticket)| {
            let conn = self.slots.get(id)?;
            match &conn.role {
                Role::Client(client)
                    if conn.wire.mode == Mode::Waiting && client.ticket == ticket =>
                {
                    Some(conn)
                }
                _ => None,
            }
        })
    }

    pub fn facts(&self, id: ConnId) -> Verb<ConnFacts> {
        let conn = self.slots.get(id).ok_or(VerbError::Dead)?;
        let wire = &conn.wire;
        let linked = matches!(wire.mode, Mode::Linked | Mode::Linking);
        let mut facts = ConnFacts {
            mode: wire.mode.name(),
            link: if wire.mode == Mode::Linked {
                conn.partner()
            } else {
                0
            },
            last_activity_us: wire.last_activity,
            recv_pending: wire.pending.len(),
            send_pending: wire.backlog(),
            ..ConnFacts::default()
        };
        let server = match &conn.role {
            Role::Server(server) => Some(&**server),
            Role::Client(client) => match self.slots.get(client.partner).map(|conn| &conn.role) {
                Some(Role::Server(server)) => Some(&**server),
                _ => None,
            },
        };
        if let Some(server) = server.filter(|_| linked) {
            facts.status = status_name(server.link.status);
            facts.queue_length = server.link.queue.len();
            facts.request_us = server.link.query_start.unwrap_or(0);
        }
        match &conn.role {
            Role::Client(client) => {
                facts.prepared_statements = client.names.len();
                if wire.mode == Mode::Waiting {
                    facts.request_us = client.waiting_since;
                }
            }
            Role::Server(server) => {
                facts.prepared_statements = server.cache.len();
                facts.decide = server.decide;
                if wire.mode == Mode::Idle {
                    facts.idle_since_us = server.idle_since;
                    facts.status = "I";
                }
            }
        }
        Ok(facts)
    }

    /// Tracked values of an admitted client or enrolled server: canonical names, in order.
    pub fn parameters(&self, id: ConnId) -> Verb<Listing> {
        let conn = self.slots.get(id).ok_or(VerbError::Dead)?;
        let (params, ours) = match &conn.role {
            Role::Client(client) => (&client.params, &[][..]),
            Role::Server(server) => (&server.params, &server.ours[..]),
        };
        Ok(self.shared.params.listing(params.as_deref(), ours))
    }

    /// (name, size of one, used, free) for SHOW MEM.
    pub fn memory(&self) -> Vec<(&'static str, usize, usize, usize)> {
        let all = self.slots.iter().count();
        let clients = self
            .slots
            .iter()
            .filter(|conn| matches!(conn.role, Role::Client(_)))
            .count();
        let size = size_of::<Conn>();
        vec![
            ("client_cache", size, clients, self.slots.free()),
            ("server_cache", size, all - clients, 0),
            (
                "pool_cache",
                size_of::<super::pool::Pool>(),
                self.pools.len(),
                0,
            ),
            (
                "prepared_statement_cache",
                size_of::<super::prepared::Statement>(),
                self.shared.store.len(),
                0,
            ),
            (
                "var_list_cache",
                size_of::<super::params::ParamSet>(),
                self.shared.params.sets(),
                0,
            ),
            (
                "iobuf_cache",
                4096,
                self.shared.buffers.in_use(),
                self.shared.buffers.free(),
            ),
        ]
    }
}

fn idle_since(conn: &Conn) -> u64 {
    match &conn.role {
        Role::Server(server) => server.idle_since,
        Role::Client(_) => 0,
    }
}
