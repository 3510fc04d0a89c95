//! Message headers, known types, and the few layouts the core must read or write.

/// Type byte and length.
pub const HEADER: usize = 5;
/// Bound of everything that is collected whole, Parse apart.
pub const COLLECT_LIMIT: usize = 64 * 1024;
/// A longer Query or Execute is streamed unread.
pub const PEEK_LIMIT: usize = 1024;

/// Type and length field, once five bytes are there. The length is not checked.
#[inline]
pub fn header(data: &[u8]) -> Option<(u8, u32)> {
    let head = data.get(..HEADER)?;
    Some((
        head[0],
        u32::from_be_bytes([head[1], head[2], head[3], head[4]]),
    ))
}

/// True for the messages a client may send after login.
#[inline]
pub fn from_client(kind: u8) -> bool {
    matches!(
        kind,
        b'Q' | b'P' | b'B' | b'E' | b'D' | b'C' | b'S' | b'H' | b'F' | b'd' | b'c' | b'f' | b'X'
    )
}

/// True for the messages a server may send after login.
#[inline]
pub fn from_server(kind: u8) -> bool {
    matches!(
        kind,
        b'D' | b'd'
            | b'C'
            | b'Z'
            | b'T'
            | b'1'
            | b'2'
            | b'3'
            | b't'
            | b'n'
            | b's'
            | b'I'
            | b'E'
            | b'N'
            | b'S'
            | b'A'
    ) || matches!(kind, b'G' | b'H' | b'W' | b'c' | b'V')
}

/// Whether a server's length field can be true for this type.
#[inline]
pub fn server_length_ok(kind: u8, length: u32) -> bool {
    match kind {
        b'1' | b'2' | b'3' | b'n' | b's' | b'I' | b'c' => length == 4,
        b'Z' => length == 5,
        b'S' | b'C' => (4..=COLLECT_LIMIT as u32).contains(&length),
        _ => (4..=i32::MAX as u32).contains(&length),
    }
}

/// Splits at the first NUL: the text before it, the rest behind it.
#[inline]
pub fn text(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(0, data)?;
    Some((&data[..end], &data[end + 1..]))
}

/// Writes one message whose body is the given parts.
pub fn put(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length: usize = 4 + parts.iter().map(|part| part.len()).sum::<usize>();
    out.reserve(length + 1);
    out.push(kind);
    out.extend_from_slice(&(length as u32).to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// One field of an ErrorResponse body, or nothing.
pub fn error_field(body: &[u8], field: u8) -> Option<&[u8]> {
    let mut rest = body;
    while let Some((&code, after)) = rest.split_first() {
        let (value, next) = text(after)?;
        if code == field {
            return Some(value);
        }
        rest = next;
    }
    None
}

/// Bytes as lower-case hexadecimal text, for a refused header.
pub fn hex(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header is read only once all five bytes are there.
    #[test]
    fn header_cut_at_every_byte() {
        let whole = b"Q\0\0\0\x08abcd";
        for cut in 0..whole.len() {
            assert_eq!(header(&whole[..cut]), (cut >= HEADER).then_some((b'Q', 8)));
        }
    }

    /// Error fields are found by code, and a body without terminators gives none.
    #[test]
    fn error_fields() {
        assert_eq!(
            error_field(b"SERROR\0C0A000\0Mtext\0\0", b'C'),
            Some(&b"0A000"[..])
        );
        assert_eq!(error_field(b"SERROR\0\0", b'M'), None);
        assert_eq!(error_field(b"SERROR", b'S'), None);
    }
}
