//! Hostile lengths and types, from both sides: one connection closes, nothing panics.

use proptest::prelude::*;

use super::rig::{asks, message, Rig};

const LENGTHS: [u32; 7] = [0, 1, 3, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff];

/// Every client message with an impossible length faults that client, parked or linked.
#[test]
fn client_lengths() {
    for linked in [false, true] {
        for kind in 0..=255u8 {
            for length in LENGTHS {
                let mut rig = Rig::transaction();
                let (server, client) = (rig.server(), rig.client());
                if linked {
                    rig.ask(client, server, "Q:begin");
                    rig.answer(server, client, "C:BEGIN|Z:T");
                }
                rig.core
                    .received(client, &[&[kind][..], &length.to_be_bytes()].concat());
                let events = rig.events();
                if length != 0x7fff_ffff {
                    assert!(
                        events[0].starts_with("FAULT bad_packet_header"),
                        "{kind} {length}"
                    );
                } else {
                    assert!(
                        events.is_empty() || events[0].starts_with("FAULT"),
                        "{kind}"
                    );
                }
            }
        }
    }
}

/// Every server message with an impossible length closes that server, idle, linking or linked.
#[test]
fn server_lengths() {
    for state in 0..3 {
        for kind in 0..=255u8 {
            for length in LENGTHS {
                let mut rig = Rig::transaction();
                let server = rig.server_with(&[("TimeZone", "UTC")]);
                let zone = if state == 1 { "X" } else { "UTC" };
                let client = rig.client_with(&[("TimeZone", zone)]);
                if state > 0 {
                    rig.ask(client, server, "Q:x");
                }
                rig.core
                    .received(server, &[&[kind][..], &length.to_be_bytes()].concat());
                if length != 0x7fff_ffff {
                    assert_eq!(rig.mode(server), "closing", "{state} {kind} {length}");
                }
            }
        }
    }
}

/// Broken layouts are told by their own keys.
#[test]
fn broken_layouts() {
    for (kind, body, key) in [
        (b'P', &b"no end"[..], "broken_parse"),
        (b'P', b"a\0no end", "broken_parse"),
        (b'B', b"p\0no end", "broken_bind"),
        (b'D', b"", "broken_describe"),
        (b'D', b"Sname", "broken_describe"),
        (b'D', b"Xname\0", "broken_describe"),
        (b'D', b"Sa\0b\0", "broken_describe"),
        (b'C', b"S", "broken_close"),
    ] {
        let mut rig = Rig::transaction();
        let (server, client) = (rig.server(), rig.client());
        rig.core.received(client, &message(kind, body));
        assert_eq!(rig.events(), [format!("FAULT {key}")]);
        assert_eq!(rig.mode(server), "idle");
    }
}

/// Names are bounded: a Bind without an end to them, and long Describes and Closes, are refused.
#[test]
fn names_are_bounded() {
    for (kind, key) in [
        (b'B', "broken_bind"),
        (b'D', "broken_describe"),
        (b'C', "broken_close"),
    ] {
        let mut rig = Rig::transaction();
        let client = rig.client();
        let data = message(kind, &vec![b'S'; 70_000]);
        for chunk in data.chunks(10_000) {
            rig.core.received(client, chunk);
        }
        assert_eq!(rig.events(), [format!("FAULT {key}")]);
    }
}

/// An announced length allocates nothing by itself.
#[test]
fn announced_lengths_allocate_nothing() {
    let mut rig = Rig::transaction();
    let client = rig.client();
    rig.core
        .received(client, &[b'P', 0x7f, 0xff, 0xff, 0xff, b'a']);
    assert_eq!(rig.core.facts(client).unwrap().recv_pending, 6);
}

/// max_packet_size bounds the client's messages.
#[test]
fn max_packet_size() {
    let mut rig = Rig::transaction();
    rig.core.set_limits(crate::core::EngineLimits {
        max_packet_size: 100,
        ..Default::default()
    });
    let client = rig.client();
    rig.core
        .received(client, &asks(&format!("Q:{}", "x".repeat(100))));
    assert_eq!(rig.events(), ["FAULT bad_packet_header 5100000069"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Random bytes from both sides never panic.
    #[test]
    fn random_bytes(
        ask in proptest::collection::vec(any::<u8>(), 0..300),
        reply in proptest::collection::vec(any::<u8>(), 0..300),
        fresh in any::<bool>(),
    ) {
        let mut rig = Rig::transaction();
        let (server, client) = (rig.server(), if fresh { rig.core.accepted(1) } else { rig.client() });
        rig.core.received(client, &asks("Q:x"));
        rig.core.received(client, &ask);
        rig.core.received(server, &reply);
        rig.core.ended(server, "");
        rig.core.ended(client, "");
    }
}
