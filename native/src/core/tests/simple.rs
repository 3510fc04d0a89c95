//! Simple queries, extended pipelines, release and the ends of links.

use super::rig::{answers, asks, spec, Rig};
use crate::core::PoolMode;

const ROW: &str = "T:x|D:1|C:SELECT 1|Z:I";

/// A simple query links, is relayed unchanged both ways, and gives the server back at Z I.
#[test]
fn a_round_trip() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    assert_eq!(rig.ask(client, server, "Q:select 1"), "Q:select 1");
    assert_eq!((rig.mode(client), rig.mode(server)), ("linked", "linked"));
    assert_eq!(rig.answer(server, client, ROW), ROW);
    assert_eq!((rig.mode(client), rig.mode(server)), ("parked", "idle"));
    let stats = rig.core.pool_stats(rig.pool).unwrap();
    assert_eq!(
        (
            stats.query_count,
            stats.xact_count,
            stats.server_assignment_count
        ),
        (1, 1, 1)
    );
    assert!(rig.core.events().is_empty());
}

/// Every cut of both streams gives the same bytes.
#[test]
fn cut_at_every_byte() {
    let (ask, reply) = (
        asks("P::select 1|B::|E:|S"),
        answers("1|2|D:1|C:SELECT 1|Z:I"),
    );
    for cut in 0..=ask.len().max(reply.len()) {
        let mut rig = Rig::transaction();
        let (server, client) = (rig.server(), rig.client());
        let (one, two) = ask.split_at(cut.min(ask.len()));
        rig.core.received(client, one);
        rig.core.received(client, two);
        assert_eq!(rig.core.take_output(server), ask, "{cut}");
        let (one, two) = reply.split_at(cut.min(reply.len()));
        rig.core.received(server, one);
        rig.core.received(server, two);
        assert_eq!(rig.core.take_output(client), reply, "{cut}");
        assert_eq!(rig.mode(server), "idle", "{cut}");
    }
}

/// In a transaction the server stays; at its end it goes.
#[test]
fn a_transaction_keeps_its_server() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "Q:begin");
    rig.answer(server, client, "C:BEGIN|Z:T");
    assert_eq!(rig.mode(server), "linked");
    rig.ask(client, server, "Q:commit");
    rig.answer(server, client, "C:COMMIT|Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// Pipelined queries release only after the last Z.
#[test]
fn pipelined_queries() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    assert_eq!(rig.ask(client, server, "Q:one|Q:two"), "Q:one|Q:two");
    rig.answer(server, client, "C:SELECT 1|Z:I");
    assert_eq!(rig.mode(server), "linked");
    rig.answer(server, client, "C:SELECT 1|Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// Portals live across Flush: without a Sync an empty queue releases nothing.
#[test]
fn flush_keeps_the_link() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    assert_eq!(
        rig.ask(client, server, "P::select 1|B:c:|DP:c|H"),
        "P::select 1|B:c|D:Pc|H"
    );
    assert_eq!(rig.answer(server, client, "1|2|T:x"), "1|2|T:x");
    assert_eq!(
        (
            rig.mode(server),
            rig.core.facts(server).unwrap().queue_length
        ),
        ("linked", 0)
    );
    rig.ask(client, server, "E:c|H");
    rig.answer(server, client, "D:1|s");
    rig.ask(client, server, "E:c|S");
    rig.answer(server, client, "D:1|C:SELECT 2|Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// A lone Sync is answered by the pooler; late COPY messages and Flush are discarded without a server.
#[test]
fn parked_exceptions() {
    let mut rig = Rig::transaction();
    let client = rig.client();
    rig.core.received(client, &asks("S|d:abc|c|f:x|H"));
    assert_eq!(rig.hear(client), "Z:I");
    assert_eq!(rig.mode(client), "parked");
    let long = asks("d:abcdefgh|S");
    rig.core.received(client, &long[..8]);
    rig.core.received(client, &long[8..]);
    assert_eq!(rig.hear(client), "Z:I");
    assert!(rig.core.events().is_empty());
}

/// Notices, notifications and parameters pass at any time.
#[test]
fn unsolicited_messages_pass() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "P:a:select 1|S");
    let text = "N:00000:hi|1|A:xxxxx|S:TimeZone:UTC|Z:I";
    let heard = rig.answer(server, client, text);
    assert_eq!(heard.split('|').count(), 5);
    assert_eq!(rig.mode(server), "idle");
    assert_eq!(
        rig.core.parameters(client).unwrap(),
        [("TimeZone".as_bytes().into(), "UTC".as_bytes().into())]
    );
}

/// A message the head does not allow closes the server, never guesses.
#[test]
fn impossible_messages_close_the_server() {
    for (request, reply) in [
        ("Q:x", "1"),
        ("Q:x", "n"),
        ("P::x|S", "2"),
        ("P::x|S", "Z:I"),
        ("B::|S", "1"),
        ("DS:|S", "T:x"),
        ("E:|S", "Z:I"),
        ("Q:x", "Z:X"),
        ("Q:x", "R:abcd"),
    ] {
        let mut rig = Rig::new(spec(PoolMode::Session));
        let (server, client) = (rig.server(), rig.client());
        rig.ask(client, server, request);
        rig.core.received(server, &answers(reply));
        let reason = if reply == "Z:X" {
            "bad pkt header"
        } else {
            "unknown pkt from server"
        };
        assert_eq!(
            rig.events(),
            [
                format!("CLOSED {reason}"),
                format!("FAULT server_closed {reason}")
            ],
            "{request} {reply}"
        );
        assert_eq!((rig.mode(server), rig.mode(client)), ("closing", "frozen"));
    }
}

/// What the server sent before it vanished reaches the client before the fault.
#[test]
fn a_crashed_server() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "Q:x");
    rig.core.received(server, &answers("T:x|D:1"));
    rig.core.ended(server, "");
    assert_eq!(rig.hear(client), "T:x|D:1");
    assert_eq!(
        rig.events(),
        ["CLOSED server conn crashed?", "FAULT server_crashed"]
    );
    assert_eq!((rig.mode(server), rig.mode(client)), ("gone", "frozen"));
}

/// The reason why a server is closed tells how its client left.
#[test]
fn leaving_clients() {
    let reasons = [
        ("Q:x", "", "client disconnected with query in progress"),
        (
            "Q:x",
            "C:BEGIN|Z:T",
            "client disconnect while server was not ready",
        ),
        (
            "P::x|H",
            "1",
            "client disconnect while server was not ready",
        ),
    ];
    for (request, reply, reason) in reasons {
        for leave in [true, false] {
            let mut rig = Rig::transaction();
            let (server, client) = (rig.server(), rig.client());
            rig.ask(client, server, request);
            rig.answer(server, client, reply);
            if leave {
                rig.core.received(client, &asks("X"));
            } else {
                rig.core.ended(client, "");
            }
            let own = if leave {
                "client close request"
            } else {
                "client unexpected eof"
            };
            assert_eq!(
                rig.events(),
                [format!("CLOSED {own}"), format!("CLOSED {reason}")]
            );
        }
    }
}

/// A client that dies inside a message that was partly forwarded costs the server.
#[test]
fn half_a_message() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    let long = asks(&format!("Q:{}", "x".repeat(2000)));
    rig.core.received(client, &long[..100]);
    assert_eq!(rig.core.take_output(server).len(), 100);
    rig.core.ended(client, "");
    assert_eq!(
        rig.events()[1],
        "CLOSED client disconnect before everything was sent to the server"
    );
}

/// In session mode the server stays until the client leaves, and is given back if the link is clean.
#[test]
fn session_mode() {
    let mut rig = Rig::new(spec(PoolMode::Session));
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "Q:x");
    rig.answer(server, client, "C:SELECT 1|Z:I");
    assert_eq!(rig.mode(server), "linked");
    rig.core.received(client, &asks("X"));
    assert_eq!(rig.events(), ["CLOSED client close request"]);
    assert_eq!(rig.mode(server), "idle");
}

/// In statement mode a transaction block ends both.
#[test]
fn statement_mode_refuses_blocks() {
    let mut rig = Rig::new(spec(PoolMode::Statement));
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "Q:begin");
    rig.core.received(server, &answers("C:BEGIN|Z:T"));
    assert_eq!(rig.hear(client), "C:BEGIN");
    assert_eq!(
        rig.events(),
        [
            "CLOSED transaction blocks not allowed in statement pooling mode",
            "FAULT statement_mode_transaction"
        ]
    );
}

/// With disable_pqexec a simple query is refused, linked or not.
#[test]
fn pqexec_disallowed() {
    let mut rig = Rig::transaction();
    let limits = crate::core::EngineLimits {
        disable_pqexec: true,
        ..Default::default()
    };
    rig.core.set_limits(limits);
    let client = rig.client();
    rig.core.received(client, &asks("Q:x"));
    assert_eq!(rig.events(), ["FAULT pqexec_disallowed"]);
}

/// A frozen connection that ends gives no second event: Python's close is still to come.
#[test]
fn a_frozen_connection_ends() {
    let mut rig = Rig::transaction();
    let client = rig.client();
    rig.core.received(client, &[b'Q', 0, 0, 0, 0]);
    rig.core.ended(client, "");
    assert_eq!(rig.events(), ["FAULT bad_packet_header 5100000000"]);
    assert_eq!(rig.core.close(client, b"bye", ""), Ok(()));
    rig.core.gone(client);
    assert_eq!(rig.mode(client), "gone");
}
