# SPDX-License-Identifier: Apache-2.0
"""Two networks whose layers are strings, trained on digits beside the same networks in torch.

    python examples/train.py [--epochs 10] [--batch 64] [--picture training.svg]

The digits, 1797 images of 8 x 8, come with scikit-learn. Both networks of a pair start from the
same weights and see the same batches, so their losses have to be the same but for rounding.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sklearn.datasets
import torch
from rich.console import Console
from rich.table import Table

import tcsym
from tcsym.torch import Layer

# fmax gives the gradient to its first argument where both are equal: none at 0, as torch's relu.
CONVOLUTION = """
def convolution(float(B,C,H,W) X, float(O,C,KH,KW) F, float(O) b) -> (Y) {
  Y(n,o,h,w) +=! X(n,c,h+i,w+j) * F(o,c,i,j)
  Y(n,o,h,w) = fmax(0, Y(n,o,h,w) + b(o))
}"""

POOLING = """
def pooling(float(B,C,H,W) X) -> (Y) {
  Y(n,c,h,w) max=! X(n,c,2*h+i,2*w+j) where i in 0:2, j in 0:2
}"""

CLASSES_OF_IMAGE = """
def classes(float(B,C,H,W) X, float(K,C,H,W) F, float(K) b) -> (Z) {
  Z(n,k) +=! X(n,c,h,w) * F(k,c,h,w)
  Z(n,k) = Z(n,k) + b(k)
}"""

RECURRENT = """
def gru(float(B,T,I) X, float(3,H,I) W, float(3,H,H) U, float(3,H) b, float(3,H) c)
    -> (float(T+1,B,H) S) {
  P(t,n,q,h) +=! X(n,t,i) * W(q,h,i)
  S(0,n,h) = 0.0
  for t in T {
    G(n,q,h) +=! S(t,n,k) * U(q,h,k)
    G(n,q,h) = G(n,q,h) + c(q,h)
    R(n,h) = 1 / (1 + exp(-(P(t,n,0,h) + b(0,h) + G(n,0,h))))
    Z(n,h) = 1 / (1 + exp(-(P(t,n,1,h) + b(1,h) + G(n,1,h))))
    N(n,h) = tanh(P(t,n,2,h) + b(2,h) + R(n,h) * G(n,2,h))
    S(t+1,n,h) = (1 - Z(n,h)) * N(n,h) + Z(n,h) * S(t,n,h)
  }
}"""

CLASSES_OF_LAST_STATE = """
def classes(float(T,B,H) S, float(K,H) F, float(K) b) -> (Z) {
  Z(n,k) +=! S(T-1,n,h) * F(k,h)
  Z(n,k) = Z(n,k) + b(k)
}"""

CROSS_ENTROPY = """
def cross_entropy(float(B,K) Z, int64(B) digit) -> (loss) {
  m(n) max=! Z(n,k)
  s(n) +=! exp(Z(n,k) - m(n))
  loss +=! log(s(n)) + m(n) - Z(n,digit(n))
  loss = loss / float(B)
}"""


def convolutional(channels: int = 16) -> torch.nn.Module:
    """Of images (batch, 1, 8, 8)."""
    window = {"KH": 3, "KW": 3}
    return torch.nn.Sequential(
        Layer(CONVOLUTION, F=None, b=0.0, sizes={"C": 1, "O": channels, **window}),
        Layer(CONVOLUTION, F=None, b=0.0, sizes={"C": channels, "O": 2 * channels, **window}),
        Layer(POOLING),
        Layer(CLASSES_OF_IMAGE, F=None, b=0.0, sizes={"C": 2 * channels, "H": 2, "W": 2, "K": 10}),
    )


def convolutional_in_torch(channels: int = 16) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, channels, 3),
        torch.nn.ReLU(),
        torch.nn.Conv2d(channels, 2 * channels, 3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(2 * channels * 4, 10),
    )


def recurrent(hidden: int = 64) -> torch.nn.Module:
    """Of rows of images (batch, 8, 8): a row is a step of time."""
    cell = {"I": 8, "H": hidden}
    return torch.nn.Sequential(
        Layer(RECURRENT, W=None, U=None, b=0.0, c=0.0, sizes=cell),
        Layer(CLASSES_OF_LAST_STATE, F=None, b=0.0, sizes={"H": hidden, "K": 10}),
    )


class RecurrentInTorch(torch.nn.Module):
    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.gru = torch.nn.GRU(8, hidden, batch_first=True)
        self.classes = torch.nn.Linear(hidden, 10)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.classes(self.gru(rows)[0][:, -1])


@dataclass
class Run:
    """A network in training and what was measured of it."""

    network: torch.nn.Module
    loss: Callable[..., torch.Tensor]
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # of one thread's time, a step each

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.05, momentum=0.9)

    def step(self, images: torch.Tensor, digits: torch.Tensor) -> None:
        start = time.thread_time()
        self.optimizer.zero_grad()
        loss = self.loss(self.network(images), digits)
        loss.backward()
        self.optimizer.step()
        self.seconds.append(time.thread_time() - start)
        self.losses.append(loss.item())

    def accuracy(self, images: torch.Tensor, digits: torch.Tensor) -> float:
        with torch.no_grad():
            return (self.network(images).argmax(1) == digits).float().mean().item()


@dataclass(frozen=True)
class Pair:
    """The same network of strings and of torch's layers."""

    title: str
    ours: Run
    theirs: Run

    @property
    def difference(self) -> float:
        """The largest between the losses of a step."""
        return float(np.abs(np.subtract(self.ours.losses, self.theirs.losses)).max())


def pairs() -> list[tuple[Pair, tuple[int, ...]]]:
    """With the shape that each takes an image in."""
    torch.manual_seed(0)
    made = []
    for title, ours, theirs, shape in (
        ("convolutional", convolutional(), convolutional_in_torch(), (1, 8, 8)),
        ("recurrent", recurrent(), RecurrentInTorch(), (8, 8)),
    ):
        with torch.no_grad():
            for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
                mine.copy_(its.reshape(mine.shape))
        pair = Pair(
            title, Run(ours, Layer(CROSS_ENTROPY)), Run(theirs, torch.nn.CrossEntropyLoss())
        )
        made.append((pair, shape))
    return made


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images in 0..1 and which digit each is, in random order."""
    data = sklearn.datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images = (data.images[order] / 16).astype(np.float32)
    return torch.from_numpy(images), torch.from_numpy(data.target[order].astype(np.int64))


def batches(count: int, size: int, epochs: int) -> Iterator[Any]:
    """Positions in 0..count: all of them once an epoch, the last batch is what is left."""
    rng = np.random.default_rng(1)
    for _ in range(epochs):
        yield from torch.from_numpy(rng.permutation(count)).split(size)


def train(pair: Pair, images: torch.Tensor, labels: torch.Tensor, chosen: Iterator[Any]) -> None:
    """The two take turns, so that what else the machine does is the same for both."""
    for which in chosen:
        for run in (pair.ours, pair.theirs):
            run.step(images[which], labels[which])


def show(rows: list[tuple[Pair, float, float]], console: Console) -> None:
    table = Table()
    names = "network", "steps", "last loss", "largest difference", "accuracy", "in torch"
    for name in (*names, "ms a step", "in torch", "torch / tcsym"):
        table.add_column(name, justify="left" if name == "network" else "right")
    for pair, ours, theirs in rows:
        mine, its = (statistics.median(r.seconds) * 1e3 for r in (pair.ours, pair.theirs))
        losses = pair.ours.losses
        table.add_row(
            *(pair.title, str(len(losses)), f"{losses[-1]:.4f}", f"{pair.difference:.1e}"),
            *(f"{ours:.2%}", f"{theirs:.2%}", f"{mine:.2f}", f"{its:.2f}", f"{its / mine:.2f}"),
        )
    console.print(table)
    console.print("ms: median of one thread's time; accuracy: of images not trained on")


def picture(shown: list[Pair], file: str) -> None:
    """Losses over steps: torch's as a broad line, ours as a narrow one on top of it."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "training"})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(shown), figsize=(9, 3.2), sharey=True, layout="constrained")
    for pair, axis in zip(shown, axes):
        axis.plot(pair.theirs.losses, color="#f4a582", linewidth=4, label="torch")
        axis.plot(pair.ours.losses, color="#053061", linewidth=1, label="tcsym")
        axis.set(title=pair.title, xlabel="step", yscale="log")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("loss of the batch")
    axes[0].legend()
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description="Train networks of strings beside torch's.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--picture", metavar="FILE.svg", help="draw the losses (needs matplotlib)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    tcsym.set_num_threads(1)
    images, labels = digits()
    seen = 1500
    rows = []
    for pair, shape in pairs():
        shaped = images.reshape(-1, *shape)
        chosen = batches(seen, given.batch, given.epochs)
        train(pair, shaped[:seen], labels[:seen], chosen)
        unseen = shaped[seen:], labels[seen:]
        rows.append((pair, pair.ours.accuracy(*unseen), pair.theirs.accuracy(*unseen)))
    show(rows, Console(width=120))
    if given.picture:
        picture([pair for pair, _, _ in rows], given.picture)


if __name__ == "__main__":
    main()
