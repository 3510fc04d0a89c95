//! Pools: the line, the idle list, decisions, holds, pauses and times.

use super::rig::{answers, asks, spec, Rig};
use crate::core::{PoolMode, PoolSpec};

const DONE: &str = "C:SELECT 1|Z:I";

/// Clients wait in line, first come first served; a released server goes to the next at once.
#[test]
fn first_in_first_out() {
    let mut rig = Rig::transaction();
    let clients = [rig.client(), rig.client(), rig.client()];
    for (at, client) in clients.iter().enumerate() {
        rig.core.received(*client, &asks(&format!("Q:{at}")));
    }
    assert_eq!(rig.events(), ["STARVED"]);
    assert_eq!(rig.core.waiting_clients(rig.pool).unwrap(), clients);
    let server = rig.server();
    for (at, client) in clients.iter().enumerate() {
        assert_eq!(rig.hear(server), format!("Q:{at}"));
        assert_eq!(rig.answer(server, *client, DONE), DONE);
    }
    assert_eq!(rig.mode(server), "idle");
    let counts = rig.core.pool_counts(rig.pool).unwrap();
    assert_eq!(
        (
            counts.cl_parked,
            counts.cl_waiting,
            counts.sv_idle,
            counts.sv_linked
        ),
        (3, 0, 1, 0)
    );
}

/// The first server that becomes idle is told of, if somebody asked; one that serves the line is not.
#[test]
fn rested() {
    let mut rig = Rig::transaction();
    let (server, a, b) = (rig.server(), rig.client(), rig.client());
    rig.core.received(a, &asks("Q:a"));
    rig.core.received(b, &asks("Q:b"));
    rig.events();
    rig.core.tell_rest(rig.pool).unwrap();
    rig.hear(server);
    rig.answer(server, a, DONE);
    assert!(rig.events().is_empty());
    rig.hear(server);
    rig.answer(server, b, DONE);
    assert_eq!(rig.events(), ["RESTED"]);
    rig.core.received(a, &asks("Q:a"));
    rig.hear(server);
    rig.answer(server, a, DONE);
    assert!(rig.events().is_empty());
}

/// A hushed pool starves without a word, until the hush ends.
#[test]
fn hushed() {
    let mut rig = Rig::transaction();
    let clients = [rig.client(), rig.client()];
    rig.core.hush_pool(rig.pool, true).unwrap();
    rig.core.received(clients[0], &asks("Q:a"));
    assert!(rig.events().is_empty());
    rig.core.hush_pool(rig.pool, false).unwrap();
    rig.core.received(clients[1], &asks("Q:b"));
    assert_eq!(rig.events(), ["STARVED"]);
    assert_eq!(rig.core.waiting_clients(rig.pool).unwrap(), clients);
}

/// A releasing client that has more to say stands behind those who wait.
#[test]
fn the_line_comes_first() {
    let mut rig = Rig::transaction();
    let (server, a, b) = (rig.server(), rig.client(), rig.client());
    rig.ask(a, server, "Q:a");
    rig.core.received(b, &asks("Q:b"));
    rig.core.received(server, &answers(DONE));
    assert_eq!(rig.ask(a, server, "Q:a2"), "Q:b");
    assert_eq!(rig.core.waiting_clients(rig.pool).unwrap(), [a]);
}

/// LIFO by default, FIFO with round_robin.
#[test]
fn idle_order() {
    for round_robin in [false, true] {
        let mut rig = Rig::new(PoolSpec {
            round_robin,
            ..spec(PoolMode::Transaction)
        });
        let servers = [rig.server(), rig.server()];
        let client = rig.client();
        rig.core.received(client, &asks("Q:x"));
        let expected = servers[usize::from(!round_robin)];
        assert_eq!(rig.core.link_of(client), Ok(expected));
    }
}

/// Bytes behind the releasing Z are an idle server's, not the next client's.
#[test]
fn stray_bytes_reach_nobody() {
    let mut rig = Rig::transaction();
    let (server, a, b) = (rig.server(), rig.client(), rig.client());
    rig.ask(a, server, "Q:a");
    rig.core.received(b, &asks("Q:b"));
    rig.events();
    rig.core
        .received(server, &answers("C:SELECT 1|Z:I|D:stray"));
    assert_eq!(rig.hear(a), DONE);
    assert_eq!((rig.hear(b), rig.mode(b)), (String::new(), "waiting"));
    assert_eq!(rig.events(), ["CLOSED idle server got dirty"]);
}

/// An idle server may report and notify; anything else closes it.
#[test]
fn idle_servers() {
    let mut rig = Rig::transaction();
    let server = rig.server();
    rig.core
        .received(server, &answers("S:TimeZone:X|N:0:hi|A:xxxxx"));
    assert_eq!(
        rig.core.parameters(server).unwrap(),
        [("TimeZone".as_bytes().into(), "X".as_bytes().into())]
    );
    assert_eq!(rig.mode(server), "idle");
    rig.core.received(server, b"E");
    assert_eq!(rig.events(), ["CLOSED idle server got dirty"]);
    assert_eq!(rig.core.idle_servers(rig.pool).unwrap(), []);
    let server = rig.server();
    rig.core.ended(server, "");
    assert_eq!(rig.events(), ["CLOSED server conn crashed?"]);
}

/// A marked server comes back to Python once; a pool's mark stands.
#[test]
fn decisions() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.core.decide(server, true).unwrap();
    rig.ask(a, server, "Q:x");
    rig.answer(server, a, DONE);
    assert_eq!(
        (rig.events(), rig.mode(server)),
        (vec!["RETURNED".into()], "dialogue")
    );
    rig.core.park(server).unwrap();
    rig.ask(a, server, "Q:x");
    rig.answer(server, a, DONE);
    assert_eq!(rig.mode(server), "idle");
    rig.core
        .set_pool(
            rig.pool,
            PoolSpec {
                decide: true,
                ..spec(PoolMode::Transaction)
            },
        )
        .unwrap();
    rig.ask(a, server, "Q:x");
    rig.answer(server, a, DONE);
    assert_eq!(rig.mode(server), "dialogue");
    rig.core.park(server).unwrap();
    assert_eq!(rig.mode(server), "idle");
}

/// A held server is nobody's until the last hold ends, and only then decided on.
#[test]
fn holds() {
    let mut rig = Rig::transaction();
    let (server, a, b) = (rig.server(), rig.client(), rig.client());
    rig.ask(a, server, "Q:a");
    rig.core.hold(server).unwrap();
    rig.core.hold(server).unwrap();
    rig.answer(server, a, DONE);
    assert_eq!(rig.mode(server), "held");
    rig.core.received(b, &asks("Q:b"));
    rig.core.unhold(server).unwrap();
    assert_eq!(rig.mode(b), "waiting");
    rig.core.unhold(server).unwrap();
    assert_eq!(rig.hear(server), "Q:b");
}

/// Nobody is linked in a paused pool; on resume the line is served.
#[test]
fn pause_and_resume() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.core.pause_pool(rig.pool, true).unwrap();
    assert_eq!(rig.ask(a, server, "Q:a"), "");
    assert_eq!(rig.mode(a), "waiting");
    rig.core.pause_pool(rig.pool, false).unwrap();
    assert_eq!(rig.hear(server), "Q:a");
}

/// `take` gives an idle server to Python, `close` frees the pool.
#[test]
fn take_and_close() {
    let mut rig = Rig::transaction();
    let server = rig.server();
    assert_eq!(rig.core.take(server), Ok(true));
    assert_eq!(rig.core.take(server), Ok(false));
    assert!(rig.core.drop_pool(rig.pool).is_err());
    rig.core.close(server, b"X\0\0\0\x04", "").unwrap();
    assert!(rig.core.is_closing(server));
    assert_eq!(rig.hear(server), "X");
    rig.core.gone(server);
    assert_eq!(rig.core.drop_pool(rig.pool), Ok(()));
    assert!(rig.events().is_empty());
}

/// Closing a linked client gives the reason to its server; closing a server, to its client.
#[test]
fn close_of_linked() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "Q:a");
    rig.core.close(a, b"", "query timeout").unwrap();
    assert_eq!(rig.events(), ["CLOSED query timeout"]);
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "Q:a");
    rig.core
        .close(server, b"", "admin forced disconnect")
        .unwrap();
    assert_eq!(
        rig.events(),
        ["FAULT server_closed admin forced disconnect"]
    );
}

/// Each limit is told once it has passed, and not before.
#[test]
fn overdue() {
    let mut rig = Rig::new(PoolSpec {
        query_timeout_us: 100,
        query_wait_timeout_us: 300,
        query_wait_notify_us: 200,
        idle_transaction_timeout_us: 400,
        ..spec(PoolMode::Transaction)
    });
    let (server, a, b) = (rig.server(), rig.client(), rig.client());
    rig.ask(a, server, "Q:a");
    rig.core.received(b, &asks("Q:b"));
    assert_eq!(rig.core.overdue(1_100), []);
    assert_eq!(rig.core.overdue(1_101), [(a, "query_timeout")]);
    rig.core.set_now(1_150);
    rig.answer(server, a, "C:BEGIN|Z:T");
    assert_eq!(rig.core.overdue(1_201), [(b, "query_wait_notify")]);
    assert_eq!(rig.core.overdue(1_250), []);
    assert_eq!(rig.core.overdue(1_301), [(b, "query_wait_timeout")]);
    rig.core.unwait(b).unwrap();
    assert_eq!(rig.core.overdue(1_551), [(a, "idle_transaction_timeout")]);
    rig.core.readmit(b, 1, 1).unwrap();
    let idle = rig.client();
    rig.core.readmit(idle, 50, -1).unwrap();
    assert!(rig
        .core
        .overdue(1_201)
        .contains(&(idle, "client_idle_timeout")));
}

/// A slow side stops the reading of the other until it has caught up.
#[test]
fn back_pressure() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.ask(a, server, "Q:a");
    rig.core
        .received(server, &answers(&format!("D:{}", "x".repeat(200_000))));
    assert!(!rig.core.wants_read(server));
    let taken = rig.core.take_output(a).len();
    rig.core.sent(a, taken);
    assert!(!rig.core.wants_read(server));
    rig.core.sent(a, 32 * 1024 - 1);
    assert!(rig.core.wants_read(server));
}

/// Idle connections hold no buffers, and a client that is stuck closing is reset.
#[test]
fn buffers_and_resets() {
    let mut rig = Rig::transaction();
    let (server, a) = (rig.server(), rig.client());
    rig.core.received(a, &asks("Q:a")[..3]);
    rig.core.received(a, &asks("Q:a")[3..]);
    let out = rig.core.take_output(server);
    rig.core.recycle(out);
    rig.core.received(server, &answers(DONE));
    assert_eq!(rig.core.facts(a).unwrap().recv_pending, 0);
    rig.core.close(a, b"bye", "").unwrap();
    rig.core.overdue(10_000_999);
    assert!(!rig.core.must_reset(a));
    rig.core.overdue(10_001_000);
    assert!(rig.core.must_reset(a));
}
