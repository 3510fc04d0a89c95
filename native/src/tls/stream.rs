//! One TLS connection, between ciphertext and plaintext; no sockets.

use std::io::{Read, Write};

use rustls::pki_types::{IpAddr, Ipv4Addr, ServerName};
use rustls::{ClientConnection, Connection, ProtocolVersion, ServerConnection};

use super::ciphers::openssl_name;
use super::context::TlsContext;
use crate::core::TlsFacts;

/// What feeding ciphertext gave; plaintext went into the caller's buffer.
#[derive(Default)]
pub struct Fed {
    /// The handshake is done.
    pub secured: Option<TlsFacts>,
    /// The connection is over: "" for an orderly end.
    pub over: Option<String>,
}

/// A connection in a handshake or secured.
pub struct TlsStream {
    session: Connection,
    /// Bytes to be sent before all others: plain ones from before the handshake, and rustls' own.
    pending: Vec<u8>,
    secured: bool,
    farewell: bool,
}

impl TlsStream {
    /// `before`: plain bytes that must go out first, such as the answer to SSLRequest.
    pub fn new(context: &TlsContext, name: &str, before: Vec<u8>) -> Result<TlsStream, String> {
        let session = match context {
            TlsContext::Server(config) => {
                ServerConnection::new(config.clone()).map(Connection::Server)
            }
            TlsContext::Client(config) => {
                ClientConnection::new(config.clone(), peer_name(name)?).map(Connection::Client)
            }
        };
        let session = session.map_err(|error| error.to_string())?;
        let mut made = TlsStream {
            session,
            pending: before,
            secured: false,
            farewell: false,
        };
        made.collect_pending();
        Ok(made)
    }

    pub fn is_secured(&self) -> bool {
        self.secured
    }

    /// Takes bytes from the wire; plaintext is appended to `plain`.
    pub fn feed(&mut self, mut data: &[u8], plain: &mut Vec<u8>) -> Fed {
        let mut fed = Fed::default();
        while !data.is_empty() && fed.over.is_none() {
            fed.over = self.feed_some(&mut data, plain);
            if !self.secured && !self.session.is_handshaking() {
                self.secured = true;
                fed.secured = Some(self.facts());
            }
        }
        self.collect_pending();
        fed
    }

    /// One round: as much as the session's buffer takes.
    fn feed_some(&mut self, data: &mut &[u8], plain: &mut Vec<u8>) -> Option<String> {
        match self.session.read_tls(data) {
            Ok(0) => return Some("tls: data after the end".into()),
            Ok(_) => {}
            Err(error) => return Some(format!("tls: {error}")),
        }
        let state = match self.session.process_new_packets() {
            Ok(state) => state,
            Err(error) => return Some(format!("tls: {error}")),
        };
        let count = state.plaintext_bytes_to_read();
        if count > 0 {
            let start = plain.len();
            plain.resize(start + count, 0);
            if let Err(error) = self.session.reader().read_exact(&mut plain[start..]) {
                plain.truncate(start);
                return Some(format!("tls: {error}"));
            }
        }
        state.peer_has_closed().then(String::new)
    }

    /// Encrypts `plain` into `out`.
    pub fn seal(&mut self, mut plain: &[u8], out: &mut Vec<u8>) {
        while !plain.is_empty() {
            // The session's buffer has a limit; it is emptied after each write, so this always goes on.
            match self.session.writer().write(plain) {
                Ok(count) if count > 0 => plain = &plain[count..],
                _ => return,
            }
            self.write_into(out);
        }
    }

    /// Moves what must be sent before all else into `out`.
    pub fn take_pending(&mut self, out: &mut Vec<u8>) {
        if out.is_empty() {
            std::mem::swap(out, &mut self.pending);
        } else {
            out.append(&mut self.pending);
        }
    }

    /// The close_notify alert, once.
    pub fn say_goodbye(&mut self, out: &mut Vec<u8>) {
        if !self.farewell {
            self.farewell = true;
            self.session.send_close_notify();
            self.write_into(out);
        }
    }

    fn collect_pending(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        self.write_into(&mut pending);
        self.pending = pending;
    }

    fn write_into(&mut self, out: &mut Vec<u8>) {
        while self.session.wants_write() {
            // Writing into memory cannot fail.
            if self.session.write_tls(out).is_err() {
                return;
            }
        }
    }

    fn facts(&self) -> TlsFacts {
        let session = &self.session;
        let version = match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3".into(),
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2".into(),
            other => format!("{other:?}"),
        };
        let sni = match session {
            Connection::Server(server) => server.server_name().unwrap_or_default().to_string(),
            Connection::Client(_) => String::new(),
        };
        TlsFacts {
            version,
            cipher: session
                .negotiated_cipher_suite()
                .map(|suite| openssl_name(suite.suite()))
                .unwrap_or_default(),
            alpn: session
                .alpn_protocol()
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .unwrap_or_default(),
            sni,
            peer_certificate: session
                .peer_certificates()
                .and_then(|chain| chain.first())
                .map(|first| first.to_vec()),
        }
    }
}

/// The name to verify. Without one an address stands in, which sends no SNI and matches no certificate.
fn peer_name(name: &str) -> Result<ServerName<'static>, String> {
    if name.is_empty() {
        return Ok(ServerName::IpAddress(IpAddr::V4(Ipv4Addr::from([
            0, 0, 0, 0,
        ]))));
    }
    ServerName::try_from(name.to_string())
        .map_err(|_| format!("{name:?} is not a valid server name"))
}
