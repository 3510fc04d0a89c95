"""What the supervisor asks of each worker for the console: its rows, and to carry out what was decided for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pgshoal.console.rows import ROWS
from pgshoal.errors import refuse
from pgshoal.policy.standing import REGISTERS
from pgshoal.worker import clients

if TYPE_CHECKING:
    from pgshoal.console.session import AdminConsole
    from pgshoal.fleet.channel import Message
    from pgshoal.worker.pause import Done, Waiter
    from pgshoal.worker.records import Database

Fields = dict[str, Any]


class Orders:
    """Hears `gather`, `act` and `abandon`. To be told twice changes nothing: a late worker may be."""

    def __init__(self, console: AdminConsole) -> None:
        self.console = console
        self.worker = console.worker
        self._waiters: dict[int, Waiter] = {}
        self._now: Mapping[str, Callable[[Database | None], Fields]] = {
            "RESUME": self._resume,
            "KILL": self._kill,
            "DISABLE": self._disable,
            "ENABLE": self._enable,
            "RECONNECT": self._reconnect,
        }
        fleet = self.worker.fleet
        fleet.on("gather", self._gather)
        fleet.on("act", self._act)
        fleet.on("abandon", self._abandon)

    def _gather(self, message: Message) -> None:
        rows = ROWS[message["what"]](self.worker, self.console)
        self.worker.fleet.reply(message, {"rows": rows})

    def _act(self, message: Message) -> None:
        try:
            self._carry_out(message)
        except Exception:
            # A bug, which whoever called us logs; the fleet must not wait for ever.
            self.worker.fleet.reply(message, {"error": "internal_error"})
            raise

    def _carry_out(self, message: Message) -> None:
        command, argument = message["command"], message["argument"]
        fleet, pools, pause = self.worker.fleet, self.worker.pools, self.worker.pause
        if command == "KILL_CLIENT":
            found = self._kill_client(int(argument))
            fleet.reply(message, {} if found else {"error": "client_not_found"})
            return
        database = None
        if argument:
            database = pools.database(argument) if command in REGISTERS else pools.databases.get(argument)
            if database is None:
                # To resume or enable what is not here is done; else a reload has removed it a moment ago.
                fleet.reply(message, {"error": "console_no_such_database"} if command in REGISTERS else {})
                return
        if command == "PAUSE":
            self._wait(message, lambda done: pause.pause(database, done))
        elif command == "WAIT_CLOSE":
            self._wait(message, lambda done: pause.wait_close(database, done))
        else:
            fleet.reply(message, self._now[command](database))

    # -- commands that wait

    def _wait(self, message: Message, begin: Callable[[Done], Waiter | None]) -> None:
        number = int(message["id"])

        def done(reached: bool) -> None:
            self._waiters.pop(number, None)
            self.worker.fleet.reply(message, {"reached": reached})

        waiter = begin(done)
        if waiter is not None:
            self._waiters[number] = waiter

    def _abandon(self, message: Message) -> None:
        waiter = self._waiters.pop(int(message["act"]), None)
        if waiter is not None:
            self.worker.pause.abandon(waiter)

    # -- commands that are done at once

    def _resume(self, database: Database | None) -> Fields:
        self.worker.pause.resume(database)
        return {}

    def _kill(self, database: Database | None) -> Fields:
        self.worker.pause.kill(database)
        return {"databases": [] if database else list(self.worker.pools.databases)}

    def _disable(self, database: Database | None) -> Fields:
        if database is not None:
            self.worker.pause.disable(database)
        return {}

    def _enable(self, database: Database | None) -> Fields:
        if database is not None:
            self.worker.pause.enable(database)
        return {}

    def _reconnect(self, database: Database | None) -> Fields:
        self.worker.pause.reconnect(database)
        return {}

    def _kill_client(self, number: int) -> bool:
        """Disconnect the client with this `id`; False if no client, cancel request or session here has it."""
        worker, why = self.worker, refuse("admin_disconnect")
        for client in worker.front.clients.values():
            if client.number == number:
                clients.close(worker, client, why)
                return True
        for session in self.console.sessions.values():
            if session.login.number == number:
                session.close(why)
                return True
        for carrier in worker.front.carriers.values():
            if carrier.number == number:
                carrier.finish(why.text)
                return True
        return False
