//! Records of the contract: Python objects in, plain tuples out.

use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::core::{ConnFacts, EngineLimits, PoolCounts, PoolMode, PoolSpec, PoolStats, VerbError};
use crate::driver::{Address, SocketOptions};
use crate::tls::{TlsContext, TlsSettings};

/// A TLS context, opaque to Python.
#[pyclass(frozen, name = "TlsContext")]
pub struct Context {
    pub context: TlsContext,
}

/// What `facts` gives, in the order of ConnFacts.
pub type FactsTuple = (
    &'static str,
    u64,
    u64,
    u64,
    &'static str,
    usize,
    usize,
    usize,
    usize,
    u64,
    bool,
);
pub type CountsTuple = (usize, usize, usize, usize, usize, usize, usize, u64);

fn get<'py, T: FromPyObject<'py>>(record: &Bound<'py, PyAny>, name: &str) -> PyResult<T> {
    record.getattr(name)?.extract()
}

/// KeyError for what is dead, RuntimeError for the wrong mode.
pub fn refused(error: VerbError) -> PyErr {
    match error {
        VerbError::Dead => PyKeyError::new_err("no such connection or pool"),
        VerbError::Mode(text) => PyRuntimeError::new_err(text),
    }
}

pub fn pool_spec(record: &Bound<'_, PyAny>) -> PyResult<PoolSpec> {
    let mode = match get::<u8>(record, "mode")? {
        0 => PoolMode::Session,
        1 => PoolMode::Transaction,
        2 => PoolMode::Statement,
        other => return Err(PyValueError::new_err(format!("unknown pool mode {other}"))),
    };
    Ok(PoolSpec {
        mode,
        max_prepared_statements: get(record, "max_prepared_statements")?,
        round_robin: get(record, "round_robin")?,
        decide: get(record, "decide")?,
        query_timeout_us: get(record, "query_timeout_us")?,
        query_wait_timeout_us: get(record, "query_wait_timeout_us")?,
        query_wait_notify_us: get(record, "query_wait_notify_us")?,
        idle_transaction_timeout_us: get(record, "idle_transaction_timeout_us")?,
        transaction_timeout_us: get(record, "transaction_timeout_us")?,
    })
}

pub fn limits(record: &Bound<'_, PyAny>) -> PyResult<EngineLimits> {
    Ok(EngineLimits {
        max_packet_size: u32::try_from(get::<u64>(record, "max_packet_size")?).unwrap_or(u32::MAX),
        disable_pqexec: get(record, "disable_pqexec")?,
        extra_parameters: get(record, "extra_parameters")?,
        queued_query_timeout_us: get(record, "queued_query_timeout_us")?,
        refuse_encryption: get(record, "refuse_encryption")?,
    })
}

pub fn socket_options(record: &Bound<'_, PyAny>) -> PyResult<SocketOptions> {
    Ok(SocketOptions {
        keepalive: get(record, "keepalive")?,
        keepidle_s: get(record, "keepidle_s")?,
        keepintvl_s: get(record, "keepintvl_s")?,
        keepcnt: get(record, "keepcnt")?,
        user_timeout_ms: get(record, "user_timeout_ms")?,
        buffer_bytes: get(record, "buffer_bytes")?,
    })
}

pub fn tls_settings(record: &Bound<'_, PyAny>) -> PyResult<TlsSettings> {
    Ok(TlsSettings {
        certificate_pem: get(record, "certificate_pem")?,
        key_pem: get(record, "key_pem")?,
        ca_pem: get(record, "ca_pem")?,
        versions: get(record, "versions")?,
        ciphers: get(record, "ciphers")?,
        tls13_ciphers: get(record, "tls13_ciphers")?,
        curve: get(record, "curve")?,
        request_certificate: get(record, "request_certificate")?,
        require_certificate: get(record, "require_certificate")?,
        verify_chain: get(record, "verify_chain")?,
        verify_name: get(record, "verify_name")?,
    })
}

/// (host, port) or a Unix path.
pub fn address(value: &Bound<'_, PyAny>) -> PyResult<Address> {
    if let Ok(path) = value.downcast::<PyString>() {
        return Ok(Address::Unix(path.to_str()?.into()));
    }
    let (host, port): (String, u16) = value.extract()?;
    Address::tcp(&host, port).map_err(PyValueError::new_err)
}

pub fn counts(found: PoolCounts) -> CountsTuple {
    (
        found.cl_parked,
        found.cl_linked,
        found.cl_waiting,
        found.sv_idle,
        found.sv_linked,
        found.sv_held,
        found.sv_dialogue,
        found.oldest_wait_us,
    )
}

pub fn stats(found: PoolStats) -> [u64; 11] {
    [
        found.server_assignment_count,
        found.xact_count,
        found.query_count,
        found.client_bytes,
        found.server_bytes,
        found.xact_time_us,
        found.query_time_us,
        found.wait_time_us,
        found.client_parse_count,
        found.server_parse_count,
        found.bind_count,
    ]
}

pub fn facts(found: ConnFacts) -> FactsTuple {
    (
        found.mode,
        found.link,
        found.last_activity_us,
        found.request_us,
        found.status,
        found.queue_length,
        found.prepared_statements,
        found.recv_pending,
        found.send_pending,
        found.idle_since_us,
        found.decide,
    )
}
