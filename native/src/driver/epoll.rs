//! The epoll driver: edge-triggered, one receive buffer, immediate sends.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::core::{ConnId, Core};
use crate::driver::flow;
use crate::driver::sockets::{self, Accepted};
use crate::driver::table::{Sock, Table, CONNECTING, MADE, SENDING};
use crate::driver::{Address, Driver, SocketOptions, Woke, READ, WRITE};
use crate::tls::{TlsContext, TlsStream};

const RECEIVE_BYTES: usize = 64 * 1024;
const BATCH: usize = 256;
/// Accepted at one go, so that a storm of clients does not starve the others.
const ACCEPT_BATCH: usize = 64;
/// So many full batches of a listener before it may take twice as many at once.
const STREAK: u32 = 4;

const KIND_CONNECTION: u64 = 1 << 56;
const KIND_LISTENER: u64 = 2 << 56;
const KIND_WATCH: u64 = 3 << 56;
const KIND_MASK: u64 = 0xff << 56;

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
/// The kernel need not look again at what it has told already.
const EDGE: u32 = libc::EPOLLET as u32;
const BROKEN: u32 = (libc::EPOLLHUP | libc::EPOLLERR) as u32;

struct Listener {
    listener: u64,
    fd: OwnedFd,
    options: SocketOptions,
    paused: bool,
    /// How many batches in a row did not find the end of the queue.
    streak: u32,
}

/// One epoll instance.
pub struct Epoll {
    epoll: OwnedFd,
    batch: Vec<libc::epoll_event>,
    table: Table,
    listeners: Vec<Listener>,
    diverting: bool,
    watched: FxHashMap<RawFd, i32>,
    touched: Vec<ConnId>,
    /// Connections that may hold more than was read although no event will tell, with what the last one told.
    more: Vec<(ConnId, u32)>,
    incoming: Box<[MaybeUninit<u8>]>,
    plain: Vec<u8>,
}

impl Epoll {
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: a plain system call without pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Epoll {
            // SAFETY: the descriptor is fresh and nobody else knows it.
            epoll: unsafe { OwnedFd::from_raw_fd(fd) },
            batch: Vec::with_capacity(BATCH),
            table: Table::default(),
            listeners: Vec::new(),
            diverting: false,
            watched: FxHashMap::default(),
            touched: Vec::new(),
            more: Vec::new(),
            incoming: vec![MaybeUninit::uninit(); RECEIVE_BYTES].into_boxed_slice(),
            plain: Vec::new(),
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
            return self.reset(core, id);
        }
        if sock.has(CONNECTING) {
            if core.is_closing(id) {
                self.drop_sock(core, id);
            }
            return;
        }
        let mut broken = None;
        while !sock.has(SENDING) && flow::fill(core, sock) {
            broken = send_some(core, sock);
            if broken.is_some() {
                break;
            }
        }
        if let Some(reason) = broken {
            return self.end(core, id, &reason);
        }
        if !sock.has(SENDING) {
            if core.is_closing(id) {
                return self.drop_sock(core, id);
            }
            if core.is_moving(id) {
                return self.hand_over(core, id);
            }
        }
        let mut interest = sock.interest & IN;
        if interest == 0 && flow::wants_read(core, sock) {
            interest = IN | RDHUP;
        } else if interest != 0 {
            // Reading stops lazily, when something comes that nobody wants.
            interest |= RDHUP;
        }
        if sock.has(SENDING) {
            interest |= OUT;
        }
        set_interest(&self.epoll, sock, interest);
    }

    fn end(&mut self, core: &mut Core, id: ConnId, reason: &str) {
        if let Some(sock) = self.table.get_mut(id) {
            farewell(sock);
        }
        self.forget(id);
        core.ended(id, reason);
    }

    fn reset(&mut self, core: &mut Core, id: ConnId) {
        if let Some(sock) = self.table.get(id).filter(|sock| !sock.has(MADE)) {
            sockets::reset_on_close(sock.fd.as_fd());
        }
        self.drop_sock(core, id);
    }

    fn drop_sock(&mut self, core: &mut Core, id: ConnId) {
        if self.forget(id) {
            core.gone(id);
        }
    }

    /// Closes a socket; false if there is none.
    fn forget(&mut self, id: ConnId) -> bool {
        let Some(mut sock) = self.table.remove(id) else {
            return false;
        };
        if sock.has(MADE) {
            // Closing alone would not take it out of the set: a duplicate in escrow shares the file.
            set_interest(&self.epoll, &mut sock, 0);
            sockets::shut_writing(sock.fd.as_fd());
        }
        true
    }

    fn add(&mut self, core: &mut Core, fd: OwnedFd, listener: u64) -> ConnId {
        let id = core.accepted(listener);
        self.attach(id, fd);
        id
    }

    /// The socket goes to Python with its connection.
    fn hand_over(&mut self, core: &mut Core, id: ConnId) {
        if let Some(mut sock) = self.table.remove(id) {
            set_interest(&self.epoll, &mut sock, 0);
            core.moved(id, sockets::for_python(sock.fd));
        }
    }

    fn on_connection(&mut self, core: &mut Core, id: ConnId, events: u32) {
        let Some(sock) = self.table.get_mut(id) else {
            return;
        };
        if sock.has(CONNECTING) {
            return self.on_connect(core, id);
        }
        if events & OUT != 0 && sock.has(SENDING) {
            if let Some(reason) = send_some(core, sock) {
                return self.end(core, id, &reason);
            }
            if !sock.has(SENDING) {
                self.settle(core, id);
            }
        }
        if events & (IN | RDHUP | BROKEN) != 0 {
            self.on_readable(core, id, events);
        }
    }

    fn on_readable(&mut self, core: &mut Core, id: ConnId, events: u32) {
        let Some(sock) = self.table.get_mut(id) else {
            return;
        };
        if !flow::wants_read(core, sock) {
            if events & (RDHUP | BROKEN) != 0 && sockets::at_end(sock.fd.as_fd()) {
                return self.end(core, id, "");
            }
            let interest = if sock.has(SENDING) { OUT } else { 0 };
            set_interest(&self.epoll, sock, interest);
            return;
        }
        match sockets::recv(sock.fd.as_fd(), &mut self.incoming) {
            Ok(0) => self.end(core, id, ""),
            Ok(count) => {
                if count == RECEIVE_BYTES || events & (RDHUP | BROKEN) != 0 {
                    self.more.push((id, events));
                }
                // SAFETY: the kernel has filled the first `count` bytes.
                let data = unsafe {
                    std::slice::from_raw_parts(self.incoming.as_ptr().cast::<u8>(), count)
                };
                if let Some(reason) = flow::deliver(core, sock, data, &mut self.plain) {
                    self.end(core, id, &reason);
                } else if sock.tls.is_some() {
                    // Handshakes and alerts answer without the core's knowledge.
                    self.settle(core, id);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.more.push((id, events));
            }
            Err(error) => self.end(core, id, &sockets::io_text(&error)),
        }
    }

    fn on_connect(&mut self, core: &mut Core, id: ConnId) {
        let Some(sock) = self.table.get_mut(id) else {
            return;
        };
        if let Some(error) = sockets::connect_error(sock.fd.as_fd()) {
            let reason = format!("connect failed: {}", sockets::io_text(&error));
            return self.end(core, id, &reason);
        }
        sock.flags &= !CONNECTING;
        set_interest(&self.epoll, sock, IN | RDHUP);
        core.connected(id);
    }

    fn on_listener(&mut self, core: &mut Core, listener: u64) {
        let Some(found) = find(&mut self.listeners, listener) else {
            return;
        };
        let batch = batch_of(found.streak);
        found.streak = found.streak.saturating_add(1);
        for _ in 0..batch {
            let Some(found) = find(&mut self.listeners, listener) else {
                return;
            };
            if found.paused {
                return;
            }
            match sockets::accept(found.fd.as_fd()) {
                Accepted::Socket(fd) if self.diverting => {
                    core.diverted(sockets::for_python(fd), listener);
                }
                Accepted::Socket(fd) => {
                    let id = self.add(core, fd, listener);
                    // Often it has spoken by now, and one wake does for both.
                    self.on_readable(core, id, IN);
                }
                Accepted::Nothing => {
                    found.streak = 0;
                    return;
                }
                Accepted::Failed(error) => {
                    self.pause_listener(listener, true);
                    core.listener_failed(listener, sockets::io_text(&error));
                    return;
                }
            }
        }
    }
}

impl Driver for Epoll {
    fn name(&self) -> &'static str {
        "epoll"
    }

    fn flush(&mut self, core: &mut Core) {
        let mut touched = mem::take(&mut self.touched);
        core.take_touched(&mut touched);
        while !touched.is_empty() {
            for id in touched.drain(..) {
                self.settle(core, id);
            }
            core.take_touched(&mut touched);
        }
        self.touched = touched;
    }

    fn push(&mut self) {}

    fn has_ready(&mut self) -> bool {
        !self.more.is_empty()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Woke> {
        let millis = match timeout {
            _ if self.has_ready() => 0,
            None => -1,
            // Rounded up: waking too early would spin until the time has come.
            Some(time) => i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX),
        };
        self.batch.clear();
        // SAFETY: the buffer has room for BATCH events and lives through the call.
        let count = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                self.batch.as_mut_ptr(),
                BATCH as i32,
                millis,
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted {
                Ok(Woke::Interrupted)
            } else {
                Err(error)
            };
        }
        // SAFETY: the kernel has filled `count` events, at most BATCH.
        unsafe { self.batch.set_len(count as usize) };
        Ok(Woke::Normally)
    }

    fn collect(&mut self, core: &mut Core, ready: &mut Vec<(RawFd, i32)>) {
        for (id, events) in mem::take(&mut self.more) {
            self.on_readable(core, id, events);
        }
        let mut batch = mem::take(&mut self.batch);
        for event in batch.drain(..) {
            let (events, tag) = (event.events, event.u64);
            let number = tag & !KIND_MASK;
            match tag & KIND_MASK {
                KIND_CONNECTION => self.on_connection(core, number, events),
                KIND_LISTENER => self.on_listener(core, number),
                _ => {
                    let fd = number as RawFd;
                    if let Some(mask) = self.watched.get(&fd) {
                        let mut seen = 0;
                        if events & !OUT != 0 {
                            seen |= READ;
                        }
                        if events & !IN != 0 {
                            seen |= WRITE;
                        }
                        if seen & mask != 0 {
                            ready.push((fd, seen & mask));
                        }
                    }
                }
            }
        }
        self.batch = batch;
    }

    fn watch(&mut self, fd: RawFd, mask: i32) -> io::Result<()> {
        let mut events = 0;
        if mask & READ != 0 {
            events |= IN;
        }
        if mask & WRITE != 0 {
            events |= OUT;
        }
        let known = self.watched.contains_key(&fd);
        let first = if known {
            libc::EPOLL_CTL_MOD
        } else {
            libc::EPOLL_CTL_ADD
        };
        let mut result = control(&self.epoll, first, fd, events, KIND_WATCH | fd as u64);
        if known
            && result
                .as_ref()
                .is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT))
        {
            // Closed and opened again since: the set has forgotten it.
            result = control(
                &self.epoll,
                libc::EPOLL_CTL_ADD,
                fd,
                events,
                KIND_WATCH | fd as u64,
            );
        }
        result?;
        self.watched.insert(fd, mask);
        Ok(())
    }

    fn unwatch(&mut self, fd: RawFd) {
        if self.watched.remove(&fd).is_some() {
            let _ = control(&self.epoll, libc::EPOLL_CTL_DEL, fd, 0, 0);
        }
    }

    fn listen(
        &mut self,
        fd: BorrowedFd<'_>,
        listener: u64,
        options: &SocketOptions,
    ) -> io::Result<()> {
        sockets::set_options(fd, options)?;
        socket2::SockRef::from(&fd).set_nonblocking(true)?;
        let fd = fd.try_clone_to_owned()?;
        control(
            &self.epoll,
            libc::EPOLL_CTL_ADD,
            fd.as_raw_fd(),
            IN,
            KIND_LISTENER | listener,
        )?;
        self.listeners.push(Listener {
            listener,
            fd,
            options: options.clone(),
            paused: false,
            streak: 0,
        });
        Ok(())
    }

    fn pause_listener(&mut self, listener: u64, paused: bool) -> bool {
        let Some(found) = find(&mut self.listeners, listener) else {
            return false;
        };
        if found.paused != paused {
            found.paused = paused;
            let change = if paused {
                libc::EPOLL_CTL_DEL
            } else {
                libc::EPOLL_CTL_ADD
            };
            let _ = control(
                &self.epoll,
                change,
                found.fd.as_raw_fd(),
                IN,
                KIND_LISTENER | listener,
            );
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
        self.add(core, fd, listener);
        Ok(true)
    }

    fn connect(&mut self, core: &mut Core, address: &Address, options: &SocketOptions) -> ConnId {
        let id = core.dialing();
        match sockets::begin_connect(address, options) {
            Ok((fd, up)) => {
                let sock = self
                    .table
                    .insert(id, fd, if up { MADE } else { MADE | CONNECTING });
                set_interest(&self.epoll, sock, if up { IN | RDHUP } else { OUT });
                if up {
                    core.connected(id);
                }
            }
            Err(error) => {
                core.ended(id, &format!("connect failed: {}", sockets::io_text(&error)));
            }
        }
        id
    }

    fn attach(&mut self, id: ConnId, fd: OwnedFd) {
        let sock = self.table.insert(id, fd, 0);
        set_interest(&self.epoll, sock, IN | RDHUP);
    }

    fn is_plain(&self, id: ConnId) -> bool {
        self.table.get(id).is_some_and(|sock| sock.tls.is_none())
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
        if let Some(reason) = flow::deliver(core, sock, &early, &mut self.plain) {
            self.end(core, id, &reason);
        } else {
            self.settle(core, id);
        }
        Ok(())
    }

    fn shutdown(&mut self) {
        for sock in self.table.iter().filter(|sock| sock.has(MADE)) {
            sockets::shut_writing(sock.fd.as_fd());
        }
        self.table.clear();
        self.listeners.clear();
        self.watched.clear();
    }
}

/// Sends from `out` until it is empty or the socket is full; the reason if the connection is broken.
fn send_some(core: &mut Core, sock: &mut Sock) -> Option<String> {
    while sock.done < sock.out.len() {
        match sockets::send(sock.fd.as_fd(), &sock.out[sock.done..]) {
            Ok(count) => sock.done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sock.flags |= SENDING;
                flow::report(core, sock);
                return None;
            }
            Err(error) => return Some(sockets::io_text(&error)),
        }
    }
    flow::all_sent(core, sock);
    sock.flags &= !SENDING;
    flow::report(core, sock);
    None
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

fn find(listeners: &mut [Listener], listener: u64) -> Option<&mut Listener> {
    listeners
        .iter_mut()
        .find(|found| found.listener == listener)
}

/// How many connections to accept at once. Finding none costs as much as accepting one, so a batch grows only
/// while there is always another.
fn batch_of(streak: u32) -> usize {
    ACCEPT_BATCH.min(1 << (streak / STREAK).min(usize::BITS - 1))
}

fn set_interest(epoll: &OwnedFd, sock: &mut Sock, interest: u32) {
    if sock.interest == interest {
        return;
    }
    // Nothing wanted: out of the set, because HUP cannot be masked and would spin.
    let change = match (sock.interest, interest) {
        (0, _) => libc::EPOLL_CTL_ADD,
        (_, 0) => libc::EPOLL_CTL_DEL,
        _ => libc::EPOLL_CTL_MOD,
    };
    sock.interest = interest;
    let _ = control(
        epoll,
        change,
        sock.raw(),
        interest | EDGE,
        KIND_CONNECTION | sock.id,
    );
}

fn control(epoll: &OwnedFd, change: i32, fd: RawFd, events: u32, tag: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events, u64: tag };
    // SAFETY: `event` lives through the call; wrong descriptors give an error.
    let result = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), change, fd, &raw mut event) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
