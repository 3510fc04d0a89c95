//! Plain socket calls that every driver needs.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

/// TCP options of a socket; 0 = the system's default.
#[derive(Clone, Debug, Default)]
pub struct SocketOptions {
    pub keepalive: bool,
    pub keepidle_s: u64,
    pub keepintvl_s: u64,
    pub keepcnt: u32,
    pub user_timeout_ms: u64,
    pub buffer_bytes: usize,
}

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum Address {
    Tcp(SocketAddr),
    /// A path, or "@name" for an abstract one.
    Unix(String),
}

impl Address {
    /// A TCP address from an IP literal, IPv6 with an optional `%scope`.
    pub fn tcp(host: &str, port: u16) -> Result<Address, String> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(Address::Tcp(SocketAddr::new(ip, port)));
        }
        let bad = || format!("not an IP address: {host:?}");
        // "fe80::1%2" or "fe80::1%eth0".
        let (ip, scope) = host.split_once('%').ok_or_else(bad)?;
        let ip = ip.parse().map_err(|_| bad())?;
        let scope = match scope.parse() {
            Ok(number) => number,
            Err(_) => interface(scope).ok_or_else(|| format!("no such interface: {scope:?}"))?,
        };
        Ok(Address::Tcp(SocketAddrV6::new(ip, port, 0, scope).into()))
    }

    fn to_sockaddr(&self) -> io::Result<SockAddr> {
        match self {
            Address::Tcp(address) => Ok(SockAddr::from(*address)),
            // The standard library's abstract form is a path that begins with a zero byte.
            Address::Unix(path) => match path.strip_prefix('@') {
                Some(name) => SockAddr::unix(format!("\0{name}")),
                None => SockAddr::unix(path),
            },
        }
    }
}

/// The number of a network interface.
fn interface(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends in a zero byte and lives through the call.
    let number = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (number != 0).then_some(number)
}

/// Sets the options; on a listening socket they are inherited by what is accepted.
pub fn set_options(fd: BorrowedFd<'_>, options: &SocketOptions) -> io::Result<()> {
    let socket = SockRef::from(&fd);
    if options.buffer_bytes > 0 {
        socket.set_send_buffer_size(options.buffer_bytes)?;
        socket.set_recv_buffer_size(options.buffer_bytes)?;
    }
    if socket.domain()? == Domain::UNIX {
        return Ok(());
    }
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(options.keepalive)?;
    if options.keepalive {
        let mut keepalive = TcpKeepalive::new();
        if options.keepidle_s > 0 {
            keepalive = keepalive.with_time(Duration::from_secs(options.keepidle_s));
        }
        if options.keepintvl_s > 0 {
            keepalive = keepalive.with_interval(Duration::from_secs(options.keepintvl_s));
        }
        if options.keepcnt > 0 {
            keepalive = keepalive.with_retries(options.keepcnt);
        }
        socket.set_tcp_keepalive(&keepalive)?;
    }
    if options.user_timeout_ms > 0 {
        socket.set_tcp_user_timeout(Some(Duration::from_millis(options.user_timeout_ms)))?;
    }
    Ok(())
}

/// Begins a connection; true if it is up already.
pub fn begin_connect(address: &Address, options: &SocketOptions) -> io::Result<(OwnedFd, bool)> {
    let target = address.to_sockaddr()?;
    let socket = Socket::new(target.domain(), Type::STREAM.nonblocking().cloexec(), None)?;
    set_options(socket.as_fd(), options)?;
    match socket.connect(&target) {
        Ok(()) => Ok((socket.into(), true)),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok((socket.into(), false)),
        Err(error) => Err(error),
    }
}

/// The result of a connection under way.
pub fn connect_error(fd: BorrowedFd<'_>) -> Option<io::Error> {
    match SockRef::from(&fd).take_error() {
        Ok(found) => found,
        Err(error) => Some(error),
    }
}

/// What accepting gave.
pub enum Accepted {
    Socket(OwnedFd),
    /// Nothing (more) to accept now.
    Nothing,
    Failed(io::Error),
}

/// Accepts one connection from a non-blocking listener.
pub fn accept(listener: BorrowedFd<'_>) -> Accepted {
    loop {
        match SockRef::from(&listener).accept() {
            Ok((socket, _)) => return Accepted::Socket(socket.into()),
            Err(error) => match judge_accept(error.raw_os_error().unwrap_or(0)) {
                AcceptError::Again => {}
                AcceptError::Nothing => return Accepted::Nothing,
                AcceptError::Fatal => return Accepted::Failed(error),
            },
        }
    }
}

/// What an accept error asks for.
pub enum AcceptError {
    Again,
    Nothing,
    Fatal,
}

/// Errors of the connection itself are skipped; a lack of descriptors or memory pauses the listener.
pub fn judge_accept(errno: i32) -> AcceptError {
    match errno {
        libc::EAGAIN => AcceptError::Nothing,
        libc::EINTR
        | libc::ECONNABORTED
        | libc::EPROTO
        | libc::ENETDOWN
        | libc::ENETUNREACH
        | libc::EHOSTDOWN
        | libc::EHOSTUNREACH => AcceptError::Again,
        _ => AcceptError::Fatal,
    }
}

/// Reads what is there.
pub fn recv(fd: BorrowedFd<'_>, into: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
    SockRef::from(&fd).recv_with_flags(into, libc::MSG_DONTWAIT)
}

/// True if the next thing to read is the end.
pub fn at_end(fd: BorrowedFd<'_>) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    match SockRef::from(&fd).recv_with_flags(&mut byte, libc::MSG_DONTWAIT | libc::MSG_PEEK) {
        Ok(count) => count == 0,
        Err(error) => {
            error.kind() != io::ErrorKind::WouldBlock && error.kind() != io::ErrorKind::Interrupted
        }
    }
}

/// Sends what the socket takes; no SIGPIPE.
pub fn send(fd: BorrowedFd<'_>, data: &[u8]) -> io::Result<usize> {
    SockRef::from(&fd).send_with_flags(data, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
}

/// Ends both directions, so that pending operations finish.
pub fn shut(fd: BorrowedFd<'_>) {
    // An error means that the peer was faster.
    let _ = SockRef::from(&fd).shutdown(Shutdown::Both);
}

/// Tells the peer that we are done; what it still sends can be read from a duplicate.
pub fn shut_writing(fd: BorrowedFd<'_>) {
    let _ = SockRef::from(&fd).shutdown(Shutdown::Write);
}

/// Makes an accepted socket what Python is promised: non-blocking; it was made close-on-exec.
pub fn for_python(fd: OwnedFd) -> RawFd {
    let _ = SockRef::from(&fd).set_nonblocking(true);
    fd.into_raw_fd()
}

/// An error if it is no socket at all.
pub fn check(fd: &OwnedFd) -> io::Result<()> {
    SockRef::from(fd).r#type().map(|_| ())
}

/// Gives a socket that was accepted elsewhere the options of a listener.
pub fn adopt(fd: &OwnedFd, options: &SocketOptions) -> io::Result<()> {
    check(fd)?;
    // A peer that is gone already makes some of them fail; its end is found by reading.
    let _ = set_options(fd.as_fd(), options);
    Ok(())
}

/// Makes the coming close a reset.
pub fn reset_on_close(fd: BorrowedFd<'_>) {
    let _ = SockRef::from(&fd).set_linger(Some(Duration::ZERO));
}

/// (peer host, peer port, local host, local port); "unix" and 0 on Unix sockets.
pub fn addresses(fd: BorrowedFd<'_>) -> io::Result<(String, u16, String, u16)> {
    let socket = SockRef::from(&fd);
    let (host, port) = host_port(&socket.peer_addr()?);
    let (local_host, local_port) = host_port(&socket.local_addr()?);
    Ok((host, port, local_host, local_port))
}

fn host_port(address: &SockAddr) -> (String, u16) {
    match address.as_socket() {
        Some(found) => (found.ip().to_canonical().to_string(), found.port()),
        None => ("unix".into(), 0),
    }
}

/// (pid, uid, gid) of a Unix-socket peer; None for other sockets.
pub fn credentials(fd: BorrowedFd<'_>) -> io::Result<Option<(i32, u32, u32)>> {
    if SockRef::from(&fd).domain()? != Domain::UNIX {
        return Ok(None);
    }
    let mut found = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `found` and `size` live through the call and describe a buffer of the size the kernel writes.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut size,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Some((found.pid, found.uid, found.gid)))
}

/// Runs `act` with a descriptor that somebody else owns.
///
/// Python gives numbers; a wrong one gives EBADF in the call, never more.
pub fn with_fd<T>(fd: RawFd, act: impl FnOnce(BorrowedFd<'_>) -> T) -> io::Result<T> {
    // SAFETY: fcntl(F_GETFD) only looks the number up.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the descriptor is open, as just seen, and the borrow ends with this call on the same thread.
    Ok(act(unsafe { BorrowedFd::borrow_raw(fd) }))
}

/// Owns a descriptor that Python gives away.
pub fn take_over(fd: RawFd) -> io::Result<OwnedFd> {
    with_fd(fd, |_| ())?;
    // SAFETY: it is open, as just seen, and its owner has handed it over.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Closes a descriptor that was to become Python's.
pub fn close(fd: RawFd) {
    drop(take_over(fd));
}

/// Text of an error without Rust's "(os error N)".
pub fn error_text(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

/// As `error_text`, for an error of the standard library.
pub fn io_text(error: &io::Error) -> String {
    error
        .raw_os_error()
        .map_or_else(|| error.to_string(), error_text)
}
