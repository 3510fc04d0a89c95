//! The sans-IO core: every decision per byte and per message, as docs/topics/link.md rules.

pub mod types;

pub use types::*;

/// One engine's connections, pools and links; single thread, no sockets, no clock.
#[derive(Default)]
pub struct Core {
    now: u64,
}

#[allow(unused_variables, clippy::ptr_arg)]
impl Core {
    pub fn new() -> Self {
        Self::default()
    }
    pub fn set_now(&mut self, us: u64) {
        self.now = us;
    }
    pub fn now(&self) -> u64 {
        self.now
    }

    // ---- driver -> core
    pub fn accepted(&mut self, listener: u64) -> ConnId {
        todo!()
    }
    /// Our own connect has begun.
    pub fn dialing(&mut self) -> ConnId {
        todo!()
    }
    pub fn connected(&mut self, id: ConnId) {
        todo!()
    }
    pub fn received(&mut self, id: ConnId, data: &[u8]) {
        todo!()
    }
    /// EOF (reason "") or an error text; texts starting with "tls: " or "connect failed: " are given on as they are.
    /// The slot is free afterwards: do not call `gone` too.
    pub fn ended(&mut self, id: ConnId, reason: &str) {
        todo!()
    }
    /// The driver holds `unsent` bytes of this connection that are not on the wire yet (call it also after taking output).
    pub fn sent(&mut self, id: ConnId, unsent: usize) {
        todo!()
    }
    pub fn secured(&mut self, id: ConnId, facts: TlsFacts) {
        todo!()
    }
    pub fn listener_failed(&mut self, listener: u64, text: String) {
        todo!()
    }

    // ---- core -> driver
    pub fn take_touched(&mut self, into: &mut Vec<ConnId>) {
        todo!()
    }
    /// What is to be sent; swap it out, give the empty Vec back by `recycle`.
    pub fn output(&mut self, id: ConnId) -> &mut Vec<u8> {
        todo!()
    }
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        todo!()
    }
    pub fn wants_read(&self, id: ConnId) -> bool {
        todo!()
    }
    /// Flush, close the socket, then `gone`.
    pub fn is_closing(&self, id: ConnId) -> bool {
        todo!()
    }
    /// Has been closing for too long: drop the socket without flushing, then `gone`.
    pub fn must_reset(&self, id: ConnId) -> bool {
        todo!()
    }
    pub fn gone(&mut self, id: ConnId) {
        todo!()
    }
    /// Whether the id names a connection that verbs may be used on.
    pub fn is_alive(&self, id: ConnId) -> bool {
        todo!()
    }
    /// The connection is in dialogue (RuntimeError for start_tls otherwise).
    pub fn in_dialogue(&self, id: ConnId) -> bool {
        todo!()
    }
    pub fn unread(&self, id: ConnId) -> usize {
        todo!()
    }
    pub fn take_unread(&mut self, id: ConnId) -> Vec<u8> {
        todo!()
    }

    // ---- verbs
    pub fn set_limits(&mut self, limits: EngineLimits) {
        todo!()
    }
    pub fn proceed(&mut self, id: ConnId, limit: u32) -> Verb<()> {
        todo!()
    }
    pub fn proceed_startup(&mut self, id: ConnId) -> Verb<()> {
        todo!()
    }
    pub fn set_dialogue_limit(&mut self, id: ConnId, limit: u32) -> Verb<()> {
        todo!()
    }
    pub fn send(&mut self, id: ConnId, data: &[u8]) -> Verb<()> {
        todo!()
    }
    pub fn close(&mut self, id: ConnId, data: &[u8], reason: &str) -> Verb<()> {
        todo!()
    }
    pub fn add_pool(&mut self, spec: PoolSpec) -> PoolId {
        todo!()
    }
    pub fn set_pool(&mut self, pool: PoolId, spec: PoolSpec) -> Verb<()> {
        todo!()
    }
    pub fn drop_pool(&mut self, pool: PoolId) -> Verb<()> {
        todo!()
    }
    pub fn pause_pool(&mut self, pool: PoolId, paused: bool) -> Verb<()> {
        todo!()
    }
    /// `query_wait_timeout_us`: -1 = the pool's.
    pub fn admit(
        &mut self,
        client: ConnId,
        pool: PoolId,
        parameters: &[(String, String)],
        client_idle_timeout_us: i64,
        query_wait_timeout_us: i64,
    ) -> Verb<()> {
        todo!()
    }
    pub fn readmit(&mut self, client: ConnId, client_idle_timeout_us: i64, query_wait_timeout_us: i64) -> Verb<()> {
        todo!()
    }
    pub fn enroll(&mut self, server: ConnId, pool: PoolId, parameters: &[(String, String)]) -> Verb<()> {
        todo!()
    }
    pub fn park(&mut self, server: ConnId) -> Verb<()> {
        todo!()
    }
    pub fn take(&mut self, server: ConnId) -> Verb<bool> {
        todo!()
    }
    pub fn decide(&mut self, server: ConnId, decide: bool) -> Verb<()> {
        todo!()
    }
    pub fn unwait(&mut self, client: ConnId) -> Verb<()> {
        todo!()
    }
    pub fn hold(&mut self, server: ConnId) -> Verb<()> {
        todo!()
    }
    pub fn unhold(&mut self, server: ConnId) -> Verb<()> {
        todo!()
    }

    // ---- facts
    pub fn events(&mut self) -> Vec<CoreEvent> {
        todo!()
    }
    pub fn pending(&self) -> bool {
        todo!()
    }
    pub fn link_of(&self, id: ConnId) -> Verb<ConnId> {
        todo!()
    }
    pub fn pool_counts(&self, pool: PoolId) -> Verb<PoolCounts> {
        todo!()
    }
    pub fn pool_stats(&self, pool: PoolId) -> Verb<PoolStats> {
        todo!()
    }
    pub fn idle_servers(&self, pool: PoolId) -> Verb<Vec<(ConnId, u64)>> {
        todo!()
    }
    pub fn waiting_clients(&self, pool: PoolId) -> Verb<Vec<ConnId>> {
        todo!()
    }
    pub fn facts(&self, id: ConnId) -> Verb<ConnFacts> {
        todo!()
    }
    pub fn parameters(&self, id: ConnId) -> Verb<Vec<(String, String)>> {
        todo!()
    }
    pub fn overdue(&mut self, now_us: u64) -> Vec<(ConnId, &'static str)> {
        todo!()
    }
    /// (name, size of one, used, free)
    pub fn memory(&self) -> Vec<(&'static str, usize, usize, usize)> {
        todo!()
    }
}
