"""Bytes from servers: judged by the head of the queue, passed on or swallowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgshoal.engine.python import prepared, reading, renewal
from pgshoal.engine.python.conn import CLOSING, DIALOGUE, FROZEN, HELD, IDLE, LINKED, LINKING
from pgshoal.engine.python.dialogue import server_dialogue
from pgshoal.engine.python.frames import (
    COLLECT_MAX,
    ERR_DIRTY,
    ERR_HEADER,
    ERR_UNKNOWN,
    HEADER,
    MAX_LENGTH,
    SERVER_COLLECTED,
    SERVER_FIXED,
    SERVER_SMALL,
    SERVER_TYPES,
    error_fields,
)
from pgshoal.engine.python.params import status_pair
from pgshoal.engine.python.queue import (
    BIND,
    COPY_END,
    DESCRIBE_PORTAL,
    DESCRIBE_STATEMENT,
    ENDED_BY_READY,
    ENDS,
    EXECUTE,
    FORWARDED,
    INJECTED,
    PARSE,
    PASSES,
    QUERY,
    SKIPPED,
    SYNC,
)

if TYPE_CHECKING:
    from pgshoal.engine.python.conn import Client, Server
    from pgshoal.engine.python.core import Core
    from pgshoal.engine.python.queue import Entry

BAD_HEADER = 0
BAD_MESSAGE = 1
NEED_MORE = 2
READY = 3
STATEMENT_BLOCK = 4
PASS = 5
SWALLOW = 6
END = 7
END_SILENT = 8

_QUERY_TAG = 0x43 << 4 | QUERY
_PARSED = 0x31 << 4 | PARSE
_QUICK_PASS = frozenset({0x44 << 4 | QUERY, 0x54 << 4 | QUERY, 0x44 << 4 | EXECUTE})
_QUICK_TAG = frozenset({_QUERY_TAG, 0x43 << 4 | EXECUTE})
_QUICK_END = frozenset({_PARSED, 0x32 << 4 | BIND, 0x6E << 4 | DESCRIBE_PORTAL, 0x73 << 4 | EXECUTE})

_STATUS = {0x49: "I", 0x54: "T", 0x45: "E"}


def server_input(core: Core, server: Server, data: bytes) -> None:
    """Take what a server sent, or look again at what is kept."""
    mode = server.mode
    if mode is DIALOGUE:
        server.inbuf += data
        server_dialogue(core, server)
        return
    if mode is FROZEN or mode is CLOSING:
        return
    inbuf = server.inbuf
    if inbuf:
        inbuf += data
        if len(inbuf) < server.need:
            return
        data = bytes(inbuf)
        inbuf.clear()
    server.need = 0
    at = 0
    end = len(data)
    while True:
        mode = server.mode
        if mode is LINKED:
            at = _linked(core, server, data, at, end)
        elif mode is LINKING:
            at = _linking(core, server, data, at, end)
        elif mode is IDLE or mode is HELD:
            at = _idle(core, server, data, at, end)
        else:
            break
        if server.gone:
            return
        if server.mode is mode:
            break
    if at < end:
        server.inbuf += data[at:]
        if server.mode is DIALOGUE:
            server_dialogue(core, server)


def _broken(core: Core, server: Server, reason: str) -> int:
    core.server_lost(server, reason, "server_closed", reason)
    return 0


def _bad_length(code: int, length: int) -> bool:
    return (
        length < 4
        or length > MAX_LENGTH
        or (code in SERVER_FIXED and length != 4)
        or (code == 0x5A and length != 5)
        or (code in SERVER_SMALL and length > COLLECT_MAX)
    )


def _idle(core: Core, server: Server, data: bytes, at: int, end: int) -> int:
    """Nobody asked anything: reports are noted, notices dropped, all else is dirt."""
    while at < end:
        if server.skip:
            step = min(server.skip, end - at)
            server.skip -= step
            at += step
            continue
        code = data[at]
        if code not in b"NAS":
            return _broken(core, server, ERR_DIRTY)
        if end - at < 5:
            break
        _, length = HEADER.unpack_from(data, at)
        if _bad_length(code, length):
            return _broken(core, server, ERR_HEADER)
        if code == 0x53:
            if end - at <= length:
                server.need = length + 1
                break
            pair = status_pair(data[at : at + 1 + length])
            if pair is not None:
                core.parameters_table.report(server, *pair)
            at += 1 + length
        else:
            server.forwarding = False
            server.skip = length + 1
    return at


def _linking(core: Core, server: Server, data: bytes, at: int, end: int) -> int:
    """The answers to our own SETs: reports are noted, all else swallowed up to ReadyForQuery."""
    while at < end:
        if server.skip:
            step = min(server.skip, end - at)
            server.skip -= step
            at += step
            continue
        if end - at < 5:
            break
        code, length = HEADER.unpack_from(data, at)
        if _bad_length(code, length):
            return _broken(core, server, ERR_HEADER)
        if code not in SERVER_TYPES:
            return _broken(core, server, ERR_UNKNOWN)
        collected = code in SERVER_COLLECTED or (code == 0x45 and length <= COLLECT_MAX)
        if collected and end - at <= length:
            server.need = length + 1
            break
        if code == 0x53:
            pair = status_pair(data[at : at + 1 + length])
            if pair is not None:
                core.parameters_table.report(server, *pair)
                assert server.link is not None
                core.parameters_table.report(server.link, *pair)
        elif code == 0x45:
            text = error_fields(data[at : at + 1 + length]).get(0x4D, b"")
            core.server_lost(server, "var change failed", "invalid_server_parameter", text.decode("utf-8", "replace"))
            return 0
        elif code == 0x5A:
            at += 6
            if data[at - 1] != 0x49:
                return _broken(core, server, ERR_UNKNOWN)
            _settled(core, server)
            return at
        server.forwarding = False
        server.skip = length + 1
    return at


def _settled(core: Core, server: Server) -> None:
    """The SETs are done: the two are linked, and the client's kept input is looked at."""
    client = server.link
    assert client is not None
    core.parameters_table.settled(client, server)
    client.mode = server.mode = LINKED
    core.unread.append(client)


def _linked(core: Core, server: Server, data: bytes, at: int, end: int) -> int:
    """Relay to the client. `start` is where the bytes to pass on in one piece begin."""
    client = server.link
    assert client is not None
    queue = server.queue
    start = at
    unpack = HEADER.unpack_from
    while at < end:
        if server.skip:
            start, at = _flow(core, client, server, data, start, at, end)
            continue
        if end - at < 5:
            break
        code, length = unpack(data, at)
        head = queue[0] if queue else None
        if head is not None and end - at > length > 3:
            # The common cases, which change nothing but the place in the queue.
            key = code << 4 | head.kind
            if key in _QUICK_PASS:
                at += length + 1
                continue
            if key in _QUICK_TAG and 4 < length <= COLLECT_MAX and data[at + 5] != 0x44 and not server.copy_in:
                at += length + 1
                if key == _QUERY_TAG:
                    continue
            elif key in _QUICK_END and head.plain | (key != _PARSED) and head.origin == FORWARDED and length == 4:
                at += 5
            else:
                key = 0
            if key:
                queue.popleft()
                if queue and (queue[0].origin == SKIPPED or queue[0].kind == COPY_END):
                    _pass(core, client, data, start, at)
                    start = at
                    _settle_head(core, client, server)
                continue
        verdict = _judge(core, client, server, head, code, data, at, end, length)
        if verdict >= PASS:
            _begin(server, verdict, length)
            if verdict >= END:
                _advance(core, client, server)
        elif verdict == NEED_MORE:
            break
        else:
            if verdict == READY and server.withheld:
                _pass(core, client, data, start, at)
                start = at
                if renewal.again(core, client, server, data[at + 5]):
                    start = at = at + 6
                    continue
            _pass(core, client, data, start, at + 6 if verdict == READY else at)
            if verdict == READY:
                start = at = at + 6
                _ready(core, client, server, data[at - 1])
            else:
                _refuse(core, client, server, verdict)
            if server.mode is not LINKED or server.gone:
                return at
    _pass(core, client, data, start, at)
    return at


def _flow(core: Core, client: Client, server: Server, data: bytes, start: int, at: int, end: int) -> tuple[int, int]:
    """Go on inside a message that is streamed or dropped; the new `start` and `at`."""
    step = min(server.skip, end - at)
    if not server.forwarding:
        _pass(core, client, data, start, at)
        start = at + step
    server.skip, at = server.skip - step, at + step
    queue = server.queue
    if not server.skip and queue and (queue[0].origin == SKIPPED or queue[0].kind == COPY_END):
        _pass(core, client, data, start, at)
        start = at
        _settle_head(core, client, server)
    return start, at


def _refuse(core: Core, client: Client, server: Server, verdict: int) -> None:
    """The server's message ends the link: it is broken, or no statement-mode pool may see it."""
    if verdict in (BAD_HEADER, BAD_MESSAGE):
        _broken(core, server, ERR_HEADER if verdict == BAD_HEADER else ERR_UNKNOWN)
    else:
        core.statement_block(client, server)


def _pass(core: Core, client: Client, data: bytes, start: int, end: int) -> None:
    if start < end:
        client.out.append(data[start:end])
        client.out_size += end - start
        core.touch(client)


def _begin(server: Server, verdict: int, length: int) -> None:
    """From here on the message only has to go by: passed on or swallowed."""
    server.skip = length + 1
    server.forwarding = verdict in (PASS, END)


def _judge(
    core: Core,
    client: Client,
    server: Server,
    head: Entry | None,
    code: int,
    data: bytes,
    at: int,
    end: int,
    length: int,
) -> int:
    """What is to be done with one message of a linked server."""
    if _bad_length(code, length):
        return BAD_HEADER
    if code not in SERVER_TYPES:
        return BAD_MESSAGE
    whole = end - at > length
    if not whole and (code in SERVER_COLLECTED or (code == 0x45 and length <= COLLECT_MAX)):
        server.need = length + 1
        return NEED_MORE
    if code == 0x4E or code == 0x41:
        server.batch = None
        return PASS
    if code == 0x53:
        return _reported(core, client, server, data[at : at + 1 + length])
    if code == 0x45:
        return _error(core, client, server, head, data[at : at + 1 + length] if whole else b"")
    if code == 0x5A:
        return _judge_ready(server, head, data[at + 5])
    if head is None:
        return BAD_MESSAGE
    kind = head.kind
    silent = head.origin == INJECTED
    if code in ENDS[kind] and (kind != DESCRIBE_STATEMENT or server.described):
        if code == 0x43 and kind == EXECUTE:
            _tag(core, client, server, head, data[at + 5 : at + length])
        return END_SILENT if silent else END
    if code not in PASSES[kind]:
        return BAD_MESSAGE
    if code == 0x43:
        _tag(core, client, server, head, data[at + 5 : at + length])
    elif code == 0x47 or code == 0x57:
        _copy_begins(client, server)
    elif code == 0x74:
        server.described = True
    return SWALLOW if silent else PASS


def _judge_ready(server: Server, head: Entry | None, status: int) -> int:
    if head is None or not ENDED_BY_READY[head.kind]:
        return BAD_MESSAGE
    if status not in _STATUS:
        return BAD_HEADER
    pool = server.pool
    return STATEMENT_BLOCK if pool is not None and pool.statement_mode and status != 0x49 else READY


def _reported(core: Core, client: Client, server: Server, message: bytes) -> int:
    pair = status_pair(message)
    if pair is not None:
        core.parameters_table.report(server, *pair)
        core.parameters_table.report(client, *pair)
    return PASS


def _ready(core: Core, client: Client, server: Server, status: int) -> None:
    """ReadyForQuery: the head is done; the transaction, and with it the link, may be."""
    queue = server.queue
    pool = server.pool
    assert pool is not None
    queue.popleft()
    if queue:
        _settle_head(core, client, server)
    server.status = _STATUS[status]
    server.busy = bool(queue)
    server.copy_in = False
    now = core.now
    if not queue:
        reading.told(server, status != 0x49)
        pool.queries += 1
        pool.query_time += now - (server.query_us or now)
        server.query_us = 0
    if status == 0x49:
        pool.xacts += 1
        pool.xact_time += now - (server.xact_us or now)
        server.xact_us = now if queue else 0
        client.portals = {}
        if not queue and pool.pooled and not (client.skip and client.forwarding):
            core.release(client, server)


def _advance(core: Core, client: Client, server: Server) -> None:
    """The head is being answered."""
    entry = server.queue.popleft()
    server.described = False
    if not entry.plain and entry.kind == PARSE:
        if entry.duplicate is not None:
            _duplicate_worked(core, client, server, entry)
        prepared.commit(server, entry)


def _duplicate_worked(core: Core, client: Client, server: Server, entry: Entry) -> None:
    """A Parse of a mapped name has succeeded: the mapped one had failed, and this server has an odd statement."""
    assert entry.duplicate is not None
    name, tail, mapped, read = entry.duplicate
    if name not in client.prepared:
        client.prepared[name] = renewal.read(core, server, tail, read)
    prepared.mark_stale(server, mapped)


def _settle_head(core: Core, client: Client, server: Server) -> None:
    """Answer skipped requests that have reached the head, and drop ends of COPY."""
    queue = server.queue
    while queue:
        head = queue[0]
        if head.origin == SKIPPED:
            core.write(client, head.answer)
        elif head.kind != COPY_END:
            return
        queue.popleft()


def settle_head(core: Core, client: Client, server: Server) -> None:
    """As after an answer, for a request just added; never inside a message."""
    if not (server.skip and server.forwarding):
        _settle_head(core, client, server)


def _tag(core: Core, client: Client, server: Server, head: Entry, tag: bytes) -> None:
    """CommandComplete: the end of a COPY, or a command that drops prepared statements."""
    if server.copy_in:
        server.copy_in = False
        _drop_copy_end(server)
    if not tag.startswith(b"D"):
        return
    if tag == b"DEALLOCATE ALL" or tag == b"DISCARD ALL":
        ahead = head.saved is not None
        if not head.plain:
            head.saved = None
            head.dealloc = None
        prepared.reset_done(client, server, ahead)
        if tag == b"DISCARD ALL":
            core.forget_extras(server)
    elif tag == b"DEALLOCATE" and head.dealloc is not None:
        client.prepared.pop(head.dealloc, None)
        head.dealloc = None


def _drop_copy_end(server: Server) -> None:
    queue = server.queue
    found = next((at for at in range(1, len(queue)) if queue[at].kind == COPY_END), 0)
    if found:
        del queue[found]


def _copy_begins(client: Client, server: Server) -> None:
    """CopyInResponse: what stands behind the head is ignored or eaten by the server."""
    queue = server.queue
    server.copy_in = True
    client.need = 0
    index = 1
    while index < len(queue):
        entry = queue[index]
        if entry.kind == COPY_END:
            return
        if entry.origin == SKIPPED:
            index += 1
        elif entry.kind == SYNC:
            del queue[index]
        else:
            del queue[index]
            if not entry.plain:
                prepared.undo(client, server, entry, failed=False)
            server.copy_in = False
            return


def _error(core: Core, client: Client, server: Server, head: Entry | None, message: bytes) -> int:
    """ErrorResponse: undo what the server will skip."""
    server.copy_in = False
    if head is None:
        return PASS
    if ENDED_BY_READY[head.kind]:
        if not head.plain:
            prepared.undo(client, server, head, failed=True)
        return PASS
    queue = server.queue
    if head.void and len(queue) > 1 and queue[1].kind == QUERY:
        return BAD_MESSAGE
    changed = head.statement if head.kind in (BIND, DESCRIBE_STATEMENT) and renewal.is_changed(message) else None
    withheld = changed is not None and renewal.withhold(client, server, message)
    server.described = False
    segment: list[Entry] = []
    while queue and queue[0].kind != SYNC:
        segment.append(queue.popleft())
    client.errored = not queue
    # What is kept of a message may be dropped now, without waiting for all of it.
    client.need = 0
    while segment:
        if not (entry := segment.pop()).plain:
            prepared.undo(client, server, entry, failed=entry is head)
    if changed is not None:
        renewal.supersede(core, client, server, changed)
    return SWALLOW if withheld else PASS
