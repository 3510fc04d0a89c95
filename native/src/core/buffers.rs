//! A free list of byte buffers, so that idle connections hold none.

const KEPT: usize = 128;
const FRESH_CAPACITY: usize = 4 * 1024;
const LARGEST_KEPT: usize = 64 * 1024;

/// Empty Vecs ready for use; what grew large is given back to the system instead.
#[derive(Default)]
pub struct Buffers {
    free: Vec<Vec<u8>>,
    in_use: usize,
}

impl Buffers {
    /// An empty buffer with some room.
    pub fn take(&mut self) -> Vec<u8> {
        self.in_use += 1;
        self.free
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(FRESH_CAPACITY))
    }

    pub fn give(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() == 0 {
            return;
        }
        self.in_use = self.in_use.saturating_sub(1);
        let fits = (1..=LARGEST_KEPT).contains(&buffer.capacity());
        if fits && self.free.len() < KEPT {
            buffer.clear();
            self.free.push(buffer);
        }
    }

    /// Taken and not given back; what drivers bring in makes it approximate.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    pub fn free(&self) -> usize {
        self.free.len()
    }
}
