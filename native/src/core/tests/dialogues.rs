//! Dialogue: login packets, one message at a time, and the bare answer to SSLRequest.

use super::rig::{answers, Rig};
use crate::core::{Core, CoreEvent};

const SSL: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];

fn startup(body: usize) -> Vec<u8> {
    [&(body as u32 + 4).to_be_bytes()[..], &vec![1; body]].concat()
}

/// Packets are given one at a time, whatever the chunking.
#[test]
fn one_packet_at_a_time() {
    let data = [SSL, &startup(50), &answers("p:secret")].concat();
    for cut in 0..data.len() {
        let mut core = Core::new();
        let id = core.accepted(7);
        assert!(core.events().is_empty());
        core.received(id, &data[..cut]);
        core.received(id, &data[cut..]);
        assert_eq!(
            core.events(),
            [
                CoreEvent::Accepted {
                    conn: id,
                    listener: 7
                },
                CoreEvent::Packet {
                    conn: id,
                    payload: SSL[4..].into()
                }
            ]
        );
        core.proceed_startup(id).unwrap();
        assert_eq!(
            core.events(),
            [CoreEvent::Packet {
                conn: id,
                payload: vec![1; 50]
            }]
        );
        assert_eq!(core.unread(id), 11);
        core.proceed(id, 100).unwrap();
        assert_eq!(
            core.events(),
            [CoreEvent::Message {
                conn: id,
                kind: b'p',
                payload: b"secret".into()
            }]
        );
    }
}

/// A TLS handshake as the first byte consumes nothing.
#[test]
fn direct_tls() {
    let mut core = Core::new();
    let id = core.accepted(7);
    core.received(id, b"\x16\x03\x01");
    assert_eq!(core.events()[1], CoreEvent::DirectTls { conn: id });
    assert_eq!(core.take_unread(id), b"\x16\x03\x01");
}

/// Oversize freezes the connection.
#[test]
fn oversize() {
    let mut core = Core::new();
    let id = core.accepted(7);
    core.overdue(0);
    assert_eq!(core.events().len(), 1);
    core.received(id, &[0x7f, 0xff, 0xff, 0xff, 1]);
    assert_eq!(
        core.events(),
        [CoreEvent::Oversize {
            conn: id,
            header: vec![0x7f, 0xff, 0xff, 0xff, 1]
        }]
    );
    assert!(!core.wants_read(id));
    core.received(id, SSL);
    assert!(core.events().is_empty());
}

/// The bare answer to SSLRequest stops the parsing, so bytes stuffed behind it are seen.
#[test]
fn the_answer_to_ssl_request() {
    let mut core = Core::new();
    let id = core.dialing();
    core.connected(id);
    core.events();
    core.send(id, SSL).unwrap();
    core.received(id, b"S");
    core.received(id, &answers("N:00000:stuffed"));
    assert_eq!(
        core.events(),
        [CoreEvent::Message {
            conn: id,
            kind: b'S',
            payload: vec![]
        }]
    );
    assert!(core.unread(id) > 0);
    core.send(id, &startup(20)).unwrap();
    assert_eq!(core.events().len(), 1);
}

/// A server's dialogue gives every message at once.
#[test]
fn server_messages() {
    let mut rig = Rig::transaction();
    let id = rig.core.dialing();
    rig.core.connected(id);
    rig.events();
    rig.core.received(id, &answers("R:0000|S:TimeZone:UTC|Z:I"));
    assert_eq!(rig.events().len(), 3);
}

/// A failed connect is told as one.
#[test]
fn connect_failed() {
    let mut rig = Rig::transaction();
    let id = rig.core.dialing();
    rig.core.ended(id, "Connection refused");
    assert_eq!(rig.events(), ["CLOSED connect failed: Connection refused"]);
    assert_eq!(rig.core.proceed(id, 1), Err(crate::core::VerbError::Dead));
}
