//! Connections: what every one has, what clients and servers have besides, and the slots they live in.

use std::rc::Rc;

use super::buffers::Buffers;
use super::link::Link;
use super::params::{NameId, ParamSet, Params};
use super::prepared::{Cache, Names, Unnamed};
use super::types::{ConnId, PoolId};

/// Where a connection stands; see docs/topics/link.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Dialogue,
    Parked,
    Waiting,
    Linking,
    Linked,
    Idle,
    Held,
    Moving,
    Frozen,
    Closing,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Dialogue => "dialogue",
            Self::Parked => "parked",
            Self::Waiting => "waiting",
            Self::Linking => "linking",
            Self::Linked => "linked",
            Self::Idle => "idle",
            Self::Held => "held",
            Self::Moving => "moving",
            Self::Frozen => "frozen",
            Self::Closing => "closing",
        }
    }
}

/// The rest of a message whose head has been dealt with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stream {
    pub left: u32,
    pub forward: bool,
}

impl Stream {
    /// Half a message stands on the other side.
    #[inline]
    pub fn open(self) -> bool {
        self.left > 0 && self.forward
    }
}

/// What every connection has.
pub struct Wire {
    pub id: ConnId,
    pub mode: Mode,
    pub touched: bool,
    /// The partner is slow: not read until it has caught up.
    pub throttled: bool,
    pub reset: bool,
    pub stream: Stream,
    /// Read and not yet parsed.
    pub pending: Vec<u8>,
    pub output: Vec<u8>,
    /// Bytes the driver has taken and not yet sent.
    pub unsent: usize,
    pub last_activity: u64,
    pub closing_since: u64,
}

impl Wire {
    pub fn new(id: ConnId, now: u64) -> Self {
        Self {
            id,
            mode: Mode::Dialogue,
            touched: false,
            throttled: false,
            reset: false,
            stream: Stream::default(),
            pending: Vec::new(),
            output: Vec::new(),
            unsent: 0,
            last_activity: now,
            closing_since: 0,
        }
    }

    #[inline]
    pub fn backlog(&self) -> usize {
        self.output.len() + self.unsent
    }

    /// Marks the connection for the driver, once.
    #[inline]
    pub fn touch(&mut self, touched: &mut Vec<ConnId>) {
        if !self.touched {
            self.touched = true;
            touched.push(self.id);
        }
    }

    /// The output, with a buffer behind it.
    #[inline]
    pub fn out(&mut self, buffers: &mut Buffers) -> &mut Vec<u8> {
        if self.output.capacity() == 0 {
            self.output = buffers.take();
        }
        &mut self.output
    }
}

/// What a client in dialogue may say next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The very first packet: a TLS handshake is possible.
    Fresh,
    Startup,
    Message(u32),
    /// Python has not answered yet.
    Shut,
}

pub struct Client {
    pub gate: Gate,
    pub notified: bool,
    /// ACCEPTED was given.
    pub announced: bool,
    /// It moves to another process as soon as it is released.
    pub leaving: bool,
    /// Requests for encryption the core has answered itself, as bits.
    pub answered: u8,
    pub listener: u64,
    pub pool: PoolId,
    pub partner: ConnId,
    pub params: Option<Rc<ParamSet>>,
    pub names: Names,
    pub unnamed: Option<Rc<Unnamed>>,
    pub idle_limit_us: i64,
    pub wait_limit_us: i64,
    pub waiting_since: u64,
    pub ticket: u64,
}

impl Client {
    pub fn new(listener: u64) -> Self {
        Self {
            gate: Gate::Fresh,
            notified: false,
            announced: false,
            leaving: false,
            answered: 0,
            listener,
            pool: 0,
            partner: 0,
            params: None,
            names: Names::default(),
            unnamed: None,
            idle_limit_us: 0,
            wait_limit_us: -1,
            waiting_since: 0,
            ticket: 0,
        }
    }
}

pub struct Server {
    pub dialogue_limit: u32,
    pub connecting: bool,
    /// Its next byte stands alone: the answer to SSLRequest.
    pub bare: bool,
    /// That byte was given up and not answered yet.
    pub shut: bool,
    /// Released, but what came behind its ReadyForQuery is still to be judged.
    pub returning: bool,
    /// It comes from a link, not from Python: `decide` applies.
    pub released: bool,
    pub decide: bool,
    pub holds: u32,
    pub pool: PoolId,
    pub partner: ConnId,
    pub idle_since: u64,
    /// What the server reported.
    pub params: Option<Rc<ParamSet>>,
    /// Extra names set by us and not reset; None = the value is unknown.
    pub ours: Vec<(NameId, Option<Box<[u8]>>)>,
    /// Extra names this server does not report.
    pub unreported: Vec<NameId>,
    /// A client's set known to need no change here.
    pub agreed: Option<Rc<ParamSet>>,
    pub cache: Cache,
    /// The unnamed statement it holds; 0 = none, UNNAMED_UNKNOWN = some other.
    pub unnamed: u64,
    pub has_void: bool,
    pub link: Link,
}

pub const DIALOGUE_LIMIT: u32 = 1 << 20;
/// A mark that no client's copy has.
pub const UNNAMED_UNKNOWN: u64 = u64::MAX;

impl Server {
    pub fn new() -> Self {
        Self {
            dialogue_limit: DIALOGUE_LIMIT,
            connecting: true,
            bare: false,
            shut: false,
            returning: false,
            released: false,
            decide: false,
            holds: 0,
            pool: 0,
            partner: 0,
            idle_since: 0,
            params: None,
            ours: Vec::new(),
            unreported: Vec::new(),
            agreed: None,
            cache: Cache::default(),
            unnamed: 0,
            has_void: false,
            link: Link::default(),
        }
    }
}

impl Server {
    /// Nobody knows what this parameter's value is now.
    pub fn forget_value(&mut self, name: NameId) {
        self.ours.retain(|our| our.0 != name);
        self.ours.push((name, None));
        self.agreed = None;
    }

    /// It told a value.
    pub fn reported(&mut self, params: &mut Params, name: NameId, value: &[u8]) {
        let before = self.params.take();
        let known = before.as_ref().is_some_and(|set| set.get(name).is_some());
        self.params = Some(params.with(before.as_deref(), name, value));
        params.release(before);
        if !known {
            self.unreported = params.unreported(self.params.as_deref());
        }
    }

    /// A reset query dropped all its statements.
    pub fn forget_statements(&mut self) {
        self.cache = Cache::default();
        self.has_void = false;
    }

    /// A reset undid what we had set.
    pub fn forget_ours(&mut self) {
        self.ours.clear();
        self.agreed = None;
    }
}

pub enum Role {
    Client(Client),
    Server(Box<Server>),
}

pub struct Conn {
    pub wire: Wire,
    pub role: Role,
}

impl Conn {
    pub fn is_server(&self) -> bool {
        matches!(self.role, Role::Server(_))
    }

    pub fn pool(&self) -> PoolId {
        match &self.role {
            Role::Client(client) => client.pool,
            Role::Server(server) => server.pool,
        }
    }

    pub fn partner(&self) -> ConnId {
        match &self.role {
            Role::Client(client) => client.partner,
            Role::Server(server) => server.partner,
        }
    }
}

const SLOT_BITS: u32 = 24;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

struct Slot {
    generation: u64,
    conn: Option<Box<Conn>>,
}

/// All connections by id.
#[derive(Default)]
pub struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    pub fn add(&mut self, role: Role, now: u64) -> ConnId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                conn: None,
            });
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.generation += 1;
        let id = place.generation << SLOT_BITS | u64::from(slot);
        place.conn = Some(Box::new(Conn {
            wire: Wire::new(id, now),
            role,
        }));
        id
    }

    pub fn remove(&mut self, id: ConnId) -> Option<Box<Conn>> {
        let slot = (id & SLOT_MASK) as usize;
        let place = self.slots.get_mut(slot)?;
        if place.generation != id >> SLOT_BITS {
            return None;
        }
        let conn = place.conn.take()?;
        self.free.push(slot as u32);
        Some(conn)
    }

    #[inline]
    pub fn get(&self, id: ConnId) -> Option<&Conn> {
        let place = self.slots.get((id & SLOT_MASK) as usize)?;
        (place.generation == id >> SLOT_BITS)
            .then_some(place.conn.as_deref())
            .flatten()
    }

    #[inline]
    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        let place = self.slots.get_mut((id & SLOT_MASK) as usize)?;
        if place.generation != id >> SLOT_BITS {
            return None;
        }
        place.conn.as_deref_mut()
    }

    #[inline]
    pub fn client(&mut self, id: ConnId) -> Option<(&mut Wire, &mut Client)> {
        match self.get_mut(id) {
            Some(Conn {
                wire,
                role: Role::Client(client),
            }) => Some((wire, client)),
            _ => None,
        }
    }

    #[inline]
    pub fn server(&mut self, id: ConnId) -> Option<(&mut Wire, &mut Server)> {
        match self.get_mut(id) {
            Some(Conn {
                wire,
                role: Role::Server(server),
            }) => Some((wire, server)),
            _ => None,
        }
    }

    /// Two different connections at once.
    #[inline]
    pub fn pair(&mut self, a: ConnId, b: ConnId) -> Option<(&mut Conn, &mut Conn)> {
        let (at_a, at_b) = ((a & SLOT_MASK) as usize, (b & SLOT_MASK) as usize);
        if at_a == at_b || at_a.max(at_b) >= self.slots.len() {
            return None;
        }
        let (low, high) = self.slots.split_at_mut(at_a.max(at_b));
        let (slot_a, slot_b) = if at_a < at_b {
            (&mut low[at_a], &mut high[0])
        } else {
            (&mut high[0], &mut low[at_b])
        };
        if slot_a.generation != a >> SLOT_BITS || slot_b.generation != b >> SLOT_BITS {
            return None;
        }
        Some((slot_a.conn.as_deref_mut()?, slot_b.conn.as_deref_mut()?))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.slots.iter().filter_map(|slot| slot.conn.as_deref())
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Conn> {
        self.slots
            .iter_mut()
            .filter_map(|slot| slot.conn.as_deref_mut())
    }

    pub fn free(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle client costs its record and its slot, well under what a pooler may spend on it.
    #[test]
    fn an_idle_client_is_small() {
        assert!(
            size_of::<Conn>() + size_of::<Slot>() <= 320,
            "{}",
            size_of::<Conn>()
        );
    }

    /// An id is dead once its slot has been used again.
    #[test]
    fn ids_are_not_reused() {
        let mut slots = Slots::default();
        let one = slots.add(Role::Client(Client::new(0)), 0);
        assert!(slots.remove(one).is_some());
        let two = slots.add(Role::Client(Client::new(0)), 0);
        assert_ne!(one, two);
        assert!(
            slots.get(one).is_none() && slots.get_mut(one).is_none() && slots.remove(one).is_none()
        );
        assert!(slots.get(0).is_none() && slots.get(two).is_some());
    }
}
