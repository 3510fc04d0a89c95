"""Clients from the end of their login to their end: welcome, waiting for a first server, refusing, closing."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pgshoal.config import effective
from pgshoal.engine.contract import ConnId
from pgshoal.errors import REFUSALS, Refused, refuse
from pgshoal.policy.timeouts import QUEUED_NOTICE, login_wait_verdict
from pgshoal.wire.build import READY_IDLE, backend_key_data, error_response, notice
from pgshoal.worker.admissions import recount_all
from pgshoal.worker.front import Unwelcomed
from pgshoal.worker.log import LOG, place, socket_prefix
from pgshoal.worker.records import Client, Pool, Welcome
from pgshoal.worker.welcome import WelcomePlan

if TYPE_CHECKING:
    from pgshoal.worker.handler import ConsoleLogin, WorkerFace

Parameters = tuple[tuple[str, str], ...]


def prefix(client: Client) -> str:
    """How log lines begin that speak of this client."""
    where = place(client.peer_host, client.peer_port, client.peer_pid)
    return socket_prefix("C", client.conn, client.database.name, client.user.name, where)


def error_packet(refused: Refused) -> bytes:
    """What the client gets; nothing for a silent refusal."""
    return b"" if refused.silent else error_response(refused.severity, refused.sqlstate, refused.text)


def enter(worker: WorkerFace, client: Client, wished: Parameters, connect_us: int) -> None:
    """A client has proved itself: welcome it, or let it wait for the pool's first server."""
    pool, conn = client.pool, client.conn
    pool.client_logins += 1
    worker.front.clients[conn] = pool.clients[conn] = client
    if pool.welcome is not None:
        _greet(worker, client, pool.welcome, wished)
        return
    worker.front.unwelcomed[client.conn] = Unwelcomed(wished, worker.engine.now_us(), connect_us)
    pool.login_queue[client.conn] = client
    worker.grow(pool)


def welcome_waiting(worker: WorkerFace, pool: Pool) -> None:
    """The pool has logged in to its server for the first time: let in all who waited, in order."""
    waiting, pool.login_queue = pool.login_queue, {}
    for client in waiting.values():
        stood = worker.front.unwelcomed.pop(client.conn, None)
        if stood is not None and pool.welcome is not None:
            _greet(worker, client, pool.welcome, stood.wished)


def refuse_waiting(worker: WorkerFace, pool: Pool, refused: Refused) -> None:
    """The server does not let this pool in: tell all who wait for their welcome, and all who wait in line."""
    for conn in [*pool.login_queue, *worker.engine.waiting_clients(pool.id)]:
        client = worker.front.clients.get(conn)
        if client is not None:
            close(worker, client, refused)


def _greet(worker: WorkerFace, client: Client, welcome: Welcome, wished: Parameters) -> None:
    settings = worker.config.settings
    plan = welcome.plan
    if plan is None:
        plan = welcome.plan = _make_plan(worker, client.pool, welcome)
    told, parameters = plan.told(wished)
    limits = plan.limits.get(client.user.name)
    if limits is None:
        limits = plan.limits[client.user.name] = _limits(worker, client)
    message = settings.login_notify_message
    # The key is that of BackendKeyData, 8 bytes.
    key = backend_key_data(client.cancel_key)
    greeting = b"%b%b%b%b" % (told, key, notice(message) if message else b"", READY_IDLE)
    # A client that died in this same wake is forgotten when its CLOSED is read; others must not suffer for it.
    try:
        worker.engine.admit(client.conn, client.pool.id, parameters, limits[0], limits[1], greeting)
    except KeyError:
        return


def _make_plan(worker: WorkerFace, pool: Pool, welcome: Welcome) -> WelcomePlan:
    config = worker.config
    mode = effective.pool_mode(config, pool.database.config, pool.user.name)
    return WelcomePlan(welcome, mode, config.settings.max_prepared_statements, worker.front.rules.order)


def _limits(worker: WorkerFace, client: Client) -> tuple[int, int]:
    """(client_idle_timeout, query_wait_timeout) in microseconds; -1 leaves the second to the pool."""
    config = worker.config
    if client.pool.stream is not None:
        return 0, 0
    name = client.user.name
    idle_us = int(effective.client_idle_timeout_s(config, name) * 1_000_000)
    if name not in config.users or name == client.pool.user.name:
        return idle_us, -1
    return idle_us, int(effective.query_wait_timeout_s(config, client.database.config, name) * 1_000_000)


def retune(worker: WorkerFace) -> None:
    """After a reload: new startup rules, new welcomes, new limits for those who are in."""
    front = worker.front
    front.configure(worker.config)
    recount_all(worker)
    for pool in worker.pools.by_id.values():
        if pool.welcome is not None:
            pool.welcome.plan = None
    for client in front.clients.values():
        if client.conn not in front.unwelcomed:
            with suppress(KeyError):
                worker.engine.readmit(client.conn, *_limits(worker, client))


def closed(worker: WorkerFace, conn: ConnId, reason: str) -> None:
    """The engine has lost a client."""
    client = worker.front.clients.get(conn)
    if client is not None:
        _forget(worker, client)
        if worker.config.settings.log_disconnections:
            age_s = int(time.time() - client.connect_time)
            worker.log.write(LOG, f"{prefix(client)}closing because: {reason} (age={age_s}s)")


def fault(worker: WorkerFace, conn: ConnId, key: str, detail: str) -> None:
    """The engine has frozen a client; say why and close."""
    client = worker.front.clients.get(conn)
    if client is None:
        return
    if key == "pqexec_disallowed":
        worker.log.error(f'{prefix(client)}client used "Query" packet type')
    if key == "invalid_server_parameter" and detail:
        worker.log.error(f"{prefix(client)}varcache_apply failed: ERROR: {detail}")
    if key == "server_closed" and detail:
        refused = refuse("server_reason", reason=detail)
    elif key in REFUSALS:
        refused = refuse(key, hex=detail, reason=detail, text=detail)
    else:
        refused = refuse("server_reason", reason=detail or key)
    close(worker, client, refused)


def overdue(worker: WorkerFace, conn: ConnId, key: str) -> None:
    """A limit of the engine's watch has passed: a NOTICE, or the end."""
    client = worker.front.clients.get(conn)
    if client is None:
        return
    if key == "query_wait_notify":
        with suppress(KeyError):
            worker.engine.send(conn, notice(QUEUED_NOTICE))
        return
    close(worker, client, refuse(key))


def close(worker: WorkerFace, client: Client, refused: Refused) -> None:
    """Tell a client why, close it, and its server too unless the link is clean."""
    _forget(worker, client)
    packet = error_packet(refused)
    _log_closing(worker, client, refused.text, bool(packet))
    with suppress(KeyError):
        worker.engine.close(client.conn, packet, refused.text)


def close_pool(worker: WorkerFace, pool: Pool, refused: Refused) -> None:
    """Close every client of a pool."""
    for client in list(pool.clients.values()):
        close(worker, client, refused)


def expire(worker: WorkerFace, now_us: int) -> None:
    """client_login_timeout for those logging in, and the two limits of those without a welcome."""
    settings = worker.config.settings
    limit_s = settings.client_login_timeout
    front = worker.front
    if limit_s > 0:
        due_us = now_us - int(limit_s * 1_000_000)
        for login in list(front.logins.values()):
            if login.connect_us >= due_us:
                break
            login.refuse(refuse("client_login_timeout"))
    for conn, stood in list(front.unwelcomed.items()):
        client = front.clients[conn]
        wait_s = effective.query_wait_timeout_s(worker.config, client.database.config, client.user.name)
        key = login_wait_verdict(
            (now_us - stood.since_us) / 1e6, (now_us - stood.connect_us) / 1e6, wait_s, limit_s, welcome=False
        )
        if key is not None:
            close(worker, client, refuse(key))


def console_gone(worker: WorkerFace, conn: ConnId) -> None:
    """A console session has ended."""
    login = worker.front.consoles.pop(conn, None)
    if login is not None:
        worker.front.forget_key(login.cancel_key)
        login.user.client_connections -= 1
        worker.admissions.leave(login.admitted)


def console_prefix(login: ConsoleLogin) -> str:
    """How log lines begin that speak of a console session."""
    where = place(login.peer_host, login.peer_port, login.peer_pid)
    return socket_prefix("C", login.conn, "pgbouncer", login.user.name, where)


def _forget(worker: WorkerFace, client: Client) -> None:
    front, pool, conn = worker.front, client.pool, client.conn
    front.clients.pop(conn, None)
    front.keys.pop(hash(client.cancel_key), None)
    pool.clients.pop(conn, None)
    if front.unwelcomed:
        front.unwelcomed.pop(conn, None)
        pool.login_queue.pop(conn, None)
    client.database.client_connections -= 1
    client.user.client_connections -= 1
    worker.admissions.leave(client.admitted)
    if not pool.clients:
        worker.pools.settle(pool)
    if pool.stream is not None:
        worker.replication.left(client)


def depart(worker: WorkerFace, client: Client) -> None:
    """It goes on in another process, which counts it from now on."""
    _forget(worker, client)


def arrive(worker: WorkerFace, client: Client) -> None:
    """It goes on here; it was welcomed long ago, and keeps its parameters."""
    pool, conn = client.pool, client.conn
    worker.front.clients[conn] = pool.clients[conn] = client
    worker.engine.admit(conn, pool.id, (), *_limits(worker, client))


def _log_closing(worker: WorkerFace, client: Client, reason: str, told: bool = False) -> None:
    settings = worker.config.settings
    if not settings.log_disconnections and not (told and settings.log_pooler_errors):
        return
    log_closing(worker, prefix(client), reason, client.connect_time, told)


def log_closing(worker: WorkerFace, lead: str, reason: str, connect_time: float, told: bool) -> None:
    """The lines at the end of any client connection; `told`: it got an error packet with this text."""
    settings = worker.config.settings
    if settings.log_disconnections:
        age_s = int(time.time() - connect_time)
        worker.log.log(f"{lead}closing because: {reason} (age={age_s}s)")
    if told and settings.log_pooler_errors:
        worker.log.warning(f"{lead}pooler error: {reason}")
