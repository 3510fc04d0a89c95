//! The records that cross the core's border: events out, specifications in, facts out.

/// A connection: slot in the low 24 bits, generation above; never 0, never reused.
pub type ConnId = u64;
/// A pool; never 0, never reused.
pub type PoolId = u64;

/// One event of the contract, in the contract's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoreEvent {
    Accepted {
        conn: ConnId,
        listener: u64,
    },
    AcceptFailed {
        listener: u64,
        text: String,
    },
    Packet {
        conn: ConnId,
        payload: Vec<u8>,
    },
    DirectTls {
        conn: ConnId,
    },
    Message {
        conn: ConnId,
        kind: u8,
        payload: Vec<u8>,
    },
    Oversize {
        conn: ConnId,
        header: Vec<u8>,
    },
    Connected {
        conn: ConnId,
    },
    Secured {
        conn: ConnId,
        facts: TlsFacts,
    },
    Closed {
        conn: ConnId,
        reason: String,
    },
    Fault {
        client: ConnId,
        key: &'static str,
        detail: String,
    },
    /// A server has become idle in a pool of which `tell_rest` was asked.
    Rested {
        pool: PoolId,
    },
    Starved {
        pool: PoolId,
    },
    Returned {
        server: ConnId,
    },
    /// Whoever takes the event owns the descriptor.
    Diverted {
        fd: i32,
        listener: u64,
    },
    /// The same.
    Moved {
        conn: ConnId,
        fd: i32,
        state: Vec<u8>,
    },
}

/// What a finished TLS handshake told; texts are empty where absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFacts {
    pub version: String,
    pub cipher: String,
    pub alpn: String,
    pub sni: String,
    pub peer_certificate: Option<Vec<u8>>,
}

/// When a server goes back to its pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PoolMode {
    #[default]
    Session,
    Transaction,
    Statement,
}

/// What the core must know of a pool; limits in microseconds, 0 = off.
#[derive(Debug, Clone, Default)]
pub struct PoolSpec {
    pub mode: PoolMode,
    pub max_prepared_statements: usize,
    pub round_robin: bool,
    pub decide: bool,
    pub query_timeout_us: u64,
    pub query_wait_timeout_us: u64,
    pub query_wait_notify_us: u64,
    pub idle_transaction_timeout_us: u64,
    pub transaction_timeout_us: u64,
}

/// Process-wide settings the relay needs.
#[derive(Debug, Clone)]
pub struct EngineLimits {
    pub max_packet_size: u32,
    pub disable_pqexec: bool,
    pub extra_parameters: Vec<String>,
    pub queued_query_timeout_us: u64,
    /// No TLS is offered: the core itself answers the first requests for encryption with `N`.
    pub refuse_encryption: bool,
}

impl Default for EngineLimits {
    fn default() -> Self {
        Self {
            max_packet_size: i32::MAX as u32,
            disable_pqexec: false,
            extra_parameters: Vec::new(),
            queued_query_timeout_us: 0,
            refuse_encryption: false,
        }
    }
}

/// How a pool stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolCounts {
    pub cl_parked: usize,
    pub cl_linked: usize,
    pub cl_waiting: usize,
    pub sv_idle: usize,
    pub sv_linked: usize,
    pub sv_held: usize,
    pub sv_dialogue: usize,
    pub oldest_wait_us: u64,
}

/// Totals since the pool was made; times in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    pub server_assignment_count: u64,
    pub xact_count: u64,
    pub query_count: u64,
    pub client_bytes: u64,
    pub server_bytes: u64,
    pub xact_time_us: u64,
    pub query_time_us: u64,
    pub wait_time_us: u64,
    pub client_parse_count: u64,
    pub server_parse_count: u64,
    pub bind_count: u64,
}

/// How a connection stands; times in microseconds, 0 = none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnFacts {
    pub mode: &'static str,
    pub link: ConnId,
    pub last_activity_us: u64,
    pub request_us: u64,
    pub status: &'static str,
    pub queue_length: usize,
    pub prepared_statements: usize,
    pub recv_pending: usize,
    pub send_pending: usize,
    pub idle_since_us: u64,
    pub decide: bool,
}

/// Why a verb was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerbError {
    /// KeyError: no such connection or pool (any more).
    Dead,
    /// RuntimeError: the wrong mode for this verb.
    Mode(&'static str),
}

pub type Verb<T> = Result<T, VerbError>;
