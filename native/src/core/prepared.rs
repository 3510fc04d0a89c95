//! Prepared statements: the process-wide store, a client's names, a server's cache, and the SQL commands about them.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::rc::{Rc, Weak};

use rustc_hash::FxHashMap;

use super::reading::{self, Reading};

/// Parsed with the empty text, so that a DEALLOCATE of it has something to drop.
pub const VOID: &[u8] = b"PGBOUNCER_VOID";

/// A text with its parameter types, known to servers under one internal name.
#[derive(Debug)]
pub struct Statement {
    pub number: u64,
    /// `PGBOUNCER_<n>`
    pub name: Box<[u8]>,
    /// The Parse body behind the name: text, NUL, types.
    pub body: Box<[u8]>,
    /// How its text is read, on whatever server.
    pub reading: Reading,
    /// What its execution may change of how texts are read.
    pub changes: u8,
    /// The text is only DEALLOCATE ALL or DISCARD ALL.
    pub reset: bool,
    /// Some pool has another in its place, because the result type has changed.
    pub superseded: Cell<bool>,
}

/// Statements by exact bytes and how they are read. A statement lives as long as somebody uses it; afterwards its number is not used again.
#[derive(Default)]
pub struct Store {
    hasher: RandomState,
    by_hash: FxHashMap<u64, Vec<Weak<Statement>>>,
    made: u64,
    sweep_at: usize,
}

impl Store {
    pub fn statement(&mut self, body: &[u8], reading: &Reading) -> Rc<Statement> {
        let hash = self.hasher.hash_one((body, reading));
        let known = self.by_hash.get(&hash).into_iter().flatten();
        if let Some(found) = known
            .filter_map(Weak::upgrade)
            .find(|one| *one.body == *body && one.reading == *reading)
        {
            return found;
        }
        let statement = self.make(body, reading);
        if self.by_hash.len() >= self.sweep_at {
            self.sweep();
        }
        self.by_hash
            .entry(hash)
            .or_default()
            .push(Rc::downgrade(&statement));
        statement
    }

    /// One under a new name, which is not found by its text.
    pub fn make(&mut self, body: &[u8], reading: &Reading) -> Rc<Statement> {
        self.made += 1;
        let sql = sql_of(body);
        let name = format!("PGBOUNCER_{}", self.made).into_bytes().into();
        Rc::new(Statement {
            number: self.made,
            name,
            body: body.into(),
            reading: reading.clone(),
            changes: reading::changes(sql),
            reset: command(sql) == Some(Command::Reset),
            superseded: Cell::new(false),
        })
    }

    fn sweep(&mut self) {
        self.by_hash.retain(|_, same| {
            same.retain(|one| one.strong_count() > 0);
            !same.is_empty()
        });
        self.sweep_at = (self.by_hash.len() * 2).max(64);
    }

    pub fn len(&self) -> usize {
        self.by_hash.len()
    }
}

/// A client's map name -> statement; nothing is allocated while it is empty.
#[derive(Debug, Default)]
pub struct Names(Option<Box<NameMap>>);

type NameMap = HashMap<Box<[u8]>, Rc<Statement>>;

impl Names {
    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<&Rc<Statement>> {
        self.0.as_ref()?.get(name)
    }

    pub fn insert(&mut self, name: Box<[u8]>, statement: Rc<Statement>) {
        self.0.get_or_insert_default().insert(name, statement);
    }

    pub fn remove(&mut self, name: &[u8]) -> Option<Rc<Statement>> {
        let map = self.0.as_mut()?;
        let statement = map.remove(name);
        if map.is_empty() {
            self.0 = None;
        }
        statement
    }

    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |map| map.len())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Rc<Statement>)> {
        let map = self.0.iter().flat_map(|map| map.iter());
        map.map(|(name, statement)| (&**name, statement))
    }

    /// Every name of one statement gets another.
    pub fn replace(&mut self, old: &Rc<Statement>, new: &Rc<Statement>) {
        for statement in self.0.iter_mut().flat_map(|map| map.values_mut()) {
            if Rc::ptr_eq(statement, old) {
                *statement = new.clone();
            }
        }
    }

    /// Adds what is missing.
    pub fn restore(&mut self, old: Names) {
        for (name, statement) in old.0.into_iter().flat_map(|map| *map) {
            if self.get(&name).is_none() {
                self.insert(name, statement);
            }
        }
    }

    pub fn retain(&mut self, keep: impl Fn(&[u8]) -> bool) {
        if let Some(map) = &mut self.0 {
            map.retain(|name, _| keep(name));
            if map.is_empty() {
                self.0 = None;
            }
        }
    }
}

/// A statement on a server.
#[derive(Debug)]
pub struct Cached {
    pub statement: Rc<Statement>,
    used: i64,
    /// Must be closed and parsed again before its next use.
    pub stale: bool,
    /// Parses of it that wait in the queue.
    pub in_flight: u32,
    /// How many Syncs had been sent when the last of them was.
    pub epoch: u64,
    /// The client's name for which that last Parse was forwarded.
    pub owner: Option<Box<[u8]>>,
}

impl Cached {
    /// Its Parse may yet be skipped by an error in front of a Sync that has been sent.
    #[inline]
    pub fn uncertain(&self, syncs: u64) -> bool {
        self.in_flight > 0 && self.epoch != syncs
    }
}

/// A server's statements, least recently used first to go.
#[derive(Debug, Default)]
pub struct Cache {
    by_number: FxHashMap<u64, Cached>,
    newest: i64,
    oldest: i64,
}

impl Cache {
    pub fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Makes it the most recently used.
    #[inline]
    pub fn touch(&mut self, number: u64) -> Option<&mut Cached> {
        let cached = self.by_number.get_mut(&number)?;
        self.newest += 1;
        cached.used = self.newest;
        Some(cached)
    }

    /// A Parse of it has just been sent.
    pub fn parse_sent(&mut self, statement: &Rc<Statement>, epoch: u64, owner: Option<Box<[u8]>>) {
        self.newest += 1;
        let used = self.newest;
        let fresh = || Cached {
            statement: statement.clone(),
            used,
            stale: false,
            in_flight: 0,
            epoch,
            owner: None,
        };
        let cached = self.by_number.entry(statement.number).or_insert_with(fresh);
        cached.used = used;
        cached.stale = false;
        cached.in_flight += 1;
        cached.epoch = epoch;
        cached.owner = owner;
    }

    /// A Parse of it was answered.
    #[inline]
    pub fn parse_done(&mut self, number: u64) {
        if let Some(cached) = self.by_number.get_mut(&number) {
            cached.in_flight = cached.in_flight.saturating_sub(1);
        }
    }

    /// A Parse of it failed or was skipped.
    pub fn parse_undone(&mut self, number: u64) {
        if let Some(cached) = self.by_number.get_mut(&number) {
            cached.in_flight = cached.in_flight.saturating_sub(1);
            if cached.in_flight == 0 {
                self.by_number.remove(&number);
            }
        }
    }

    /// The server holds something else under this name.
    pub fn mark_stale(&mut self, statement: &Rc<Statement>) {
        self.give_back(statement, true);
        if let Some(cached) = self.by_number.get_mut(&statement.number) {
            cached.stale = true;
        }
    }

    pub fn remove(&mut self, number: u64) -> Option<Cached> {
        self.by_number.remove(&number)
    }

    /// Puts a statement back as the least recently used, unless it is there again.
    pub fn give_back(&mut self, statement: &Rc<Statement>, stale: bool) {
        self.oldest -= 1;
        let used = self.oldest;
        let fresh = || Cached {
            statement: statement.clone(),
            used,
            stale,
            in_flight: 0,
            epoch: 0,
            owner: None,
        };
        self.by_number.entry(statement.number).or_insert_with(fresh);
    }

    /// The one to close while the cache is larger than `limit`: the oldest whose Parse does not wait, else the oldest.
    pub fn surplus(&self, limit: usize) -> Option<u64> {
        if self.by_number.len() <= limit {
            return None;
        }
        let oldest = self
            .by_number
            .values()
            .min_by_key(|cached| (cached.in_flight > 0, cached.used))?;
        Some(oldest.statement.number)
    }

    /// Takes everything out; the clocks go on.
    pub fn set_aside(&mut self) -> Cache {
        Cache {
            by_number: std::mem::take(&mut self.by_number),
            newest: self.newest,
            oldest: self.oldest,
        }
    }

    /// Adds what is missing, older than everything here.
    pub fn restore(&mut self, old: Cache) {
        let mut entries: Vec<Cached> = old.by_number.into_values().collect();
        entries.sort_by_key(|cached| -cached.used);
        for cached in entries {
            self.oldest -= 1;
            let used = self.oldest;
            self.by_number
                .entry(cached.statement.number)
                .or_insert(Cached { used, ..cached });
        }
    }

    /// Forgets all but those whose Parse waits.
    pub fn clear_answered(&mut self) {
        self.by_number.retain(|_, cached| cached.in_flight > 0);
    }
}

/// The text of a Parse body.
pub fn sql_of(body: &[u8]) -> &[u8] {
    &body[..memchr::memchr(0, body).unwrap_or(body.len())]
}

/// A client's last unnamed Parse.
#[derive(Debug)]
pub struct Unnamed {
    /// What servers remember it by; never 0.
    pub id: u64,
    pub body: Box<[u8]>,
    pub command: Option<Command>,
    pub reading: Reading,
    pub changes: u8,
}

/// Both maps as they were before a reset that may fail.
#[derive(Debug, Default)]
pub struct Aside {
    pub names: Names,
    pub cache: Cache,
    pub void: bool,
}

/// A Parse of a name that is mapped already.
#[derive(Debug)]
pub struct Reparse {
    pub name: Box<[u8]>,
    pub existing: Rc<Statement>,
    pub body: Box<[u8]>,
    pub reading: Reading,
}

/// SQL that acts on prepared statements, when it is the whole text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// DEALLOCATE ALL or DISCARD ALL.
    Reset,
    /// DEALLOCATE of one name, folded as PostgreSQL does.
    Deallocate(Box<[u8]>),
}

/// Reads a whole SQL text as one of the commands; comments are not understood, and make it none.
#[inline]
pub fn command(sql: &[u8]) -> Option<Command> {
    let start = sql.iter().position(|byte| !is_space(*byte))?;
    if sql[start] | 0x20 != b'd' {
        return None;
    }
    command_at(&sql[start..])
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn command_at(sql: &[u8]) -> Option<Command> {
    let (verb, rest) = word(sql)?;
    if verb == b"discard" {
        let (what, rest) = word(rest)?;
        return (what == b"all" && ends(rest)).then_some(Command::Reset);
    }
    if verb != b"deallocate" {
        return None;
    }
    let (mut name, mut rest, mut quoted) = name_or_word(rest)?;
    if !quoted && name == b"prepare" && !ends(rest) {
        (name, rest, quoted) = name_or_word(rest)?;
    }
    if !ends(rest) {
        return None;
    }
    if !quoted && name == b"all" {
        return Some(Command::Reset);
    }
    Some(Command::Deallocate(name.into()))
}

/// One unquoted word in lower case, and what stands behind it.
fn word(sql: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let start = sql.iter().position(|byte| !is_space(*byte))?;
    let sql = &sql[start..];
    let in_word =
        |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80;
    let end = sql
        .iter()
        .position(|byte| !in_word(*byte))
        .unwrap_or(sql.len());
    let bad_first = sql[0].is_ascii_digit() || sql[0] == b'$';
    (end > 0 && !bad_first).then(|| (sql[..end].to_ascii_lowercase(), &sql[end..]))
}

fn name_or_word(sql: &[u8]) -> Option<(Vec<u8>, &[u8], bool)> {
    let start = sql.iter().position(|byte| !is_space(*byte))?;
    let sql = &sql[start..];
    if sql[0] != b'"' {
        return word(sql).map(|(name, rest)| (name, rest, false));
    }
    let mut name = Vec::new();
    let mut at = 1;
    loop {
        let byte = *sql.get(at)?;
        at += 1;
        if byte == b'"' {
            if sql.get(at) != Some(&b'"') {
                return (!name.is_empty()).then_some((name, &sql[at..], true));
            }
            at += 1;
        }
        name.push(byte);
    }
}

/// Only spaces and at most one semicolon.
fn ends(rest: &[u8]) -> bool {
    rest.iter().all(|byte| is_space(*byte) || *byte == b';')
        && rest.iter().filter(|byte| **byte == b';').count() <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the whole text, in any case and with one semicolon, is a reset.
    #[test]
    fn resets_are_recognised() {
        for sql in [
            "DEALLOCATE ALL",
            " deallocate\n prepare all ; ",
            "Discard All;",
        ] {
            assert_eq!(command(sql.as_bytes()), Some(Command::Reset), "{sql}");
        }
        for sql in [
            "DEALLOCATE ALL;;",
            "DISCARD ALL; SELECT 1",
            "DISCARD TEMP",
            "discardall",
            "",
            "d",
            "discard",
        ] {
            assert_eq!(command(sql.as_bytes()), None, "{sql}");
        }
    }

    /// Names are folded unless quoted.
    #[test]
    fn deallocate_names() {
        let name = |text: &str| Some(Command::Deallocate(text.as_bytes().into()));
        assert_eq!(command(b"DEALLOCATE PREPARE Foo;"), name("foo"));
        assert_eq!(command(b"deallocate \"A\"\"b\""), name("A\"b"));
        assert_eq!(command(b"deallocate \"all\""), name("all"));
        assert_eq!(command(b"deallocate prepare"), name("prepare"));
        assert_eq!(command(b"deallocate \"a"), None);
        assert_eq!(command(b"deallocate a b"), None);
        assert_eq!(command(b"deallocate 1"), None);
    }

    /// A statement keeps its number while it is used, and gets a new one afterwards.
    #[test]
    fn numbers_are_not_reused() {
        let mut store = Store::default();
        let one = store.statement(b"select 1\0\0\0", &Reading::default());
        assert!(Rc::ptr_eq(
            &one,
            &store.statement(b"select 1\0\0\0", &Reading::default())
        ));
        drop(one);
        assert_eq!(
            store
                .statement(b"select 1\0\0\0", &Reading::default())
                .number,
            2
        );
    }

    /// One text that is read in two ways is two statements.
    #[test]
    fn readings_are_kept_apart() {
        let mut store = Store::default();
        let reading = Reading {
            strict: b"on\0"[..].into(),
            ..Reading::default()
        };
        let one = store.statement(b"select '\\'\0\0\0", &reading);
        let other = store.statement(b"select '\\'\0\0\0", &Reading::default());
        assert_ne!(one.number, other.number);
        assert!(Rc::ptr_eq(
            &one,
            &store.statement(b"select '\\'\0\0\0", &reading)
        ));
    }

    /// The store forgets dead statements.
    #[test]
    fn the_store_is_swept() {
        let mut store = Store::default();
        for number in 0..1000 {
            store.statement(
                format!("select {number}\0\0\0").as_bytes(),
                &Reading::default(),
            );
        }
        assert!(store.len() <= 65);
    }

    /// The oldest goes first, but not one whose Parse waits while another is there.
    #[test]
    fn the_cache_evicts_the_oldest() {
        let mut store = Store::default();
        let all: Vec<_> = (0..3)
            .map(|n| store.statement(format!("select {n}\0\0\0").as_bytes(), &Reading::default()))
            .collect();
        let mut cache = Cache::default();
        for one in &all {
            cache.parse_sent(one, 0, None);
        }
        cache.parse_done(2);
        assert_eq!(cache.surplus(2), Some(2));
        cache.parse_done(1);
        assert_eq!(cache.surplus(2), Some(1));
        cache.touch(1);
        assert_eq!(cache.surplus(2), Some(2));
        assert_eq!(cache.surplus(3), None);
    }
}
