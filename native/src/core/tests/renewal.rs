//! Statements whose result type has changed.

use super::rig::Rig;

const S1: &str = "PGBOUNCER_1";
const S2: &str = "PGBOUNCER_2";
const CHANGED: &str = "E:0A000:cached plan must not change result type";

/// The client that got the error has the new plan from then on; one that did not gets the error, too.
#[test]
fn the_told_and_the_others() {
    let mut rig = Rig::transaction();
    let (server, a, b) = (rig.server(), rig.client(), rig.client());
    rig.ask(a, server, "P:a:x|S");
    rig.answer(server, a, "1|Z:I");
    rig.ask(b, server, "P:a:x|S");
    rig.answer(server, b, "Z:I");
    rig.ask(a, server, "B::a|E:|S");
    let heard = rig.answer(server, a, &format!("{CHANGED}|Z:I"));
    assert!(heard.starts_with("E:SERROR:C0A000") && heard.ends_with("Z:I"));
    let sent = rig.ask(a, server, "B::a|S");
    assert_eq!(sent, format!("P:{S2}:x|B::{S2}|S"));
    assert_eq!(rig.answer(server, a, "1|2|Z:I"), "2|Z:I");
    assert_eq!(rig.ask(b, server, "B::a|S"), format!("B::{S1}|S"));
    rig.answer(server, b, &format!("{CHANGED}|Z:I"));
    assert_eq!(rig.ask(b, server, "B::a|S"), format!("B::{S2}|S"));
}

/// A batch that describes itself is sent again, and only its good answer is seen.
#[test]
fn a_batch_sent_again() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "P:a:x|S");
    rig.answer(server, a, "1|Z:I");
    rig.ask(a, server, "B::a|DP:|E:|S");
    assert_eq!(rig.answer(server, a, CHANGED), "");
    assert_eq!(rig.answer(server, a, "Z:I"), "");
    assert_eq!(rig.hear(server), format!("P:{S2}:x|B::{S2}|D:P|E|S"));
    assert_eq!(
        rig.answer(server, a, "1|2|T:x|D:1|C:SELECT 1|Z:I"),
        "2|T:x|D:1|C:SELECT 1|Z:I"
    );
    assert_eq!((rig.mode(server), rig.mode(a)), ("idle", "parked"));
}

/// What took a statement's place is forgotten with it.
#[test]
fn heirs_end() {
    let mut rig = Rig::transaction();
    for round in 0..100 {
        let (server, a) = (rig.server(), rig.client());
        rig.ask(a, server, &format!("P:a:x{round}|S"));
        rig.answer(server, a, "1|Z:I");
        rig.ask(a, server, "B::a|S");
        rig.answer(server, a, &format!("{CHANGED}|Z:I"));
        rig.core.ended(a, "");
        rig.core.ended(server, "");
    }
    assert_eq!(rig.heirs(), 1);
}
