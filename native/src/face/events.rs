//! Events as tuples; the codes are those of pgshoal's contract.Event.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::core::CoreEvent;

const ACCEPTED: u8 = 1;
const ACCEPT_FAILED: u8 = 2;
const PACKET: u8 = 3;
const DIRECT_TLS: u8 = 4;
const MESSAGE: u8 = 5;
const OVERSIZE: u8 = 6;
const CONNECTED: u8 = 7;
const SECURED: u8 = 8;
const CLOSED: u8 = 9;
const FAULT: u8 = 10;
const STARVED: u8 = 11;
const RETURNED: u8 = 12;
const DIVERTED: u8 = 13;
const MOVED: u8 = 14;
const RESTED: u8 = 15;

pub fn tuple<'py>(py: Python<'py>, event: &CoreEvent) -> PyResult<Bound<'py, PyTuple>> {
    match event {
        CoreEvent::Accepted { conn, listener } => (ACCEPTED, conn, listener).into_pyobject(py),
        CoreEvent::AcceptFailed { listener, text } => {
            (ACCEPT_FAILED, listener, text).into_pyobject(py)
        }
        CoreEvent::Packet { conn, payload } => {
            (PACKET, conn, PyBytes::new(py, payload)).into_pyobject(py)
        }
        CoreEvent::DirectTls { conn } => (DIRECT_TLS, conn).into_pyobject(py),
        CoreEvent::Message {
            conn,
            kind,
            payload,
        } => (MESSAGE, conn, *kind, PyBytes::new(py, payload)).into_pyobject(py),
        CoreEvent::Oversize { conn, header } => {
            (OVERSIZE, conn, PyBytes::new(py, header)).into_pyobject(py)
        }
        CoreEvent::Connected { conn } => (CONNECTED, conn).into_pyobject(py),
        CoreEvent::Secured { conn, facts } => {
            let certificate = facts
                .peer_certificate
                .as_ref()
                .map(|der| PyBytes::new(py, der));
            (
                SECURED,
                conn,
                &facts.version,
                &facts.cipher,
                &facts.alpn,
                &facts.sni,
                certificate,
            )
                .into_pyobject(py)
        }
        CoreEvent::Closed { conn, reason } => (CLOSED, conn, reason).into_pyobject(py),
        CoreEvent::Fault {
            client,
            key,
            detail,
        } => (FAULT, client, *key, detail).into_pyobject(py),
        CoreEvent::Starved { pool } => (STARVED, pool).into_pyobject(py),
        CoreEvent::Rested { pool } => (RESTED, pool).into_pyobject(py),
        CoreEvent::Returned { server } => (RETURNED, server).into_pyobject(py),
        CoreEvent::Diverted { fd, listener } => (DIVERTED, fd, listener).into_pyobject(py),
        CoreEvent::Moved { conn, fd, state } => {
            (MOVED, conn, fd, PyBytes::new(py, state)).into_pyobject(py)
        }
    }
}
