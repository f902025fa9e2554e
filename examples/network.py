# SPDX-License-Identifier: Apache-2.0
"""A network as one text: embedding, convolution, recurrent layer, classifier, at changing sizes.

    python examples/network.py

Its memory is planned once, for batches of up to 32 sentences of up to 100 words. Calls of all sizes
below that share the plan, the kernels and the arena; results are compared with the interpreter.
"""

from __future__ import annotations

import numpy as np

import tcsym

TEXT = """
def conv(float(B,L,C) X, float(O,C,KW) W, float(O) b) -> (Y) {
    Y(n,l,o) +=! X(n,l+k,c) * W(o,c,k)
    Y(n,l,o) = max(Y(n,l,o) + b(o), 0)
}
def rnn(float(B,L,I) X, float(H,I) U, float(H,H) V, float(H) c) -> (float(L+1,B,H) S) {
    P(n,l,h) +=! X(n,l,i) * U(h,i)
    S(0,n,h) = 0.0
    for t in 0:L {
        R(t,n,h) +=! S(t,n,i) * V(h,i)
        S(t+1,n,h) = tanh(P(n,t,h) + R(t,n,h) + c(h))
    }
}
def net(int32(B,T) words, float(V,D) table, float(C,D,KW) W, float(C) wb,
        float(H,C) U, float(H,H) R, float(H) rb, float(K,H) F, float(K) fb) -> (scores) {
    E(n,t,d) = table(words(n,t), d)
    Y = conv(E, W, wb)
    S = rnn(Y, U, R, rb)
    scores(n,k) +=! S(T-KW+1,n,h) * F(k,h)
    scores(n,k) = scores(n,k) + fb(k)
}
"""
MODEL = {"V": 500, "D": 24, "C": 32, "KW": 3, "H": 40, "K": 10}


def parameters(random: np.random.Generator) -> list[np.ndarray]:
    """All inputs but the words, small enough that the recurrence forgets."""
    v, d, c, kw, h, k = MODEL.values()
    shapes = [(v, d), (c, d, kw), (c,), (h, c), (h, h), (h,), (k, h), (k,)]
    return [(0.1 * random.standard_normal(s)).astype(np.float32) for s in shapes]


def main() -> None:
    net = tcsym.define(TEXT).net
    plan = net.plan(bounds={"B": 32, "T": 100, **MODEL})
    session = plan.session()
    print(f"{len(plan.steps)} kernels, {len(plan.storages)} storages, {session.bytes} bytes")
    random = np.random.default_rng(0)
    weights = parameters(random)
    for batch, length in ((1, 5), (4, 20), (32, 100), (3, 64), (2, 3)):
        words = random.integers(0, MODEL["V"], (batch, length)).astype(np.int32)
        scores = session(words, *weights)
        error = np.abs(scores - net.reference(words, *weights)).max()
        assert error < 1e-4, error
        print(f"{batch:3} sentences of {length:3} words: {scores.shape}, as the interpreter says")


if __name__ == "__main__":
    main()
