//! Parameters: what is set when client and server differ, and what becomes of the answers.

use super::rig::{asks, Rig};
use crate::core::EngineLimits;

fn extras(rig: &mut Rig, names: &[&str]) {
    let extra_parameters = names.iter().map(|name| (*name).into()).collect();
    rig.core.set_limits(EngineLimits {
        extra_parameters,
        ..EngineLimits::default()
    });
}

/// Differences are set by one injected Query; the client's request follows its Z.
#[test]
fn differences_are_set_first() {
    let mut rig = Rig::transaction();
    let server = rig.server_with(&[("TimeZone", "UTC"), ("DateStyle", "ISO, MDY")]);
    let client = rig.client_with(&[("timezone", "Europe/Rome"), ("datestyle", "iso, mdy")]);
    assert_eq!(
        rig.ask(client, server, "Q:x"),
        "Q:SET TimeZone='Europe/Rome';"
    );
    assert_eq!(
        (rig.mode(client), rig.core.link_of(client)),
        ("linking", Ok(0))
    );
    assert!(!rig.core.wants_read(client));
    assert_eq!(
        rig.answer(server, client, "C:SET|S:TimeZone:Europe/Rome|Z:I"),
        ""
    );
    assert_eq!(rig.hear(server), "Q:x");
    assert_eq!(
        rig.answer(server, client, "C:SELECT 1|Z:I"),
        "C:SELECT 1|Z:I"
    );
    assert_eq!(rig.ask(client, server, "Q:y"), "Q:y");
}

/// Case alone is no difference.
#[test]
fn case_is_no_difference() {
    let mut rig = Rig::transaction();
    let server = rig.server_with(&[("client_encoding", "UTF8")]);
    let client = rig.client_with(&[("client_encoding", "utf8")]);
    assert_eq!(rig.ask(client, server, "Q:x"), "Q:x");
}

/// A value that is the same in other words brings no report; the client takes the server's, and no SET follows.
#[test]
fn same_value_in_other_words() {
    let mut rig = Rig::transaction();
    let server = rig.server_with(&[("DateStyle", "ISO, MDY")]);
    let client = rig.client_with(&[("DateStyle", "ISO")]);
    assert_eq!(rig.ask(client, server, "Q:x"), "Q:SET DateStyle='ISO';");
    rig.answer(server, client, "C:SET|Z:I");
    rig.hear(server);
    rig.answer(server, client, "C:SELECT 1|Z:I");
    assert_eq!(*rig.core.parameters(client).unwrap()[0].1, *b"ISO, MDY");
    assert_eq!(rig.ask(client, server, "Q:y"), "Q:y");
}

/// A failing SET closes the server and faults the client with the server's words.
#[test]
fn a_failing_set() {
    let mut rig = Rig::transaction();
    let server = rig.server_with(&[("TimeZone", "UTC")]);
    let client = rig.client_with(&[("TimeZone", "Mars")]);
    rig.ask(client, server, "Q:x");
    rig.answer(server, client, "E:22023:no such zone");
    assert_eq!(
        rig.events(),
        [
            "CLOSED var change failed",
            "FAULT invalid_server_parameter no such zone"
        ]
    );
}

/// An unreported extra is remembered as set by us, and reset for a client without it.
#[test]
fn unreported_extras() {
    let mut rig = Rig::transaction();
    extras(&mut rig, &["search_path"]);
    let server = rig.server();
    let a = rig.client_with(&[("search_path", "app")]);
    let b = rig.client();
    let set = "Q:SELECT pg_catalog.set_config('search_path','app',false);";
    assert_eq!(rig.ask(a, server, "Q:x"), set);
    rig.answer(server, a, "T:x|D:1|C:SELECT 1|Z:I");
    assert_eq!(rig.hear(server), "Q:x");
    rig.answer(server, a, "C:SELECT 1|Z:I");
    assert_eq!(rig.ask(a, server, "Q:y"), "Q:y");
    rig.answer(server, a, "C:SELECT 1|Z:I");
    assert_eq!(rig.ask(b, server, "Q:z"), "Q:SET search_path=DEFAULT;");
    rig.answer(server, b, "C:SET|Z:I");
    rig.hear(server);
    rig.answer(server, b, "C:SELECT 1|Z:I");
    assert_eq!(rig.ask(b, server, "Q:z"), "Q:z");
}

/// A text that names an unreported extra makes its value unknown.
#[test]
fn mentioned_extras_are_unknown() {
    for sql in [
        "select set_config('SEARCH_PATH','',false)".to_string(),
        "x".repeat(2000),
    ] {
        let mut rig = Rig::transaction();
        extras(&mut rig, &["search_path"]);
        let (server, a, b) = (rig.server(), rig.client(), rig.client());
        rig.ask(a, server, &format!("Q:{sql}"));
        rig.answer(server, a, "C:SELECT 1|Z:I");
        assert_eq!(rig.ask(b, server, "Q:z"), "Q:SET search_path=DEFAULT;");
    }
}

/// So does the use of a statement with such a text, also on a server that only had it injected.
#[test]
fn mentioned_by_a_statement() {
    let mut rig = Rig::transaction();
    extras(&mut rig, &["search_path"]);
    let (server, a, b) = (rig.server(), rig.client(), rig.client());
    rig.ask(a, server, "P:s:set search_path to x|S");
    rig.answer(server, a, "1|Z:I");
    rig.core.ended(server, "");
    let server = rig.server();
    rig.ask(a, server, "B::s|E:|S");
    rig.answer(server, a, "1|2|C:SET|Z:I");
    assert_eq!(rig.ask(b, server, "Q:z"), "Q:SET search_path=DEFAULT;");
}

/// DISCARD ALL forgets what we set.
#[test]
fn discard_all_forgets() {
    let mut rig = Rig::transaction();
    extras(&mut rig, &["search_path"]);
    let (server, a, b) = (rig.server(), rig.client(), rig.client());
    rig.ask(a, server, "Q:set search_path to x");
    rig.answer(server, a, "C:SET|Z:I");
    rig.ask(b, server, "Q:x");
    rig.answer(server, b, "C:SET|Z:I");
    rig.hear(server);
    rig.answer(server, b, "C:SELECT 1|Z:I");
    rig.ask(a, server, "Q:set search_path to x; discard all");
    rig.answer(server, a, "C:SET|C:DISCARD ALL|Z:I");
    assert_eq!(rig.ask(b, server, "Q:x"), "Q:x");
}

/// ParameterStatus reaches client and server; the next link with the same client needs no SET.
#[test]
fn reports_update_both() {
    let mut rig = Rig::transaction();
    let server = rig.server_with(&[("TimeZone", "UTC")]);
    let (a, b) = (
        rig.client_with(&[("TimeZone", "UTC")]),
        rig.client_with(&[("TimeZone", "UTC")]),
    );
    rig.ask(a, server, "Q:set timezone to x");
    assert_eq!(
        rig.answer(server, a, "S:TimeZone:X|C:SET|Z:I"),
        "S:TimeZone:X|C:SET|Z:I"
    );
    assert_eq!(rig.ask(a, server, "Q:x"), "Q:x");
    rig.answer(server, a, "C:SELECT 1|Z:I");
    assert_eq!(rig.ask(b, server, "Q:x"), "Q:SET TimeZone='UTC';");
}

/// A client that leaves while SETs are under way costs the server.
#[test]
fn leaving_while_linking() {
    let mut rig = Rig::transaction();
    let server = rig.server_with(&[("TimeZone", "UTC")]);
    let client = rig.client_with(&[("TimeZone", "X")]);
    rig.core.received(client, &asks("Q:x"));
    rig.core.ended(client, "");
    assert_eq!(
        rig.events(),
        [
            "CLOSED client unexpected eof",
            "CLOSED client disconnect while server was not ready"
        ]
    );
    assert_eq!(rig.mode(server), "closing");
}
