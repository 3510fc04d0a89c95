//! The class `Engine`: the contract's verbs over one core and one driver.

use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use pyo3::exceptions::{PyKeyError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use rustc_hash::FxHashSet;

use super::events;
use super::records::{self, refused, Context, CountsTuple, FactsTuple};
use super::text::{text, Text};
use crate::core::{ConnId, Core, CoreEvent, ParamSet};
use crate::driver::clock::monotonic_us;
use crate::driver::epoll::Epoll;
use crate::driver::manual::Manual;
use crate::driver::uring::Uring;
use crate::driver::{sockets, Driver, Woke};
use crate::tls::TlsContext;

/// How long hot work may keep Python from its own callbacks, timers and signals.
const TURN_LIMIT_US: u64 = 50_000;
/// STARVED alone is told no more often: a full pool starves at every wake, and Python can do nothing about it.
const STARVED_GAP_US: u64 = 1_000;

const KNOWN_SETS: usize = 32;

type Pairs = Vec<(Text, Text)>;

/// One engine, one thread.
#[pyclass(unsendable, subclass)]
pub struct Engine {
    core: Core,
    /// None after `shutdown`.
    driver: Option<Box<dyn Driver>>,
    manual: bool,
    /// Clients that began with a TLS handshake and have not been answered yet.
    direct: FxHashSet<ConnId>,
    ready: Vec<(RawFd, i32)>,
    /// Until then STARVED alone may wait.
    quiet_until: u64,
    /// Parameters clients were admitted with; the tuples are kept, so their identity stays theirs.
    known_sets: Vec<(Py<PyAny>, Rc<ParamSet>)>,
}

impl Engine {
    fn driver(&mut self) -> PyResult<&mut Box<dyn Driver>> {
        self.driver
            .as_mut()
            .ok_or_else(|| PyRuntimeError::new_err("the engine is shut down"))
    }

    fn manual_only(&self, conn: Option<ConnId>) -> PyResult<()> {
        if !self.manual {
            return Err(PyRuntimeError::new_err(
                "only the manual driver can do this",
            ));
        }
        match conn {
            Some(conn) => self.alive(conn),
            None => Ok(()),
        }
    }

    fn sockets_only(&self) -> PyResult<()> {
        if self.manual {
            return Err(PyRuntimeError::new_err("the manual driver has no sockets"));
        }
        Ok(())
    }

    fn alive(&self, conn: ConnId) -> PyResult<()> {
        if self.core.is_alive(conn) {
            Ok(())
        } else {
            Err(PyKeyError::new_err(conn))
        }
    }

    /// The values of a tuple seen before are not read again.
    fn parameter_set(&mut self, parameters: &Bound<'_, PyAny>) -> PyResult<Rc<ParamSet>> {
        let same = |known: &&(Py<PyAny>, Rc<ParamSet>)| known.0.is(parameters);
        if let Some((_, set)) = self.known_sets.iter().find(same) {
            return Ok(set.clone());
        }
        let set = self.core.parameter_set(&parameters.extract::<Pairs>()?);
        // Lists may change.
        if parameters.is_exact_instance_of::<PyTuple>() {
            if self.known_sets.len() >= KNOWN_SETS {
                self.known_sets.clear();
            }
            self.known_sets
                .push((parameters.clone().unbind(), set.clone()));
        }
        Ok(set)
    }

    /// Turns of the hot loop until Python is needed.
    fn turn(&mut self, py: Python<'_>, timeout_us: Option<u64>) -> PyResult<()> {
        let Engine {
            core,
            driver,
            ready,
            quiet_until,
            ..
        } = self;
        let driver = driver
            .as_mut()
            .ok_or_else(|| PyRuntimeError::new_err("the engine is shut down"))?;
        let start = monotonic_us();
        core.set_now(start);
        let mut now = start;
        loop {
            driver.flush(core);
            let end = timeout_us.map(|limit| start.saturating_add(limit));
            let end = match core.pending() {
                true if core.only_starved() => {
                    Some(end.map_or(*quiet_until, |end| end.min(*quiet_until)))
                }
                true => Some(now),
                false => end,
            };
            let left = end.map(|end| end.saturating_sub(now));
            let time = left.map(Duration::from_micros);
            let woke = if left == Some(0) || driver.has_ready() {
                driver.wait(time)?
            } else {
                py.detach(|| driver.wait(time))?
            };
            now = monotonic_us();
            core.set_now(now);
            driver.collect(core, ready);
            let over = timeout_us.is_some_and(|limit| now >= start + limit)
                || now >= start + TURN_LIMIT_US;
            let told = core.pending() && (now >= *quiet_until || !core.only_starved());
            if over || woke == Woke::Interrupted || !ready.is_empty() || told {
                break;
            }
        }
        if core.only_starved() {
            *quiet_until = now + STARVED_GAP_US;
        }
        driver.flush(core);
        driver.push();
        Ok(())
    }
}

#[pymethods]
impl Engine {
    /// `driver`: "uring", "epoll" or "manual". OSError if the system does not allow it.
    #[new]
    fn new(driver: &str) -> PyResult<Engine> {
        let made: Box<dyn Driver> = match driver {
            "uring" => Box::new(Uring::new().map_err(PyOSError::new_err)?),
            "epoll" => Box::new(Epoll::new()?),
            "manual" => Box::new(Manual::default()),
            other => return Err(PyValueError::new_err(format!("unknown driver {other:?}"))),
        };
        let manual = driver == "manual";
        let mut core = Core::new();
        if !manual {
            core.set_now(monotonic_us());
        }
        Ok(Engine {
            core,
            driver: Some(made),
            manual,
            direct: FxHashSet::default(),
            ready: Vec::new(),
            quiet_until: 0,
            known_sets: Vec::new(),
        })
    }

    #[getter]
    fn name(&self) -> &'static str {
        self.driver.as_ref().map_or("", |driver| driver.name())
    }

    // -- the loop

    #[pyo3(signature = (timeout_s=None))]
    fn wait(&mut self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<Vec<(RawFd, i32)>> {
        if self.manual {
            let Engine { core, driver, .. } = self;
            if let Some(driver) = driver {
                driver.flush(core);
            }
            return Ok(Vec::new());
        }
        // Rounded up, as asyncio expects: waking too early would make it spin.
        self.turn(
            py,
            timeout_s.map(|time| (time.max(0.0) * 1e6).ceil() as u64),
        )?;
        Ok(std::mem::take(&mut self.ready))
    }

    fn watch(&mut self, fd: RawFd, mask: i32) -> PyResult<()> {
        Ok(self.driver()?.watch(fd, mask)?)
    }

    fn unwatch(&mut self, fd: RawFd) {
        if let Some(driver) = &mut self.driver {
            driver.unwatch(fd);
        }
    }

    fn events<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for event in self.core.events() {
            match &event {
                CoreEvent::DirectTls { conn } => {
                    self.direct.insert(*conn);
                }
                CoreEvent::Closed { conn, .. } => {
                    self.direct.remove(conn);
                }
                _ => {}
            }
            list.append(events::tuple(py, &event)?)?;
        }
        Ok(list)
    }

    fn pending(&self) -> bool {
        self.core.pending()
    }

    fn now_us(&self) -> u64 {
        self.core.now()
    }

    fn shutdown(&mut self) {
        if let Some(mut driver) = self.driver.take() {
            driver.shutdown();
        }
        self.core.drop_descriptors(sockets::close);
    }

    // -- sockets

    fn set_limits(&mut self, limits: &Bound<'_, PyAny>) -> PyResult<()> {
        self.core.set_limits(records::limits(limits)?);
        Ok(())
    }

    fn listen(&mut self, fd: RawFd, listener: u64, options: &Bound<'_, PyAny>) -> PyResult<()> {
        let options = records::socket_options(options)?;
        let driver = self.driver()?;
        sockets::with_fd(fd, |fd| driver.listen(fd, listener, &options))??;
        Ok(())
    }

    fn pause_listener(&mut self, listener: u64) -> PyResult<()> {
        let known = self.driver()?.pause_listener(listener, true);
        known
            .then_some(())
            .ok_or_else(|| PyKeyError::new_err(listener))
    }

    fn resume_listener(&mut self, listener: u64) -> PyResult<()> {
        let known = self.driver()?.pause_listener(listener, false);
        known
            .then_some(())
            .ok_or_else(|| PyKeyError::new_err(listener))
    }

    fn unlisten(&mut self, listener: u64) -> PyResult<()> {
        let known = self.driver()?.unlisten(listener);
        known
            .then_some(())
            .ok_or_else(|| PyKeyError::new_err(listener))
    }

    fn divert(&mut self, on: bool) -> PyResult<()> {
        self.driver()?.divert(on);
        Ok(())
    }

    fn adopt(&mut self, fd: RawFd, listener: u64) -> PyResult<()> {
        let fd = sockets::take_over(fd)?;
        self.sockets_only()?;
        let Engine { core, driver, .. } = self;
        let known = match driver {
            Some(driver) => driver.adopt(core, fd, listener)?,
            None => return Err(PyRuntimeError::new_err("the engine is shut down")),
        };
        known
            .then_some(())
            .ok_or_else(|| PyValueError::new_err(format!("unknown listener {listener}")))
    }

    fn connect(
        &mut self,
        address: &Bound<'_, PyAny>,
        options: &Bound<'_, PyAny>,
    ) -> PyResult<ConnId> {
        let address = records::address(address)?;
        let options = records::socket_options(options)?;
        let Engine { core, driver, .. } = self;
        let driver = driver
            .as_mut()
            .ok_or_else(|| PyRuntimeError::new_err("the engine is shut down"))?;
        Ok(driver.connect(core, &address, &options))
    }

    fn descriptor(&mut self, conn: ConnId) -> PyResult<RawFd> {
        self.alive(conn)?;
        self.sockets_only()?;
        let fd = self.driver()?.socket(conn);
        fd.map(|fd| fd.as_raw_fd())
            .ok_or_else(|| PyKeyError::new_err(conn))
    }

    fn addresses(&mut self, conn: ConnId) -> PyResult<(String, u16, String, u16)> {
        if self.manual {
            self.alive(conn)?;
            return Ok(("unix".into(), 0, "unix".into(), 0));
        }
        let fd = self
            .driver()?
            .socket(conn)
            .ok_or_else(|| PyKeyError::new_err(conn))?;
        // A peer that is gone already has no name any more.
        Ok(sockets::addresses(fd).unwrap_or_else(|_| ("".into(), 0, "".into(), 0)))
    }

    fn credentials(&mut self, conn: ConnId) -> PyResult<(i32, u32, u32)> {
        if self.manual {
            self.alive(conn)?;
            return Err(PyRuntimeError::new_err("not a Unix socket"));
        }
        let fd = self
            .driver()?
            .socket(conn)
            .ok_or_else(|| PyKeyError::new_err(conn))?;
        sockets::credentials(fd)?.ok_or_else(|| PyRuntimeError::new_err("not a Unix socket"))
    }

    // -- TLS

    fn server_context(&self, settings: &Bound<'_, PyAny>) -> PyResult<Context> {
        let settings = records::tls_settings(settings)?;
        Ok(Context {
            context: TlsContext::server(&settings).map_err(PyValueError::new_err)?,
        })
    }

    fn client_context(&self, settings: &Bound<'_, PyAny>) -> PyResult<Context> {
        let settings = records::tls_settings(settings)?;
        Ok(Context {
            context: TlsContext::client(&settings).map_err(PyValueError::new_err)?,
        })
    }

    fn emigrate(&mut self, client: ConnId) -> PyResult<bool> {
        let plain = self.driver()?.is_plain(client);
        self.alive(client)?;
        if !plain {
            return Ok(false);
        }
        self.core.emigrate(client).map_err(refused)
    }

    fn immigrate(&mut self, fd: RawFd, listener: u64, state: &[u8]) -> PyResult<ConnId> {
        let fd = if self.manual && fd < 0 {
            None
        } else {
            Some(sockets::take_over(fd)?)
        };
        if self.manual && fd.is_some() {
            self.sockets_only()?;
        }
        let Engine { core, driver, .. } = self;
        let driver = driver
            .as_mut()
            .ok_or_else(|| PyRuntimeError::new_err("the engine is shut down"))?;
        if let Some(fd) = &fd {
            sockets::check(fd)?;
        }
        let id = core
            .immigrate(listener, state)
            .ok_or_else(|| PyValueError::new_err("not the state of a client"))?;
        if let Some(fd) = fd {
            driver.attach(id, fd);
        }
        Ok(id)
    }

    #[pyo3(signature = (conn, context, server_name=""))]
    fn start_tls(&mut self, conn: ConnId, context: &Context, server_name: &str) -> PyResult<bool> {
        self.alive(conn)?;
        if !self.core.in_dialogue(conn) {
            return Err(PyRuntimeError::new_err(
                "start_tls: the connection is not in dialogue",
            ));
        }
        let direct = self.direct.remove(&conn);
        if !direct && self.core.unread(conn) > 0 {
            return Ok(false);
        }
        let Engine { core, driver, .. } = self;
        let driver = driver
            .as_mut()
            .ok_or_else(|| PyRuntimeError::new_err("the engine is shut down"))?;
        let early = core.take_unread(conn);
        driver
            .start_tls(core, conn, &context.context, server_name, early)
            .map_err(PyRuntimeError::new_err)?;
        Ok(true)
    }

    // -- dialogue

    #[pyo3(signature = (conn, limit, data=None))]
    fn proceed(&mut self, conn: ConnId, limit: u64, data: Option<&[u8]>) -> PyResult<()> {
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            self.core.send(conn, data).map_err(refused)?;
        }
        self.core
            .proceed(conn, u32::try_from(limit).unwrap_or(u32::MAX))
            .map_err(refused)
    }

    fn proceed_startup(&mut self, conn: ConnId) -> PyResult<()> {
        self.core.proceed_startup(conn).map_err(refused)
    }

    fn set_dialogue_limit(&mut self, conn: ConnId, limit: u64) -> PyResult<()> {
        self.core
            .set_dialogue_limit(conn, u32::try_from(limit).unwrap_or(u32::MAX))
            .map_err(refused)
    }

    fn send(&mut self, conn: ConnId, data: &[u8]) -> PyResult<()> {
        self.core.send(conn, data).map_err(refused)
    }

    #[pyo3(signature = (conn, data=None, reason=None))]
    fn close(&mut self, conn: ConnId, data: Option<&[u8]>, reason: Option<Text>) -> PyResult<()> {
        self.direct.remove(&conn);
        let reason = reason.as_ref().map_or(&b""[..], Text::as_ref);
        let reason = &String::from_utf8_lossy(reason);
        self.core
            .close(conn, data.unwrap_or_default(), reason)
            .map_err(refused)
    }

    // -- pools

    fn add_pool(&mut self, spec: &Bound<'_, PyAny>) -> PyResult<u64> {
        Ok(self.core.add_pool(records::pool_spec(spec)?))
    }

    fn set_pool(&mut self, pool: u64, spec: &Bound<'_, PyAny>) -> PyResult<()> {
        self.core
            .set_pool(pool, records::pool_spec(spec)?)
            .map_err(refused)
    }

    fn drop_pool(&mut self, pool: u64) -> PyResult<()> {
        self.core.drop_pool(pool).map_err(refused)
    }

    fn pause_pool(&mut self, pool: u64, paused: bool) -> PyResult<()> {
        self.core.pause_pool(pool, paused).map_err(refused)
    }

    fn tell_rest(&mut self, pool: u64) -> PyResult<()> {
        self.core.tell_rest(pool).map_err(refused)
    }

    fn hush_pool(&mut self, pool: u64, hushed: bool) -> PyResult<()> {
        self.core.hush_pool(pool, hushed).map_err(refused)
    }

    #[pyo3(signature = (client, pool, parameters, client_idle_timeout_us=0, query_wait_timeout_us=-1, welcome=None))]
    fn admit(
        &mut self,
        client: ConnId,
        pool: u64,
        parameters: &Bound<'_, PyAny>,
        client_idle_timeout_us: i64,
        query_wait_timeout_us: i64,
        welcome: Option<&[u8]>,
    ) -> PyResult<()> {
        let params = self.parameter_set(parameters)?;
        let limits = (client_idle_timeout_us, query_wait_timeout_us);
        self.core
            .admit_with(client, pool, params, limits, welcome.unwrap_or_default())
            .map_err(refused)
    }

    fn readmit(
        &mut self,
        client: ConnId,
        client_idle_timeout_us: i64,
        query_wait_timeout_us: i64,
    ) -> PyResult<()> {
        self.core
            .readmit(client, client_idle_timeout_us, query_wait_timeout_us)
            .map_err(refused)
    }

    fn enroll(&mut self, server: ConnId, pool: u64, parameters: Pairs) -> PyResult<()> {
        self.core.enroll(server, pool, &parameters).map_err(refused)
    }

    fn park(&mut self, server: ConnId) -> PyResult<()> {
        self.core.park(server).map_err(refused)
    }

    fn take(&mut self, server: ConnId) -> PyResult<bool> {
        self.core.take(server).map_err(refused)
    }

    fn decide(&mut self, server: ConnId, decide: bool) -> PyResult<()> {
        self.core.decide(server, decide).map_err(refused)
    }

    fn unwait(&mut self, client: ConnId) -> PyResult<()> {
        self.core.unwait(client).map_err(refused)
    }

    fn hold(&mut self, server: ConnId) -> PyResult<()> {
        self.core.hold(server).map_err(refused)
    }

    fn unhold(&mut self, server: ConnId) -> PyResult<()> {
        self.core.unhold(server).map_err(refused)
    }

    // -- facts; records come as tuples in the order of the contract's fields

    fn link_of(&self, conn: ConnId) -> PyResult<ConnId> {
        self.core.link_of(conn).map_err(refused)
    }

    fn pool_counts(&self, pool: u64) -> PyResult<CountsTuple> {
        self.core
            .pool_counts(pool)
            .map(records::counts)
            .map_err(refused)
    }

    fn pool_stats(&self, pool: u64) -> PyResult<[u64; 11]> {
        self.core
            .pool_stats(pool)
            .map(records::stats)
            .map_err(refused)
    }

    fn idle_servers(&self, pool: u64) -> PyResult<Vec<(ConnId, u64)>> {
        self.core.idle_servers(pool).map_err(refused)
    }

    fn waiting_clients(&self, pool: u64) -> PyResult<Vec<ConnId>> {
        self.core.waiting_clients(pool).map_err(refused)
    }

    fn facts(&self, conn: ConnId) -> PyResult<FactsTuple> {
        self.core.facts(conn).map(records::facts).map_err(refused)
    }

    fn parameters<'py>(&self, py: Python<'py>, conn: ConnId) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (name, value) in self.core.parameters(conn).map_err(refused)? {
            found.set_item(text(py, &name)?, text(py, &value)?)?;
        }
        Ok(found)
    }

    fn overdue(&mut self, now_us: u64) -> Vec<(ConnId, &'static str)> {
        let found = self.core.overdue(now_us);
        let Engine { core, driver, .. } = self;
        if let Some(driver) = driver {
            // What has been closing for too long goes at once.
            driver.flush(core);
        }
        found
    }

    fn memory(&self) -> Vec<(&'static str, usize, usize, usize)> {
        self.core.memory()
    }

    // -- driver "manual" only

    fn set_now(&mut self, now_us: u64) -> PyResult<()> {
        self.manual_only(None)?;
        self.core.set_now(now_us);
        Ok(())
    }

    fn accept_manual(&mut self, listener: u64) -> PyResult<ConnId> {
        self.manual_only(None)?;
        Ok(self.core.accepted(listener))
    }

    fn connected_manual(&mut self, conn: ConnId) -> PyResult<()> {
        self.manual_only(Some(conn))?;
        self.core.connected(conn);
        Ok(())
    }

    fn received(&mut self, conn: ConnId, data: &[u8]) -> PyResult<()> {
        self.manual_only(Some(conn))?;
        self.core.received(conn, data);
        Ok(())
    }

    fn received_eof(&mut self, conn: ConnId) -> PyResult<()> {
        self.manual_only(Some(conn))?;
        self.core.ended(conn, "");
        Ok(())
    }

    fn output<'py>(&mut self, py: Python<'py>, conn: ConnId) -> PyResult<Bound<'py, PyBytes>> {
        self.manual_only(None)?;
        if !self.core.is_alive(conn) && !self.core.is_closing(conn) {
            return Err(PyKeyError::new_err(conn));
        }
        let Engine { core, driver, .. } = self;
        let taken = core.take_output(conn);
        let data = PyBytes::new(py, &taken);
        core.recycle(taken);
        core.sent(conn, 0);
        if let Some(driver) = driver {
            driver.flush(core);
        }
        Ok(data)
    }

    fn reading(&self, conn: ConnId) -> PyResult<bool> {
        self.manual_only(Some(conn))?;
        Ok(self.core.wants_read(conn))
    }
}
