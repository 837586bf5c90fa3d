"""Workers that learn a linear model together through a parameter server, each at its own pace.

Actors are handed to each other as arguments: the workers call the server, and the server calls the workers.
"""

import numpy as np

from danaus import Actor, context, endpoint, this_host

TRUE_WEIGHTS = np.array([2.0, -3.0, 0.5])
NUM_WORKERS, NUM_STEPS, LEARNING_RATE = 4, 100, 0.05


class ParameterServer(Actor):
    """Holds the weights."""

    def __init__(self, size: int) -> None:
        self.weights = np.zeros(size)
        self.num_updates = 0

    @endpoint
    def pull(self) -> np.ndarray:
        return self.weights

    @endpoint
    def push(self, gradient: np.ndarray) -> np.ndarray:
        """The weights after this update, and whatever others pushed meanwhile."""
        self.weights -= LEARNING_RATE * gradient
        self.num_updates += 1
        return self.weights

    @endpoint
    async def validate(self, workers: "Worker") -> tuple[int, float]:
        """Updates so far, and the mean loss over the data of all workers."""
        losses = await workers.loss.call(self.weights)
        return self.num_updates, sum(losses.values()) / len(losses)


class Worker(Actor):
    """Holds a share of the data, which never leaves it."""

    def __init__(self, server: ParameterServer, num_rows: int) -> None:
        dice = np.random.default_rng(seed=context().rank)
        self.server = server
        self.inputs = dice.normal(size=(num_rows, len(TRUE_WEIGHTS)))  # [row, feature]
        self.targets = self.inputs @ TRUE_WEIGHTS + dice.normal(scale=0.01, size=num_rows)

    @endpoint
    def train(self, num_steps: int) -> None:
        weights = self.server.pull.call_one().get()
        for _ in range(num_steps):
            errors = self.inputs @ weights - self.targets
            weights = self.server.push.call_one(self.inputs.T @ errors / len(errors)).get()

    @endpoint
    def loss(self, weights: np.ndarray) -> float:
        return float(np.mean((self.inputs @ weights - self.targets) ** 2))


def main() -> None:
    with this_host().spawn_procs(per_host={"gpus": 1 + NUM_WORKERS}) as procs:
        server = procs.slice(gpus=0).spawn("server", ParameterServer, len(TRUE_WEIGHTS))
        workers = procs.slice(gpus=slice(1, None)).spawn("worker", Worker, server, 200)

        _, loss_before = server.validate.call_one(workers).get()
        workers.train.call(NUM_STEPS).get()
        weights = server.pull.call_one().get()
        num_updates, loss_after = server.validate.call_one(workers).get()

        print(
            f"after {num_updates} updates the loss fell from {loss_before:.3f} to {loss_after:.6f}: {weights.round(3)}"
        )
        assert num_updates == NUM_WORKERS * NUM_STEPS
        assert np.abs(weights - TRUE_WEIGHTS).max() < 0.01
        assert loss_after < 0.001


if __name__ == "__main__":
    main()
