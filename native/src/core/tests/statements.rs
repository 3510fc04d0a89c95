//! Prepared statements in transaction mode.

use super::rig::{answers, asks, spec, Rig};
use crate::core::{PoolMode, PoolSpec};

const S1: &str = "PGBOUNCER_1";

/// A named Parse goes out under its internal name, once per server; afterwards it is answered here.
#[test]
fn parse_is_shared() {
    let mut rig = Rig::transaction();
    let (server, a, b) = (rig.server(), rig.client(), rig.client());
    assert_eq!(
        rig.ask(a, server, "P:s:select 1|S"),
        format!("P:{S1}:select 1|S")
    );
    assert_eq!(rig.answer(server, a, "1|Z:I"), "1|Z:I");
    assert_eq!(rig.ask(b, server, "P:other:select 1|S"), "S");
    assert_eq!(rig.hear(b), "1");
    assert_eq!(rig.answer(server, b, "Z:I"), "Z:I");
    let stats = rig.core.pool_stats(rig.pool).unwrap();
    assert_eq!((stats.client_parse_count, stats.server_parse_count), (2, 1));
}

/// Bind and Describe use the internal name and prepare it where it is missing.
#[test]
fn statements_follow_the_client() {
    let mut rig = Rig::transaction();
    let (first, a) = (rig.server(), rig.client());
    rig.ask(a, first, "P:s:select 1|S");
    rig.answer(first, a, "1|Z:I");
    let b = rig.client();
    rig.ask(b, first, "Q:begin");
    let second = rig.server();
    assert_eq!(
        rig.ask(a, second, "B::s|DS:s|E:|S"),
        format!("P:{S1}:select 1|B::{S1}|D:S{S1}|E|S")
    );
    assert_eq!(
        rig.answer(second, a, "1|2|t:ab|T:x|C:SELECT 1|Z:I"),
        "2|t:ab|T:x|C:SELECT 1|Z:I"
    );
    assert_eq!(rig.mode(second), "idle");
}

/// A streamed Bind keeps its length right.
#[test]
fn a_large_bind() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "P:s:select 1|S");
    rig.answer(server, a, "1|Z:I");
    let bind = super::rig::message(b'B', &[b"p\0s\0".to_vec(), vec![7; 100_000]].concat());
    for chunk in bind.chunks(3000) {
        rig.core.received(a, chunk);
    }
    let expected = super::rig::message(
        b'B',
        &[b"p\0PGBOUNCER_1\0".to_vec(), vec![7; 100_000]].concat(),
    );
    assert_eq!(rig.core.take_output(server), expected);
}

/// Unknown names are the server's to judge.
#[test]
fn unknown_names_pass() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    assert_eq!(rig.ask(a, server, "B::nope|S"), "B::nope|S");
    rig.answer(server, a, "E:26000:no|Z:I");
    assert_eq!(rig.mode(server), "idle");
}

/// A failed Parse leaves no mapping and nothing in the server's cache.
#[test]
fn a_failed_parse_is_forgotten() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "P:s:bad|S");
    rig.answer(server, a, "E:42601:no|Z:I");
    assert_eq!(rig.core.facts(a).unwrap().prepared_statements, 0);
    assert_eq!(rig.core.facts(server).unwrap().prepared_statements, 0);
    assert_eq!(rig.ask(a, server, "P:s:bad|S"), "P:PGBOUNCER_2:bad|S");
}

/// A client that vanishes before the answer leaves no trace either.
#[test]
fn a_vanished_parse() {
    let mut rig = Rig::transaction();
    let (server, a, b) = (rig.server(), rig.client(), rig.client());
    rig.ask(a, server, "P:s:select 1");
    rig.core.ended(a, "");
    let server = rig.server();
    assert_eq!(
        rig.ask(b, server, "P:s:select 1|B::s|S"),
        "P:PGBOUNCER_2:select 1|B::PGBOUNCER_2|S"
    );
}

/// Close is answered at once, parked or linked, known or not.
#[test]
fn close_is_answered_here() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "P:s:select 1|S");
    rig.answer(server, a, "1|Z:I");
    rig.core.received(a, &asks("CS:s|CS:s"));
    assert_eq!(rig.hear(a), "3|3");
    assert_eq!(rig.mode(a), "parked");
    assert_eq!(rig.core.facts(a).unwrap().prepared_statements, 0);
}

/// A skipped answer waits for its turn in the pipeline.
#[test]
fn skipped_answers_keep_their_order() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "P:s:select 1|S");
    rig.answer(server, a, "1|Z:I");
    assert_eq!(rig.ask(a, server, "B::s|CS:s|S"), format!("B::{S1}|S"));
    assert_eq!(rig.hear(a), "");
    assert_eq!(rig.answer(server, a, "2|Z:I"), "2|3|Z:I");
}

/// An undone Close gives the name back.
#[test]
fn close_behind_an_error_is_undone() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "P:s:select 1|S");
    rig.answer(server, a, "1|Z:I");
    rig.ask(a, server, "B::nope|CS:s|S");
    rig.answer(server, a, "E:26000:no|Z:I");
    assert_eq!(rig.ask(a, server, "B::s|S"), format!("B::{S1}|S"));
}

/// A second Parse of a name is refused by the server itself.
#[test]
fn a_name_in_use() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "P:s:select 1|S");
    rig.answer(server, a, "1|Z:I");
    assert_eq!(
        rig.ask(a, server, "P:s:select 2|S"),
        format!("P:{S1}:select 2|S")
    );
    rig.answer(server, a, "E:42P05:dup|Z:I");
    assert_eq!(rig.ask(a, server, "B::s|S"), format!("B::{S1}|S"));
}

/// The oldest statement is closed when the cache is full, unless it is used again.
#[test]
fn eviction() {
    let spec = PoolSpec {
        max_prepared_statements: 2,
        ..spec(PoolMode::Transaction)
    };
    let mut rig = Rig::new(spec);
    let (server, a) = (rig.server(), rig.client());
    for (name, number) in [("a", 1), ("b", 2)] {
        rig.ask(a, server, &format!("P:{name}:{name}|S"));
        rig.answer(server, a, "1|Z:I");
        assert_eq!(rig.core.facts(server).unwrap().prepared_statements, number);
    }
    rig.ask(a, server, "B::a|S");
    rig.answer(server, a, "2|Z:I");
    assert_eq!(
        rig.ask(a, server, "P:c:c|S"),
        "P:PGBOUNCER_3:c|C:SPGBOUNCER_2|S"
    );
    assert_eq!(rig.answer(server, a, "1|3|Z:I"), "1|Z:I");
    assert_eq!(
        rig.ask(a, server, "B::b|S"),
        "P:PGBOUNCER_2:b|C:SPGBOUNCER_1|B::PGBOUNCER_2|S"
    );
}

/// A pipelined reset and a Parse behind it: the late tag does not wipe the new name.
#[test]
fn pipelined_reset_then_parse() {
    for sql in ["DEALLOCATE ALL", "discard all;"] {
        let mut rig = Rig::transaction();
        let (server, a) = (rig.server(), rig.client());
        rig.ask(a, server, "P:a:select 1|S");
        rig.answer(server, a, "1|Z:I");
        let sent = rig.ask(a, server, &format!("Q:{sql}|P:b:select 1|S"));
        assert_eq!(sent, format!("Q:{sql}|P:{S1}:select 1|S"));
        let tag = sql.to_uppercase().replace(';', "");
        assert_eq!(
            rig.answer(server, a, &format!("C:{tag}|Z:I|1|Z:I"))
                .matches('1')
                .count(),
            1
        );
        assert_eq!(rig.ask(a, server, "B::b|B::a|S"), format!("B::{S1}|B::a|S"));
    }
}

/// A reset that fails gives both maps back.
#[test]
fn a_failed_reset() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "P:a:select 1|S");
    rig.answer(server, a, "1|Z:I");
    rig.ask(a, server, "Q:discard all");
    assert_eq!(rig.core.facts(a).unwrap().prepared_statements, 0);
    rig.answer(server, a, "E:25001:no|Z:I");
    assert_eq!(rig.ask(a, server, "B::a|S"), format!("B::{S1}|S"));
}

/// The tag alone acts too, when the reset hides in a longer text.
#[test]
fn a_hidden_reset() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "P:a:select 1|S");
    rig.answer(server, a, "1|Z:I");
    rig.ask(a, server, "Q:select 1; deallocate all|P:b:select 2|S");
    rig.answer(server, a, "C:SELECT 1|C:DEALLOCATE ALL|Z:I|1|Z:I");
    assert_eq!(rig.ask(a, server, "B::b|B::a|S"), "B::PGBOUNCER_2|B::a|S");
}

/// A reset by the extended protocol acts when its Execute is read.
#[test]
fn an_extended_reset() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "P:a:select 1|S");
    rig.answer(server, a, "1|Z:I");
    rig.ask(a, server, "P::DEALLOCATE ALL|B::|E:|S|P:b:select 1|S");
    rig.answer(server, a, "1|2|C:DEALLOCATE ALL|Z:I|1|Z:I");
    assert_eq!(rig.core.facts(a).unwrap().prepared_statements, 1);
    assert_eq!(rig.ask(a, server, "B::b|S"), format!("B::{S1}|S"));
}

/// DEALLOCATE of a mapped name becomes one of a name the server has.
#[test]
fn deallocate_by_name() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "P:a:select 1|S");
    rig.answer(server, a, "1|Z:I");
    assert_eq!(
        rig.ask(a, server, "Q:DEALLOCATE A"),
        "P:PGBOUNCER_VOID|Q:DEALLOCATE \"PGBOUNCER_VOID\""
    );
    assert_eq!(
        rig.answer(server, a, "1|C:DEALLOCATE|Z:I"),
        "C:DEALLOCATE|Z:I"
    );
    assert_eq!(rig.core.facts(a).unwrap().prepared_statements, 0);
    assert_eq!(rig.ask(a, server, "Q:DEALLOCATE A"), "Q:DEALLOCATE A");
}

/// The same by an unnamed Parse; pipelined twice, each has its own.
#[test]
fn deallocate_by_name_extended() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "P:a:select 1|P:b:select 2|S");
    rig.answer(server, a, "1|1|Z:I");
    let sent = rig.ask(
        a,
        server,
        "P::deallocate a|B::|E:|P::deallocate \"b\"|B::|E:|S",
    );
    let one = "P::DEALLOCATE \"PGBOUNCER_VOID\"|B|P:PGBOUNCER_VOID|E";
    assert_eq!(sent, format!("{one}|{one}|S"));
    let heard = rig.answer(server, a, "1|2|1|C:DEALLOCATE|1|2|1|C:DEALLOCATE|Z:I");
    assert_eq!(heard, "1|2|C:DEALLOCATE|1|2|C:DEALLOCATE|Z:I");
    assert_eq!(rig.core.facts(a).unwrap().prepared_statements, 0);
}

/// A statement whose Parse may yet be skipped is not trusted behind a Sync, except by its own name.
#[test]
fn an_uncertain_statement() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    assert_eq!(
        rig.ask(a, server, "P:a:x|S|B::a|S|P:b:x|S"),
        format!("P:{S1}:x|S|B::{S1}|S|C:S{S1}|P:{S1}:x|S")
    );
    let heard = rig.answer(server, a, "E:42601:no|Z:I|E:26000:no|Z:I|3|1|Z:I");
    assert_eq!(heard.matches('Z').count(), 3);
    assert_eq!(rig.core.facts(server).unwrap().prepared_statements, 1);
    assert_eq!(rig.ask(a, server, "B::b|S"), format!("B::{S1}|S"));
}

/// The unnamed statement is parsed again on another server, and after somebody else's.
#[test]
fn the_unnamed_statement_follows() {
    let mut rig = Rig::transaction();
    let (server, a, b) = (rig.server(), rig.client(), rig.client());
    rig.ask(a, server, "P::one|S");
    rig.answer(server, a, "1|Z:I");
    rig.ask(b, server, "P::two|S");
    rig.answer(server, b, "1|Z:I");
    assert_eq!(rig.ask(a, server, "B::|S"), "P::one|B|S");
    assert_eq!(rig.answer(server, a, "1|2|Z:I"), "2|Z:I");
    assert_eq!(rig.ask(a, server, "B::|S"), "B|S");
    rig.answer(server, a, "2|Z:I");
    let c = rig.client();
    assert_eq!(rig.ask(c, server, "B::|S"), "C:S|B|S");
    assert!(rig.answer(server, c, "3|E:26000:no|Z:I").starts_with('E'));
    rig.ask(a, server, "Q:x");
    rig.answer(server, a, "C:SELECT 1|Z:I");
    assert_eq!(rig.ask(a, server, "B::|S"), "B|S");
}

/// In session mode, and without tracking, names pass as they are.
#[test]
fn untracked() {
    let off = PoolSpec {
        max_prepared_statements: 0,
        ..spec(PoolMode::Transaction)
    };
    for spec in [spec(PoolMode::Session), off] {
        let mut rig = Rig::new(spec);
        let (server, a) = (rig.server(), rig.client());
        let text = "P:a:select 1|B::a|D:Sa|E|C:Sa|S";
        rig.core
            .received(a, &asks("P:a:select 1|B::a|DS:a|E:|CS:a|S"));
        assert_eq!(rig.hear(server), text);
        rig.core
            .received(server, &answers("1|2|t:ab|n|C:SELECT 1|3|Z:I"));
        assert_eq!(rig.hear(a), "1|2|t:ab|n|C:SELECT 1|3|Z:I");
    }
}

/// A reset query that Python runs empties the server's cache.
#[test]
fn a_reset_in_dialogue() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "P:a:x|S");
    rig.core.decide(server, true).unwrap();
    rig.answer(server, a, "1|Z:I");
    assert_eq!(rig.events(), ["RETURNED"]);
    rig.core.send(server, &asks("Q:DISCARD ALL")).unwrap();
    rig.core.received(server, &answers("C:DISCARD ALL|Z:I"));
    rig.core.park(server).unwrap();
    rig.core.take_output(server);
    assert_eq!(rig.ask(a, server, "B::a|S"), format!("P:{S1}:x|B::{S1}|S"));
}

/// A skipped answer never falls inside a message that comes in pieces, whoever is the last to speak.
#[test]
fn answers_wait_for_the_message_boundary() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "P:a:x|S");
    rig.answer(server, a, "1|Z:I");
    rig.ask(a, server, "DS:a|CS:a");
    let reply = answers("t:ab|T:0123456789");
    rig.core.received(server, &reply[..20]);
    rig.core.received(a, &asks("CS:b|S"));
    rig.core.received(server, &reply[20..]);
    assert_eq!(rig.hear(a), "t:ab|T:0123456789|3|3");
}

/// A Query that an error may skip has not surely ended another client's unnamed statement.
#[test]
fn a_skipped_query() {
    let mut rig = Rig::transaction();
    let (server, a, b) = (rig.server(), rig.client(), rig.client());
    rig.ask(a, server, "P::secret|S");
    rig.answer(server, a, "1|Z:I");
    rig.ask(b, server, "B::nope|Q:y|S");
    rig.answer(server, b, "E:26000:no|Z:I");
    assert_eq!(rig.ask(b, server, "B::|S"), "C:S|B|S");
}

/// When both batches fail, an uncertain statement is parsed again.
#[test]
fn uncertain_twice() {
    let mut rig = Rig::transaction();
    let (first, a) = (rig.server(), rig.client());
    rig.ask(a, first, "P:a:x|S");
    rig.answer(first, a, "1|Z:I");
    rig.core.ended(first, "");
    let server = rig.server();
    rig.ask(a, server, "B::nope|B::a|S|B::nope|B::a|S");
    rig.answer(server, a, "E:26000:no|Z:I|E:26000:no|Z:I");
    assert_eq!(
        rig.ask(a, server, "B::a|S"),
        format!("C:S{S1}|P:{S1}:x|B::{S1}|S")
    );
}
