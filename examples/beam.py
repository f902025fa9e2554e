# SPDX-License-Identifier: Apache-2.0
"""Beam search: a step of a recurrent language model and the choice of its best beams, as one text.

    python examples/beam.py

Each call advances all beams of a batch by a token. Scores, last tokens and hidden states are states
of the session, and the weights its constants, so a call is given nothing. The best candidates are
found one after the other: each is the best of those that come behind the one before it, by score
and then by place. What a beam goes on from is gathered by the places that were found.
"""

from __future__ import annotations

import numpy as np

import tcsym

TEXT = """
def beam(int32(N,K) token, float(N,K) score, float(N,K,H) hidden,
         float(V,E) table, float(H,E) U, float(H,H) R, float(V,H) F)
    -> (int32(N,K) next, float(N,K) best, int32(N,K) parent, float(N,K,H) state) {
    Z(n,k,h) +=! table(token(n,k),e) * U(h,e)
    Z(n,k,h) += hidden(n,k,i) * R(h,i)
    G(n,k,h) = tanh(Z(n,k,h))
    L(n,k,v) +=! G(n,k,h) * F(v,h)
    m(n,k) max=! L(n,k,v)
    s(n,k) +=! exp(L(n,k,v) - m(n,k))
    C(n,k,v) = score(n,k) + L(n,k,v) - m(n,k) - log(s(n,k))
    for b in 0:K {
        if b == 0 {
            B(b,n) max=! C(n,k,v)
            P(b,n) min=! C(n,k,v) == B(b,n) ? k*V + v : K*V
        } else {
            B(b,n) max=! C(n,k,v) < B(b-1,n) || (C(n,k,v) == B(b-1,n) && k*V + v > P(b-1,n))
                ? C(n,k,v) : -INFINITY
            P(b,n) min=! C(n,k,v) == B(b,n) && (B(b,n) < B(b-1,n) || k*V + v > P(b-1,n))
                ? k*V + v : K*V
        }
    }
    best(n,b) = B(b,n)
    parent(n,b) = P(b,n) / V
    next(n,b) = P(b,n) % V
    state(n,b,h) = G(n,P(b,n) / V,h)
}
"""
MODEL = {"V": 60, "E": 16, "H": 24}


def weights(random: np.random.Generator) -> dict[str, np.ndarray]:
    v, e, h = MODEL.values()
    shapes = {"table": (v, e), "U": (h, e), "R": (h, h), "F": (v, h)}
    return {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def search(batch: int, beams: int, length: int, fixed: dict[str, np.ndarray]) -> np.ndarray:
    """The best sequences of so many tokens, as the model says, for a batch that begins with 0.

    Shape (batch, beams, length), best first.
    """
    follows = {"token": "next", "score": "best", "hidden": "state"}
    session = tcsym.define(TEXT).beam.plan().session(state=follows, constants=fixed)
    score = np.full((batch, beams), -np.inf, np.float32)
    score[:, 0] = 0  # all beams begin as one
    session.state = {
        "token": np.zeros((batch, beams), np.int32),
        "score": score,
        "hidden": np.zeros((batch, beams, MODEL["H"]), np.float32),
    }
    found = np.empty((batch, beams, 0), np.int32)
    for _ in range(length):
        step = session()
        came = np.take_along_axis(found, step.parent[..., None], 1)
        found = np.concatenate([came, step.next[..., None]], 2)
    return found


def main() -> None:
    fixed = weights(np.random.default_rng(0))
    for batch, beams in ((1, 1), (2, 4), (3, 8)):
        found = search(batch, beams, 6, fixed)
        print(f"{batch} of {beams} beams: {' '.join(map(str, found[0, 0]))}")


if __name__ == "__main__":
    main()
