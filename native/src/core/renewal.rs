//! Statements whose result type has changed: what takes their place, and the one batch that is sent again.

use std::rc::{Rc, Weak};

use rustc_hash::FxHashMap;

use super::frames::{self, HEADER, PEEK_LIMIT};
use super::link::Relay;
use super::prepared::Statement;
use super::queue::{Act, Kind, Origin};
use super::reading::Reading;

/// A batch that may have to be sent again is kept up to this length.
const BATCH_MAX: usize = 8 * 1024;
const WORDS: &[u8] = b"cached plan must not change result type";
/// Where PostgreSQL says so. The words may be translated, the name of the function never is.
const ROUTINE: &[u8] = b"RevalidateCachedQuery";
const SYNC: &[u8] = b"S\0\0\0\x04";
/// Types that PostgreSQL chooses itself, anew at each Parse: unspecified, and `unknown`.
const CHOSEN: [u32; 2] = [0, 705];

/// True for the error by which a statement is known to have another result type now.
pub fn is_changed(body: &[u8]) -> bool {
    frames::error_field(body, b'C') == Some(b"0A000")
        && (frames::error_field(body, b'R') == Some(ROUTINE)
            || frames::error_field(body, b'M') == Some(WORDS))
}

/// A pool's statements whose result type has changed, by number, and those that took their place.
#[derive(Default)]
pub struct Heirs(FxHashMap<u64, (Weak<Statement>, Rc<Statement>)>);

impl Heirs {
    fn of(&self, own: &Rc<Statement>) -> Rc<Statement> {
        match self.0.get(&own.number) {
            Some((_, heir)) => heir.clone(),
            None => own.clone(),
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    fn set(&mut self, own: &Rc<Statement>, heir: &Rc<Statement>) {
        self.0.retain(|_, (own, _)| own.strong_count() > 0);
        let pair = (Rc::downgrade(own), heir.clone());
        self.0.insert(own.number, pair);
    }
}

/// What the client sent since its Bind, as long as it may have to be sent again.
#[derive(Default)]
pub struct Batch {
    open: bool,
    copy: Vec<u8>,
    /// The error that came in place of an answer, not passed on yet.
    withheld: Option<Box<[u8]>>,
}

impl Batch {
    #[inline]
    pub fn close(&mut self) {
        self.open = false;
    }

    /// As at the start of a link; the copy keeps its room.
    #[inline]
    pub fn begin(&mut self) {
        self.open = false;
        self.withheld = None;
    }

    #[inline]
    pub fn withholds(&self) -> bool {
        self.withheld.is_some()
    }

    /// The batch goes on.
    #[inline]
    pub fn note(&mut self, piece: &[u8]) {
        if self.open {
            self.open = self.copy.len() + piece.len() <= BATCH_MAX;
            if self.open {
                self.copy.extend_from_slice(piece);
            }
        }
    }

    /// A message of the client is about to be handled: most end what may be sent again.
    #[inline]
    pub fn message(&mut self, kind: u8, whole: bool, data: &[u8]) {
        if !self.open {
            return;
        }
        match kind {
            b'S' => self.note(data),
            b'E' if whole && data.len() <= PEEK_LIMIT + 1 => self.note(data),
            b'D' if data.get(HEADER) == Some(&b'P') => self.note(data),
            _ => self.open = false,
        }
    }
}

/// The pieces of a Bind, which is there as a whole: portal, name, where the names end, its end.
fn bind_parts(data: &[u8]) -> Option<(&[u8], &[u8], usize, usize)> {
    let (_, length) = frames::header(data)?;
    let total = length as usize + 1;
    let (portal, rest) = frames::text(data.get(HEADER..total)?)?;
    let (name, rest) = frames::text(rest)?;
    Some((portal, name, total - rest.len(), total))
}

fn count(data: &mut &[u8]) -> Option<usize> {
    let (head, rest) = data.split_first_chunk::<2>()?;
    *data = rest;
    Some(usize::from(u16::from_be_bytes(*head)))
}

/// A Bind that means the same whatever the columns are now. `bind` is what stands behind its names.
///
/// The types of its parameters were given with the text, so PostgreSQL chooses none anew, and no column has a format
/// of its own.
fn is_free(mut bind: &[u8], statement: &Statement) -> bool {
    let rest = &mut bind;
    let mut walk = || {
        let formats = count(rest)?;
        *rest = rest.get(2 * formats..)?;
        let values = count(rest)?;
        for _ in 0..values {
            let (head, tail) = rest.split_first_chunk::<4>()?;
            let length = i32::from_be_bytes(*head).max(0) as usize;
            *rest = tail.get(length..)?;
        }
        let formats = count(rest)?;
        (formats <= 1 && rest.len() == 2 * formats).then_some(values)
    };
    let Some(values) = walk() else {
        return false;
    };
    let types = frames::text(&statement.body).map_or(&[][..], |(_, types)| types);
    let given: Vec<u32> = types
        .get(2..)
        .unwrap_or_default()
        .chunks_exact(4)
        .map(|oid| u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]]))
        .take(values)
        .collect();
    given.len() == values && !given.iter().any(|oid| CHOSEN.contains(oid))
}

/// Describe of a portal.
fn describe(portal: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frames::put(&mut out, b'D', &[b"P", portal, b"\0"]);
    out
}

/// The batch is Bind, Describe and Execute of one portal, and Sync; and its Bind may use any plan.
fn is_whole(batch: &[u8], statement: &Statement) -> bool {
    let Some((portal, _, used, total)) = bind_parts(batch) else {
        return false;
    };
    let mut wanted = describe(portal);
    let rest = &batch[total..];
    let rows = rest.len().checked_sub(9).map(|at| &rest[at..at + 4]);
    let Some(rows) = rows else {
        return false;
    };
    frames::put(&mut wanted, b'E', &[portal, b"\0", rows]);
    wanted.extend_from_slice(SYNC);
    rest == wanted && is_free(&batch[used..total], statement)
}

impl Relay<'_> {
    /// The statement that stands for a text in this pool.
    fn current(&mut self, body: &[u8], reading: &Reading) -> Rc<Statement> {
        let own = self.shared.store.statement(body, reading);
        self.pool.heirs.of(&own)
    }

    /// The statement of a text that is read so; one that nobody else gets if that is not known.
    pub fn read(&mut self, body: &[u8], reading: &Reading) -> Rc<Statement> {
        if reading.is_sure() {
            self.current(body, reading)
        } else {
            self.shared.store.make(body, reading)
        }
    }

    /// Whoever prepares the text from now on gets another statement; so does this client, which has been told.
    pub fn supersede(&mut self, old: &Rc<Statement>) {
        if !old.reading.is_sure() {
            let heir = self.shared.store.make(&old.body, &old.reading);
            return self.client.names.replace(old, &heir);
        }
        old.superseded.set(true);
        let own = self.shared.store.statement(&old.body, &old.reading);
        let mut heir = self.pool.heirs.of(&own);
        if Rc::ptr_eq(&heir, old) {
            heir = self.shared.store.make(&old.body, &old.reading);
            self.pool.heirs.set(&own, &heir);
        }
        self.client.names.replace(old, &heir);
    }

    /// The client is about to learn what its statement returns now: it may as well have the newest.
    #[cold]
    pub fn renew(&mut self, name: &[u8], old: &Statement) -> Rc<Statement> {
        let heir = self.current(&old.body, &old.reading);
        self.client.names.insert(name.into(), heir.clone());
        heir
    }

    /// In a transaction an error would be its end: a Bind with a Describe of its portal behind it gets the newest.
    ///
    /// None: more must be seen first. `data` begins with the Bind.
    #[cold]
    pub fn renewed(
        &mut self,
        data: &[u8],
        total: usize,
        name: &[u8],
        statement: Rc<Statement>,
    ) -> Option<Rc<Statement>> {
        if self.server.link.status != b'T' || total > BATCH_MAX {
            return Some(statement);
        }
        let (portal, _, used, _) = bind_parts(data)?;
        let wanted = describe(portal);
        let seen = &data[total..data.len().min(total + wanted.len())];
        if seen == wanted && is_free(&data[used..total], &statement) {
            return Some(self.renew(name, &statement));
        }
        (seen == wanted || !wanted.starts_with(seen)).then_some(statement)
    }

    /// A Bind of a statement has joined the queue; `alone` says that nothing stood or ran before it.
    #[inline]
    pub fn open_batch(&mut self, alone: bool, head: &[u8], total: usize) {
        let link = &mut self.server.link;
        let open = alone && total <= BATCH_MAX && link.queue.len() == 1;
        link.batch.open = open;
        if open {
            link.batch.copy.clear();
            link.batch.copy.extend_from_slice(head);
        }
    }

    /// At the error of a request: the client need not see it, because its whole batch can be sent again.
    pub fn withhold(&mut self, statement: &Statement, body: &[u8]) -> bool {
        const BATCH: [Kind; 4] = [Kind::Bind, Kind::DescribePortal, Kind::Execute, Kind::Sync];
        let link = &mut self.server.link;
        let fits = link.batch.open
            && !self.cw.stream.open()
            && link.queue.len() == BATCH.len()
            && BATCH.iter().enumerate().all(|(at, kind)| {
                let entry = link.queue.get(at);
                entry.is_some_and(|one| one.kind == *kind && one.origin == Origin::Forwarded)
            })
            && is_whole(&link.batch.copy, statement);
        if fits {
            let mut error = Vec::new();
            frames::put(&mut error, b'E', &[body]);
            link.batch.withheld = Some(error.into());
        }
        fits
    }

    /// ReadyForQuery after a withheld error: true if the batch goes out anew, else the client gets the error after all.
    pub fn again(&mut self, status: u8) -> bool {
        let link = &mut self.server.link;
        let withheld = link.batch.withheld.take().unwrap_or_default();
        let copy = std::mem::take(&mut link.batch.copy);
        let open = std::mem::take(&mut link.batch.open);
        let ready = open && status == b'I' && link.queue.len() == 1 && !self.cw.stream.open();
        let sent = ready && self.send_again(&copy);
        if !sent {
            self.tell_client(&withheld);
        }
        self.server.link.batch.copy = copy;
        sent
    }

    fn send_again(&mut self, batch: &[u8]) -> bool {
        let Some((portal, name, used, total)) = bind_parts(batch) else {
            return false;
        };
        let Some(statement) = self.client.names.get(name).cloned() else {
            return false;
        };
        // The clock of the query goes on.
        let started = self.server.link.query_start;
        self.server.link.queue.pop();
        let statement = self.ensure(statement, name);
        let bind = [portal, b"\0", &statement.name, b"\0", &batch[used..total]];
        self.put_server(b'B', &bind);
        self.ask(Kind::Bind, Origin::Forwarded, Act::Uses(statement));
        self.tell_server(&batch[total..]);
        for kind in [Kind::DescribePortal, Kind::Execute, Kind::Sync] {
            self.ask(kind, Origin::Forwarded, Act::None);
        }
        self.server.link.syncs += 1;
        self.server.link.query_start = started;
        true
    }
}
