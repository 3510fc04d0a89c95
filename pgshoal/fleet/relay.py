"""One console for all workers: what one of them is asked is gathered from, decided for and carried out in all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pgshoal.fleet.figures import Figures
from pgshoal.fleet.reconfigure import Reconfigure
from pgshoal.fleet.rounds import Round
from pgshoal.policy.access import CONSOLE_DATABASE
from pgshoal.policy.standing import REGISTERS, Standing

if TYPE_CHECKING:
    from pgshoal.config.changes import Changes
    from pgshoal.fleet.channel import Message
    from pgshoal.fleet.children import Child
    from pgshoal.fleet.supervisor import Supervisor

#: A worker that is stopped, or very busy, must not hang the console; its rows are then missing.
GATHER_LIMIT_S: Final = 2.0
#: Refusals of commands that the log does not have either.
_UNLOGGED: Final = frozenset({"already_paused", "database_required"})

#: {"error": key of a refusal} or {"reached": False if it was taken back before it was reached}.
Result = dict[str, Any]
Answer = Callable[[Result], None]
#: (database, user)
Pair = tuple[str, str]
#: An entry of `welcomes` in the state of `boot`.
Welcome = dict[str, Any]


class Act:
    """One command that all workers carry out."""

    def __init__(self, relay: Relay, command: str, argument: str, children: list[Child], answer: Answer) -> None:
        self._relay = relay
        self.command = command
        self.argument = argument
        self._answer = answer
        #: what KILL has paused already, by what the configuration says
        self._listed = frozenset(relay.listed())
        fields = {"command": command, "argument": argument}
        self._round = Round(children, "act", fields, self._done, heard=self._heard)
        self._round.begin()

    def _heard(self, child: Child, answer: Message) -> bool:
        # A client is in one worker only: nobody waits for the others when it was found.
        return self.command == "KILL_CLIENT" and not answer.fields.get("error")

    def _done(self, asked: Round) -> None:
        answers = [answer.fields for _, answer in asked.answers]
        errors = [answer["error"] for answer in answers if answer.get("error")]
        if self.command == "KILL":
            self._relay.killed({name for each in answers for name in each.get("databases", ())} - self._listed)
        if "internal_error" in errors:
            # Not all have done it: nobody must believe so.
            self._answer({"error": "internal_error"})
        elif errors and len(errors) == len(answers):
            self._answer({"error": errors[0]})
        else:
            self._answer({"reached": all(answer.get("reached", True) for answer in answers)})

    def abandon(self) -> None:
        """Whoever asked is gone: nobody is to wait for it any more, though what was begun stands."""
        if self.command == "KILL":
            # What it has met is still to be heard.
            self._answer = lambda result: None
            return
        for child, number in self._round.forget().items():
            child.channel.send("abandon", {"act": number})


class Relay:
    """The part of the supervisor that consoles speak to. All workers see all commands in the same order."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._fleet = supervisor
        self.standing = Standing(supervisor.state)
        self.figures = Figures(supervisor)
        self.reconfigure = Reconfigure(supervisor, self._changed)
        self._acts: dict[tuple[Child, int], Act] = {}
        self._welcomes: dict[Pair, Welcome] = {}
        #: what each worker that does not serve yet was booted with
        self._booted: dict[Child, tuple[dict[str, Any], dict[Pair, Welcome]]] = {}
        self._commands: Mapping[str, Callable[[Child, Message], None]] = {
            "reload": self._reload,
            "set": self._set,
            "shutdown": self._shutdown,
            "restart": self._restart,
            "upgrade": self._upgrade,
        }

    def adopt(self) -> None:
        """Go on with the supervisor's state after a re-execution."""
        kept = self._fleet.state["welcomes"]
        self._welcomes = {(each["database"], each["user"]): each for each in kept}

    # -- workers come and go

    def attach(self, child: Child) -> None:
        """Hear it."""
        on = child.channel.on
        on("gather", lambda message: self.gather(message["what"], child, partial(child.channel.reply, message)))
        on("act", lambda message: self._act(child, message))
        on("abandon", lambda message: self._abandon(child, int(message["act"])))
        on("ask", lambda message: self._ask(child, message))
        on("welcome", lambda message: self._welcome(child, message))
        on("totals", lambda message: self.figures.heard(child, message["databases"]))
        self.figures.attach(child)
        self._booted[child] = self.standing.copy(), dict(self._welcomes)
        self.reconfigure.attach(child)

    def is_ready(self, child: Child) -> None:
        """What was decided while it came up is told to it now."""
        state, welcomes = self._booted.pop(child, (self.standing.copy(), self._welcomes))
        self.reconfigure.is_ready(child)
        for command, database in self.standing.missed(state):
            child.channel.ask("act", lambda answer: None, {"command": command, "argument": database})
        for pair in welcomes.keys() | self._welcomes.keys():
            found = self._welcomes.get(pair)
            if found is not welcomes.get(pair):
                child.channel.send("welcome", found or {"database": pair[0], "user": pair[1], "parameters": None})

    def died(self, child: Child) -> None:
        """Its sessions wait for nothing; what it has counted is kept."""
        self._booted.pop(child, None)
        self.reconfigure.died(child)
        self.figures.died(child)
        for one, number in [key for key in self._acts if key[0] is child]:
            self._abandon(one, number)

    # -- looking

    def gather(self, what: str, asker: Child | None, answer: Answer) -> None:
        """Rows of all workers but the one that asks: {"parts": those of each, "missing": numbers of the silent}."""
        # Nobody but the supervisor knows of the workers.
        others = [] if what == "WORKERS" else self._fleet.others(asker)

        def done(asked: Round) -> None:
            timer.cancel()
            heard = sorted(asked.answers, key=lambda pair: pair[0].seat)
            if what == "STATS":
                # Who has died since is among the dead, whose totals are ours to tell.
                heard = [(one, message) for one, message in heard if self.figures.has(one)]
            parts = [{"number": None, **own} for own in self._own(what, [asker, *(one for one, _ in heard)])]
            for one, message in heard:
                parts.append({"seat": one.seat, "number": one.number, "rows": message.fields.get("rows", [])})
            answer({"parts": parts, "missing": [one.number for one in asked.missing]})

        asked = Round(others, "gather", {"what": what}, done)
        timer = self._fleet.loop.call_later(GATHER_LIMIT_S, asked.finish)
        asked.begin()

    def _own(self, what: str, heard: list[Child | None]) -> Iterator[dict[str, Any]]:
        """What the supervisor knows of a table, beside the rows of those that were heard."""
        if what == "STATS":
            yield self.figures.part(heard)
        elif what == "WORKERS":
            yield {"rows": self.figures.workers()}
        elif what == "LEDGER":
            yield {"rows": [], "dying": list(self._fleet.undertaker.dying_rows().items())}

    # -- commands for all

    def order(
        self,
        command: str,
        argument: str,
        answer: Answer,
        registered: bool = False,
        log: Callable[[str], None] = lambda text: None,
    ) -> Act | None:
        """Decide once, then have all carry it out. None if it was refused.

        `registered`: the worker that asks knows a database of this name that is not in the configuration.
        `log` is told of the command as PgBouncer's is: of most that are refused, too.
        """
        if command != "KILL_CLIENT":
            known = self._known(command, argument, registered)
            wrong = self.standing.judge(command, argument, argument == CONSOLE_DATABASE, known)
            if wrong not in _UNLOGGED:
                log(f"{command} '{argument}' command issued" if argument else f"{command} command issued")
            if wrong:
                answer({"error": wrong})
                return None
            self.standing.record(command, argument, self._fleet.config.databases)
        if command == "RECONNECT":
            self._forget_welcomes({argument} if argument else None)
        return Act(self, command, argument, self._fleet.others(None), answer)

    def _known(self, command: str, name: str, registered: bool) -> bool:
        config = self._fleet.config
        if name in config.databases or self.standing.touches(name):
            return True
        return config.database(name) is not None and (registered or command in REGISTERS)

    def listed(self) -> Iterable[str]:
        """Databases of the configuration."""
        return self._fleet.config.databases

    def killed(self, databases: set[str]) -> None:
        """KILL has met databases that only `*` knows: where they are not registered yet, they are paused too."""
        for name in sorted(databases):
            self.standing.record("PAUSE", name, ())
            Act(self, "PAUSE", name, self._fleet.others(None), lambda result: None)

    def _act(self, child: Child, message: Message) -> None:
        key = child, int(message["id"])
        over = False

        def answer(result: Result) -> None:
            nonlocal over
            over = True
            self._acts.pop(key, None)
            child.channel.reply(message, result)

        command, argument = message["command"], message["argument"]
        act = self.order(command, argument, answer, bool(message.fields.get("registered")), self._fleet.log.log)
        if act is not None and not over:
            self._acts[key] = act

    def _abandon(self, child: Child, number: int) -> None:
        act = self._acts.pop((child, number), None)
        if act is not None:
            act.abandon()

    # -- what the supervisor does itself

    def _ask(self, child: Child, message: Message) -> None:
        run = self._commands.get(message["command"])
        if run is None:
            child.channel.reply(message, {"error": "no such request"})
        else:
            run(child, message)

    def _reload(self, child: Child, message: Message) -> None:
        self._fleet.log.log("RELOAD command issued")
        self.reconfigure.reload(lambda wrong: child.channel.reply(message, {"error": wrong}))

    def _set(self, child: Child, message: Message) -> None:
        kept: list[str] = []
        self.reconfigure.set(
            message["key"],
            message["value"],
            lambda wrong: child.channel.reply(message, {"error": wrong, "tls_kept": bool(kept)}),
            lambda: kept.append("TLS"),
        )

    def _shutdown(self, child: Child, message: Message) -> None:
        word = message["word"]
        self._fleet.log.log(f"SHUTDOWN {word} command issued" if word else "SHUTDOWN command issued")
        self._fleet.shutdown(message["mode"])
        if message["mode"] != "now":
            # After the order itself, so that whoever asks next is told that it stands.
            child.channel.reply(message)

    def _restart(self, child: Child, message: Message) -> None:
        self._fleet.log.log("RESTART command issued")
        deadline_s = message.fields.get("deadline_s")
        self._fleet.restart(deadline_s, lambda wrong: child.channel.reply(message, {"error": wrong}))

    def _upgrade(self, child: Child, message: Message) -> None:
        self._fleet.log.log("UPGRADE command issued")
        self._fleet.upgrade(lambda wrong: child.channel.reply(message, {"error": wrong}))

    # -- what others need not ask a server for

    def _welcome(self, child: Child, message: Message) -> None:
        pair = message["database"], message["user"]
        entry = {name: message[name] for name in ("database", "user", "parameters")}
        kept: list[Welcome] = self._fleet.state["welcomes"]
        old = self._welcomes.pop(pair, None)
        if old is not None:
            kept.remove(old)
        if entry["parameters"] is not None:
            self._welcomes[pair] = entry
            kept.append(entry)
        elif old is None:
            return  # it was forgotten already, by a RECONNECT that all have heard of
        for other in self._fleet.others(child):
            other.channel.send("welcome", entry)

    def _forget_welcomes(self, databases: set[str] | None) -> None:
        """Of these databases, or all; the workers forget by themselves."""
        for pair in list(self._welcomes):
            if databases is None or pair[0] in databases:
                del self._welcomes[pair]
        self._fleet.state["welcomes"] = list(self._welcomes.values())

    def _changed(self, found: Changes) -> None:
        """A new configuration is in effect."""
        config = self._fleet.config
        paused, disabled = (self.standing.facts[name] for name in ("paused_databases", "disabled_databases"))
        self.standing.forget([name for name in {*paused, *disabled} if config.database(name) is None])
        changed = {*found.databases_added, *found.databases_removed, *found.databases_dirty}
        auto = {name for name, _ in self._welcomes if name not in config.databases}
        self._forget_welcomes(None if found.server_tls else {*changed, *auto})
