//! Session parameters: interned sets of values, what differs between client and server, and the SET that ends it.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::frames;

pub type NameId = u16;

/// Names and values, in order.
pub type Listing = Vec<(Box<[u8]>, Box<[u8]>)>;

/// More different names than this are not tracked: a server invents them only out of malice.
const NAMES_LIMIT: usize = 4096;

const REPORTED_ONLY: &[&[u8]] = &[
    b"in_hot_standby",
    b"integer_datetimes",
    b"is_superuser",
    b"server_encoding",
    b"server_version",
    b"server_version_num",
    b"session_authorization",
];

const CANONICAL: &[&str] = &["DateStyle", "IntervalStyle", "TimeZone"];

/// SET would take such a list for one name.
const NAME_LISTS: &[&[u8]] = &[
    b"search_path",
    b"temp_tablespaces",
    b"local_preload_libraries",
    b"session_preload_libraries",
];

/// Values by name, in the order of name numbers.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct ParamSet {
    items: Box<[(NameId, Box<[u8]>)]>,
}

impl ParamSet {
    pub fn get(&self, name: NameId) -> Option<&[u8]> {
        let at = self.items.binary_search_by_key(&name, |item| item.0).ok()?;
        Some(&self.items[at].1)
    }
}

/// One parameter to set; None = DEFAULT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub name: NameId,
    pub value: Option<Box<[u8]>>,
}

struct Name {
    lower: Box<[u8]>,
    canonical: Box<[u8]>,
}

/// All names and all sets in use. Equal sets are one object, so comparing is comparing pointers.
#[derive(Default)]
pub struct Params {
    names: Vec<Name>,
    by_name: HashMap<Box<[u8]>, NameId>,
    sets: HashSet<Rc<ParamSet>>,
    sweep_at: usize,
    /// track_extra_parameters.
    pub extras: Vec<NameId>,
}

impl Params {
    /// The number of a name in any case, if it can be tracked.
    pub fn name(&mut self, name: &[u8]) -> Option<NameId> {
        let lower = name.to_ascii_lowercase().into_boxed_slice();
        if let Some(&id) = self.by_name.get(&lower) {
            return Some(id);
        }
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$');
        let first_ok = lower
            .first()
            .is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
        if !first_ok || !lower.iter().all(plain) || self.names.len() >= NAMES_LIMIT {
            return None;
        }
        if REPORTED_ONLY.contains(&&*lower) {
            return None;
        }
        let known = CANONICAL
            .iter()
            .find(|known| known.as_bytes().eq_ignore_ascii_case(&lower));
        let canonical = known.map_or_else(|| lower.clone(), |known| known.as_bytes().into());
        let id = self.names.len() as NameId;
        self.names.push(Name {
            lower: lower.clone(),
            canonical,
        });
        self.by_name.insert(lower, id);
        Some(id)
    }

    pub fn set_extras(&mut self, names: &[String]) {
        let mut extras: Vec<NameId> = names
            .iter()
            .filter_map(|name| self.name(name.as_bytes()))
            .collect();
        extras.sort_unstable();
        extras.dedup();
        self.extras = extras;
    }

    /// The set of these values; a later value of the same name wins, names that cannot be set are left out.
    pub fn set_of<T: AsRef<[u8]>>(&mut self, values: &[(T, T)]) -> Rc<ParamSet> {
        let mut items: Vec<(NameId, Box<[u8]>)> = Vec::with_capacity(values.len());
        for (name, value) in values {
            if let Some(id) = self.name(name.as_ref()) {
                items.retain(|item| item.0 != id);
                items.push((id, value.as_ref().into()));
            }
        }
        items.sort_unstable_by_key(|item| item.0);
        self.intern(items)
    }

    /// The set with one value changed or added.
    pub fn with(&mut self, set: Option<&ParamSet>, name: NameId, value: &[u8]) -> Rc<ParamSet> {
        let old = set.map_or(&[][..], |set| &set.items);
        let mut items: Vec<(NameId, Box<[u8]>)> =
            old.iter().filter(|item| item.0 != name).cloned().collect();
        items.push((name, value.into()));
        items.sort_unstable_by_key(|item| item.0);
        self.intern(items)
    }

    fn intern(&mut self, items: Vec<(NameId, Box<[u8]>)>) -> Rc<ParamSet> {
        let set = Rc::new(ParamSet {
            items: items.into(),
        });
        if let Some(known) = self.sets.get(&set) {
            return known.clone();
        }
        if self.sets.len() >= self.sweep_at {
            self.sets.retain(|set| Rc::strong_count(set) > 1);
            self.sweep_at = (self.sets.len() * 2).max(64);
        }
        self.sets.insert(set.clone());
        set
    }

    /// Gives a set back; the last user takes it out of the table (what slips through is swept).
    pub fn release(&mut self, set: Option<Rc<ParamSet>>) {
        if let Some(set) = set.filter(|set| Rc::strong_count(set) == 2) {
            self.sets.remove(&set);
        }
    }

    /// A set's value of a name in lower case.
    pub fn value<'a>(&self, set: &'a ParamSet, lower: &[u8]) -> Option<&'a [u8]> {
        set.get(*self.by_name.get(lower)?)
    }

    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// Which extra names a server with these reported values does not report.
    pub fn unreported(&self, reported: Option<&ParamSet>) -> Vec<NameId> {
        let reports = |name: &NameId| reported.is_some_and(|set| set.get(*name).is_some());
        self.extras
            .iter()
            .copied()
            .filter(|name| !reports(name))
            .collect()
    }

    pub fn is_extra(&self, name: NameId) -> bool {
        self.extras.contains(&name)
    }

    /// What must be set on a server before the client may use it: sets by name, then DEFAULTs by name.
    pub fn changes(
        &self,
        wanted: &ParamSet,
        reported: Option<&ParamSet>,
        ours: &[(NameId, Option<Box<[u8]>>)],
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        for (name, value) in &wanted.items {
            let has = match reported.and_then(|set| set.get(*name)) {
                Some(value) => Some(value),
                None => ours
                    .iter()
                    .find(|our| our.0 == *name)
                    .and_then(|our| our.1.as_deref()),
            };
            if !has.is_some_and(|has| has.eq_ignore_ascii_case(value)) {
                changes.push(Change {
                    name: *name,
                    value: Some(value.clone()),
                });
            }
        }
        let unwanted = ours.iter().filter(|our| wanted.get(our.0).is_none());
        changes.extend(unwanted.map(|our| Change {
            name: our.0,
            value: None,
        }));
        changes.sort_by(|a, b| self.order(a).cmp(&self.order(b)));
        changes
    }

    fn order(&self, change: &Change) -> (bool, &[u8]) {
        (
            change.value.is_none(),
            &self.names[change.name as usize].lower,
        )
    }

    /// The one simple Query that makes the changes.
    pub fn put_query(&self, out: &mut Vec<u8>, changes: &[Change]) {
        let mut sql = Vec::with_capacity(64 * changes.len());
        for change in changes {
            let name = &self.names[change.name as usize];
            match &change.value {
                None => sql.extend_from_slice(&[b"SET ", &*name.canonical, b"=DEFAULT;"].concat()),
                Some(value) if NAME_LISTS.contains(&&*name.lower) => {
                    sql.extend_from_slice(
                        &[b"SELECT pg_catalog.set_config('", &*name.canonical, b"',"].concat(),
                    );
                    quote(&mut sql, value);
                    sql.extend_from_slice(b",false);");
                }
                Some(value) => {
                    sql.extend_from_slice(&[b"SET ", &*name.canonical, b"="].concat());
                    quote(&mut sql, value);
                    sql.push(b';');
                }
            }
        }
        frames::put(out, b'Q', &[&sql, b"\0"]);
    }

    /// Which of these names occur in a text, in any case.
    pub fn mentioned<'a>(
        &'a self,
        names: &'a [NameId],
        text: &'a [u8],
    ) -> impl Iterator<Item = NameId> + 'a {
        names
            .iter()
            .copied()
            .filter(|name| occurs(text, &self.names[*name as usize].lower))
    }

    /// Canonical names and values, by name.
    pub fn listing(&self, set: Option<&ParamSet>, ours: &[(NameId, Option<Box<[u8]>>)]) -> Listing {
        let reported = set
            .map_or(&[][..], |set| &set.items)
            .iter()
            .map(|(name, value)| (*name, &**value));
        let own = ours
            .iter()
            .filter_map(|(name, value)| Some((*name, value.as_deref()?)));
        let own = own.filter(|(name, _)| set.is_none_or(|set| set.get(*name).is_none()));
        let mut all: Vec<(NameId, &[u8])> = reported.chain(own).collect();
        all.sort_by_key(|(name, _)| &self.names[*name as usize].lower);
        all.into_iter()
            .map(|(name, value)| (self.names[name as usize].canonical.clone(), value.into()))
            .collect()
    }
}

/// A string literal that is safe whatever standard_conforming_strings says.
fn quote(sql: &mut Vec<u8>, value: &[u8]) {
    let escaped = value.contains(&b'\\');
    sql.extend_from_slice(if escaped { b"E'" } else { b"'" });
    for &byte in value.iter().filter(|byte| **byte != 0) {
        if byte == b'\'' || byte == b'\\' {
            sql.push(byte);
        }
        sql.push(byte);
    }
    sql.push(b'\'');
}

/// A word in lower case stands in a text, in any case.
pub fn occurs(text: &[u8], lower: &[u8]) -> bool {
    let Some(&first) = lower.first() else {
        return false;
    };
    memchr::memchr2_iter(first, first.to_ascii_uppercase(), text).any(|at| {
        text.get(at..at + lower.len())
            .is_some_and(|part| part.eq_ignore_ascii_case(lower))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(values: &[(&str, &str)]) -> Vec<(String, String)> {
        values
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect()
    }

    fn query(params: &Params, changes: &[Change]) -> String {
        let mut out = Vec::new();
        params.put_query(&mut out, changes);
        String::from_utf8_lossy(&out[5..out.len() - 1]).into_owned()
    }

    /// Equal sets are one object however their names are spelled, and leave the table with their last user.
    #[test]
    fn sets_are_interned() {
        let mut params = Params::default();
        let one = params.set_of(&pairs(&[("TimeZone", "UTC"), ("datestyle", "ISO")]));
        let two = params.set_of(&pairs(&[("DateStyle", "ISO"), ("timezone", "UTC")]));
        assert!(Rc::ptr_eq(&one, &two));
        drop(two);
        params.release(Some(one));
        assert_eq!(params.sets(), 0);
    }

    /// Only differences in value, not in case, are set; extras the client lacks go back to their default.
    #[test]
    fn changes_are_minimal_and_sorted() {
        let mut params = Params::default();
        params.set_extras(&["search_path".into(), "work_mem".into()]);
        let wanted = params.set_of(&pairs(&[
            ("TimeZone", "utc"),
            ("search_path", "a, b"),
            ("application_name", "o'k"),
        ]));
        let reported = params.set_of(&pairs(&[("TimeZone", "UTC"), ("application_name", "")]));
        let work_mem = params.name(b"work_mem").unwrap();
        let ours = vec![(work_mem, Some(b"1MB"[..].into()))];
        let changes = params.changes(&wanted, Some(&reported), &ours);
        assert_eq!(
            query(&params, &changes),
            "SET application_name='o''k';SELECT pg_catalog.set_config('search_path','a, b',false);SET work_mem=DEFAULT;"
        );
    }

    /// A backslash makes the literal an escape string.
    #[test]
    fn backslashes_are_doubled() {
        let mut sql = Vec::new();
        quote(&mut sql, b"a\\'b");
        assert_eq!(sql, b"E'a\\\\''b'");
    }

    /// Names that are no plain words, or that cannot be set, are never tracked.
    #[test]
    fn hostile_names_are_ignored() {
        let mut params = Params::default();
        assert_eq!(params.name(b"a;drop"), None);
        assert_eq!(params.name(b""), None);
        assert_eq!(params.name(b"Server_Version"), None);
    }

    /// An extra name is found in a text in any case.
    #[test]
    fn names_occur_in_any_case() {
        assert!(occurs(b"select SEARCH_path", b"search_path"));
        assert!(!occurs(b"set searchpath", b"search_path"));
    }
}
