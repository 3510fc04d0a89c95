//! The io_uring driver: multishot accepts and receives, provided buffers, one system call per turn.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{cqueue, opcode, IoUring};
use rustc_hash::FxHashMap;

use crate::core::{ConnId, Core};
use crate::driver::bufring::{self, BufRing};
use crate::driver::flow;
use crate::driver::ring::{
    build_ring, cancel, explain, push_and_run, send_quick, send_rest, submit, KIND_ACCEPT,
    KIND_CONNECT, KIND_MASK, KIND_RECEIVE, KIND_SEND, KIND_WATCH,
};
use crate::driver::sockets::{self, AcceptError};
use crate::driver::table::{
    Sock, Table, CANCELLING, CONNECTING, MADE, MISSED, QUICK, RECEIVING, SENDING,
};
use crate::driver::watches::Watches;
use crate::driver::{Address, Driver, SocketOptions, Woke};
use crate::tls::{TlsContext, TlsStream};

/// Completions handled before what they caused is submitted.
const BATCH: usize = 256;

/// A startup packet is shorter than this.
const FIRST_WORDS: usize = 1024;

struct Listener {
    listener: u64,
    serial: u64,
    fd: OwnedFd,
    options: SocketOptions,
    paused: bool,
    /// An accept is with the kernel.
    accepting: bool,
}

/// One ring and all it serves. Fields are dropped in order: the ring goes before the memory it was given.
pub struct Uring {
    ring: IoUring,
    buffers: BufRing,
    table: Table,
    /// Sockets the core has forgotten, kept until the kernel has given back their operations.
    dying: FxHashMap<ConnId, Sock>,
    listeners: Vec<Listener>,
    diverting: bool,
    watches: Watches,
    /// Connections to look at although the core has not touched them.
    again: Vec<ConnId>,
    touched: Vec<ConnId>,
    /// Quick sends since the last `finish_quick`: done once submitted, unless a completion says otherwise.
    quick: Vec<ConnId>,
    /// Something waits for the end of a quick send, which alone wakes nobody.
    hurry: bool,
    batch: Vec<(u64, i32, u32)>,
    plain: Vec<u8>,
    next_serial: u32,
    stopped: bool,
}

impl Uring {
    /// The error text names what stands in the way: kernel, seccomp, memlock.
    pub fn new() -> Result<Uring, String> {
        let ring = build_ring().map_err(|error| explain(&error))?;
        let able = ring.params();
        if !able.is_feature_nodrop()
            || !able.is_feature_ext_arg()
            || !able.is_feature_skip_cqe_on_success()
        {
            return Err("kernel: io_uring is too old".into());
        }
        let buffers = BufRing::new(&ring).map_err(|error| explain(&error))?;
        // Saves a reference to the ring's file in every call; no loss where the kernel cannot.
        let _ = ring.submitter().register_ring_fd();
        Ok(Uring {
            ring,
            buffers,
            table: Table::default(),
            dying: FxHashMap::default(),
            listeners: Vec::new(),
            diverting: false,
            watches: Watches::default(),
            again: Vec::new(),
            touched: Vec::new(),
            quick: Vec::new(),
            hurry: false,
            batch: Vec::with_capacity(BATCH),
            plain: Vec::new(),
            next_serial: 0,
            stopped: false,
        })
    }

    /// Brings one connection to what the core wants of it.
    fn settle(&mut self, core: &mut Core, id: ConnId) {
        let Some(sock) = self.table.get_mut(id) else {
            // Its socket ended while it was frozen, and Python has closed it now.
            if core.is_closing(id) {
                core.gone(id);
            }
            return;
        };
        if core.must_reset(id) {
            if !sock.has(MADE) {
                sockets::reset_on_close(sock.fd.as_fd());
            }
            return self.let_go(core, id);
        }
        if sock.has(CONNECTING) {
            if core.is_closing(id) {
                self.let_go(core, id);
            }
            return;
        }
        if sock.has(SENDING) {
            sock.flags |= MISSED;
        } else if flow::fill(core, sock) {
            if sock.out.len() <= flow::SMALL {
                send_quick(&mut self.ring, sock);
                self.quick.push(id);
            } else {
                send_rest(&mut self.ring, sock);
            }
            flow::report(core, sock);
        }
        if core.is_closing(id) {
            if !sock.has(SENDING) {
                return self.let_go(core, id);
            }
            sock.flags |= MISSED;
        } else if core.is_moving(id) {
            if !sock.has(SENDING) {
                return self.hand_over(core, id);
            }
            sock.flags |= MISSED;
        }
        self.hurry |= sock.has(MISSED) && sock.has(QUICK);
        if !sock.has(RECEIVING) && flow::wants_read(core, sock) {
            let entry = opcode::RecvMulti::new(Fd(sock.raw()), bufring::GROUP).build();
            submit(&mut self.ring, entry.user_data(KIND_RECEIVE | id));
            sock.flags |= RECEIVING;
            sock.operations += 1;
        }
    }

    fn end(&mut self, core: &mut Core, id: ConnId, reason: &str) {
        if let Some(sock) = self.table.get_mut(id) {
            farewell(sock);
        }
        self.drop_sock(id);
        core.ended(id, reason);
    }

    /// The socket goes to Python with its connection, once the kernel has given back its receive.
    fn hand_over(&mut self, core: &mut Core, id: ConnId) {
        let Some(sock) = self.table.get_mut(id) else {
            return;
        };
        if sock.has(RECEIVING) && !sock.has(CANCELLING) {
            sock.flags |= CANCELLING;
            cancel(&mut self.ring, KIND_RECEIVE | id);
        }
        if sock.operations == 0 {
            if let Some(sock) = self.table.remove(id) {
                core.moved(id, sockets::for_python(sock.fd));
            }
        }
    }

    fn let_go(&mut self, core: &mut Core, id: ConnId) {
        self.drop_sock(id);
        core.gone(id);
    }

    /// Closes a socket, or waits for the operations that still name it.
    fn drop_sock(&mut self, id: ConnId) {
        let Some(sock) = self.table.remove(id) else {
            return;
        };
        if sock.has(MADE) {
            sockets::shut_writing(sock.fd.as_fd());
        }
        if sock.operations == 0 {
            return;
        }
        if sock.has(RECEIVING) && !sock.has(CANCELLING) {
            cancel(&mut self.ring, KIND_RECEIVE | id);
        }
        if sock.has(CONNECTING) {
            cancel(&mut self.ring, KIND_CONNECT | id);
        }
        if sock.has(SENDING) {
            if sock.has(MADE) {
                cancel(&mut self.ring, KIND_SEND | id);
            } else {
                sockets::shut(sock.fd.as_fd());
            }
            self.hurry |= sock.has(QUICK);
        }
        self.dying.insert(id, sock);
    }

    /// A completion for a socket the core has forgotten.
    fn bury(&mut self, id: ConnId, finished: bool) {
        if let Some(sock) = self.dying.get_mut(&id) {
            sock.operations -= u8::from(finished);
            if sock.operations == 0 {
                self.dying.remove(&id);
            }
        }
    }

    fn on_receive(&mut self, core: &mut Core, id: ConnId, result: i32, flags: u32) {
        let buffer = cqueue::buffer_select(flags);
        let more = cqueue::more(flags);
        if let Some(sock) = self.table.get_mut(id) {
            if !more {
                sock.flags &= !(RECEIVING | CANCELLING);
                sock.operations -= 1;
                self.again.push(id);
            }
            match (result, buffer) {
                (1.., Some(number)) => {
                    // Reading stops lazily: a paused connection that gets nothing costs nothing.
                    if more && !sock.has(CANCELLING) && !flow::wants_read(core, sock) {
                        sock.flags |= CANCELLING;
                        cancel(&mut self.ring, KIND_RECEIVE | id);
                    }
                    let data = self.buffers.bytes(number, result as usize);
                    let over = flow::deliver(core, sock, data, &mut self.plain);
                    let secured = sock.tls.is_some();
                    if let Some(reason) = over {
                        self.end(core, id, &reason);
                    } else if secured {
                        // Handshakes and alerts answer without the core's knowledge.
                        self.again.push(id);
                    }
                }
                (0.., _) => self.end(core, id, ""),
                _ if matches!(
                    -result,
                    libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN
                ) => {}
                _ => self.end(core, id, &sockets::error_text(-result)),
            }
        } else {
            self.bury(id, !more);
        }
        if let Some(number) = buffer {
            self.buffers.give_back(number);
        }
    }

    fn on_send(&mut self, core: &mut Core, id: ConnId, result: i32) {
        let Some(sock) = self.table.get_mut(id) else {
            return self.bury(id, true);
        };
        sock.operations -= 1;
        let missed = sock.has(MISSED);
        sock.flags &= !(SENDING | QUICK | MISSED);
        if result < 0 && !matches!(-result, libc::EINTR | libc::EAGAIN) {
            return self.end(core, id, &sockets::error_text(-result));
        }
        sock.done += result.max(0) as usize;
        if sock.done < sock.out.len() {
            send_rest(&mut self.ring, sock);
            sock.flags |= if missed { MISSED } else { 0 };
            flow::report(core, sock);
            return;
        }
        flow::all_sent(core, sock);
        flow::report(core, sock);
        if missed {
            self.again.push(id);
        }
    }

    fn on_connect(&mut self, core: &mut Core, id: ConnId) {
        let Some(sock) = self.table.get_mut(id) else {
            return self.bury(id, true);
        };
        sock.operations -= 1;
        sock.flags &= !CONNECTING;
        if let Some(error) = sockets::connect_error(sock.fd.as_fd()) {
            let reason = format!("connect failed: {}", sockets::io_text(&error));
            return self.end(core, id, &reason);
        }
        core.connected(id);
        self.again.push(id);
    }

    fn on_accept(&mut self, core: &mut Core, serial: u64, result: i32, flags: u32) {
        let found = self
            .listeners
            .iter_mut()
            .find(|found| found.serial == serial);
        let mut made = 0;
        if result >= 0 {
            // SAFETY: the kernel has just made this descriptor for us.
            let fd = unsafe { OwnedFd::from_raw_fd(result) };
            match &found {
                Some(found) if self.diverting => {
                    core.diverted(sockets::for_python(fd), found.listener);
                }
                Some(found) => {
                    made = core.accepted(found.listener);
                    self.table.insert(made, fd, 0);
                    self.again.push(made);
                }
                None => {}
            }
        }
        let Some(found) = found else { return };
        found.accepting &= cqueue::more(flags);
        if result < 0
            && result != -libc::ECANCELED
            && matches!(sockets::judge_accept(-result), AcceptError::Fatal)
        {
            found.paused = true;
            core.listener_failed(found.listener, sockets::error_text(-result));
        }
        accept(&mut self.ring, found);
        self.first_words(core, made);
    }

    /// What a client has said by the time it is accepted is read at once: no receive need be awaited for it.
    fn first_words(&mut self, core: &mut Core, id: ConnId) {
        let Some(sock) = self.table.get_mut(id) else {
            return;
        };
        let mut room = [MaybeUninit::<u8>::uninit(); FIRST_WORDS];
        if let Ok(count @ 1..) = sockets::recv(sock.fd.as_fd(), &mut room) {
            // SAFETY: the kernel has filled the first `count` bytes.
            let data = unsafe { std::slice::from_raw_parts(room.as_ptr().cast::<u8>(), count) };
            core.received(id, data);
        }
    }

    /// The completions in hand tell which quick sends are not done; the others are, if nothing more is to come.
    fn finish_quick(&mut self, core: &mut Core) {
        for &(tag, _, _) in &self.batch {
            if tag & KIND_MASK == KIND_SEND {
                let id = tag & !KIND_MASK;
                let found = self.table.get_mut(id);
                if let Some(sock) = found.or_else(|| self.dying.get_mut(&id)) {
                    sock.flags &= !QUICK;
                }
            }
        }
        if self.quick.is_empty() || self.has_ready() {
            return;
        }
        let submission = self.ring.submission();
        if !submission.is_empty() || submission.cq_overflow() {
            return;
        }
        drop(submission);
        self.hurry = false;
        let mut quick = mem::take(&mut self.quick);
        for id in quick.drain(..) {
            if let Some(sock) = self.table.get(id) {
                if sock.has(QUICK) {
                    let all = sock.out.len() as i32;
                    self.on_send(core, id, all);
                }
            } else if let Some(sock) = self.dying.get_mut(&id) {
                if sock.has(QUICK) {
                    sock.flags &= !QUICK;
                    self.bury(id, true);
                }
            }
        }
        self.quick = quick;
    }

    fn take_batch(&mut self) {
        self.batch.clear();
        for entry in self.ring.completion().take(BATCH) {
            self.batch
                .push((entry.user_data(), entry.result(), entry.flags()));
        }
    }
}

impl Driver for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn flush(&mut self, core: &mut Core) {
        self.watches.poll_again(&mut self.ring);
        let mut touched = mem::take(&mut self.touched);
        core.take_touched(&mut touched);
        touched.append(&mut self.again);
        while !touched.is_empty() {
            for id in touched.drain(..) {
                self.settle(core, id);
            }
            core.take_touched(&mut touched);
            touched.append(&mut self.again);
        }
        self.touched = touched;
    }

    fn push(&mut self) {
        if !self.ring.submission().is_empty() {
            // Whatever is wrong shows at the next wait.
            let _ = self.ring.submit();
        }
    }

    fn has_ready(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Woke> {
        let now = self.hurry || self.has_ready() || timeout.is_some_and(|time| time.is_zero());
        let result = match timeout {
            _ if now => {
                let submission = self.ring.submission();
                if submission.is_empty() && !submission.taskrun() && !submission.cq_overflow() {
                    return Ok(Woke::Normally);
                }
                drop(submission);
                self.ring.submit()
            }
            None => self.ring.submit_and_wait(1),
            Some(time) => {
                let limit = Timespec::from(time);
                self.ring
                    .submitter()
                    .submit_with_args(1, &SubmitArgs::new().timespec(&limit))
            }
        };
        match result {
            Ok(_) => Ok(Woke::Normally),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EAGAIN | libc::EBUSY) => Ok(Woke::Normally),
                Some(libc::EINTR) => Ok(Woke::Interrupted),
                _ => Err(error),
            },
        }
    }

    fn collect(&mut self, core: &mut Core, ready: &mut Vec<(RawFd, i32)>) {
        self.take_batch();
        self.finish_quick(core);
        let batch = mem::take(&mut self.batch);
        for &(tag, result, flags) in &batch {
            let number = tag & !KIND_MASK;
            match tag & KIND_MASK {
                KIND_RECEIVE => self.on_receive(core, number, result, flags),
                KIND_SEND => self.on_send(core, number, result),
                KIND_CONNECT => self.on_connect(core, number),
                KIND_ACCEPT => self.on_accept(core, number, result, flags),
                KIND_WATCH => self.watches.on_poll(tag, result, ready),
                _ => {}
            }
        }
        self.buffers.publish();
        self.batch = batch;
    }

    fn watch(&mut self, fd: RawFd, mask: i32) -> io::Result<()> {
        self.watches.add(&mut self.ring, fd, mask)
    }

    fn unwatch(&mut self, fd: RawFd) {
        self.watches.remove(&mut self.ring, fd);
    }

    fn listen(
        &mut self,
        fd: BorrowedFd<'_>,
        listener: u64,
        options: &SocketOptions,
    ) -> io::Result<()> {
        sockets::set_options(fd, options)?;
        let fd = fd.try_clone_to_owned()?;
        self.next_serial = self.next_serial.wrapping_add(1);
        let serial = u64::from(self.next_serial);
        let mut made = Listener {
            listener,
            serial,
            fd,
            options: options.clone(),
            paused: false,
            accepting: false,
        };
        accept(&mut self.ring, &mut made);
        self.listeners.push(made);
        Ok(())
    }

    fn pause_listener(&mut self, listener: u64, paused: bool) -> bool {
        let Some(found) = self
            .listeners
            .iter_mut()
            .find(|found| found.listener == listener)
        else {
            return false;
        };
        if found.paused != paused {
            found.paused = paused;
            if paused && found.accepting {
                cancel(&mut self.ring, KIND_ACCEPT | found.serial);
                push_and_run(&mut self.ring);
            } else if !paused {
                accept(&mut self.ring, found);
            }
        }
        true
    }

    fn unlisten(&mut self, listener: u64) -> bool {
        let known = self.pause_listener(listener, true);
        self.listeners.retain(|found| found.listener != listener);
        known
    }

    fn divert(&mut self, on: bool) {
        self.diverting = on;
    }

    fn adopt(&mut self, core: &mut Core, fd: OwnedFd, listener: u64) -> io::Result<bool> {
        let same = |found: &&Listener| found.listener == listener;
        let Some(found) = self.listeners.iter().find(same) else {
            return Ok(false);
        };
        sockets::adopt(&fd, &found.options)?;
        let id = core.accepted(listener);
        self.attach(id, fd);
        Ok(true)
    }

    fn attach(&mut self, id: ConnId, fd: OwnedFd) {
        self.table.insert(id, fd, 0);
        self.again.push(id);
    }

    fn is_plain(&self, id: ConnId) -> bool {
        self.table.get(id).is_some_and(|sock| sock.tls.is_none())
    }

    fn connect(&mut self, core: &mut Core, address: &Address, options: &SocketOptions) -> ConnId {
        let id = core.dialing();
        match sockets::begin_connect(address, options) {
            Ok((fd, true)) => {
                self.table.insert(id, fd, MADE);
                core.connected(id);
                self.again.push(id);
            }
            Ok((fd, false)) => {
                let sock = self.table.insert(id, fd, MADE | CONNECTING);
                sock.operations += 1;
                let entry = opcode::PollAdd::new(Fd(sock.raw()), libc::POLLOUT as u32).build();
                submit(&mut self.ring, entry.user_data(KIND_CONNECT | id));
            }
            Err(error) => core.ended(id, &format!("connect failed: {}", sockets::io_text(&error))),
        }
        id
    }

    fn socket(&self, id: ConnId) -> Option<BorrowedFd<'_>> {
        self.table.fd(id)
    }

    fn start_tls(
        &mut self,
        core: &mut Core,
        id: ConnId,
        context: &TlsContext,
        name: &str,
        early: Vec<u8>,
    ) -> Result<(), String> {
        let stream = TlsStream::new(context, name, core.take_output(id))?;
        let Some(sock) = self.table.get_mut(id) else {
            return Ok(());
        };
        sock.tls = Some(Box::new(stream));
        match flow::deliver(core, sock, &early, &mut self.plain) {
            Some(reason) => self.end(core, id, &reason),
            None => self.again.push(id),
        }
        Ok(())
    }

    fn shutdown(&mut self) {
        if mem::replace(&mut self.stopped, true) {
            return;
        }
        for sock in self.table.iter().chain(self.dying.values()) {
            if sock.has(MADE) {
                sockets::shut_writing(sock.fd.as_fd());
            } else {
                sockets::shut(sock.fd.as_fd());
            }
        }
        // The ring's own end comes later, in the kernel's time; ports and files must be free now.
        let everything = io_uring::types::CancelBuilder::any();
        let _ = self.ring.submit();
        let _ = self.ring.submitter().register_sync_cancel(None, everything);
        let _ = self.wait(Some(Duration::ZERO));
        while self.has_ready() {
            self.take_batch();
            for index in 0..self.batch.len() {
                let (tag, result, _) = self.batch[index];
                if tag & KIND_MASK == KIND_ACCEPT && result >= 0 {
                    // SAFETY: a connection accepted too late; nobody else knows its descriptor.
                    drop(unsafe { OwnedFd::from_raw_fd(result) });
                }
            }
        }
        self.listeners.clear();
        self.watches.clear();
        // The sockets' buffers stay until the ring is dropped; their descriptors go now.
        let _ = self.ring.submitter().unregister_ring_fd();
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.shutdown();
    }
}

fn accept(ring: &mut IoUring, listener: &mut Listener) {
    if listener.accepting || listener.paused {
        return;
    }
    listener.accepting = true;
    let entry = opcode::AcceptMulti::new(Fd(listener.fd.as_raw_fd()))
        .flags(libc::SOCK_CLOEXEC)
        .build();
    submit(ring, entry.user_data(KIND_ACCEPT | listener.serial));
}

/// A last try to send TLS alerts; what does not fit is lost.
fn farewell(sock: &mut Sock) {
    if sock.has(SENDING) {
        return;
    }
    if let Some(tls) = &mut sock.tls {
        let mut last = Vec::new();
        tls.take_pending(&mut last);
        if !last.is_empty() {
            let _ = sockets::send(sock.fd.as_fd(), &last);
        }
    }
}
