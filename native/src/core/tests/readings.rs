//! Texts that mean something else under other settings.

use super::rig::Rig;

const UTC: &[(&str, &str)] = &[("TimeZone", "UTC"), ("standard_conforming_strings", "on")];
const CET: &[(&str, &str)] = &[("TimeZone", "CET"), ("standard_conforming_strings", "on")];
const OFF: &[(&str, &str)] = &[("TimeZone", "UTC"), ("standard_conforming_strings", "off")];

/// A literal makes a statement of its own for each time zone; a text of parameters is one for all.
#[test]
fn literals_keep_clients_apart() {
    let mut rig = Rig::transaction();
    let (server, a, b) = (
        rig.server_with(UTC),
        rig.client_with(UTC),
        rig.client_with(CET),
    );
    assert_eq!(
        rig.ask(a, server, "P:s:select 'x'|P:p:select $1|S"),
        "P:PGBOUNCER_1:select 'x'|P:PGBOUNCER_2:select $1|S"
    );
    rig.answer(server, a, "1|1|Z:I");
    rig.ask(b, server, "P:s:select 'x'|P:p:select $1|S");
    rig.core
        .received(server, &super::rig::answers("S:TimeZone:CET|C:SET|Z:I"));
    assert_eq!(rig.hear(server), "P:PGBOUNCER_3:select 'x'|S");
    assert_eq!(rig.answer(server, b, "1|Z:I"), "1|1|Z:I");
}

/// Where the text would consist of other words nothing is parsed.
#[test]
fn other_words_are_not_parsed() {
    let mut rig = Rig::transaction();
    let (first, a) = (rig.server_with(UTC), rig.client_with(UTC));
    rig.ask(a, first, "P:s:select '\\'|S");
    rig.answer(first, a, "1|Z:I");
    rig.ask(a, first, "Q:set standard_conforming_strings to off");
    rig.answer(first, a, "C:SET|S:standard_conforming_strings:off|Z:I");
    assert_eq!(rig.ask(a, first, "B::s|S"), "B::PGBOUNCER_1|S");
    rig.answer(first, a, "2|Z:I");
    let blocker = rig.client_with(OFF);
    rig.ask(blocker, first, "Q:begin");
    let second = rig.server_with(OFF);
    assert_eq!(rig.ask(a, second, "B::s|S"), "B::PGBOUNCER_1|S");
    rig.answer(second, a, "E:26000:no|Z:I");
    assert_eq!(
        rig.ask(a, second, "CS:s|P:s:select '\\'|S"),
        "P:PGBOUNCER_2:select '\\'|S"
    );
}

/// Dates are read anew elsewhere, under a statement that those of the same time zone share.
#[test]
fn dates_are_read_anew() {
    let mut rig = Rig::transaction();
    let (first, a) = (rig.server_with(UTC), rig.client_with(UTC));
    rig.ask(a, first, "P:s:select 'x'|S");
    rig.answer(first, a, "1|Z:I");
    rig.ask(a, first, "Q:set timezone to 'CET'");
    rig.answer(first, a, "C:SET|S:TimeZone:CET|Z:I");
    let blocker = rig.client_with(CET);
    rig.ask(blocker, first, "Q:begin");
    let second = rig.server_with(CET);
    assert_eq!(
        rig.ask(a, second, "B::s|S"),
        "P:PGBOUNCER_2:select 'x'|B::PGBOUNCER_2|S"
    );
    rig.answer(second, a, "1|2|Z:I");
    let b = rig.client_with(CET);
    assert_eq!(
        rig.ask(b, second, "P:own:select 'x'|B::own|S"),
        "B::PGBOUNCER_2|S"
    );
}

/// Behind a SET that is not answered yet nobody knows how a text is read, so nobody shares it.
#[test]
fn changes_under_way() {
    let mut rig = Rig::transaction();
    let (server, a, b) = (
        rig.server_with(UTC),
        rig.client_with(UTC),
        rig.client_with(UTC),
    );
    rig.ask(a, server, "Q:set timezone to 'UTC'|P:s:select 'x'|S");
    rig.answer(server, a, "C:SET|Z:I|1|Z:I");
    assert_eq!(
        rig.ask(b, server, "P:s:select 'x'|S"),
        "P:PGBOUNCER_2:select 'x'|S"
    );
}
