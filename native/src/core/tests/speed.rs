//! How long the common paths take: `cargo test --release -- --ignored bench_ --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use super::rig::{answers, asks, Rig};

const ROUNDS: u32 = 1_000_000;

fn measure(name: &str, setup: (&str, &str), request: &str, reply: &str) {
    let mut rig = Rig::transaction();
    let values = [
        ("TimeZone", "UTC"),
        ("client_encoding", "UTF8"),
        ("application_name", "x"),
    ];
    let (server, client) = (rig.server_with(&values), rig.client_with(&values));
    if !setup.0.is_empty() {
        rig.core.received(client, &asks(setup.0));
        rig.core.received(server, &answers(setup.1));
    }
    let (request, reply) = (asks(request), answers(reply));
    let (mut touched, mut spare) = (Vec::new(), Vec::new());
    let start = Instant::now();
    for round in 0..ROUNDS {
        rig.core.set_now(u64::from(round));
        for (from, to, data) in [(client, server, &request), (server, client, &reply)] {
            rig.core.received(from, data);
            std::mem::swap(rig.core.output(to), &mut spare);
            black_box(&spare);
            spare.clear();
            rig.core.take_touched(&mut touched);
            touched.clear();
        }
    }
    assert_eq!(rig.mode(server), "idle");
    println!(
        "{name}: {} ns per round trip",
        start.elapsed().as_nanos() / u128::from(ROUNDS)
    );
}

/// A simple query, there and back.
#[test]
#[ignore = "a measurement"]
fn bench_simple() {
    measure(
        "simple",
        ("", ""),
        "Q:SELECT abalance FROM pgbench_accounts WHERE aid = 1;",
        "T:x|D:1|C:SELECT 1|Z:I",
    );
}

/// Bind, Execute and Sync of a prepared statement.
#[test]
#[ignore = "a measurement"]
fn bench_prepared() {
    measure(
        "prepared",
        ("P:P_0:select 1|S", "1|Z:I"),
        "B::P_0|DP:|E:|S",
        "2|T:x|D:1|C:SELECT 1|Z:I",
    );
}

/// Parse, Bind, Execute and Sync of the unnamed statement.
#[test]
#[ignore = "a measurement"]
fn bench_extended() {
    measure(
        "extended",
        ("", ""),
        "P::select 1|B::|DP:|E:|S",
        "1|2|T:x|D:1|C:SELECT 1|Z:I",
    );
}
