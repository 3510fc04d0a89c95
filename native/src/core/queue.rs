//! The ordered queue of expected responses: one per link.

use std::collections::VecDeque;
use std::rc::Rc;

use super::prepared::{Aside, Reparse, Statement, Unnamed};

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Query,
    FunctionCall,
    Parse,
    Bind,
    DescribeStatement,
    DescribePortal,
    Execute,
    Close,
    Sync,
    CopyEnd,
}

/// Who asked, and whether the server was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Forwarded,
    Skipped,
    Injected,
}

/// What was changed when the request was read: what its undo takes back, or its end completes.
#[derive(Debug)]
pub enum Act {
    None,
    /// A client's Parse: mapped, and (if forwarded) added to the server's cache.
    Mapped {
        name: Box<[u8]>,
        statement: Rc<Statement>,
    },
    /// An injected Parse.
    Cached(Rc<Statement>),
    /// A client's Parse of a name it has already.
    Reparse(Box<Reparse>),
    /// An unnamed Parse; `before` is the copy it replaced. Injected ones leave the copy alone.
    Unnamed {
        id: u64,
        before: Option<Rc<Unnamed>>,
        mark_before: u64,
    },
    UnnamedInjected {
        id: u64,
        mark_before: u64,
    },
    UnnamedClosed {
        before: Option<Rc<Unnamed>>,
        mark_before: u64,
    },
    /// Bind, or Describe, of a statement, whose result type may have changed.
    Uses(Rc<Statement>),
    /// A client's Close of a statement.
    Unmapped {
        name: Box<[u8]>,
        statement: Rc<Statement>,
    },
    /// An injected Close of the oldest statement.
    Evicted {
        statement: Rc<Statement>,
        stale: bool,
    },
    /// DEALLOCATE ALL or DISCARD ALL, acted on ahead of its answer.
    Reset(Box<Aside>),
    /// DEALLOCATE of this name.
    Deallocate(Box<[u8]>),
    /// The injected Parse of PGBOUNCER_VOID.
    Void,
}

#[derive(Debug)]
pub struct Entry {
    pub kind: Kind,
    pub origin: Origin,
    pub act: Act,
}

/// Entries in the order of their answers.
#[derive(Default)]
pub struct Queue {
    entries: VecDeque<Entry>,
    copy_ends: usize,
}

impl Queue {
    #[inline]
    pub fn push(&mut self, kind: Kind, origin: Origin, act: Act) {
        self.copy_ends += usize::from(kind == Kind::CopyEnd);
        self.entries.push_back(Entry { kind, origin, act });
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.copy_ends -= usize::from(entry.kind == Kind::CopyEnd);
        Some(entry)
    }

    #[inline]
    pub fn head(&self) -> Option<&Entry> {
        self.entries.front()
    }

    #[inline]
    pub fn head_mut(&mut self) -> Option<&mut Entry> {
        self.entries.front_mut()
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub fn has_copy_end(&self) -> bool {
        self.copy_ends > 0
    }

    /// The head is answered or removed without the server.
    #[inline]
    pub fn settles(&self) -> bool {
        self.head()
            .is_some_and(|head| head.origin == Origin::Skipped || head.kind == Kind::CopyEnd)
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.copy_ends = 0;
    }

    pub fn remove(&mut self, at: usize) -> Option<Entry> {
        let entry = self.entries.remove(at)?;
        self.copy_ends -= usize::from(entry.kind == Kind::CopyEnd);
        Some(entry)
    }

    /// Removes the first CopyEnd behind the head.
    pub fn remove_copy_end(&mut self) {
        if self.has_copy_end() {
            let found = self
                .entries
                .iter()
                .skip(1)
                .position(|entry| entry.kind == Kind::CopyEnd);
            if let Some(at) = found {
                self.remove(at + 1);
            }
        }
    }

    /// How many entries stand before the first Sync, and whether there is one.
    pub fn before_sync(&self) -> (usize, bool) {
        match self
            .entries
            .iter()
            .position(|entry| entry.kind == Kind::Sync)
        {
            Some(at) => (at, true),
            None => (self.entries.len(), false),
        }
    }

    pub fn get(&self, at: usize) -> Option<&Entry> {
        self.entries.get(at)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut()
    }
}
