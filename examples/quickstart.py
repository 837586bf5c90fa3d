"""Four processes with an actor in each: call all of them, some of them, one of them."""

from danaus import Actor, current_rank, endpoint, this_host


class Counter(Actor):
    """Counts, in a process of its own."""

    def __init__(self, start: int) -> None:
        self.value = start

    @endpoint
    def add(self, n: int) -> int:
        self.value += n
        return self.value

    @endpoint
    async def where(self) -> str:
        return f"counter {current_rank()['gpus']}"

    @endpoint
    def share(self, parts: int) -> float:
        return self.value / parts


def main() -> None:
    with this_host().spawn_procs(per_host={"gpus": 4}) as procs:  # stopped at the end of the block
        counters = procs.spawn("counter", Counter, 10)  # an actor in each process

        # Call all: a value for each point of the mesh.
        for point, value in counters.add.call(1).get():
            print(f"gpu {point['gpus']} counts {value}")

        # Tell all, and wait for nothing. Messages of one sender arrive in the order sent, so the next call sees it.
        counters.add.broadcast(100)

        # Call some: a slice is a mesh, too. Calls run at the same time; `get` waits.
        low, high = counters.slice(gpus=slice(0, 2)), counters.slice(gpus=[2, 3])
        added_low, added_high = low.add.call(1), high.add.call(2)
        assert added_low.get().to_list() == [112, 112]
        assert added_high.get().to_list() == [113, 113]

        assert high.where.call().get().to_list() == ["counter 0", "counter 1"]  # ranks are those in the mesh called

        # Call one: its value itself, or the exception that it raised.
        last = counters.slice(gpus=-1)
        assert last.add.call_one(-13).get() == 100
        try:
            last.share.call_one(0).get()
        except ZeroDivisionError as error:
            print(f"the last one said: {error}")
        assert last.add.call_one(0).get() == 100  # and it lives on

        # Results are meshes as well.
        values = counters.add.call(0).get()
        assert values.item(gpus=0) == 112
        assert values.slice(gpus=slice(1, 3)).to_list() == [112, 113]
        print(f"in the end they count {values.to_list()}")


if __name__ == "__main__":
    main()
