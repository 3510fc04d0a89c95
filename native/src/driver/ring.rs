//! Making a ring, and the operations it is asked for.

use std::io;
use std::os::fd::RawFd;

use io_uring::types::Fd;
use io_uring::{opcode, squeue, IoUring};

use crate::driver::sockets;
use crate::driver::table::{Sock, QUICK, SENDING};

const SUBMISSIONS: u32 = 1024;
const COMPLETIONS: u32 = 8192;

// What an operation is, in the highest byte of its number.
pub const KIND_RECEIVE: u64 = 1 << 56;
pub const KIND_SEND: u64 = 2 << 56;
pub const KIND_CONNECT: u64 = 3 << 56;
pub const KIND_ACCEPT: u64 = 4 << 56;
pub const KIND_WATCH: u64 = 5 << 56;
pub const KIND_IGNORE: u64 = 6 << 56;
pub const KIND_MASK: u64 = 0xff << 56;

/// A ring with deferred task work, or the next best the kernel has.
pub fn build_ring() -> io::Result<IoUring> {
    let deferred = IoUring::builder()
        .dontfork()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_cqsize(COMPLETIONS)
        .build(SUBMISSIONS);
    match deferred {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS),
        other => other,
    }
}

/// Why there is no ring, in words an operator can act on.
pub fn explain(error: &io::Error) -> String {
    let text = sockets::io_text(error);
    match error.raw_os_error() {
        Some(libc::ENOSYS) => format!("kernel: no io_uring ({text})"),
        Some(libc::EINVAL) => format!("kernel: io_uring is too old ({text})"),
        Some(libc::EPERM | libc::EACCES) => {
            format!("seccomp or kernel.io_uring_disabled forbids io_uring ({text})")
        }
        Some(libc::ENOMEM) => format!("memlock: the limit of locked memory is too low ({text})"),
        _ => format!("io_uring does not work ({text})"),
    }
}

pub fn watch_tag(fd: RawFd, serial: u32) -> u64 {
    KIND_WATCH | u64::from(serial) << 24 | (fd as u64 & 0x00ff_ffff)
}

/// Queues an operation; submits first if the queue is full.
pub fn submit(ring: &mut IoUring, entry: squeue::Entry) {
    loop {
        // SAFETY: what the operation names outlives it: sockets stay in `table` or `dying`, buffers in their socket,
        // listeners cancel before they close, watched descriptors hold no memory.
        if unsafe { ring.submission().push(&entry) }.is_ok() {
            return;
        }
        let _ = ring.submit();
    }
}

pub fn cancel(ring: &mut IoUring, tag: u64) {
    submit(
        ring,
        opcode::AsyncCancel::new(tag).build().user_data(KIND_IGNORE),
    );
}

/// Submits and runs what the kernel has put off, so that cancelled operations let go of their files now.
pub fn push_and_run(ring: &mut IoUring) {
    let count = ring.submission().len() as u32;
    let get_events = 1; // IORING_ENTER_GETEVENTS
                        // SAFETY: no argument is passed, and what is submitted obeys the rule stated in `submit`.
    let _ = unsafe {
        ring.submitter()
            .enter::<libc::sigset_t>(count, 0, get_events, None)
    };
}

/// Sends `out` at once or not at all: there is a completion only if something was left over.
pub fn send_quick(ring: &mut IoUring, sock: &mut Sock) {
    let entry = opcode::Send::new(Fd(sock.raw()), sock.out.as_ptr(), sock.out.len() as u32)
        .flags(libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL)
        .build()
        .flags(squeue::Flags::SKIP_SUCCESS);
    submit(ring, entry.user_data(KIND_SEND | sock.id));
    sock.flags |= SENDING | QUICK;
    sock.operations += 1;
}

/// Sends what is left of `out`; the buffer is not touched until the completion.
pub fn send_rest(ring: &mut IoUring, sock: &mut Sock) {
    let rest = &sock.out[sock.done..];
    let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
    let entry = opcode::Send::new(Fd(sock.raw()), rest.as_ptr(), length)
        .flags(libc::MSG_NOSIGNAL)
        .build();
    submit(ring, entry.user_data(KIND_SEND | sock.id));
    sock.flags |= SENDING;
    sock.operations += 1;
}
