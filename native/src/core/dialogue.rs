//! Framing while Python leads the talk: startup packets, and whole messages within a limit.

use super::frames::{self, HEADER};

pub const STARTUP_MIN: u32 = 8;
pub const STARTUP_MAX: u32 = 10_000;
/// The first byte of a TLS handshake.
pub const HANDSHAKE: u8 = 0x16;
/// The whole SSLRequest: its answer is one bare byte.
pub const SSL_REQUEST: &[u8] = &[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
/// The whole GSSENCRequest.
pub const GSSENC_REQUEST: &[u8] = &[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x30];
/// A client in dialogue is not read while more than this is unread.
pub const UNREAD_LIMIT: usize = 64 * 1024;

/// The bit of a request for encryption, if that is all there is.
pub fn encryption(data: &[u8]) -> Option<u8> {
    match data {
        SSL_REQUEST => Some(1),
        GSSENC_REQUEST => Some(2),
        _ => None,
    }
}

/// What stands at the front; lengths count from the first byte.
#[derive(Debug, PartialEq, Eq)]
pub enum Framed {
    More,
    Whole {
        total: usize,
    },
    /// The length is not allowed; this much of the head has been seen.
    Oversize {
        seen: usize,
    },
}

/// A packet with four bytes of length.
pub fn startup(data: &[u8]) -> Framed {
    let Some(head) = data.get(..4) else {
        return Framed::More;
    };
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    if !(STARTUP_MIN..=STARTUP_MAX).contains(&length) {
        return Framed::Oversize {
            seen: data.len().min(8),
        };
    }
    whole(data, length as usize)
}

/// A message of at most `limit` bytes, type and length included.
pub fn message(data: &[u8], limit: u32) -> Framed {
    let Some((_, length)) = frames::header(data) else {
        return Framed::More;
    };
    if length < 4 || u64::from(length) + 1 > u64::from(limit) {
        return Framed::Oversize { seen: HEADER };
    }
    whole(data, length as usize + 1)
}

fn whole(data: &[u8], total: usize) -> Framed {
    if data.len() >= total {
        Framed::Whole { total }
    } else {
        Framed::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A startup packet is whole at its last byte and not before.
    #[test]
    fn startup_cut_at_every_byte() {
        for cut in 0..SSL_REQUEST.len() {
            assert_eq!(startup(&SSL_REQUEST[..cut]), Framed::More);
        }
        assert_eq!(startup(SSL_REQUEST), Framed::Whole { total: 8 });
    }

    /// Lengths outside their bounds are refused as soon as they are known.
    #[test]
    fn hostile_lengths() {
        for length in [0u32, 3, 4, 7, 10_001, i32::MAX as u32, u32::MAX] {
            assert_eq!(
                startup(&length.to_be_bytes()),
                Framed::Oversize { seen: 4 },
                "{length}"
            );
        }
        for length in [0u32, 3, 100, i32::MAX as u32, u32::MAX] {
            let data = [&b"p"[..], &length.to_be_bytes()].concat();
            assert_eq!(
                message(&data, 100),
                Framed::Oversize { seen: 5 },
                "{length}"
            );
        }
        assert_eq!(message(b"p\0\0\0\x04", 100), Framed::Whole { total: 5 });
    }
}
