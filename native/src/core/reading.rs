//! How PostgreSQL reads a text: the values of parameters that matter to it, and the requests that may change them.

use std::hash::{Hash, Hasher};

use super::params::{occurs, ParamSet, Params};

/// client_encoding, or standard_conforming_strings.
pub const STRICT: u8 = 1;
/// DateStyle, IntervalStyle or TimeZone.
pub const DATES: u8 = 2;
pub const ALL: u8 = STRICT | DATES;
/// The end of a transaction, where SET LOCAL ends.
pub const END: u8 = 4;

const ENCODED: u8 = 1;
const ESCAPED: u8 = 2;
const QUOTED: u8 = 4;

const STRICT_NAMES: &[(u8, &[u8])] = &[
    (ENCODED, b"client_encoding"),
    (ESCAPED, b"standard_conforming_strings"),
];
const DATES_NAMES: &[(u8, &[u8])] = &[
    (QUOTED, b"datestyle"),
    (QUOTED, b"intervalstyle"),
    (QUOTED, b"timezone"),
];
const UNSURE: &[u8] = b"?";

const ENDS: &[&[u8]] = &[b"commit", b"end", b"rollback", b"abort"];
const STRICT_WORDS: &[&[u8]] = &[b"encoding", b"names", b"conforming", b"all", b"_config"];
const DATES_WORDS: &[&[u8]] = &[b"style", b"zone", b"all", b"_config"];

/// Values in lower case, each with a NUL; empty where they do not matter to the text.
#[derive(Debug, Clone, Default, Eq)]
pub struct Reading {
    /// Which characters there are, and where a literal ends.
    pub strict: Box<[u8]>,
    /// What dates and times in literals mean.
    pub dates: Box<[u8]>,
}

impl PartialEq for Reading {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        same(&self.strict, &other.strict) && same(&self.dates, &other.dates)
    }
}

impl Hash for Reading {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.strict.hash(state);
        self.dates.hash(state);
    }
}

/// Most are empty: `memcmp` of nothing, at an address where nothing is, takes longer than all else.
#[inline]
fn same(one: &[u8], two: &[u8]) -> bool {
    one.len() == two.len() && (one.is_empty() || one == two)
}

impl Reading {
    /// What a server with these values makes of a text; `unsure` says what requests under way may change.
    #[inline]
    pub fn of(params: &Params, set: Option<&ParamSet>, unsure: u8, sql: &[u8]) -> Self {
        let matters = matters(sql);
        if matters == 0 {
            return Self::default();
        }
        let values = |names: &[(u8, &[u8])], unsure: bool| -> Box<[u8]> {
            let mut found = Vec::new();
            for (_, name) in names.iter().filter(|(bit, _)| matters & bit != 0) {
                let value = set.and_then(|set| params.value(set, name));
                found.extend(value.unwrap_or_default().to_ascii_lowercase());
                found.push(0);
            }
            if unsure && !found.is_empty() {
                return UNSURE.into();
            }
            found.into()
        };
        Self {
            strict: values(STRICT_NAMES, unsure & STRICT != 0),
            dates: values(DATES_NAMES, unsure & DATES != 0),
        }
    }

    /// The text means the same whatever is set.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.strict.is_empty() && self.dates.is_empty()
    }

    pub fn is_sure(&self) -> bool {
        !same(&self.strict, UNSURE) && !same(&self.dates, UNSURE)
    }

    /// The same text surely consists of the same words in both.
    pub fn has_words_of(&self, other: &Self) -> bool {
        same(&self.strict, &other.strict) && !same(&self.strict, UNSURE)
    }
}

/// What a text has in it whose meaning is set elsewhere.
fn matters(sql: &[u8]) -> u8 {
    let mut found = 0;
    if !sql.is_ascii() {
        found |= ENCODED;
    }
    for at in memchr::memchr3_iter(b'\\', b'\'', b'$', sql) {
        match sql[at] {
            b'\\' => found |= ESCAPED,
            b'\'' => found |= QUOTED,
            // Not a parameter: a dollar-quoted literal, or part of a name.
            _ if !sql.get(at + 1).is_some_and(u8::is_ascii_digit) => found |= QUOTED,
            _ => {}
        }
    }
    found
}

/// What a request with this text may change for texts behind it, by the words in it.
pub fn changes(sql: &[u8]) -> u8 {
    let mut found = 0;
    let start = sql.iter().position(|byte| !byte.is_ascii_whitespace());
    let rest = start.map_or(&[][..], |start| &sql[start..]);
    let begins = |word: &&[u8]| {
        rest.get(..word.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(word))
    };
    if ENDS.iter().any(begins) {
        found |= END;
    }
    if occurs(sql, b"set") || occurs(sql, b"discard") {
        if STRICT_WORDS.iter().any(|word| occurs(sql, word)) {
            found |= STRICT;
        }
        if DATES_WORDS.iter().any(|word| occurs(sql, word)) {
            found |= DATES;
        }
    }
    found
}

/// What may have been changed since the server last told all it had to tell.
#[derive(Debug, Default)]
pub struct Unsure {
    pub now: u8,
    /// Changed in this transaction, whose end may change it back.
    in_block: u8,
}

impl Unsure {
    /// A request that may change this is on its way.
    #[inline]
    pub fn note(&mut self, changes: u8) {
        if changes == 0 {
            return;
        }
        self.in_block |= changes & ALL;
        self.now |= changes & ALL;
        if changes & END != 0 {
            self.now |= self.in_block;
        }
    }

    /// Everything has been answered.
    #[inline]
    pub fn told(&mut self, in_block: bool) {
        self.now = 0;
        if !in_block {
            self.in_block = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only what stands in the text matters to it; parameters are no literals.
    #[test]
    fn what_matters() {
        assert_eq!(matters(b"select $1, $23"), 0);
        assert_eq!(matters(b"select 'x'"), QUOTED);
        assert_eq!(matters(b"select $$x$$"), QUOTED);
        assert_eq!(matters(b"select 'a\\'"), QUOTED | ESCAPED);
        assert_eq!(matters("select é".as_bytes()), ENCODED);
    }

    /// What a text may set is known by its words.
    #[test]
    fn what_changes() {
        assert_eq!(changes(b"select 1"), 0);
        assert_eq!(changes(b"SET LOCAL search_path = x"), 0);
        assert_eq!(changes(b"set TimeZone to 'UTC'"), DATES);
        assert_eq!(changes(b"SET NAMES 'latin1'"), STRICT);
        assert_eq!(changes(b"select set_config($1, $2, false)"), ALL);
        assert_eq!(changes(b"DISCARD ALL"), ALL);
        assert_eq!(changes(b" Commit"), END);
    }

    /// The end of a transaction takes back what was set in it.
    #[test]
    fn ends_of_transactions() {
        let mut unsure = Unsure::default();
        unsure.note(END);
        assert_eq!(unsure.now, 0);
        unsure.note(DATES);
        unsure.told(true);
        assert_eq!(unsure.now, 0);
        unsure.note(END);
        assert_eq!(unsure.now, DATES);
        unsure.told(false);
        unsure.note(END);
        assert_eq!(unsure.now, 0);
    }

    /// An unsure reading has nobody's words.
    #[test]
    fn unsure_readings() {
        let mut params = Params::default();
        let set = params.set_of(&[("client_encoding", "UTF8"), ("TimeZone", "UTC")]);
        let read = |unsure, sql: &str| Reading::of(&params, Some(&set), unsure, sql.as_bytes());
        assert!(read(ALL, "select 1").is_plain() && read(ALL, "select 1").is_sure());
        assert_eq!(&*read(0, "select é").strict, b"utf8\0");
        assert_eq!(&*read(0, "select ''").dates, b"\0\0utc\0");
        assert!(read(0, "select é").has_words_of(&read(0, "select é")));
        assert!(!read(STRICT, "select é").has_words_of(&read(STRICT, "select é")));
        assert!(!read(DATES, "select ''").is_sure() && read(STRICT, "select ''").is_sure());
    }
}
