//! What a server sends while linked: each message is held against the head of the queue.

use std::mem;

use super::frames::{self, COLLECT_LIMIT, HEADER};
use super::link::{Relay, Turn};
use super::queue::{Act, Entry, Kind, Origin};
use super::renewal;
use super::types::PoolMode;

pub const BAD_HEADER: &str = "bad pkt header";
pub const UNKNOWN: &str = "unknown pkt from server";
const BLOCKS_REFUSED: &str = "transaction blocks not allowed in statement pooling mode";

/// What happens to one message.
enum Verdict {
    Pass,
    Swallow,
    /// ReadyForQuery, with this status: passed, and the link may be over.
    Ready(u8),
    /// Not passed.
    Stop(Turn),
}

/// How a message stands to the head of the queue.
#[derive(PartialEq, Eq)]
enum Fit {
    Passes,
    Ends,
    No,
}

/// The table of docs/topics/link.md; N, A, S and E are dealt with before it.
#[inline]
fn fit(head: Kind, kind: u8, described: bool) -> Fit {
    let (passes, ends) = match head {
        Kind::Query => (
            !matches!(kind, b'1' | b'2' | b'3' | b'n' | b't' | b's'),
            kind == b'Z',
        ),
        Kind::Execute => (
            matches!(kind, b'D' | b'G' | b'H' | b'W' | b'd' | b'c'),
            matches!(kind, b'C' | b'I' | b's'),
        ),
        Kind::Sync => (false, kind == b'Z'),
        Kind::Bind => (false, kind == b'2'),
        Kind::Parse => (false, kind == b'1'),
        Kind::Close => (false, kind == b'3'),
        Kind::DescribeStatement => (kind == b't', described && matches!(kind, b'T' | b'n')),
        Kind::DescribePortal => (false, matches!(kind, b'T' | b'n')),
        Kind::FunctionCall => (kind == b'V', kind == b'Z'),
        Kind::CopyEnd => (false, false),
    };
    match (ends, passes) {
        (true, _) => Fit::Ends,
        (false, true) => Fit::Passes,
        (false, false) => Fit::No,
    }
}

/// Messages that are decided on only when they are there to the last byte.
#[inline]
pub fn collected(kind: u8, total: usize) -> bool {
    match kind {
        b'C' | b'S' | b'Z' | b'1' | b'2' | b'3' | b'n' | b's' | b'I' => true,
        b'E' => total <= COLLECT_LIMIT + 1,
        _ => false,
    }
}

impl Relay<'_> {
    /// Handles a linked server's bytes; says how many were used.
    pub fn read_server(&mut self, data: &[u8]) -> (usize, Turn) {
        // data[from..at] has been allowed and is passed on in one piece.
        let (mut at, mut from) = (0, 0);
        let turn = loop {
            let left = self.sw.stream.left as usize;
            if left > 0 {
                let used = left.min(data.len() - at);
                self.sw.stream.left -= used as u32;
                at += used;
                if !self.sw.stream.forward {
                    from = at;
                }
                if used < left {
                    break Turn::More;
                }
                if self.server.link.queue.settles() {
                    self.tell_client(&data[from..at]);
                    from = at;
                    self.settle();
                }
            }
            let Some((kind, length)) = frames::header(&data[at..]) else {
                break Turn::More;
            };
            let total = length as usize + 1;
            if !frames::server_length_ok(kind, length) {
                break Turn::Broken(BAD_HEADER);
            }
            let have = (data.len() - at).min(total);
            let whole = have == total;
            if !whole && collected(kind, total) {
                break Turn::More;
            }
            if kind == b'Z' && self.server.link.batch.withholds() {
                self.tell_client(&data[from..at]);
                from = at;
            }
            let verdict = self.judge(kind, &data[at + HEADER..at + have], whole);
            match verdict {
                Verdict::Stop(turn) => break turn,
                Verdict::Swallow => {
                    self.tell_client(&data[from..at]);
                    from = at + have;
                }
                Verdict::Pass | Verdict::Ready(_) => {
                    self.sw.stream.forward = true;
                    self.sw.stream.left = (total - have) as u32;
                }
            }
            at += have;
            if self.sw.stream.left == 0 && self.server.link.queue.settles() {
                self.tell_client(&data[from..at]);
                from = at;
                self.settle();
            }
            if let Verdict::Ready(status) = verdict {
                if self.after_ready(status) {
                    break Turn::Release;
                }
            }
        };
        self.tell_client(&data[from..at]);
        self.server.link.last_answer = self.shared.now;
        self.throttle();
        (at, turn)
    }

    #[inline]
    fn judge(&mut self, kind: u8, body: &[u8], whole: bool) -> Verdict {
        let head = match self.server.link.queue.head() {
            Some(head) => (head.kind, head.origin),
            None => return self.judge_unasked(kind, body, whole),
        };
        match kind {
            b'D' if matches!(head.0, Kind::Query | Kind::Execute) => return Verdict::Pass,
            b'N' | b'A' | b'S' | b'E' => return self.judge_unasked(kind, body, whole),
            _ if !frames::from_server(kind) => return Verdict::Stop(Turn::Broken(UNKNOWN)),
            _ => {}
        }
        match fit(head.0, kind, self.server.link.described) {
            Fit::No => Verdict::Stop(Turn::Broken(UNKNOWN)),
            Fit::Passes => {
                match kind {
                    b't' => self.server.link.described = true,
                    b'G' | b'W' => self.begin_copy_in(),
                    b'C' => self.command_complete(body),
                    _ => {}
                }
                Verdict::Pass
            }
            Fit::Ends if kind == b'Z' => self.ready(body),
            Fit::Ends => {
                if kind == b'C' {
                    self.command_complete(body);
                }
                self.server.link.described = false;
                if let Some(entry) = self.server.link.queue.pop() {
                    self.complete(entry);
                }
                if head.1 == Origin::Injected {
                    Verdict::Swallow
                } else {
                    Verdict::Pass
                }
            }
        }
    }

    /// What may come at any time.
    fn judge_unasked(&mut self, kind: u8, body: &[u8], whole: bool) -> Verdict {
        match kind {
            b'N' | b'A' => {
                self.server.link.batch.close();
                Verdict::Pass
            }
            b'S' => {
                self.report(body);
                Verdict::Pass
            }
            b'E' => self.error(if whole { body } else { b"" }),
            _ => Verdict::Stop(Turn::Broken(UNKNOWN)),
        }
    }

    /// ReadyForQuery, with a head that it ends.
    fn ready(&mut self, body: &[u8]) -> Verdict {
        let status = body[0];
        if !matches!(status, b'I' | b'T' | b'E') {
            return Verdict::Stop(Turn::Broken(BAD_HEADER));
        }
        if self.pool.spec.mode == PoolMode::Statement && status != b'I' {
            return Verdict::Stop(Turn::Forbidden(
                "statement_mode_transaction",
                BLOCKS_REFUSED,
            ));
        }
        if self.server.link.batch.withholds() && self.again(status) {
            return Verdict::Swallow;
        }
        if let Some(entry) = self.server.link.queue.pop() {
            self.complete(entry);
        }
        Verdict::Ready(status)
    }

    /// Counts, once skipped requests behind the ended one have been answered; true if the server is free.
    fn after_ready(&mut self, status: u8) -> bool {
        let now = self.shared.now;
        let link = &mut self.server.link;
        link.status = status;
        link.busy = !link.queue.is_empty();
        link.copy_in = false;
        if !link.busy {
            link.unsure.told(status != b'I');
            self.pool.stats.query_count += 1;
            self.pool.stats.query_time_us +=
                now.saturating_sub(link.query_start.take().unwrap_or(now));
        }
        if status != b'I' {
            return false;
        }
        self.pool.stats.xact_count += 1;
        self.pool.stats.xact_time_us += now.saturating_sub(link.xact_start.unwrap_or(now));
        link.xact_start = link.busy.then_some(now);
        link.portals.clear();
        link.due = !link.busy && !link.errored && self.pool.spec.mode != PoolMode::Session;
        link.due && !self.cw.stream.open()
    }

    fn command_complete(&mut self, tag: &[u8]) {
        if self.server.link.copy_in {
            self.server.link.copy_in = false;
            self.server.link.queue.remove_copy_end();
        }
        if tag.first() == Some(&b'D') {
            self.tag(tag);
        }
    }

    /// COPY from the client has begun: Syncs that were sent ahead are not answered.
    fn begin_copy_in(&mut self) {
        self.server.link.copy_in = true;
        let mut at = 1;
        while let Some((kind, origin)) = self
            .server
            .link
            .queue
            .get(at)
            .map(|entry| (entry.kind, entry.origin))
        {
            match kind {
                Kind::CopyEnd => return,
                _ if origin == Origin::Skipped => at += 1,
                _ => {
                    if let Some(entry) = self.server.link.queue.remove(at) {
                        self.undo(entry, false);
                    }
                    if kind != Kind::Sync {
                        self.server.link.copy_in = false;
                        return;
                    }
                }
            }
        }
    }

    /// ParameterStatus: both sides have the value now.
    pub fn report(&mut self, body: &[u8]) {
        let Some((name, rest)) = frames::text(body) else {
            return;
        };
        let Some((value, _)) = frames::text(rest) else {
            return;
        };
        let Some(name) = self.shared.params.name(name) else {
            return;
        };
        let params = &mut self.shared.params;
        let agreed = match (&self.server.agreed, &self.client.params) {
            (Some(one), Some(two)) => std::rc::Rc::ptr_eq(one, two),
            _ => false,
        };
        let before = self.client.params.take();
        let changed = params.with(before.as_deref(), name, value);
        self.server.agreed = agreed.then(|| changed.clone());
        self.client.params = Some(changed);
        params.release(before);
        self.server.reported(params, name, value);
    }

    /// ErrorResponse.
    fn error(&mut self, body: &[u8]) -> Verdict {
        let link = &mut self.server.link;
        link.copy_in = false;
        let Some(head) = link.queue.head_mut() else {
            return Verdict::Pass;
        };
        if matches!(head.kind, Kind::Query | Kind::FunctionCall | Kind::Sync) {
            let (kind, origin) = (head.kind, head.origin);
            let act = mem::replace(&mut head.act, Act::None);
            self.undo(Entry { kind, origin, act }, true);
            return Verdict::Pass;
        }
        let in_front_of_query = matches!(head.act, Act::Void);
        let changed = match &head.act {
            Act::Uses(statement) if renewal::is_changed(body) => Some(statement.clone()),
            _ => None,
        };
        if in_front_of_query
            && link
                .queue
                .get(1)
                .is_some_and(|next| next.kind == Kind::Query)
        {
            return Verdict::Stop(Turn::Broken(UNKNOWN));
        }
        let withheld = changed
            .as_ref()
            .is_some_and(|statement| self.withhold(statement, body));
        let link = &mut self.server.link;
        link.described = false;
        let (count, synced) = link.queue.before_sync();
        link.errored = !synced;
        for at in (0..count).rev() {
            if let Some(entry) = self.server.link.queue.remove(at) {
                self.undo(entry, at == 0);
            }
        }
        if let Some(statement) = changed {
            self.supersede(&statement);
        }
        if withheld {
            Verdict::Swallow
        } else {
            Verdict::Pass
        }
    }
}
