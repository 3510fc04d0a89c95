//! The test rig: one core and one pool, messages in and out as short texts.

use crate::core::{ConnId, Core, CoreEvent, PoolId, PoolMode, PoolSpec};

pub struct Rig {
    pub core: Core,
    pub pool: PoolId,
}

pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
    out
}

/// One message from a word: `Q:select 1`, `P:name:sql`, `B:portal:name`, `DS:name`, `CS:name`, `CP:portal`,
/// `E:portal`, `S`, `H`, `d:bytes`, `c`, `f:why`, `X`.
pub fn ask(word: &str) -> Vec<u8> {
    let mut parts = word.splitn(3, ':');
    let (kind, one, two) = (
        parts.next().unwrap_or(""),
        parts.next().unwrap_or(""),
        parts.next().unwrap_or(""),
    );
    let byte = kind.as_bytes()[0];
    match kind {
        "Q" => message(b'Q', format!("{}\0", &word[2..]).as_bytes()),
        "P" => message(b'P', format!("{one}\0{two}\0\0\0").as_bytes()),
        "B" => message(b'B', format!("{one}\0{two}\0\0\0\0\0\0\0").as_bytes()),
        "E" => message(b'E', format!("{one}\0\0\0\0\0").as_bytes()),
        "DS" | "DP" | "CS" | "CP" => message(byte, format!("{}{one}\0", &kind[1..]).as_bytes()),
        "f" => message(b'f', format!("{one}\0").as_bytes()),
        _ => message(byte, one.as_bytes()),
    }
}

/// One server message: `Z:I`, `C:tag`, `E:code:text`, `S:name:value`, `D:bytes`, `1`, ...
pub fn answer(word: &str) -> Vec<u8> {
    let mut parts = word.splitn(3, ':');
    let (kind, one, two) = (
        parts.next().unwrap_or(""),
        parts.next().unwrap_or(""),
        parts.next().unwrap_or(""),
    );
    let byte = kind.as_bytes()[0];
    match kind {
        "C" => message(byte, format!("{one}\0").as_bytes()),
        "E" | "N" => message(byte, format!("SERROR\0C{one}\0M{two}\0\0").as_bytes()),
        "S" => message(byte, format!("{one}\0{two}\0").as_bytes()),
        _ => message(byte, one.as_bytes()),
    }
}

pub fn asks(words: &str) -> Vec<u8> {
    words
        .split('|')
        .filter(|word| !word.is_empty())
        .flat_map(ask)
        .collect()
}

pub fn answers(words: &str) -> Vec<u8> {
    words
        .split('|')
        .filter(|word| !word.is_empty())
        .flat_map(answer)
        .collect()
}

/// Messages as words, bodies with NUL as `:` and without the tail of zeros.
pub fn words(mut data: &[u8]) -> String {
    let mut out = Vec::new();
    while data.len() >= 5 {
        let length = u32::from_be_bytes([data[1], data[2], data[3], data[4]]) as usize;
        let body = &data[5..(length + 1).min(data.len())];
        let text = String::from_utf8_lossy(body).replace('\0', ":");
        let text = text.trim_end_matches(':');
        out.push(match text {
            "" => (data[0] as char).to_string(),
            _ => format!("{}:{text}", data[0] as char),
        });
        data = &data[(length + 1).min(data.len())..];
    }
    if !data.is_empty() {
        out.push(format!("+{} bytes", data.len()));
    }
    out.join("|")
}

pub fn spec(mode: PoolMode) -> PoolSpec {
    PoolSpec {
        mode,
        max_prepared_statements: 100,
        ..PoolSpec::default()
    }
}

impl Rig {
    pub fn new(spec: PoolSpec) -> Self {
        let mut core = Core::new();
        core.set_now(1_000);
        let pool = core.add_pool(spec);
        Self { core, pool }
    }

    pub fn transaction() -> Self {
        Self::new(spec(PoolMode::Transaction))
    }

    pub fn client(&mut self) -> ConnId {
        self.client_with(&[])
    }

    pub fn client_with(&mut self, parameters: &[(&str, &str)]) -> ConnId {
        let id = self.core.accepted(1);
        self.core
            .admit(id, self.pool, &pairs(parameters), 0, -1)
            .unwrap();
        self.core.events();
        id
    }

    pub fn server(&mut self) -> ConnId {
        self.server_with(&[])
    }

    pub fn server_with(&mut self, parameters: &[(&str, &str)]) -> ConnId {
        let id = self.core.dialing();
        self.core.connected(id);
        self.core.enroll(id, self.pool, &pairs(parameters)).unwrap();
        self.core
            .events()
            .retain(|event| !matches!(event, CoreEvent::Connected { .. }));
        id
    }

    /// The client asks; what the server is sent.
    pub fn ask(&mut self, client: ConnId, server: ConnId, text: &str) -> String {
        self.core.received(client, &asks(text));
        self.hear(server)
    }

    /// The server answers; what the client is sent.
    pub fn answer(&mut self, server: ConnId, client: ConnId, text: &str) -> String {
        self.core.received(server, &answers(text));
        self.hear(client)
    }

    pub fn hear(&mut self, id: ConnId) -> String {
        words(&self.core.take_output(id))
    }

    /// How many statements of the pool have others in their place.
    pub fn heirs(&self) -> usize {
        self.core
            .pools
            .get(self.pool)
            .map_or(0, |pool| pool.heirs.len())
    }

    pub fn mode(&self, id: ConnId) -> &'static str {
        self.core.facts(id).map_or("gone", |facts| facts.mode)
    }

    /// Events as short texts.
    pub fn events(&mut self) -> Vec<String> {
        self.core.events().iter().map(short).collect()
    }
}

fn short(event: &CoreEvent) -> String {
    match event {
        CoreEvent::Closed { reason, .. } => format!("CLOSED {reason}"),
        CoreEvent::Fault { key, detail, .. } => format!("FAULT {key} {detail}").trim_end().into(),
        CoreEvent::Starved { .. } => "STARVED".into(),
        CoreEvent::Rested { .. } => "RESTED".into(),
        CoreEvent::Returned { .. } => "RETURNED".into(),
        CoreEvent::Message { kind, payload, .. } => {
            format!(
                "MESSAGE {} {}",
                *kind as char,
                String::from_utf8_lossy(payload)
            )
        }
        CoreEvent::Packet { payload, .. } => format!("PACKET {}", payload.len()),
        CoreEvent::Oversize { header, .. } => format!("OVERSIZE {}", header.len()),
        other => format!("{other:?}"),
    }
}

fn pairs(values: &[(&str, &str)]) -> Vec<(String, String)> {
    values
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect()
}
