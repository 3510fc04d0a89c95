"""Stands in for a worker process: says what a worker says, and dies as its part demands.

Parts, given by the test: "good"; "exit N" at boot; "mute" (never ready); "deaf" (answers no ping);
"brief" (dies as soon as it is ready); "stubborn" (does not end when told); "slow" (never has drained);
"says VERB JSON" and "babbles HEX" once ready.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import time
from typing import Any

from pgshoal.fleet.channel import Message, receive
from pgshoal.worker.signals import ignore


class Understudy:
    """One stand-in."""

    def __init__(self, channel: int, part: str, diary: str) -> None:
        self.sock = socket.socket(fileno=channel)
        self.part = part
        self.diary = diary
        self.boot = receive(self.sock)

    def say(self, verb: str, **fields: Any) -> None:
        """A message without a blob."""
        text = json.dumps({**fields, "verb": verb}).encode()
        self.sock.sendall(struct.pack("!IIB", len(text), 0, 0) + text)

    def play(self) -> int:
        """Until the end; the exit code."""
        if self.part.startswith("exit "):
            return int(self.part.split()[1])
        while True:
            try:
                message = receive(self.sock)
            except EOFError:
                return 0
            with open(self.diary, "a") as diary:
                diary.write(f"{self.boot['number']} {message.verb} {noted(message)}\n")
            code = self.hear(message)
            if code is not None:
                return code

    def hear(self, message: Message) -> int | None:
        """An exit code ends it."""
        match message.verb:
            case "go":
                return self.go()
            case "ping" if self.part != "deaf":
                self.say("", re=message["id"], clients=self.boot["number"], servers=0, cpu_us=0)
            case "shutdown":
                self.say("empty", empty=True)
            case "stop" if self.part == "stubborn":
                time.sleep(3600)
            case "stop":
                return int(message["code"])
            case "drain" if self.part != "slow":
                return 0
        return None

    def go(self) -> int | None:
        """All sockets have been sent."""
        if self.part == "mute":
            return None
        self.say("ready", pid=os.getpid(), engine="none")
        if self.part == "brief":
            return 7
        if self.part.startswith("says "):
            _, verb, text = self.part.split(" ", 2)
            self.say(verb, **json.loads(text))
        if self.part.startswith("babbles "):
            self.sock.sendall(bytes.fromhex(self.part.split()[1]))
        return None


def noted(message: Message) -> str:
    """What of a message a test may ask for."""
    if "re" in message.fields:
        return f"{message['re']} {message.fields.get('reached')}"
    return str(message.fields.get("listener", ""))


if __name__ == "__main__":
    ignore()
    sys.exit(Understudy(int(sys.argv[1]), sys.argv[2], sys.argv[3]).play())
