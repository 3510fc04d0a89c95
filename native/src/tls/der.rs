//! A bounded walk through a certificate's DER, for the few things rustls' parser refuses or does not tell.

use std::net::IpAddr;

use rustls::pki_types::{CertificateDer, ServerName};

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

const COMMON_NAME_ID: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES_ID: &[u8] = &[0x55, 0x1d, 0x11];
/// The identifier of name constraints as it stands in an extension, tag and length included.
const NAME_CONSTRAINTS: &[u8] = &[0x06, 0x03, 0x55, 0x1d, 0x1e];
const EC_P521: &[u8] = &[
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23,
];
const ED448: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x71];
const RSA: &[u8] = &[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01,
];
/// The RSA keys whose signatures the provider checks.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// [0] { INTEGER 2 }: version 3.
const VERSION_3: &[u8] = &[VERSION, 0x03, INTEGER, 0x01, 0x02];
/// No DNS name is longer.
const NAME_LIMIT: usize = 253;

struct Reader<'a>(&'a [u8]);

struct Element<'a> {
    tag: u8,
    content: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The next element; lengths are definite, in the shortest form and below 2^24.
    fn next(&mut self) -> Option<Element<'a>> {
        let (&tag, &first) = (self.0.first()?, self.0.get(1)?);
        let (header, length) = match first {
            0..=0x7f => (2, usize::from(first)),
            0x81..=0x83 => {
                let count = usize::from(first & 0x7f);
                let digits = self.0.get(2..2 + count)?;
                let length = digits
                    .iter()
                    .fold(0, |sum, digit| sum << 8 | usize::from(*digit));
                if digits[0] == 0 || length < 0x80 {
                    return None;
                }
                (2 + count, length)
            }
            _ => return None,
        };
        let whole = self.0.get(..header + length)?;
        self.0 = &self.0[whole.len()..];
        Some(Element {
            tag,
            content: &whole[header..],
        })
    }

    fn expect(&mut self, tag: u8) -> Option<Element<'a>> {
        self.next().filter(|element| element.tag == tag)
    }

    fn optional(&mut self, tag: u8) -> Option<Element<'a>> {
        if self.0.first() == Some(&tag) {
            return self.next();
        }
        None
    }
}

/// All of `data` as one element of this kind.
fn only(data: &[u8], tag: u8) -> Option<&[u8]> {
    let mut reader = Reader(data);
    let found = reader.expect(tag)?;
    reader.0.is_empty().then_some(found.content)
}

/// The parts of a certificate that are read here.
pub struct Outline<'a> {
    /// X.509 version 1: no version is written.
    first_version: bool,
    fields: &'a [u8],
    /// Signature algorithm and signature.
    signed: &'a [u8],
    subject: &'a [u8],
    key: &'a [u8],
    extensions: Option<&'a [u8]>,
}

impl<'a> Outline<'a> {
    /// None for what is no certificate.
    pub fn of(certificate: &'a [u8]) -> Option<Outline<'a>> {
        let mut outer = Reader(only(certificate, SEQUENCE)?);
        let fields = outer.expect(SEQUENCE)?.content;
        let signed = outer.0;
        outer.expect(SEQUENCE)?;
        outer.expect(BIT_STRING)?;
        let mut inner = Reader(fields);
        let version = inner.optional(VERSION);
        inner.expect(INTEGER)?; // serial number
        inner.expect(SEQUENCE)?; // signature algorithm
        inner.expect(SEQUENCE)?; // issuer
        inner.expect(SEQUENCE)?; // validity
        let subject = inner.expect(SEQUENCE)?.content;
        let key = inner.expect(SEQUENCE)?.content;
        let extensions = match inner.0 {
            [] => None,
            rest => Some(only(rest, EXTENSIONS)?),
        };
        outer.0.is_empty().then_some(Outline {
            first_version: version.is_none(),
            fields,
            signed,
            subject,
            key,
            extensions,
        })
    }

    /// A version 1 certificate's fields in the clothes of version 3, which rustls reads; None for any other.
    ///
    /// Its signature no longer holds, so this is for reading its key and nothing else: never for judging a chain.
    pub fn dressed_as_version_3(&self) -> Option<CertificateDer<'static>> {
        if !self.first_version || self.extensions.is_some() {
            return None;
        }
        let fields = wrap(SEQUENCE, &[VERSION_3, self.fields]);
        Some(CertificateDer::from(wrap(
            SEQUENCE,
            &[&fields, self.signed],
        )))
    }

    /// Whether the provider has no means to check a signature by this certificate's key.
    pub fn key_is_beyond_us(&self) -> bool {
        let mut reader = Reader(self.key);
        let (Some(kind), Some(key)) = (reader.expect(SEQUENCE), reader.expect(BIT_STRING)) else {
            return false;
        };
        if kind.content.starts_with(RSA) {
            return rsa_bits(key.content).is_some_and(|bits| !RSA_BITS.contains(&bits));
        }
        kind.content == EC_P521 || kind.content == ED448
    }

    /// Whether the certificate has no alternative name of the kind asked for, and its one common name is `name`.
    pub fn is_named_by_common_name(&self, name: &ServerName<'_>) -> bool {
        let kind = match name {
            ServerName::DnsName(_) => DNS_NAME,
            ServerName::IpAddress(_) => IP_ADDRESS,
            _ => return false,
        };
        // What cannot be read counts as a name that is there.
        if self.has_alternative_name(kind) != Some(false) {
            return false;
        }
        match (self.common_name(), name) {
            (Some(common), ServerName::DnsName(host)) => covers(common, host.as_ref()),
            (Some(common), ServerName::IpAddress(address)) => {
                // The address of nowhere stands for "no name".
                let address = IpAddr::from(*address);
                !address.is_unspecified() && common.parse() == Ok(address)
            }
            _ => false,
        }
    }

    fn has_alternative_name(&self, kind: u8) -> Option<bool> {
        let Some(extensions) = self.extensions else {
            return Some(false);
        };
        let mut list = Reader(only(extensions, SEQUENCE)?);
        let mut found = false;
        while !list.0.is_empty() {
            let mut extension = Reader(list.expect(SEQUENCE)?.content);
            if extension.expect(OBJECT_ID)?.content != ALTERNATIVE_NAMES_ID {
                continue;
            }
            let last = extension.next()?;
            let value = match last.tag {
                OCTET_STRING => last,
                _ => extension.expect(OCTET_STRING)?, // behind the flag "critical"
            };
            let mut names = Reader(only(value.content, SEQUENCE)?);
            while !names.0.is_empty() {
                found |= names.next()?.tag == kind;
            }
        }
        Some(found)
    }

    /// The subject's common name if there is exactly one, in plain letters.
    fn common_name(&self) -> Option<&'a str> {
        let mut parts = Reader(self.subject);
        let mut found = None;
        while !parts.0.is_empty() {
            let mut set = Reader(parts.expect(SET)?.content);
            while !set.0.is_empty() {
                let mut pair = Reader(set.expect(SEQUENCE)?.content);
                let id = pair.expect(OBJECT_ID)?;
                let value = pair.next()?;
                if id.content != COMMON_NAME_ID {
                    continue;
                }
                let readable = matches!(value.tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING)
                    && value.content.len() <= NAME_LIMIT
                    && value.content.iter().all(u8::is_ascii_graphic);
                if !readable || found.is_some() || !pair.0.is_empty() {
                    return None;
                }
                found = std::str::from_utf8(value.content).ok();
            }
        }
        found
    }
}

/// Whether a certificate may hold name constraints; a certificate under them has its common name left unread.
pub fn may_constrain_names(certificate: &[u8]) -> bool {
    certificate
        .windows(NAME_CONSTRAINTS.len())
        .any(|window| window == NAME_CONSTRAINTS)
}

/// As for an alternative name: letters of either case, and a whole first label may be a star.
fn covers(pattern: &str, host: &str) -> bool {
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    let (Some(domain), Some((label, rest))) = (pattern.strip_prefix("*."), host.split_once('.'))
    else {
        return false;
    };
    !label.is_empty()
        && domain.contains('.')
        && !domain.contains('*')
        && domain.eq_ignore_ascii_case(rest)
}

/// The length of an RSA key's modulus.
fn rsa_bits(key: &[u8]) -> Option<usize> {
    let unused_bits_and_key = key.split_first()?;
    let mut numbers = Reader(only(unused_bits_and_key.1, SEQUENCE)?);
    let modulus = numbers.expect(INTEGER)?.content;
    let start = modulus.iter().position(|byte| *byte != 0)?;
    Some((modulus.len() - start) * 8 - modulus[start].leading_zeros() as usize)
}

/// An element of these parts.
fn wrap(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let digits = length.to_be_bytes();
    let digits = &digits[digits
        .iter()
        .position(|digit| *digit != 0)
        .unwrap_or(digits.len() - 1)..];
    let mut made = vec![tag];
    if length >= 0x80 {
        made.push(0x80 | digits.len() as u8);
    }
    made.extend(digits);
    parts.iter().for_each(|part| made.extend(*part));
    made
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(kind: u8, text: &[u8]) -> Vec<u8> {
        let pair = wrap(
            SEQUENCE,
            &[&wrap(OBJECT_ID, &[COMMON_NAME_ID]), &wrap(kind, &[text])],
        );
        wrap(SET, &[&pair])
    }

    /// `key`: algorithm and the bits of the key.
    fn certificate(
        version: &[u8],
        subject: &[u8],
        key: (&[u8], &[u8]),
        extensions: &[u8],
    ) -> Vec<u8> {
        let empty = wrap(SEQUENCE, &[]);
        let key = wrap(
            SEQUENCE,
            &[&wrap(SEQUENCE, &[key.0]), &wrap(BIT_STRING, &[&[0], key.1])],
        );
        let fields = wrap(
            SEQUENCE,
            &[
                version,
                &wrap(INTEGER, &[&[1]]),
                &empty,
                &empty,
                &empty,
                &wrap(SEQUENCE, &[subject]),
                &key,
                extensions,
            ],
        );
        wrap(
            SEQUENCE,
            &[&fields, &empty, &wrap(BIT_STRING, &[&[0; 300]])],
        )
    }

    fn alternative(names: &[u8]) -> Vec<u8> {
        let value = wrap(OCTET_STRING, &[&wrap(SEQUENCE, &[names])]);
        let one = wrap(
            SEQUENCE,
            &[
                &wrap(OBJECT_ID, &[ALTERNATIVE_NAMES_ID]),
                &[1, 1, 0xff],
                &value,
            ],
        );
        wrap(EXTENSIONS, &[&wrap(SEQUENCE, &[&one])])
    }

    fn named(subject: &[u8], extensions: &[u8], asked: &str) -> bool {
        let made = certificate(VERSION_3, subject, (EC_P521, b"key"), extensions);
        let asked = ServerName::try_from(asked.to_string()).unwrap();
        Outline::of(&made).is_some_and(|outline| outline.is_named_by_common_name(&asked))
    }

    #[test]
    fn a_common_name_follows_the_rules_of_alternative_names() {
        for (common, asked, good) in [
            ("db.example", "db.example", true),
            ("DB.Example", "db.exAMPLE", true),
            ("db.example", "xdb.example", false),
            ("*.example.org", "db.example.org", true),
            ("*.example.org", "a.db.example.org", false),
            ("*.example.org", "example.org", false),
            ("*.org", "example.org", false),
            ("*", "example", false),
            ("d*.example.org", "db.example.org", false),
            ("*.*.org", "a.b.org", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("*.0.0.1", "10.0.0.1", false),
            ("10.0.0.1", "10.0.0.2", false),
            ("0.0.0.0", "0.0.0.0", false),
            ("::1", "::1", true),
        ] {
            assert_eq!(
                named(&name(UTF8_STRING, common.as_bytes()), &[], asked),
                good,
                "{common} {asked}"
            );
        }
    }

    #[test]
    fn an_alternative_name_of_the_kind_hides_the_common_name() {
        let host = name(UTF8_STRING, b"db.example");
        let address = name(UTF8_STRING, b"10.0.0.1");
        let of_host = alternative(&wrap(DNS_NAME, &[b"other"]));
        let of_address = alternative(&wrap(IP_ADDRESS, &[&[10, 0, 0, 2]]));
        assert!(!named(&host, &of_host, "db.example"));
        assert!(named(&host, &of_address, "db.example"));
        assert!(!named(&address, &of_address, "10.0.0.1"));
        assert!(named(&address, &of_host, "10.0.0.1"));
    }

    #[test]
    fn names_that_are_not_plain_count_for_nothing() {
        let good = name(UTF8_STRING, b"db.example");
        assert!(named(&good, &[], "db.example"));
        assert!(!named(
            &[good.clone(), good.clone()].concat(),
            &[],
            "db.example"
        ));
        assert!(!named(
            &name(UTF8_STRING, b"db.example\0.evil"),
            &[],
            "db.example"
        ));
        assert!(!named(&name(0x1e, b"db.example"), &[], "db.example"));
        assert!(!named(&name(UTF8_STRING, &[b'a'; 300]), &[], "db.example"));
        assert!(!named(&[], &[], "db.example"));
        // Alternative names that cannot be read may be of the kind.
        let broken = alternative(&[DNS_NAME, 0x7f, b'x']);
        assert!(!named(&good, &broken, "db.example"));
        let indefinite = wrap(EXTENSIONS, &[&[SEQUENCE, 0x80, 0, 0]]);
        assert!(!named(&good, &indefinite, "db.example"));
    }

    #[test]
    fn keys_beyond_the_provider_are_told_from_others() {
        let rsa = |bits: usize, first: u8| {
            let mut modulus = vec![0; bits / 8 + 1];
            modulus[1] = first;
            wrap(
                SEQUENCE,
                &[&wrap(INTEGER, &[&modulus]), &wrap(INTEGER, &[&[3]])],
            )
        };
        let p256 = [&EC_P521[..9], &[0x06, 0x01, 0x07]].concat();
        for (kind, key, beyond) in [
            (EC_P521, vec![4], true),
            (ED448, vec![4], true),
            (&p256[..], vec![4], false),
            (RSA, rsa(1024, 0x80), true),
            (RSA, rsa(2048, 0x80), false),
            (RSA, rsa(2048, 0x40), true),
            (RSA, rsa(8192, 0xff), false),
            (RSA, rsa(16384, 0x80), true),
            (RSA, vec![4], false),
        ] {
            let made = certificate(&[], &[], (kind, &key), &[]);
            assert_eq!(
                Outline::of(&made).unwrap().key_is_beyond_us(),
                beyond,
                "{kind:x?} {}",
                key.len()
            );
        }
    }

    #[test]
    fn only_version_1_is_dressed() {
        let plain = certificate(&[], &[], (ED448, b"key"), &[]);
        let dressed = Outline::of(&plain).unwrap().dressed_as_version_3();
        let wanted = certificate(VERSION_3, &[], (ED448, b"key"), &[]);
        assert_eq!(dressed.unwrap().as_ref(), wanted);
        assert!(Outline::of(&wanted)
            .unwrap()
            .dressed_as_version_3()
            .is_none());
        let odd = certificate(&[], &[], (ED448, b"key"), &alternative(&[]));
        assert!(Outline::of(&odd).unwrap().dressed_as_version_3().is_none());
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_walked_without_harm(
            cut in 0usize..500,
            at in 0usize..500,
            byte: u8,
            noise: Vec<u8>,
        ) {
            let subject = name(UTF8_STRING, b"db.example");
            let mut made = certificate(VERSION_3, &subject, (RSA, b"k"), &alternative(&[]));
            let length = made.len();
            prop_assert!(cut >= length || Outline::of(&made[..cut]).is_none());
            made[at % length] = byte;
            let asked = ServerName::try_from("other.example").unwrap();
            for data in [&made[..], &made[..cut.min(length)], &noise[..]] {
                if let Some(outline) = Outline::of(data) {
                    prop_assert!(!outline.is_named_by_common_name(&asked));
                    outline.key_is_beyond_us();
                    outline.dressed_as_version_3();
                }
            }
        }
    }
}
