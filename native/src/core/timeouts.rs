//! What has lasted too long; Python acts, the core only tells.

use super::conn::{Client, Conn, Mode, Role, Server, Wire};
use super::link::Link;
use super::pool::Pool;
use super::types::ConnId;
use super::Core;

/// A connection that cannot flush for this long is reset.
const CLOSING_LIMIT_US: u64 = 10_000_000;

/// `since` is longer ago than the limit; 0 = no limit.
fn over(now: u64, since: u64, limit_us: u64) -> bool {
    limit_us > 0 && now.saturating_sub(since) > limit_us
}

impl Core {
    /// (client, key), at most one per connection. Clients that have said nothing yet are announced.
    pub fn overdue(&mut self, now_us: u64) -> Vec<(ConnId, &'static str)> {
        for id in std::mem::take(&mut self.silent) {
            if self.is_unannounced(id) {
                self.announce(id);
            }
        }
        let mut found = Vec::new();
        let mut notified = Vec::new();
        let mut stuck = Vec::new();
        for conn in self.slots.iter() {
            let wire = &conn.wire;
            if wire.mode == Mode::Closing {
                if now_us.saturating_sub(wire.closing_since) >= CLOSING_LIMIT_US && !wire.reset {
                    stuck.push(wire.id);
                }
                continue;
            }
            let Role::Client(client) = &conn.role else {
                continue;
            };
            let Some(pool) = self.pools.get(client.pool) else {
                continue;
            };
            let key = match wire.mode {
                Mode::Linked => self
                    .link_state(client)
                    .and_then(|link| linked(now_us, link, pool)),
                Mode::Waiting => waiting(
                    now_us,
                    client,
                    pool,
                    self.shared.limits.queued_query_timeout_us,
                ),
                Mode::Parked => parked(now_us, wire, client),
                _ => None,
            };
            if let Some(key) = key {
                found.push((wire.id, key));
                if key == "query_wait_notify" {
                    notified.push(wire.id);
                }
            }
        }
        for id in notified {
            if let Some((_, client)) = self.slots.client(id) {
                client.notified = true;
            }
        }
        for id in stuck {
            if let Some(conn) = self.slots.get_mut(id) {
                conn.wire.reset = true;
                conn.wire.touch(&mut self.shared.touched);
            }
        }
        found
    }

    fn link_state(&self, client: &Client) -> Option<&Link> {
        match self.slots.get(client.partner) {
            Some(Conn {
                role: Role::Server(server),
                ..
            }) => {
                let server: &Server = server;
                Some(&server.link)
            }
            _ => None,
        }
    }
}

fn linked(now: u64, link: &Link, pool: &Pool) -> Option<&'static str> {
    let spec = &pool.spec;
    let idle = link.queue.is_empty();
    if !idle
        && link
            .query_start
            .is_some_and(|since| over(now, since, spec.query_timeout_us))
    {
        return Some("query_timeout");
    }
    // A release that waits for the rest of a client's message keeps the server as a block does.
    let kept = idle && (link.status != b'I' || link.due);
    if kept && over(now, link.last_answer, spec.idle_transaction_timeout_us) {
        return Some("idle_transaction_timeout");
    }
    let in_xact = link
        .xact_start
        .is_some_and(|since| over(now, since, spec.transaction_timeout_us));
    in_xact.then_some("transaction_timeout")
}

fn waiting(now: u64, client: &Client, pool: &Pool, queued_limit_us: u64) -> Option<&'static str> {
    let since = client.waiting_since;
    let own = u64::try_from(client.wait_limit_us).unwrap_or(pool.spec.query_wait_timeout_us);
    if over(now, since, own) {
        Some("query_wait_timeout")
    } else if over(now, since, queued_limit_us) {
        Some("query_timeout_queued")
    } else if !client.notified && over(now, since, pool.spec.query_wait_notify_us) {
        Some("query_wait_notify")
    } else {
        None
    }
}

fn parked(now: u64, wire: &Wire, client: &Client) -> Option<&'static str> {
    let limit = u64::try_from(client.idle_limit_us).unwrap_or(0);
    over(now, wire.last_activity, limit).then_some("client_idle_timeout")
}
