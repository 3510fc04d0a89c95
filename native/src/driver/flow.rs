//! The way of bytes between a socket and the core, through TLS if it is on.

use std::mem;

use crate::core::Core;
use crate::driver::table::{Sock, REPORTED};
use crate::tls::TlsStream;

/// The end of a send this large is always reported: the other side may be throttled because of it.
/// Well below the core's low mark.
const LARGE_BYTES: usize = 16 * 1024;

/// What is under way up to this size is not worth telling the core: no limit is near.
pub const SMALL: usize = 4096;

/// Takes bytes from the wire to the core; the reason if the connection is over.
pub fn deliver(
    core: &mut Core,
    sock: &mut Sock,
    data: &[u8],
    plain: &mut Vec<u8>,
) -> Option<String> {
    let Some(tls) = &mut sock.tls else {
        core.received(sock.id, data);
        return None;
    };
    plain.clear();
    let fed = tls.feed(data, plain);
    if let Some(facts) = fed.secured {
        core.secured(sock.id, facts);
    }
    if !plain.is_empty() {
        core.received(sock.id, plain);
    }
    fed.over
}

/// Moves what is to be sent next into `sock.out`, which must be empty; false if there is nothing.
pub fn fill(core: &mut Core, sock: &mut Sock) -> bool {
    debug_assert!(sock.out.is_empty());
    sock.done = 0;
    if let Some(tls) = &mut sock.tls {
        let mut out = Vec::new();
        seal(core, sock.id, tls, &mut out);
        sock.out = out;
    } else {
        sock.out = core.take_output(sock.id);
    }
    if sock.out.len() >= LARGE_BYTES {
        sock.flags |= REPORTED;
    }
    !sock.out.is_empty()
}

fn seal(core: &mut Core, id: u64, tls: &mut TlsStream, out: &mut Vec<u8>) {
    tls.take_pending(out);
    if !tls.is_secured() {
        return;
    }
    let plain = core.take_output(id);
    tls.seal(&plain, out);
    core.recycle(plain);
    if core.is_closing(id) {
        tls.say_goodbye(out);
    }
}

/// `out` is sent: its buffer goes back.
pub fn all_sent(core: &mut Core, sock: &mut Sock) {
    core.recycle(mem::take(&mut sock.out));
    sock.done = 0;
}

/// Tells the core how much is not on the wire yet, if that changed.
pub fn report(core: &mut Core, sock: &mut Sock) {
    let unsent = sock.out.len() - sock.done;
    if unsent > SMALL {
        sock.flags |= REPORTED;
        core.sent(sock.id, unsent);
    } else if sock.has(REPORTED) {
        sock.flags &= !REPORTED;
        core.sent(sock.id, 0);
    }
}

/// True if the socket should be read: the core wants bytes, or TLS does.
pub fn wants_read(core: &Core, sock: &Sock) -> bool {
    core.wants_read(sock.id) || sock.tls.as_ref().is_some_and(|tls| !tls.is_secured())
}
