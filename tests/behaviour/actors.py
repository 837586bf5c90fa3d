"""Actors that many behaviour tests use. Importable in procs, since the tests' sys.path is theirs."""

import os
import threading

from danaus import Actor, context, endpoint


class Echo(Actor):
    """Gives back what it gets."""

    @endpoint
    def echo(self, value: object) -> object:
        return value

    @endpoint
    async def echo_async(self, value: object) -> object:
        return value


class Counter(Actor):
    """A number."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    @endpoint
    def add(self, amount: int) -> int:
        self.value += amount
        return self.value

    @endpoint
    def read(self) -> int:
        return self.value


class Where(Actor):
    """Tells where it is; `pid` is what `Cluster.kill` takes."""

    @endpoint
    def pid(self) -> int:
        from danaus.mesh.client import current_proc

        return current_proc().where()[1]

    @endpoint
    def os_pid(self) -> int:
        return os.getpid()

    @endpoint
    def thread(self) -> int:
        return threading.get_ident()

    @endpoint
    def rank(self) -> int:
        return context().rank
