//! Cipher names as OpenSSL writes them, and the lists PgBouncer's settings hold.

use rustls::crypto::ring::cipher_suite as suite;
use rustls::{CipherSuite, SupportedCipherSuite};

/// Everything we have for TLS 1.2, strongest first, under OpenSSL's names.
const TLS12: [(&str, SupportedCipherSuite); 6] = [
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
];

const TLS13: [(&str, SupportedCipherSuite); 3] = [
    ("TLS_AES_256_GCM_SHA384", suite::TLS13_AES_256_GCM_SHA384),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        suite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    ("TLS_AES_128_GCM_SHA256", suite::TLS13_AES_128_GCM_SHA256),
];

/// Words for sets of ciphers, PgBouncer's and OpenSSL's; ours are all strong, so each names all of them.
const ALL_WORDS: [&str; 10] = [
    "default",
    "secure",
    "normal",
    "fast",
    "all",
    "HIGH",
    "DEFAULT",
    "ALL",
    "SECURE",
    "COMPLEMENTOFDEFAULT",
];

/// Classes of ciphers that do not exist here, so excluding them is already done.
const ABSENT_CLASSES: [&str; 26] = [
    "aNULL", "eNULL", "NULL", "EXP", "EXPORT", "LOW", "MEDIUM", "MD5", "RC4", "DES", "3DES",
    "SSLv2", "SSLv3", "ADH", "AECDH", "PSK", "SRP", "kRSA", "RSA", "DSS", "aDSS", "IDEA", "SEED",
    "CAMELLIA", "SHA1", "SHA",
];

/// The OpenSSL name of a suite.
pub fn openssl_name(suite: CipherSuite) -> String {
    let known = TLS12
        .iter()
        .chain(TLS13.iter())
        .find(|(_, known)| known.suite() == suite);
    match known {
        Some((name, _)) => (*name).to_string(),
        None => format!("{suite:?}"),
    }
}

/// The suites that the two settings allow; an unknown name is an error that says it.
pub fn select(list: &str, list13: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let mut chosen: Vec<SupportedCipherSuite> = Vec::new();
    for word in list13
        .split([':', ',', ' '])
        .filter(|word| !word.is_empty())
    {
        match TLS13.iter().find(|(name, _)| *name == word) {
            Some((_, suite)) => push_new(&mut chosen, *suite),
            None => return Err(format!("cipher {word} is not available in TLS 1.3")),
        }
    }
    if chosen.is_empty() {
        chosen.extend(TLS13.iter().map(|(_, suite)| *suite));
    }
    let older = select12(list)?;
    chosen.extend(older);
    Ok(chosen)
}

fn select12(list: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let mut chosen: Vec<SupportedCipherSuite> = Vec::new();
    let mut removed: Vec<SupportedCipherSuite> = Vec::new();
    for word in list.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        // "+x" only reorders, "@..." sorts or sets a level below ours.
        if word.starts_with('+') || word.starts_with('@') {
            continue;
        }
        if let Some(name) = word.strip_prefix(['!', '-']) {
            match named(name) {
                Some(suites) => removed.extend(suites),
                None if ABSENT_CLASSES.contains(&name) || looks_like_cipher(name) => {}
                None => return Err(format!("unknown cipher {name}")),
            }
            continue;
        }
        match named(word) {
            Some(suites) => suites
                .into_iter()
                .for_each(|suite| push_new(&mut chosen, suite)),
            None => return Err(format!("cipher {word} is not available")),
        }
    }
    if list.trim().is_empty() {
        chosen.extend(TLS12.iter().map(|(_, suite)| *suite));
    }
    chosen.retain(|suite| !removed.contains(suite));
    if chosen.is_empty() {
        return Err(format!("no cipher is left of {list:?}"));
    }
    Ok(chosen)
}

/// The suites a name stands for: one cipher, a keyword, or a property such as `ECDHE` or `AESGCM`.
fn named(word: &str) -> Option<Vec<SupportedCipherSuite>> {
    if let Some((_, suite)) = TLS12
        .iter()
        .chain(TLS13.iter())
        .find(|(name, _)| *name == word)
    {
        return Some(vec![*suite]);
    }
    if ALL_WORDS.contains(&word) {
        return Some(TLS12.iter().map(|(_, suite)| *suite).collect());
    }
    let parts: Option<Vec<&str>> = word.split('+').map(property).collect();
    let parts = parts?;
    let matching = TLS12
        .iter()
        .filter(|(name, _)| parts.iter().all(|part| name.contains(part)));
    Some(matching.map(|(_, suite)| *suite).collect())
}

fn property(word: &str) -> Option<&'static str> {
    Some(match word {
        "ECDHE" | "EECDH" | "kECDHE" | "kEECDH" | "ECDH" | "TLSv1.2" => "ECDHE",
        "AESGCM" => "GCM",
        "AES" => "AES",
        "AES128" => "AES128",
        "AES256" => "AES256",
        "CHACHA20" => "CHACHA20",
        "ECDSA" | "aECDSA" => "ECDSA",
        "aRSA" => "RSA",
        "SHA256" => "SHA256",
        "SHA384" => "SHA384",
        _ => return None,
    })
}

fn looks_like_cipher(name: &str) -> bool {
    name.contains('-')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn push_new(into: &mut Vec<SupportedCipherSuite>, suite: SupportedCipherSuite) {
    if !into.contains(&suite) {
        into.push(suite);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<String> {
        select12(list)
            .unwrap()
            .iter()
            .map(|suite| openssl_name(suite.suite()))
            .collect()
    }

    #[test]
    fn keywords_and_absent_classes_give_all() {
        assert_eq!(names("default").len(), 6);
        assert_eq!(names("HIGH:!aNULL:!MD5").len(), 6);
    }

    #[test]
    fn order_and_removal_are_kept() {
        assert_eq!(
            names("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384"),
            ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"]
        );
        assert_eq!(
            names("EECDH+AESGCM:!ECDSA"),
            ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"]
        );
    }

    #[test]
    fn unknown_names_are_refused_by_name() {
        assert_eq!(
            select12("AES256-SHA").unwrap_err(),
            "cipher AES256-SHA is not available"
        );
        assert_eq!(
            select("default", "TLS_FOO").unwrap_err(),
            "cipher TLS_FOO is not available in TLS 1.3"
        );
        assert!(select12("default:!nonsense").is_err());
    }
}
