//! A client on its way to another process: what must hold before it goes, and the state that goes with it.

use std::rc::Rc;

use super::conn::{Client, Gate, Mode, Role};
use super::frames;
use super::prepared::{sql_of, Command, Names, Unnamed};
use super::reading::{self, Reading};
use super::types::{ConnId, CoreEvent, PoolMode, Verb, VerbError};
use super::Core;

/// What the state begins with; the last byte is its version.
const MAGIC: &[u8] = b"PGSM\x02";

const PLAIN: u8 = 1;
const RESET: u8 = 2;
const DEALLOCATE: u8 = 3;

type Block = Box<[u8]>;

impl Core {
    /// Begins to move a client, at once or at its next release; false if that cannot be.
    pub fn emigrate(&mut self, id: ConnId) -> Verb<bool> {
        let conn = self.slots.get_mut(id).ok_or(VerbError::Dead)?;
        let (mode, Role::Client(client)) = (conn.wire.mode, &mut conn.role) else {
            return Err(VerbError::Mode("not a client"));
        };
        match mode {
            Mode::Closing => return Err(VerbError::Dead),
            Mode::Moving => return Ok(true),
            Mode::Parked | Mode::Waiting => {}
            Mode::Linked | Mode::Linking => {
                let pool = self.pools.get(client.pool);
                client.leaving = pool.is_some_and(|pool| pool.spec.mode != PoolMode::Session);
                return Ok(client.leaving);
            }
            _ => return Ok(false),
        }
        self.set_mode(id, Mode::Moving);
        Ok(true)
    }

    /// A client was released: it goes now if it is to go.
    #[inline]
    pub(super) fn depart(&mut self, id: ConnId) {
        if self
            .slots
            .client(id)
            .is_some_and(|(_, client)| client.leaving)
        {
            self.set_mode(id, Mode::Moving);
        }
    }

    /// Nothing more is read; once all is sent, the driver takes the socket away and calls `moved`.
    pub fn is_moving(&self, id: ConnId) -> bool {
        self.slots
            .get(id)
            .is_some_and(|conn| conn.wire.mode == Mode::Moving)
    }

    /// The socket is Python's now.
    pub fn moved(&mut self, id: ConnId, fd: i32) {
        let state = self.state_of(id);
        self.events.push(CoreEvent::Moved {
            conn: id,
            fd,
            state,
        });
        self.gone(id);
    }

    fn state_of(&self, id: ConnId) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let Some(conn) = self.slots.get(id) else {
            return out;
        };
        let Role::Client(client) = &conn.role else {
            return out;
        };
        put_number(&mut out, conn.wire.stream.left);
        let params = self.shared.params.listing(client.params.as_deref(), &[]);
        put_number(&mut out, params.len() as u32);
        for (name, value) in &params {
            put_block(&mut out, name);
            put_block(&mut out, value);
        }
        let mut names: Vec<_> = client.names.iter().collect();
        names.sort_unstable_by_key(|(name, _)| *name);
        put_number(&mut out, names.len() as u32);
        for (name, statement) in names {
            put_block(&mut out, name);
            put_block(&mut out, &statement.body);
            put_reading(&mut out, &statement.reading);
        }
        put_unnamed(&mut out, client.unnamed.as_deref());
        put_block(&mut out, &conn.wire.pending);
        out
    }

    /// A client that comes from elsewhere, in dialogue; None if the state is not one.
    pub fn immigrate(&mut self, listener: u64, state: &[u8]) -> Option<ConnId> {
        let state = read_state(state)?;
        let mut client = Client::new(listener);
        client.gate = Gate::Shut;
        client.announced = true;
        client.params = Some(self.shared.params.set_of(&state.params));
        client.names = Names::default();
        for (name, body, reading) in state.names {
            let store = &mut self.shared.store;
            let statement = if reading.is_sure() {
                store.statement(&body, &reading)
            } else {
                store.make(&body, &reading)
            };
            client.names.insert(name, statement);
        }
        client.unnamed = state.unnamed.map(|(body, reading, command)| {
            self.shared.unnamed_made += 1;
            Rc::new(Unnamed {
                id: self.shared.unnamed_made,
                changes: reading::changes(sql_of(&body)),
                body,
                command,
                reading,
            })
        });
        let id = self.slots.add(Role::Client(client), self.shared.now);
        let (wire, _) = self.slots.client(id)?;
        wire.stream.left = state.left;
        wire.pending.extend_from_slice(state.unread);
        self.touch(id);
        Some(id)
    }
}

struct State<'a> {
    left: u32,
    params: Vec<(Block, Block)>,
    names: Vec<(Block, Block, Reading)>,
    unnamed: Option<(Block, Reading, Option<Command>)>,
    unread: &'a [u8],
}

fn put_number(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn put_block(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

fn put_reading(out: &mut Vec<u8>, reading: &Reading) {
    put_block(out, &reading.strict);
    put_block(out, &reading.dates);
}

fn put_unnamed(out: &mut Vec<u8>, unnamed: Option<&Unnamed>) {
    let Some(unnamed) = unnamed else {
        return out.push(0);
    };
    out.push(match &unnamed.command {
        None => PLAIN,
        Some(Command::Reset) => RESET,
        Some(Command::Deallocate(_)) => DEALLOCATE,
    });
    put_block(out, &unnamed.body);
    put_reading(out, &unnamed.reading);
    if let Some(Command::Deallocate(name)) = &unnamed.command {
        put_block(out, name);
    }
}

fn read_state(state: &[u8]) -> Option<State<'_>> {
    let mut rest = state.strip_prefix(MAGIC)?;
    let rest = &mut rest;
    let left = number(rest)?;
    let params = pairs(rest)?;
    let mut names: Vec<(Block, Block, Reading)> = Vec::new();
    for _ in 0..number(rest)? {
        names.push((block(rest)?.into(), block(rest)?.into(), reading(rest)?));
    }
    if !names.iter().all(|(_, body, _)| is_statement(body)) {
        return None;
    }
    let kind;
    (kind, *rest) = (*rest.first()?, &rest[1..]);
    let unnamed = match kind {
        0 => None,
        PLAIN | RESET | DEALLOCATE => {
            let body: Block = block(rest)?.into();
            let reading = reading(rest)?;
            let command = match kind {
                PLAIN => None,
                RESET => Some(Command::Reset),
                _ => Some(Command::Deallocate(block(rest)?.into())),
            };
            Some((body, reading, command)).filter(|(body, _, _)| is_statement(body))
        }
        _ => return None,
    };
    if kind != 0 && unnamed.is_none() {
        return None;
    }
    let unread = block(rest)?;
    rest.is_empty().then_some(State {
        left,
        params,
        names,
        unnamed,
        unread,
    })
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let (head, tail) = rest.split_first_chunk::<4>()?;
    *rest = tail;
    Some(u32::from_be_bytes(*head))
}

fn block<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = number(rest)? as usize;
    let found = rest.get(..length)?;
    *rest = &rest[length..];
    Some(found)
}

fn reading(rest: &mut &[u8]) -> Option<Reading> {
    Some(Reading {
        strict: block(rest)?.into(),
        dates: block(rest)?.into(),
    })
}

fn pairs(rest: &mut &[u8]) -> Option<Vec<(Block, Block)>> {
    let count = number(rest)?;
    let mut found = Vec::new();
    for _ in 0..count {
        found.push((block(rest)?.into(), block(rest)?.into()));
    }
    Some(found)
}

/// A text, its end, and as many types as it says.
fn is_statement(body: &[u8]) -> bool {
    let Some((_, types)) = frames::text(body) else {
        return false;
    };
    let count = types
        .first_chunk::<2>()
        .map(|count| usize::from(u16::from_be_bytes(*count)));
    count.is_some_and(|count| types.len() == 2 + 4 * count)
}
