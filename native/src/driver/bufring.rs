//! The ring of buffers the kernel receives into (io_uring provided buffers).

use std::alloc::{self, Layout};
use std::io;
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use io_uring::IoUring;

/// Bytes of one buffer.
pub const BUFFER_BYTES: usize = 16 * 1024;
/// Distance of two buffers: not a power of two, or the first lines of all buffers would share a few cache sets.
const STRIDE: usize = BUFFER_BYTES + 5 * 64;
/// Buffers of a ring; a power of two.
pub const BUFFERS: u16 = 128;
/// The ring's number with the kernel.
pub const GROUP: u16 = 1;

const PAGE: usize = 4096;

/// Memory shared with the kernel: a ring of entries and the buffers they name.
pub struct BufRing {
    entries: *mut BufRingEntry,
    buffers: *mut u8,
    tail: u16,
    given: u16,
}

// SAFETY: the two allocations belong to this value alone; the kernel's side does not care which thread asks.
unsafe impl Send for BufRing {}

fn entries_layout() -> Layout {
    Layout::from_size_align(size_of::<BufRingEntry>() * BUFFERS as usize, PAGE)
        .expect("constant sizes")
}

fn buffers_layout() -> Layout {
    Layout::from_size_align(STRIDE * BUFFERS as usize, PAGE).expect("constant sizes")
}

impl BufRing {
    /// Allocates and registers; `Drop` of the result must come after the ring is gone.
    pub fn new(ring: &IoUring) -> io::Result<BufRing> {
        // SAFETY: both layouts have a size above 0; null is checked before use.
        let (entries, buffers) = unsafe {
            (
                alloc::alloc_zeroed(entries_layout()),
                alloc::alloc_zeroed(buffers_layout()),
            )
        };
        if entries.is_null() || buffers.is_null() {
            alloc::handle_alloc_error(buffers_layout());
        }
        let mut made = BufRing {
            entries: entries.cast(),
            buffers,
            tail: 0,
            given: 0,
        };
        // SAFETY: the entries live until `made` is dropped, which the owner does after the ring.
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(entries as u64, BUFFERS, GROUP, 0)?
        };
        for number in 0..BUFFERS {
            made.give_back(number);
        }
        made.publish();
        Ok(made)
    }

    /// The first `count` bytes of a buffer the kernel has handed out.
    ///
    /// The bytes may be read until `give_back` of the same buffer.
    pub fn bytes(&self, number: u16, count: usize) -> &[u8] {
        assert!(number < BUFFERS && count <= BUFFER_BYTES);
        // SAFETY: inside the allocation, as checked; the kernel does not write to a buffer between its completion and
        // `give_back`, and `give_back` needs `&mut self`, so the borrow is over by then.
        unsafe { slice::from_raw_parts(self.buffers.add(number as usize * STRIDE), count) }
    }

    /// Puts a buffer back; the kernel sees it after `publish`.
    pub fn give_back(&mut self, number: u16) {
        assert!(number < BUFFERS);
        let place = self.tail.wrapping_add(self.given) & (BUFFERS - 1);
        // SAFETY: both indices are below BUFFERS; the kernel reads entries below the tail only, this one is above.
        unsafe {
            let entry = &mut *self.entries.add(place as usize);
            entry.set_addr(self.buffers.add(number as usize * STRIDE) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(number);
        }
        self.given += 1;
    }

    /// Shows the returned buffers to the kernel.
    pub fn publish(&mut self) {
        if self.given == 0 {
            return;
        }
        self.tail = self.tail.wrapping_add(self.given);
        self.given = 0;
        // SAFETY: the tail lies in the first entry, is aligned to two bytes and shared with the kernel atomically.
        unsafe {
            let tail = BufRingEntry::tail(self.entries).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for BufRing {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layouts; the owner has dropped the ring before.
        unsafe {
            alloc::dealloc(self.entries.cast(), entries_layout());
            alloc::dealloc(self.buffers, buffers_layout());
        }
    }
}
