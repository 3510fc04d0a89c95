//! The native engine of pgshoal: sockets, TLS and the relay of PostgreSQL messages.

pub mod core;
pub mod driver;
pub mod face;
pub mod tls;
