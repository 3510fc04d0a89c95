//! Prepared statements on a link: what is injected, rewritten, completed and undone.

use std::mem;
use std::rc::Rc;

use super::conn::UNNAMED_UNKNOWN;
use super::link::Relay;
use super::prepared::{command, sql_of, Aside, Command, Reparse, Statement, Unnamed, VOID};
use super::queue::{Act, Entry, Kind, Origin};
use super::reading::{self, Reading};

const DROP_VOID: &[u8] = b"DEALLOCATE \"PGBOUNCER_VOID\"\0";

impl Relay<'_> {
    /// The statement behind a client's name, while tracking is on.
    #[inline]
    pub fn tracked(&self, name: &[u8]) -> Option<Rc<Statement>> {
        if self.pool.tracking() {
            self.client.names.get(name).cloned()
        } else {
            None
        }
    }

    pub fn parse_named(&mut self, name: &[u8], rest: &[u8]) {
        self.pool.stats.client_parse_count += 1;
        if let Some(existing) = self.client.names.get(name).cloned() {
            let reading = self.reading(rest);
            let existing = self.ensure(existing, b"");
            self.pool.stats.server_parse_count += 1;
            self.put_server(b'P', &[&existing.name, b"\0", rest]);
            let reparse = Reparse {
                name: name.into(),
                existing,
                body: rest.into(),
                reading,
            };
            self.ask(
                Kind::Parse,
                Origin::Forwarded,
                Act::Reparse(Box::new(reparse)),
            );
            return;
        }
        let reading = self.reading(rest);
        let statement = self.read(rest, &reading);
        self.client.names.insert(name.into(), statement.clone());
        let syncs = self.server.link.syncs;
        let act = Act::Mapped {
            name: name.into(),
            statement: statement.clone(),
        };
        match self.server.cache.touch(statement.number) {
            Some(cached) if !cached.stale && !cached.uncertain(syncs) => {
                return self.skip(Kind::Parse, act)
            }
            Some(_) => self.inject_close_stale(&statement),
            None => {}
        }
        self.pool.stats.server_parse_count += 1;
        self.put_server(b'P', &[&statement.name, b"\0", rest]);
        self.ask(Kind::Parse, Origin::Forwarded, act);
        self.server
            .cache
            .parse_sent(&statement, syncs, Some(name.into()));
        self.evict_surplus();
    }

    /// Sees to it that the server has the statement, or the one to be used in its place; `own` is the client's name
    /// that is being used.
    #[inline]
    pub fn ensure(&mut self, statement: Rc<Statement>, own: &[u8]) -> Rc<Statement> {
        if self.usable(&statement, own) {
            return statement;
        }
        self.prepare(statement, own)
    }

    /// The server surely has the statement when the next request reaches it; it becomes the newest.
    #[inline]
    fn usable(&mut self, statement: &Statement, own: &[u8]) -> bool {
        let syncs = self.server.link.syncs;
        let Some(cached) = self.server.cache.touch(statement.number) else {
            return false;
        };
        let owned = !own.is_empty() && cached.owner.as_deref() == Some(own);
        !cached.stale && (!cached.uncertain(syncs) || owned)
    }

    /// Parses a statement here, if it would be read as it was; else another one, or none.
    #[cold]
    fn prepare(&mut self, statement: Rc<Statement>, own: &[u8]) -> Rc<Statement> {
        let present = self.reading(&statement.body);
        if present == statement.reading && present.is_sure() {
            self.inject_parse(&statement);
            return statement;
        }
        if !own.is_empty() && !statement.reading.has_words_of(&present) {
            // In other words it would be another text: the server shall say that it has no such statement.
            if let Some(cached) = self.server.cache.remove(statement.number) {
                self.inject_close(cached.statement, true);
            }
            return statement;
        }
        let newer = self.read(&statement.body, &present);
        if !own.is_empty() {
            self.client.names.insert(own.into(), newer.clone());
        }
        if !self.usable(&newer, own) {
            self.inject_parse(&newer);
        }
        newer
    }

    /// How this server would read the text of a Parse body now.
    #[inline]
    fn reading(&self, body: &[u8]) -> Reading {
        Reading::of(
            &self.shared.params,
            self.server.params.as_deref(),
            self.server.link.unsure.now,
            sql_of(body),
        )
    }

    fn inject_parse(&mut self, statement: &Rc<Statement>) {
        if self.server.cache.touch(statement.number).is_some() {
            self.inject_close_stale(statement);
        }
        self.pool.stats.server_parse_count += 1;
        self.put_server(b'P', &[&statement.name, b"\0", &statement.body]);
        self.ask(
            Kind::Parse,
            Origin::Injected,
            Act::Cached(statement.clone()),
        );
        self.server
            .cache
            .parse_sent(statement, self.server.link.syncs, None);
        self.evict_surplus();
    }

    /// Closes what is about to be parsed again. Its cache entry stays; undone, it is not trusted.
    fn inject_close_stale(&mut self, statement: &Rc<Statement>) {
        self.inject_close(statement.clone(), true);
    }

    fn inject_close(&mut self, statement: Rc<Statement>, stale: bool) {
        self.put_server(b'C', &[b"S", &statement.name, b"\0"]);
        self.ask(
            Kind::Close,
            Origin::Injected,
            Act::Evicted { statement, stale },
        );
    }

    fn evict_surplus(&mut self) {
        while let Some(number) = self
            .server
            .cache
            .surplus(self.pool.spec.max_prepared_statements)
        {
            let Some(old) = self.server.cache.remove(number) else {
                return;
            };
            self.inject_close(old.statement, old.stale || old.in_flight > 0);
        }
    }

    // ---- the unnamed statement

    pub fn parse_unnamed(&mut self, sql: &[u8], types: &[u8], rest: &[u8]) {
        let mut special = if self.pool.tracking() {
            command(sql)
        } else {
            None
        };
        let mut body: Box<[u8]> = Box::default();
        match &special {
            Some(Command::Deallocate(name)) if self.client.names.get(name).is_some() => {
                body = [DROP_VOID, types].concat().into();
            }
            Some(Command::Deallocate(_)) => special = None,
            _ => {}
        }
        let text = if body.is_empty() { rest } else { &body };
        let reading = self.reading(text);
        let copy = match &self.client.unnamed {
            Some(copy)
                if self.server.link.unnamed_in_flight == 0
                    && *copy.body == *text
                    && copy.reading == reading
                    && reading.is_sure() =>
            {
                copy.clone()
            }
            _ => {
                self.shared.unnamed_made += 1;
                let id = self.shared.unnamed_made;
                Rc::new(Unnamed {
                    id,
                    body: text.into(),
                    command: special,
                    reading,
                    changes: reading::changes(sql_of(text)),
                })
            }
        };
        self.put_server(b'P', &[b"\0", text]);
        let id = copy.id;
        let before = self.client.unnamed.replace(copy);
        let mark_before = mem::replace(&mut self.server.unnamed, id);
        self.unnamed_sent();
        self.ask(
            Kind::Parse,
            Origin::Forwarded,
            Act::Unnamed {
                id,
                before,
                mark_before,
            },
        );
    }

    fn unnamed_sent(&mut self) {
        self.server.link.unnamed_in_flight += 1;
        self.server.link.unnamed_epoch = self.server.link.syncs;
    }

    /// Sees to it that the server's unnamed statement is this client's, or none.
    #[inline]
    pub fn ensure_unnamed(&mut self) {
        let link = &self.server.link;
        let uncertain = link.unnamed_in_flight > 0 && link.unnamed_epoch != link.syncs;
        let held = self.server.unnamed;
        match self.client.unnamed.clone() {
            Some(copy) if held == copy.id && !uncertain => {}
            Some(copy) if self.is_readable(&copy) => {
                self.put_server(b'P', &[b"\0", &copy.body]);
                let mark_before = mem::replace(&mut self.server.unnamed, copy.id);
                self.unnamed_sent();
                self.ask(
                    Kind::Parse,
                    Origin::Injected,
                    Act::UnnamedInjected {
                        id: copy.id,
                        mark_before,
                    },
                );
            }
            _ if held != 0 => {
                self.put_server(b'C', &[b"S\0"]);
                self.server.unnamed = 0;
                let act = Act::UnnamedClosed {
                    before: None,
                    mark_before: held,
                };
                self.ask(Kind::Close, Origin::Injected, act);
            }
            _ => {}
        }
    }

    /// The server would find the same words in it.
    fn is_readable(&self, copy: &Unnamed) -> bool {
        copy.reading.is_plain() || copy.reading.has_words_of(&self.reading(&copy.body))
    }

    /// A simple Query ends the unnamed statement, if the server gets to look at it.
    #[inline]
    pub fn query_drops_unnamed(&mut self) {
        self.client.unnamed = None;
        if self.server.unnamed != 0 {
            let skippable = !self.server.link.queue.is_empty();
            self.server.unnamed = if skippable { UNNAMED_UNKNOWN } else { 0 };
        }
    }

    pub fn drop_unnamed(&mut self) -> Act {
        let mark_before = mem::take(&mut self.server.unnamed);
        Act::UnnamedClosed {
            before: self.client.unnamed.take(),
            mark_before,
        }
    }

    // ---- DEALLOCATE and DISCARD

    /// Both maps, taken out ahead of a reset's answer.
    pub fn set_aside(&mut self) -> Aside {
        Aside {
            names: mem::take(&mut self.client.names),
            cache: self.server.cache.set_aside(),
            void: mem::take(&mut self.server.has_void),
        }
    }

    pub fn ensure_void(&mut self) {
        if !self.server.has_void {
            self.put_server(b'P', &[VOID, b"\0\0\0\0"]);
            self.ask(Kind::Parse, Origin::Injected, Act::Void);
        }
        self.server.has_void = false;
    }

    pub fn deallocate_query(&mut self, name: Box<[u8]>) {
        self.ensure_void();
        self.put_server(b'Q', &[DROP_VOID]);
        self.ask(Kind::Query, Origin::Forwarded, Act::Deallocate(name));
    }

    /// CommandComplete of a Query or Execute.
    pub fn tag(&mut self, tag: &[u8]) {
        match tag {
            b"DISCARD ALL\0" => {
                self.server.forget_ours();
                self.reset_done();
            }
            b"DEALLOCATE ALL\0" => self.reset_done(),
            b"DEALLOCATE\0" => {
                let head = self.server.link.queue.head_mut();
                if let Some(Entry {
                    act: act @ Act::Deallocate(_),
                    ..
                }) = head
                {
                    if let Act::Deallocate(name) = mem::replace(act, Act::None) {
                        self.client.names.remove(&name);
                    }
                }
            }
            _ => {}
        }
    }

    fn reset_done(&mut self) {
        let queue = &mut self.server.link.queue;
        let ahead = queue.head_mut().is_some_and(|head| {
            let ahead = matches!(head.act, Act::Reset(_));
            head.act = Act::None;
            ahead
        });
        let mut added: Vec<&[u8]> = Vec::new();
        let mut void = false;
        for entry in queue.iter_mut().skip(1) {
            if matches!(entry.act, Act::Unmapped { .. } | Act::Evicted { .. }) {
                entry.act = Act::None;
            }
            match &entry.act {
                Act::Mapped { name, .. } => added.push(name),
                Act::Void => void = true,
                _ => {}
            }
        }
        if !ahead {
            self.client.names.retain(|name| added.contains(&name));
            self.server.cache.clear_answered();
            self.server.has_void &= void;
        }
    }

    // ---- how requests end

    /// A request ended as it should.
    #[inline]
    pub fn complete(&mut self, entry: Entry) {
        match entry.act {
            Act::Mapped { statement, .. } | Act::Cached(statement) => {
                self.server.cache.parse_done(statement.number)
            }
            Act::Unnamed { .. } | Act::UnnamedInjected { .. } => self.unnamed_answered(),
            Act::Reparse(reparse) => {
                if self.client.names.get(&reparse.name).is_none() {
                    let statement = self.read(&reparse.body, &reparse.reading);
                    self.client.names.insert(reparse.name, statement);
                }
                self.server.cache.mark_stale(&reparse.existing);
            }
            _ => {}
        }
    }

    fn unnamed_answered(&mut self) {
        let link = &mut self.server.link;
        link.unnamed_in_flight = link.unnamed_in_flight.saturating_sub(1);
    }

    /// Takes back what reading the request changed; `failed` = its own error, not that of one before it.
    pub fn undo(&mut self, entry: Entry, failed: bool) {
        match entry.act {
            Act::None | Act::Uses(_) | Act::Reparse(_) => {}
            Act::Mapped { name, statement } => {
                if self
                    .client
                    .names
                    .get(&name)
                    .is_some_and(|mapped| Rc::ptr_eq(mapped, &statement))
                {
                    self.client.names.remove(&name);
                }
                if entry.origin == Origin::Forwarded {
                    self.server.cache.parse_undone(statement.number);
                }
            }
            Act::Cached(statement) => self.server.cache.parse_undone(statement.number),
            Act::Unnamed {
                id,
                before,
                mark_before,
            } => {
                self.unnamed_answered();
                if self
                    .client
                    .unnamed
                    .as_ref()
                    .is_some_and(|copy| copy.id == id)
                {
                    self.client.unnamed = if failed { None } else { before };
                }
                self.take_mark_back(id, mark_before, failed);
            }
            Act::UnnamedInjected { id, mark_before } => {
                self.unnamed_answered();
                self.take_mark_back(id, mark_before, failed);
            }
            Act::UnnamedClosed {
                before,
                mark_before,
            } => {
                if self.client.unnamed.is_none() {
                    self.client.unnamed = before;
                }
                self.take_mark_back(0, mark_before, failed);
            }
            Act::Unmapped { name, statement } => {
                if self.client.names.get(&name).is_none() {
                    self.client.names.insert(name, statement);
                }
            }
            Act::Evicted { statement, stale } => self.server.cache.give_back(&statement, stale),
            Act::Reset(aside) => {
                self.client.names.restore(aside.names);
                self.server.cache.restore(aside.cache);
                self.server.has_void |= aside.void;
            }
            Act::Deallocate(_) => self.server.has_void = true,
            Act::Void => self.server.has_void = false,
        }
    }

    fn take_mark_back(&mut self, id: u64, mark_before: u64, failed: bool) {
        if self.server.unnamed == id {
            self.server.unnamed = if failed { 0 } else { mark_before };
        }
    }
}
