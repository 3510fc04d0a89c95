//! Tests of the relay: a core driven by bytes, without sockets.

mod chunking;
mod copy;
mod dialogues;
mod errors;
mod hostile;
mod parameters;
mod pools;
mod readings;
mod renewal;
mod rig;
mod simple;
mod speed;
mod statements;
mod unnamed;
