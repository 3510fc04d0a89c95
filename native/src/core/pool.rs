//! A pool: its specification, its idle servers, its line of waiting clients and its counters.

use std::collections::VecDeque;

use super::conn::Mode;
use super::renewal::Heirs;
use super::types::{ConnId, PoolCounts, PoolMode, PoolSpec, PoolStats};

/// One pool. Servers and clients stand here by id only.
#[derive(Default)]
pub struct Pool {
    pub spec: PoolSpec,
    pub paused: bool,
    /// Longest idle first.
    pub idle: VecDeque<ConnId>,
    /// (client, ticket); an entry whose client has another ticket or mode is stale and skipped.
    pub line: VecDeque<(ConnId, u64)>,
    pub next_ticket: u64,
    /// RESTED is wanted, once.
    pub rest_wanted: bool,
    /// STARVED is not wanted.
    pub hushed: bool,
    /// STARVED was given since the events were last taken.
    pub starved: bool,
    pub members: usize,
    pub heirs: Heirs,
    pub counts: PoolCounts,
    pub stats: PoolStats,
}

impl Pool {
    pub fn new(spec: PoolSpec) -> Self {
        Self {
            spec,
            ..Self::default()
        }
    }

    /// Prepared statements are tracked.
    #[inline]
    pub fn tracking(&self) -> bool {
        self.spec.mode != PoolMode::Session && self.spec.max_prepared_statements > 0
    }

    /// The next idle server by the pool's order.
    #[inline]
    pub fn next_idle(&mut self) -> Option<ConnId> {
        if self.spec.round_robin {
            self.idle.pop_front()
        } else {
            self.idle.pop_back()
        }
    }

    pub fn forget_idle(&mut self, server: ConnId) {
        self.idle.retain(|&id| id != server);
    }

    /// One connection moved between modes.
    #[inline]
    pub fn shift(&mut self, server: bool, from: Option<Mode>, to: Option<Mode>) {
        if let Some(count) = from.and_then(|mode| self.counter(server, mode)) {
            *count -= 1;
        }
        if let Some(count) = to.and_then(|mode| self.counter(server, mode)) {
            *count += 1;
        }
    }

    #[inline]
    fn counter(&mut self, server: bool, mode: Mode) -> Option<&mut usize> {
        let counts = &mut self.counts;
        Some(match (server, mode) {
            (false, Mode::Parked) => &mut counts.cl_parked,
            (false, Mode::Waiting) => &mut counts.cl_waiting,
            (false, Mode::Linking | Mode::Linked) => &mut counts.cl_linked,
            (true, Mode::Idle) => &mut counts.sv_idle,
            (true, Mode::Held) => &mut counts.sv_held,
            (true, Mode::Dialogue) => &mut counts.sv_dialogue,
            (true, Mode::Linking | Mode::Linked) => &mut counts.sv_linked,
            _ => return None,
        })
    }
}

/// All pools; ids are positions plus one and never reused.
#[derive(Default)]
pub struct Pools(Vec<Option<Box<Pool>>>);

impl Pools {
    pub fn add(&mut self, spec: PoolSpec) -> u64 {
        self.0.push(Some(Box::new(Pool::new(spec))));
        self.0.len() as u64
    }

    #[inline]
    pub fn get(&self, id: u64) -> Option<&Pool> {
        self.0.get((id as usize).wrapping_sub(1))?.as_deref()
    }

    #[inline]
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Pool> {
        self.0
            .get_mut((id as usize).wrapping_sub(1))?
            .as_deref_mut()
    }

    pub fn drop(&mut self, id: u64) {
        if let Some(slot) = self.0.get_mut((id as usize).wrapping_sub(1)) {
            *slot = None;
        }
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.0.iter_mut().flatten().map(|pool| &mut **pool)
    }

    pub fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }
}
