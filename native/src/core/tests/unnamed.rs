//! The unnamed statement and what ends it on a server without its client's doing.

use super::rig::{ask, Rig};

/// The SETs of a link are a simple Query: the client's next Bind brings its Parse again.
#[test]
fn sets_end_it() {
    let mut rig = Rig::transaction();
    let server = rig.server_with(&[("application_name", "one")]);
    let a = rig.client_with(&[("application_name", "one")]);
    let b = rig.client_with(&[("application_name", "two")]);
    rig.ask(a, server, "P::mine|S");
    rig.answer(server, a, "1|Z:I");
    rig.ask(b, server, "B::s|S");
    rig.answer(server, b, "S:application_name:two|C:SET|Z:I");
    rig.hear(server);
    rig.answer(server, b, "E:26000:no|Z:I");
    rig.ask(a, server, "B::|S");
    rig.answer(server, a, "S:application_name:one|C:SET|Z:I");
    assert_eq!(rig.hear(server), "P::mine|B|S");
}

/// So is what Python asks, whether it is a Query or a Parse of its own.
#[test]
fn python_ends_it() {
    let mut rig = Rig::transaction();
    let (server, a, b) = (rig.server(), rig.client(), rig.client());
    rig.ask(a, server, "P::mine|S");
    rig.answer(server, a, "1|Z:I");
    assert!(rig.core.take(server).unwrap());
    rig.core.send(server, &ask("Q:check")).unwrap();
    rig.answer(server, a, "C:SELECT 1|Z:I");
    rig.core.park(server).unwrap();
    rig.hear(server);
    assert_eq!(rig.ask(b, server, "B::|S"), "C:S|B|S");
    rig.answer(server, b, "3|E:26000:no|Z:I");
    assert_eq!(rig.ask(a, server, "B::|S"), "P::mine|B|S");
}
