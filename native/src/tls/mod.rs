//! TLS by rustls: contexts from PEM texts, and the stream between ciphertext and plaintext.

mod ciphers;
mod context;
mod der;
mod stream;
mod verify;

pub use context::{TlsContext, TlsSettings};
pub use stream::{Fed, TlsStream};
