//! The engine's core as the fuzz targets see it, and a source of decisions.

#[path = "../../native/src/core/mod.rs"]
pub mod core;

/// Reads the fuzzer's bytes as decisions; everything is 0 when they run out.
pub struct Source<'a>(pub &'a [u8]);

impl<'a> Source<'a> {
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
