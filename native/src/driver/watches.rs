//! Foreign descriptors watched for asyncio by single polls (io_uring).

use std::io;
use std::os::fd::RawFd;

use io_uring::types::Fd;
use io_uring::{opcode, IoUring};
use rustc_hash::FxHashMap;

use crate::driver::ring::{push_and_run, submit, watch_tag, KIND_IGNORE, KIND_MASK};
use crate::driver::{sockets, READ, WRITE};

struct Watch {
    mask: i32,
    /// Distinguishes the polls of a descriptor number that is used again.
    serial: u32,
    /// A poll is with the kernel.
    armed: bool,
}

#[derive(Default)]
pub struct Watches {
    watched: FxHashMap<RawFd, Watch>,
    /// To poll again, because they were reported (level-triggered).
    repoll: Vec<RawFd>,
    last_serial: u32,
}

impl Watches {
    /// Watches a descriptor, or changes its mask.
    pub fn add(&mut self, ring: &mut IoUring, fd: RawFd, mask: i32) -> io::Result<()> {
        sockets::with_fd(fd, |_| ())?;
        self.remove(ring, fd);
        self.last_serial = self.last_serial.wrapping_add(1);
        let watch = Watch {
            mask,
            serial: self.last_serial,
            armed: false,
        };
        self.watched.insert(fd, watch);
        self.repoll.push(fd);
        Ok(())
    }

    pub fn remove(&mut self, ring: &mut IoUring, fd: RawFd) {
        if let Some(watch) = self.watched.remove(&fd) {
            if watch.armed {
                let entry = opcode::PollRemove::new(watch_tag(fd, watch.serial)).build();
                submit(ring, entry.user_data(KIND_IGNORE));
                // At once: a poll keeps the file open after the owner has closed it.
                push_and_run(ring);
            }
        }
    }

    /// A poll has ended.
    pub fn on_poll(&mut self, tag: u64, result: i32, ready: &mut Vec<(RawFd, i32)>) {
        let fd = (tag & 0x00ff_ffff) as RawFd;
        let Some(watch) = self.watched.get_mut(&fd) else {
            return;
        };
        if u64::from(watch.serial) != (tag & !KIND_MASK) >> 24 {
            return;
        }
        watch.armed = false;
        if result < 0 && result != -libc::ECANCELED {
            // Asyncio learns the error from its own call.
            ready.push((fd, watch.mask));
            return;
        }
        self.repoll.push(fd);
        let mut seen = 0;
        if result >= 0 && result as u32 & !(libc::POLLOUT as u32) != 0 {
            seen |= READ;
        }
        if result >= 0 && result as u32 & !(libc::POLLIN as u32) != 0 {
            seen |= WRITE;
        }
        if seen & watch.mask != 0 {
            ready.push((fd, seen & watch.mask));
        }
    }

    pub fn poll_again(&mut self, ring: &mut IoUring) {
        while let Some(fd) = self.repoll.pop() {
            let Some(watch) = self.watched.get_mut(&fd) else {
                continue;
            };
            if watch.armed {
                continue;
            }
            watch.armed = true;
            let mut events = 0;
            if watch.mask & READ != 0 {
                events |= libc::POLLIN;
            }
            if watch.mask & WRITE != 0 {
                events |= libc::POLLOUT;
            }
            let entry = opcode::PollAdd::new(Fd(fd), events as u32).build();
            submit(ring, entry.user_data(watch_tag(fd, watch.serial)));
        }
    }

    pub fn clear(&mut self) {
        self.watched.clear();
    }
}
