//! A link's state, and the relay that moves messages while client and server are joined.

use std::mem;

use super::buffers::Buffers;
use super::conn::{Client, Conn, Role, Server, Slots, Wire};
use super::frames;
use super::params::{Change, Params};
use super::pool::{Pool, Pools};
use super::prepared::{Command, Store};
use super::queue::{Act, Kind, Origin, Queue};
use super::reading::Unsure;
use super::renewal::Batch;
use super::types::{ConnId, EngineLimits, PoolMode};

/// Above this much output on one side the other is not read.
pub const BACKLOG_HIGH: usize = 128 * 1024;
/// Below it reading resumes.
pub const BACKLOG_LOW: usize = 32 * 1024;

/// Lives in the server; used while it is linking or linked.
pub struct Link {
    pub queue: Queue,
    pub status: u8,
    /// Something was forwarded since the last ReadyForQuery.
    pub busy: bool,
    /// Everything up to a Sync is dropped.
    pub errored: bool,
    pub copy_in: bool,
    /// The head Describe has had its ParameterDescription.
    pub described: bool,
    /// To be released once the client stands at a message boundary.
    pub due: bool,
    /// Syncs sent, ever.
    pub syncs: u64,
    pub unnamed_in_flight: u32,
    pub unnamed_epoch: u64,
    pub query_start: Option<u64>,
    pub xact_start: Option<u64>,
    pub last_answer: u64,
    /// Portals whose Execute is a command about prepared statements.
    pub portals: Vec<(Box<[u8]>, Command)>,
    /// What the pooler's own SETs are changing.
    pub changes: Vec<Change>,
    pub batch: Batch,
    pub unsure: Unsure,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            queue: Queue::default(),
            status: b'I',
            busy: false,
            errored: false,
            copy_in: false,
            described: false,
            due: false,
            syncs: 0,
            unnamed_in_flight: 0,
            unnamed_epoch: 0,
            query_start: None,
            xact_start: None,
            last_answer: 0,
            portals: Vec::new(),
            changes: Vec::new(),
            batch: Batch::default(),
            unsure: Unsure::default(),
        }
    }
}

impl Link {
    /// As at the start of a link; the queue keeps its room.
    #[inline]
    pub fn begin(&mut self) {
        self.queue.clear();
        self.status = b'I';
        self.busy = false;
        self.errored = false;
        self.copy_in = false;
        self.described = false;
        self.due = false;
        self.unnamed_in_flight = 0;
        self.query_start = None;
        self.xact_start = None;
        self.portals.clear();
        self.changes.clear();
        self.batch.begin();
        self.unsure.told(false);
    }

    /// Nothing runs, and nothing was asked that a new request would join.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.queue.is_empty() && !self.busy && self.status == b'I'
    }

    /// The server ignores Sync and Flush now.
    #[inline]
    pub fn in_copy_in(&self) -> bool {
        self.copy_in && !self.queue.has_copy_end()
    }
}

/// What all connections share.
#[derive(Default)]
pub struct Shared {
    pub now: u64,
    pub limits: EngineLimits,
    pub store: Store,
    pub params: Params,
    pub buffers: Buffers,
    pub touched: Vec<ConnId>,
    pub unnamed_made: u64,
}

/// What the relay's caller must do.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing; more bytes are needed.
    More,
    /// The server is free.
    Release,
    /// The client said Terminate.
    Leave,
    /// The client cannot go on.
    Fault(&'static str, String),
    /// The server cannot go on: its reason.
    Broken(&'static str),
    /// Both cannot: key for the client, reason for the server.
    Forbidden(&'static str, &'static str),
}

/// Client and server of one link, with all they touch.
pub struct Relay<'a> {
    pub cw: &'a mut Wire,
    pub client: &'a mut Client,
    pub sw: &'a mut Wire,
    pub server: &'a mut Server,
    pub pool: &'a mut Pool,
    pub shared: &'a mut Shared,
}

impl<'a> Relay<'a> {
    #[inline]
    pub fn new(
        slots: &'a mut Slots,
        pools: &'a mut Pools,
        shared: &'a mut Shared,
        client: ConnId,
        server: ConnId,
    ) -> Option<Self> {
        match slots.pair(client, server)? {
            (
                Conn {
                    wire: cw,
                    role: Role::Client(client),
                },
                Conn {
                    wire: sw,
                    role: Role::Server(server),
                },
            ) => {
                let pool = pools.get_mut(server.pool)?;
                Some(Self {
                    cw,
                    client,
                    sw,
                    server,
                    pool,
                    shared,
                })
            }
            _ => None,
        }
    }

    /// Statements are the link's concern: not in session mode.
    #[inline]
    pub fn pooled(&self) -> bool {
        self.pool.spec.mode != PoolMode::Session
    }

    /// Bytes for the server.
    #[inline]
    pub fn tell_server(&mut self, data: &[u8]) {
        self.sw
            .out(&mut self.shared.buffers)
            .extend_from_slice(data);
        self.sw.touch(&mut self.shared.touched);
    }

    /// Bytes for the client.
    #[inline]
    pub fn tell_client(&mut self, data: &[u8]) {
        if !data.is_empty() {
            self.cw
                .out(&mut self.shared.buffers)
                .extend_from_slice(data);
            self.cw.touch(&mut self.shared.touched);
        }
    }

    pub fn put_server(&mut self, kind: u8, parts: &[&[u8]]) {
        frames::put(self.sw.out(&mut self.shared.buffers), kind, parts);
        self.sw.touch(&mut self.shared.touched);
    }

    /// Clocks of a request that is about to enter the queue.
    #[inline]
    pub fn clock(&mut self) {
        let link = &mut self.server.link;
        if link.queue.is_empty() {
            link.query_start = Some(self.shared.now);
        }
        if link.status == b'I' && link.xact_start.is_none() {
            link.xact_start = Some(self.shared.now);
        }
        link.due = false;
    }

    /// A request that goes to the server.
    #[inline]
    pub fn ask(&mut self, kind: Kind, origin: Origin, act: Act) {
        self.clock();
        self.server.link.busy = true;
        self.server.link.queue.push(kind, origin, act);
    }

    /// A request the pooler answers itself when its turn comes.
    pub fn skip(&mut self, kind: Kind, act: Act) {
        self.clock();
        self.server.link.queue.push(kind, Origin::Skipped, act);
        self.settle();
    }

    /// Answers skipped requests and removes CopyEnds that have reached the head, at a message boundary.
    pub fn settle(&mut self) {
        if self.sw.stream.open() {
            return;
        }
        while self.server.link.queue.settles() {
            let Some(entry) = self.server.link.queue.pop() else {
                return;
            };
            match entry.kind {
                Kind::Parse => self.tell_client(b"1\0\0\0\x04"),
                Kind::Close => self.tell_client(b"3\0\0\0\x04"),
                _ => {}
            }
        }
    }

    /// Stops reading from the side that fills the other's output too fast.
    #[inline]
    pub fn throttle(&mut self) {
        if self.cw.backlog() > BACKLOG_HIGH && !self.sw.throttled {
            self.sw.throttled = true;
            self.sw.touch(&mut self.shared.touched);
        }
        if self.sw.backlog() > BACKLOG_HIGH && !self.cw.throttled {
            self.cw.throttled = true;
            self.cw.touch(&mut self.shared.touched);
        }
    }

    /// Everything a leaving client would have to wait for: the reason why the server cannot be kept, if any.
    pub fn unclean(&self) -> Option<&'static str> {
        let link = &self.server.link;
        let half = self.cw.stream.open() || self.sw.stream.left > 0 || !self.sw.pending.is_empty();
        if half || self.sw.backlog() > 0 {
            Some("client disconnect before everything was sent to the server")
        } else if !link.queue.is_empty() {
            Some("client disconnected with query in progress")
        } else if link.status != b'I' || link.busy || link.errored {
            Some("client disconnect while server was not ready")
        } else {
            None
        }
    }

    /// Extra names in a text may have been set by it: their values are unknown from now on.
    pub fn note_mentions(&mut self, text: &[u8]) {
        if self.server.unreported.is_empty() {
            return;
        }
        let unreported = mem::take(&mut self.server.unreported);
        let found: Vec<_> = self.shared.params.mentioned(&unreported, text).collect();
        self.server.unreported = unreported;
        for name in found {
            self.server.forget_value(name);
        }
    }

    /// A text too long to read counts as naming every extra parameter.
    pub fn mention_all(&mut self) {
        for at in 0..self.server.unreported.len() {
            let name = self.server.unreported[at];
            self.server.forget_value(name);
        }
    }
}
