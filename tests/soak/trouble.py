"""Servers that die and come back, servers that are replaced, reloads, pauses, and a network that breaks."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import psycopg

from tests.soak.world import World
from tests.support.proxy import Ending, Fault

#: A server started by a thread ends with that thread, so one thread stays for all of it.
HAND = ThreadPoolExecutor(1)


def terminate(world: World) -> None:
    """Half of the backends, by an administrator."""
    world.pg.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'alice' and random() < 0.5")


def kill(world: World) -> None:
    """One backend, which makes PostgreSQL end all."""
    for child in psutil.Process(world.pg.pid).children():
        if "alice" in " ".join(child.cmdline()):
            child.kill()
            return


def restart(world: World) -> None:
    """A fast shutdown."""
    world.pg.stop()
    world.pg.start()


def crash(world: World) -> None:
    """An immediate shutdown."""
    psutil.Process(world.pg.pid).send_signal(signal.SIGQUIT)
    restart(world)


def command(text: str) -> Callable[[World], None]:
    """Console commands, one after another."""

    def give(world: World) -> None:
        for each in text.split(";"):
            world.pooler.admin(each)

    give.__name__ = text
    return give


def cut(world: World) -> None:
    """All connections to PostgreSQL."""
    if world.network is not None:
        world.network.cut(Ending.RESET)


def pieces(world: World) -> None:
    """From now on the network splits and delays what PostgreSQL says, or is good again."""
    if world.network is not None:
        bad = not world.network.down.chunk
        world.network.down.become(Fault(chunk=(1, 700, 30_000), jitter_s=0.01) if bad else Fault())


WAYS = (
    terminate,
    kill,
    restart,
    crash,
    cut,
    cut,
    pieces,
    command("RELOAD"),
    command("RECONNECT"),
    command("PAUSE;RESUME"),
)


async def trouble(world: World) -> None:
    """Every few seconds until the end."""
    dice, loop = random.Random(), asyncio.get_running_loop()
    while not world.over:
        await asyncio.sleep(dice.uniform(0.5, 4))
        way = dice.choice(WAYS)
        world.done[f"trouble: {way.__name__}"] += 1
        try:
            await loop.run_in_executor(HAND, way, world)
        except psycopg.Error as error:
            print("trouble:", error, file=sys.stderr)
    if world.network is not None:
        world.network.down.become(Fault())
