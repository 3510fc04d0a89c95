//! Errors: what they undo, and what is dropped until the Sync.

use super::rig::Rig;

/// An error in a pipeline skips to its Sync; the next batch runs.
#[test]
fn error_skips_to_the_sync() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "P::bad|B::|E:|S|P::good|B::|E:|S");
    rig.answer(server, client, "E:42601:no|Z:I");
    assert_eq!(rig.core.facts(server).unwrap().queue_length, 4);
    rig.answer(server, client, "1|2|C:SELECT 1|Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// Without a Sync in sight everything is dropped until one comes.
#[test]
fn errored_link_drops_to_the_sync() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "P::bad|H");
    assert_eq!(
        rig.answer(server, client, "E:42601:no"),
        "E:SERROR:C42601:Mno"
    );
    assert_eq!(rig.ask(client, server, "B::|E:|Q:x|d:1|S"), "S");
    rig.answer(server, client, "Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// An error of a simple query leaves its entry until Z.
#[test]
fn error_of_a_query() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "Q:bad|Q:good");
    rig.answer(server, client, "E:42601:no|Z:I|C:SELECT 1|Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// An error nobody asked for is passed on: the server is about to die.
#[test]
fn error_with_an_empty_queue() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "Q:begin");
    rig.answer(server, client, "C:BEGIN|Z:T");
    assert!(rig.answer(server, client, "E:57P01:bye").starts_with('E'));
    rig.core.ended(server, "");
    assert_eq!(rig.events()[1], "FAULT server_crashed");
}

/// An error longer than what is collected is streamed and still acts.
#[test]
fn a_huge_error() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "P::bad|B::|S");
    let text = format!("E:42601:{}|Z:I", "x".repeat(100_000));
    rig.answer(server, client, &text);
    assert_eq!(rig.mode(server), "idle");
}

/// FunctionCall passes its result and ends at Z.
#[test]
fn function_call() {
    let mut rig = Rig::transaction();
    let (server, client) = (rig.server(), rig.client());
    rig.ask(client, server, "F:abcdefghij");
    assert_eq!(rig.answer(server, client, "V:1234|Z:I"), "V:1234|Z:I");
    assert_eq!(rig.mode(server), "idle");
}
