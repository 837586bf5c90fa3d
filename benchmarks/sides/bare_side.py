"""The limit of a call in Python: the same pickles and the same thread hand-offs, and nothing else.

Blocking sockets, one thread on each side, nothing pinned to a core, no spinning, no routing, ordering or errors.
"""

import os
import pickle
import queue
import socket
import struct
import threading
import time

import workloads

LENGTH = struct.Struct("<I")


class Connection:
    """Length-prefixed frames over one blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._ready: list[bytes] = []
        self._rest = b""

    def send(self, *payloads: bytes) -> None:
        self.sock.sendall(b"".join(LENGTH.pack(len(p)) + p for p in payloads))

    def receive(self) -> list[bytes]:
        """All whole frames that have come in, at least one; none when the other side is gone."""
        frames: list[bytes] = []
        while not frames:
            received = self.sock.recv(1 << 18)
            if not received:
                return []
            inbound, at = self._rest + received, 0
            while len(inbound) >= at + 4 and len(inbound) >= at + 4 + (size := LENGTH.unpack_from(inbound, at)[0]):
                frames.append(inbound[at + 4 : at + 4 + size])
                at += 4 + size
            self._rest = inbound[at:]
        return frames


def request(value: int) -> bytes:
    return pickle.dumps(("echo", (value,), {}), 5)


def answer(frame: bytes) -> bytes:
    _name, args, _kwargs = pickle.loads(frame)
    return pickle.dumps(args[0], 5)


def start_servers(count: int) -> list[Connection]:
    """Connections to `count` processes that echo until the connection ends."""
    connections: list[Connection] = []
    for _ in range(count):
        here, there = socket.socketpair()
        if os.fork() == 0:
            here.close()
            for other in connections:
                other.sock.close()
            server = Connection(there)
            while frames := server.receive():
                server.send(*map(answer, frames))
            os._exit(0)
        there.close()
        connections.append(Connection(here))
    return connections


def stop_servers(connections: list[Connection]) -> None:
    for connection in connections:
        connection.sock.close()
    for _ in connections:
        os.wait()


def call(connections: list[Connection], value: int) -> list[int]:
    frame = request(value)
    for connection in connections:
        connection.send(frame)
    return [pickle.loads(connection.receive()[0]) for connection in connections]


def pipelined(connection: Connection, count: int) -> tuple[float, int]:
    """Calls per second in bursts of 1,000; frames ready together leave in one write."""
    start = time.perf_counter()
    for _ in range(count // workloads.IN_FLIGHT):
        connection.send(*map(request, range(workloads.IN_FLIGHT)))
        answered = 0
        while answered < workloads.IN_FLIGHT:
            for frame in connection.receive():
                pickle.loads(frame)
                answered += 1
    return count / (time.perf_counter() - start), count


def in_process(warmup: int, count: int) -> tuple[float, int]:
    """The arguments are pickled to another thread, and the result back."""
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def serve() -> None:
        while (frame := requests.get()) is not None:
            replies.put(answer(frame))

    def call_thread(value: int) -> int:
        requests.put(request(value))
        result: int = pickle.loads(replies.get())
        return result

    thread = threading.Thread(target=serve)
    thread.start()
    figure = workloads.median_us(call_thread, warmup=warmup, count=count)
    requests.put(None)
    thread.join()
    return figure


def calls(*, quick: bool) -> workloads.Figures:
    warmup, count, mesh_count = (50, 200, 30) if quick else (500, 2000, 300)
    figures: workloads.Figures = {}
    servers = start_servers(1)
    figures["calls.round_trip"] = workloads.median_us(lambda i: call(servers, i), warmup=warmup, count=count)
    figures["calls.actor_to_actor"] = figures["calls.round_trip"]  # without a runtime a client is like any process
    pipelined(servers[0], 1000)
    figures["calls.pipelined"] = pipelined(servers[0], 2000 if quick else 10_000)
    stop_servers(servers)
    for size in (1, 4) if quick else (1, 4, 16, 32):
        group = start_servers(size)
        figures[f"calls.mesh_{size}"] = workloads.median_us(
            lambda i, group=group: call(group, i), warmup=mesh_count // 3, count=mesh_count
        )
        stop_servers(group)
    figures["calls.in_process"] = in_process(warmup, count)  # last: nothing forks after a thread has started
    return figures


if __name__ == "__main__":
    _workload, quick_run = workloads.options("calls")
    workloads.print_figures(calls(quick=quick_run))
