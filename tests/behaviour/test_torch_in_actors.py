"""What PyTorch users do inside an actor: tensors, DataLoader workers, multiprocessing, torch.compile."""

import multiprocessing
import os

import pytest

from behaviour.conftest import Cluster
from danaus import Actor, endpoint


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


TRANSPORTS = ("unix",)
"""Once is enough: what runs inside an actor does not see the wire, and importing torch takes seconds."""


class TorchUser(Actor):
    """Imports torch in its own proc only."""

    @endpoint
    def scale(self, tensor: object) -> object:
        import torch

        assert isinstance(tensor, torch.Tensor)
        tensor *= 2  # its own: may be changed
        return tensor

    @endpoint
    def load(self, num_workers: int) -> tuple[list[list[float]], bool]:
        import torch
        from torch.utils.data import DataLoader, TensorDataset, get_worker_info

        assert get_worker_info() is None
        data = TensorDataset(torch.arange(8, dtype=torch.float32))
        loader = DataLoader(data, batch_size=4, num_workers=num_workers, persistent_workers=False)
        return [batch.tolist() for (batch,) in loader], True

    @endpoint
    def use_pool(self, method: str) -> tuple[list[int], bool]:
        with multiprocessing.get_context(method).Pool(2) as pool:
            answers = pool.map(square, range(5))
        return [answer for answer, _ in answers], os.getpid() not in {pid for _, pid in answers}

    @endpoint
    def compile(self) -> float:
        import torch

        # Not inductor: it needs a C++ compiler on the machine.
        function = torch.compile(lambda x: (x.sin() ** 2 + x.cos() ** 2).sum(), backend="aot_eager")
        return float(function(torch.ones(4)))


def test_tensors_travel_and_the_receiver_may_change_them(real_cluster: Cluster) -> None:
    import torch

    user = real_cluster.hosts.spawn_procs().spawn("user", TorchUser)
    for num_items in (4, 100_000):
        tensor = torch.ones(num_items)
        doubled = user.scale.call_one(tensor).get(50)
        assert torch.equal(doubled, torch.full((num_items,), 2.0))
        doubled += 1
        assert torch.equal(tensor, torch.ones(num_items))


def test_a_data_loader_with_workers_works_inside_an_actor(real_cluster: Cluster) -> None:
    user = real_cluster.hosts.spawn_procs().spawn("user", TorchUser)
    batches, _ = user.load.call_one(2).get(50)
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works_inside_an_actor(real_cluster: Cluster, method: str) -> None:
    user = real_cluster.hosts.spawn_procs().spawn("user", TorchUser)
    assert user.use_pool.call_one(method).get(50) == ([0, 1, 4, 9, 16], True)


def test_torch_compile_works_inside_an_actor(real_cluster: Cluster) -> None:
    user = real_cluster.hosts.spawn_procs().spawn("user", TorchUser)
    assert user.compile.call_one().get(50) == pytest.approx(4.0)
