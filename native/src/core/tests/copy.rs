//! COPY in, out and both; early Syncs and late CopyData.

use super::rig::{answers, asks, Rig};

/// COPY FROM STDIN by a simple query: data passes, CopyDone leaves nothing behind.
#[test]
fn copy_in_simple() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "Q:copy t from stdin");
    rig.answer(server, client, "G:abc");
    assert_eq!(rig.ask(client, server, "d:1|d:2|c"), "d:1|d:2|c");
    rig.answer(server, client, "C:COPY 2|Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// Syncs sent ahead of G, and while copying, get no answer; the one behind CopyDone does.
#[test]
fn copy_in_extended_with_early_sync() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "P::copy|B::|E:|S");
    rig.answer(server, client, "1|2|G:abc");
    assert_eq!(rig.core.facts(server).unwrap().queue_length, 1);
    assert_eq!(rig.ask(client, server, "d:1|S|H|d:2|c|S"), "d:1|d:2|c|S");
    rig.answer(server, client, "C:COPY 2|Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// The whole COPY pipelined before G: only the Sync in front of CopyDone is forgotten.
#[test]
fn copy_in_pipelined_blindly() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "P::copy|B::|E:|S|d:1|c|S");
    rig.answer(server, client, "1|2|G:abc|C:COPY 1|Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// The server fails a COPY while the client still sends: late messages are discarded, nobody else gets them.
#[test]
fn copy_in_fails_early() {
    let mut rig = Rig::transaction();
    let (server, client, other) = (rig.server(), rig.client(), rig.client());
    rig.ask(client, server, "Q:copy t from stdin");
    rig.core.received(other, &asks("Q:other"));
    rig.answer(server, client, "G:abc");
    rig.ask(client, server, "d:1");
    rig.answer(server, client, "E:23505:dup|Z:I");
    assert_eq!(rig.hear(server), "Q:other");
    assert_eq!(rig.ask(client, server, "d:2|d:3|c"), "");
    assert_eq!((rig.mode(client), rig.mode(other)), ("parked", "linked"));
}

/// A server is not released while half a CopyData stands on it.
#[test]
fn release_waits_for_the_message_boundary() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "Q:copy t from stdin");
    rig.answer(server, client, "G:abc");
    let data = asks("d:0123456789");
    rig.core.received(client, &data[..7]);
    rig.answer(server, client, "E:23505:dup|Z:I");
    assert_eq!(rig.mode(server), "linked");
    rig.core.received(client, &data[7..]);
    assert_eq!((rig.mode(server), rig.mode(client)), ("idle", "parked"));
    assert_eq!(rig.core.take_output(server), data);
}

/// Behind a failed extended COPY everything is dropped until the Sync.
#[test]
fn copy_in_extended_fails() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "P::copy|B::|E:|H");
    rig.answer(server, client, "1|2|G:abc");
    rig.ask(client, server, "d:1");
    rig.answer(server, client, "E:23505:dup");
    assert_eq!(rig.ask(client, server, "d:2|c|S"), "S");
    rig.answer(server, client, "Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// CopyFail ends like CopyDone; its error is the query's.
#[test]
fn copy_fail() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "Q:copy t from stdin");
    rig.answer(server, client, "G:abc");
    assert_eq!(rig.ask(client, server, "f:stop"), "f:stop");
    rig.answer(server, client, "E:57014:stop|Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// A request in the middle of copy-in is eaten by the server with an error.
#[test]
fn a_query_inside_copy_in() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "Q:copy t from stdin");
    rig.answer(server, client, "G:abc");
    assert_eq!(rig.ask(client, server, "Q:oops|Q:next"), "Q:oops|Q:next");
    rig.answer(server, client, "E:08P01:unexpected|Z:I|C:SELECT 1|Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// The same, sent before G was known.
#[test]
fn a_query_pipelined_behind_copy_in() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "Q:copy t from stdin|Q:oops");
    rig.answer(server, client, "G:abc|E:08P01:unexpected|Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// COPY out passes and needs nothing of the client.
#[test]
fn copy_out() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "Q:copy t to stdout");
    let text = "H:abc|d:1|d:2|c|C:COPY 2|Z:I";
    assert_eq!(rig.answer(server, client, text), text);
    assert_eq!(rig.mode(server), "idle");
}

/// Copy-both: data flows both ways until both sides are done.
#[test]
fn copy_both() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "Q:START_REPLICATION");
    rig.answer(server, client, "W:abc|d:1");
    assert_eq!(rig.ask(client, server, "d:ack|c"), "d:ack|c");
    rig.answer(server, client, "d:2|c|C:COPY 0|Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// Large CopyData is streamed, not kept.
#[test]
fn copy_data_is_streamed() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "Q:copy t to stdout");
    let row = answers(&format!("d:{}", "x".repeat(1_000_000)));
    rig.core.received(server, &answers("H:abc"));
    let mut heard = rig.core.take_output(client).len();
    for chunk in row.chunks(10_000) {
        rig.core.received(server, chunk);
        let out = rig.core.take_output(client);
        assert_eq!(out.len(), chunk.len());
        heard += out.len();
    }
    assert_eq!(heard, row.len() + 8);
}
