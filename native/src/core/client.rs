//! What a client sends after login: heads are checked, and each message of a link goes its way.

use super::frames::{self, COLLECT_LIMIT, HEADER, PEEK_LIMIT};
use super::link::{Relay, Turn};
use super::prepared::{command, Command};
use super::queue::{Act, Kind, Origin};
use super::reading;

/// What stands at the front of a client's input.
#[derive(Debug, PartialEq, Eq)]
pub enum Head {
    /// The part that must be collected is not there yet.
    More,
    Fault(&'static str, String),
    /// `total` counts the type byte; `whole` says that all of it is there.
    Ready {
        kind: u8,
        total: usize,
        whole: bool,
    },
}

/// Checks type and length only.
#[inline]
pub fn check(data: &[u8], max_packet_size: u32) -> Head {
    let Some((kind, length)) = frames::header(data) else {
        return Head::More;
    };
    let fixed = matches!(kind, b'S' | b'H' | b'X' | b'c');
    if length < 4 || length > max_packet_size || (fixed && length != 4) {
        return Head::Fault("bad_packet_header", frames::hex(&data[..HEADER]));
    }
    if !frames::from_client(kind) {
        return Head::Fault("unknown_pkt", String::new());
    }
    let total = length as usize + 1;
    Head::Ready {
        kind,
        total,
        whole: data.len() >= total,
    }
}

/// Checks type and length, and waits for what must be collected.
#[inline]
pub fn inspect(data: &[u8], max_packet_size: u32) -> Head {
    let head = check(data, max_packet_size);
    let Head::Ready { kind, total, whole } = head else {
        return head;
    };
    let broken = |key| Head::Fault(key, String::new());
    match kind {
        b'Q' | b'E' if !whole && total <= PEEK_LIMIT + 1 => Head::More,
        b'D' if total > COLLECT_LIMIT + 1 => broken("broken_describe"),
        b'C' if total > COLLECT_LIMIT + 1 => broken("broken_close"),
        b'P' | b'D' | b'C' if !whole => Head::More,
        b'B' => {
            let body = &data[HEADER..total.min(data.len()).min(HEADER + COLLECT_LIMIT)];
            let names = frames::text(body).and_then(|(_, rest)| frames::text(rest));
            match names {
                Some(_) => head,
                None if whole || body.len() == COLLECT_LIMIT => broken("broken_bind"),
                None => Head::More,
            }
        }
        _ => head,
    }
}

/// `S` or `P` and the name of a Describe or Close.
pub fn target(body: &[u8]) -> Option<(u8, &[u8])> {
    let (&what, name) = body.split_first()?;
    let (name, rest) = frames::text(name)?;
    (rest.is_empty() && matches!(what, b'S' | b'P')).then_some((what, name))
}

type Handled = Result<(), (&'static str, String)>;

impl Relay<'_> {
    /// Handles a linked client's bytes; says how many were used.
    pub fn read_client(&mut self, data: &[u8]) -> (usize, Turn) {
        let mut at = 0;
        let turn = loop {
            if self.cw.stream.left > 0 {
                at += self.stream_on(&data[at..]);
                if self.cw.stream.left > 0 {
                    break Turn::More;
                }
                if self.server.link.due {
                    break Turn::Release;
                }
                continue;
            }
            if at == data.len() {
                break Turn::More;
            }
            match self.client_message(&data[at..]) {
                Ok(0) => break Turn::More,
                Ok(used) => at += used,
                Err(turn) => break turn,
            }
        };
        self.throttle();
        (at, turn)
    }

    /// The rest of a message under way.
    fn stream_on(&mut self, data: &[u8]) -> usize {
        let used = data.len().min(self.cw.stream.left as usize);
        if self.cw.stream.forward {
            self.tell_server(&data[..used]);
            self.server.link.batch.note(&data[..used]);
        }
        self.cw.stream.left -= used as u32;
        used
    }

    /// Takes the head of `data` on its way, the rest of the message as it comes.
    #[inline]
    fn stream(&mut self, data: &[u8], total: usize, forward: bool) -> usize {
        let used = data.len().min(total);
        if forward {
            self.tell_server(&data[..used]);
        }
        self.cw.stream.left = (total - used) as u32;
        self.cw.stream.forward = forward;
        used
    }

    /// One message; how much of it was used, 0 when more must come first.
    #[inline]
    fn client_message(&mut self, data: &[u8]) -> Result<usize, Turn> {
        let limit = self.shared.limits.max_packet_size;
        if self.server.link.errored || self.server.link.in_copy_in() {
            if let Some(used) = self.undisturbed(data, limit)? {
                return Ok(used);
            }
        }
        let (kind, total, whole) = match inspect(data, limit) {
            Head::More => return Ok(0),
            Head::Fault(key, detail) => return Err(Turn::Fault(key, detail)),
            Head::Ready { kind, total, whole } => (kind, total, whole),
        };
        let body = &data[HEADER..total.min(data.len())];
        let message = &data[..total.min(data.len())];
        self.server.link.batch.message(kind, whole, message);
        let handled = match kind {
            b'Q' => return self.query(data, total, whole),
            b'E' => self.execute(data, total, body),
            b'P' => self.parse(data, body),
            b'B' => return Ok(self.bind(data, total)),
            b'D' => self.describe(data, body),
            b'C' => self.close(data, body),
            b'S' => {
                self.server.link.syncs += 1;
                self.server.link.errored = false;
                self.ask(Kind::Sync, Origin::Forwarded, Act::None);
                return Ok(self.stream(data, total, true));
            }
            b'F' => {
                self.server.link.unsure.note(reading::ALL);
                self.ask(Kind::FunctionCall, Origin::Forwarded, Act::None);
                return Ok(self.stream(data, total, true));
            }
            b'H' => {
                self.server.link.busy = true;
                self.server.link.due = false;
                return Ok(self.stream(data, total, true));
            }
            b'X' => return Err(Turn::Leave),
            _ => return Ok(self.copy_message(data, kind, total)),
        };
        match handled {
            Ok(()) if kind == b'E' => Ok(self.stream(data, total, true)),
            Ok(()) => Ok(total),
            Err((key, detail)) => Err(Turn::Fault(key, detail)),
        }
    }

    /// After an error, and in copy-in, messages are dropped or passed without being understood.
    fn undisturbed(&mut self, data: &[u8], limit: u32) -> Result<Option<usize>, Turn> {
        let (kind, total) = match check(data, limit) {
            Head::More => return Ok(Some(0)),
            Head::Fault(key, detail) => return Err(Turn::Fault(key, detail)),
            Head::Ready { kind, total, .. } => (kind, total),
        };
        if self.server.link.errored {
            let passes = matches!(kind, b'S' | b'X');
            return Ok((!passes).then(|| self.stream(data, total, false)));
        }
        Ok(match kind {
            b'S' | b'H' => Some(self.stream(data, total, false)),
            b'c' | b'f' | b'd' | b'X' => None,
            _ => {
                // The server eats it with an error: COPY is over.
                self.server.link.copy_in = false;
                Some(self.stream(data, total, true))
            }
        })
    }

    fn copy_message(&mut self, data: &[u8], kind: u8, total: usize) -> usize {
        let forward = !self.server.link.queue.is_empty();
        if forward && kind != b'd' {
            self.server
                .link
                .queue
                .push(Kind::CopyEnd, Origin::Forwarded, Act::None);
        }
        self.stream(data, total, forward)
    }

    fn query(&mut self, data: &[u8], total: usize, whole: bool) -> Result<usize, Turn> {
        if self.shared.limits.disable_pqexec {
            return Err(Turn::Fault("pqexec_disallowed", String::new()));
        }
        if self.pooled() {
            self.query_drops_unnamed();
        }
        let mut act = Act::None;
        if whole && total <= PEEK_LIMIT + 1 {
            let sql = data[HEADER..total].strip_suffix(b"\0").unwrap_or_default();
            self.note_mentions(sql);
            if self.pooled() {
                self.server.link.unsure.note(reading::changes(sql));
            }
            match if self.pool.tracking() {
                command(sql)
            } else {
                None
            } {
                Some(Command::Reset) => act = Act::Reset(Box::new(self.set_aside())),
                Some(Command::Deallocate(name)) if self.client.names.get(&name).is_some() => {
                    self.deallocate_query(name);
                    return Ok(total);
                }
                _ => {}
            }
        } else {
            self.mention_all();
            self.server.link.unsure.note(reading::ALL | reading::END);
        }
        self.ask(Kind::Query, Origin::Forwarded, act);
        Ok(self.stream(data, total, true))
    }

    /// The Execute itself is forwarded by the caller.
    fn execute(&mut self, data: &[u8], total: usize, body: &[u8]) -> Handled {
        let mut act = Act::None;
        if !self.server.link.portals.is_empty() && data.len() >= total && total <= PEEK_LIMIT + 1 {
            let portal = frames::text(body).map_or(&[][..], |(portal, _)| portal);
            let special = self
                .server
                .link
                .portals
                .iter()
                .find(|one| *one.0 == *portal);
            match special.map(|one| one.1.clone()) {
                Some(Command::Reset) => act = Act::Reset(Box::new(self.set_aside())),
                Some(Command::Deallocate(name)) => {
                    self.ensure_void();
                    act = Act::Deallocate(name);
                }
                None => {}
            }
        }
        self.ask(Kind::Execute, Origin::Forwarded, act);
        Ok(())
    }

    fn parse(&mut self, message: &[u8], body: &[u8]) -> Handled {
        let broken = || ("broken_parse", String::new());
        let (name, rest) = frames::text(body).ok_or_else(broken)?;
        let (sql, types) = frames::text(rest).ok_or_else(broken)?;
        let count = types.get(..2).ok_or_else(broken)?;
        if types.len() != 2 + 4 * usize::from(u16::from_be_bytes([count[0], count[1]])) {
            return Err(broken());
        }
        self.note_mentions(sql);
        if !self.pooled() || !(name.is_empty() || self.pool.tracking()) {
            self.ask(Kind::Parse, Origin::Forwarded, Act::None);
            self.tell_server(&message[..HEADER + body.len()]);
        } else if name.is_empty() {
            self.parse_unnamed(sql, types, rest);
        } else {
            self.parse_named(name, rest);
        }
        Ok(())
    }

    /// How much of the message was used; the names are known to be there.
    fn bind(&mut self, data: &[u8], total: usize) -> usize {
        let body = &data[HEADER..total.min(data.len())];
        let Some((portal, rest)) = frames::text(body) else {
            return 0;
        };
        let Some((name, rest)) = frames::text(rest) else {
            return 0;
        };
        if !self.pooled() {
            self.ask(Kind::Bind, Origin::Forwarded, Act::None);
            return self.stream(data, total, true);
        }
        if !self.server.link.portals.is_empty() {
            self.server.link.portals.retain(|one| *one.0 != *portal);
        }
        if name.is_empty() {
            self.ensure_unnamed();
            if let Some(copy) = self.client.unnamed.clone() {
                self.note_mentions(&copy.body);
                self.server.link.unsure.note(copy.changes);
            }
            if let Some(special) = self
                .client
                .unnamed
                .as_ref()
                .and_then(|copy| copy.command.clone())
            {
                self.server.link.portals.push((portal.into(), special));
            }
        } else if self.pool.tracking() {
            let mut known = self.client.names.get(name).cloned();
            if let Some(old) = known.take_if(|one| one.superseded.get()) {
                let Some(statement) = self.renewed(data, total, name, old) else {
                    return 0;
                };
                known = Some(statement);
            }
            self.pool.stats.bind_count += 1;
            if let Some(statement) = known {
                let alone = self.server.link.is_alone() && !statement.reset;
                let statement = self.ensure(statement, name);
                self.note_mentions(&statement.body);
                self.server.link.unsure.note(statement.changes);
                if statement.reset {
                    self.server
                        .link
                        .portals
                        .push((portal.into(), Command::Reset));
                }
                let head = HEADER + portal.len() + 1;
                let length = (total - 1 - name.len() + statement.name.len()) as u32;
                let out = self.sw.out(&mut self.shared.buffers);
                out.push(b'B');
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&data[HEADER..head]);
                out.extend_from_slice(&statement.name);
                self.ask(Kind::Bind, Origin::Forwarded, Act::Uses(statement));
                let behind = head + name.len();
                self.open_batch(alone, &data[..total.min(data.len())], total);
                debug_assert_eq!(data.len().min(total), behind + 1 + rest.len());
                return behind + self.stream(&data[behind..], total - behind, true);
            }
        }
        if !name.is_empty() {
            // Prepared in SQL, it may be anything.
            self.server.link.unsure.note(reading::ALL | reading::END);
        }
        self.ask(Kind::Bind, Origin::Forwarded, Act::None);
        self.stream(data, total, true)
    }

    fn describe(&mut self, message: &[u8], body: &[u8]) -> Handled {
        let (what, name) = target(body).ok_or_else(|| ("broken_describe", String::new()))?;
        let kind = if what == b'S' {
            Kind::DescribeStatement
        } else {
            Kind::DescribePortal
        };
        if what == b'S' && self.pooled() {
            if name.is_empty() {
                self.ensure_unnamed();
            } else if let Some(mut statement) = self.tracked(name) {
                if statement.superseded.get() {
                    statement = self.renew(name, &statement);
                }
                let statement = self.ensure(statement, name);
                self.put_server(b'D', &[b"S", &statement.name, b"\0"]);
                self.ask(kind, Origin::Forwarded, Act::Uses(statement));
                return Ok(());
            }
        }
        self.ask(kind, Origin::Forwarded, Act::None);
        self.tell_server(&message[..HEADER + body.len()]);
        Ok(())
    }

    fn close(&mut self, message: &[u8], body: &[u8]) -> Handled {
        let (what, name) = target(body).ok_or_else(|| ("broken_close", String::new()))?;
        let mut act = Act::None;
        if what == b'S' && self.pooled() {
            if name.is_empty() {
                act = self.drop_unnamed();
            } else if self.pool.tracking() {
                if let Some(statement) = self.client.names.remove(name) {
                    act = Act::Unmapped {
                        name: name.into(),
                        statement,
                    };
                }
                self.skip(Kind::Close, act);
                return Ok(());
            }
        }
        self.ask(Kind::Close, Origin::Forwarded, act);
        self.tell_server(&message[..HEADER + body.len()]);
        Ok(())
    }
}
