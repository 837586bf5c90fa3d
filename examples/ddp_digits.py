"""Train a small conv net on real digits with DistributedDataParallel on four procs, next to the same training in one.

Both see the same batches, so they must have the same losses. Ends with one JSON line; exit code 1 below 97 % accuracy.
"""

import json
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from danaus import Actor, context, current_size, endpoint, this_host

NUM_PROCS, NUM_EPOCHS, BATCH, NUM_TEST = 4, 12, 64, 360
LEARNING_RATE = 0.1  # at first; falls to nothing


class Trainer(Actor):
    """One rank of a data parallel training."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        torch.set_num_threads(1)  # the ranks share the cores
        self.rank, self.num_ranks = context().rank, current_size()["gpus"]
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        self.images = torch.from_numpy(images)[order].unsqueeze(1) / 16  # [n, 1, 8, 8], float64, 0 to 1
        self.labels = torch.from_numpy(labels)[order]

    @endpoint
    def open_store(self) -> tuple[str, int]:
        """Where the ranks meet; kept by this one, which picks a free port."""
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        return self.store.host, self.store.port

    @endpoint
    def setup(self, host: str, port: int) -> str:
        """Join the process group and build the model; the backend it runs on."""
        use_gpu = torch.cuda.device_count() >= self.num_ranks  # ROCm calls its GPUs cuda, too
        device = torch.device("cuda", self.rank) if use_gpu else torch.device("cpu")
        backend = "nccl" if use_gpu else "gloo"
        store = self.store if self.rank == 0 else dist.TCPStore(host, port, is_master=False)
        dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.num_ranks)
        self.images, self.labels = self.images.to(device), self.labels.to(device)
        torch.manual_seed(0)
        # In float64 four ranks differ from one by rounding only, which in float32 a training amplifies.
        net = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10)),
        ).to(device, torch.float64)
        self.model = DistributedDataParallel(net)
        self.optimizer = torch.optim.SGD(self.model.parameters(), LEARNING_RATE, momentum=0.9)
        return backend

    @endpoint
    def train_epoch(self, epoch: int) -> list[float]:
        """The loss of each step on this rank's part of the batch."""
        order = torch.randperm(len(self.images) - NUM_TEST, generator=torch.Generator().manual_seed(epoch)) + NUM_TEST
        for group in self.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (1 - (epoch - 1) / NUM_EPOCHS)
        losses = []
        for batch in order.split(BATCH):
            if len(batch) < BATCH:
                break  # parts of unequal size would weigh images differently
            mine = batch[self.rank :: self.num_ranks].to(self.images.device)
            loss = nn.functional.cross_entropy(self.model(self.images[mine]), self.labels[mine])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses

    @endpoint
    def count_correct(self) -> int:
        """How many of this rank's part of the held-out digits are told right."""
        mine = slice(self.rank, NUM_TEST, self.num_ranks)
        with torch.no_grad():
            return int((self.model.module(self.images[mine]).argmax(1) == self.labels[mine]).sum())

    @endpoint
    def leave(self) -> None:
        dist.destroy_process_group()


def start(num_procs: int) -> Trainer:
    """A mesh of trainers that are one process group."""
    digits = load_digits()
    procs = this_host().spawn_procs(per_host={"gpus": num_procs})
    trainers = procs.spawn("trainer", Trainer, digits.images, digits.target)
    trainers.setup.call(*trainers.slice(gpus=0).open_store.call_one().get()).get()
    return trainers


def main() -> int:
    started = time.monotonic()
    many, one = start(NUM_PROCS), start(1)
    accuracy, difference = 0.0, 0.0
    for epoch in range(1, NUM_EPOCHS + 1):
        losses_of_many, losses_of_one = many.train_epoch.call(epoch), one.train_epoch.call_one(epoch)  # at once
        losses = [sum(ranks) / NUM_PROCS for ranks in zip(*losses_of_many.get().values(), strict=True)]
        difference = max(difference, *(abs(a - b) for a, b in zip(losses, losses_of_one.get(), strict=True)))
        accuracy = sum(many.count_correct.call().get().values()) / NUM_TEST
        bar = "#" * (30 * epoch // NUM_EPOCHS)
        print(f"[{bar:<30}] epoch {epoch}/{NUM_EPOCHS}  loss {losses[-1]:.4f}  accuracy {accuracy:.2%}", flush=True)
    many.leave.call().get()
    one.leave.call().get()
    assert difference < 1e-4, f"the losses of {NUM_PROCS} procs differ from those of one by {difference:g}"
    print(f"losses of {NUM_PROCS} procs and of one differ by at most {difference:.1e}")
    seconds = round(time.monotonic() - started, 1)
    print(json.dumps({"test_accuracy": round(accuracy, 4), "procs": NUM_PROCS, "seconds": seconds}))
    return 0 if accuracy >= 0.97 else 1


if __name__ == "__main__":
    sys.exit(main())
