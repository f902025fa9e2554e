# SPDX-License-Identifier: Apache-2.0
"""Orders of loops and privacy of temporaries that a person can verify by hand."""

from __future__ import annotations

import pytest

from tcsym.polyhedral.tree import tree_loops
from tests.polyhedral.programs import scheduled

ORDERS = {
    "matmul_bias_relu": "m:parallel n:parallel k:reduction",
    "softmax": "n:parallel d:reduction d_1:reduction d_2:parallel",
    "layer_norm": "n:parallel d:reduction d_1:reduction d_2:parallel",
    "conv_bias_relu": (
        "n:parallel m:parallel h:parallel w:parallel c:reduction kh:reduction kw:reduction"
    ),
    "attention": (
        "s:parallel u:parallel d:reduction u_1:reduction u_2:reduction u_3:parallel"
        " x:parallel u_4:reduction"
    ),
    "rnn": (
        "t_0:parallel b:parallel o:parallel i:reduction"
        " t:sequential b_1:parallel o_1:parallel k:reduction k_1:reduction"
    ),
    "batch_norm": (
        "c:parallel n:reduction h:reduction w:reduction n_1:reduction h_1:reduction"
        " w_1:reduction n_2:parallel h_2:parallel w_2:parallel"
    ),
    "column_sum": "j:parallel i:reduction",
    "half_matmul": "m:parallel n:parallel k:reduction",
    "shift_in_place": "i:parallel i_1:parallel i_2:parallel",
    "mlp": "b:parallel h:parallel m:reduction b_1:parallel o:parallel h_1:reduction",
    "statistics": "n:parallel k:reduction",
    "parallel_time": "t:parallel i:parallel",
    "prefix_sum": "i:sequential",
    "cholesky": ("i_1:parallel j_1:parallel j:sequential k:reduction i:parallel k_1:reduction"),
    "total": "i:parallel j:parallel i_1:reduction j_1:reduction",
    "branches_cover": "t:parallel i:parallel",
    "carried_state": "i:parallel t:sequential i_1:parallel",
    "transposed_pair": "n:parallel m:parallel m_1:parallel n_1:parallel",
    "ragged_sum": "b:parallel j:reduction",
    "ragged_softmax": "b:parallel l:reduction l_1:reduction l_2:parallel",
    "ragged_pairs": "b:parallel j:reduction k:reduction",
    "triangular_sum": "i:parallel k:reduction",
    "bag": "b:parallel d:parallel l:reduction",
    "histogram": "H.0:parallel d:parallel n:sequential H.0_1:sequential d_1:parallel",
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders(name: str) -> None:
    loops = tree_loops(scheduled(name).tree)
    assert " ".join(f"{x.variable}:{x.order}" for x in loops) == ORDERS[name]


PRIVATE = {
    "matmul_bias_relu": {"C": "m n"},
    "softmax": {"m": "n", "e": "n", "s": "n"},
    "layer_norm": {"s": "n", "mu": "n", "v": "n", "r": "n"},
    "attention": {"p": "s u", "c": "s", "m": "s", "e": "s", "z": "s", "a": "s"},
    "conv_bias_relu": {"t": "h m n w"},
    "rnn": {"a.S0": "", "a": "b_1 o_1 t"},
    "mlp": {"a": "b h", "r": ""},
    "half_matmul": {"C.sum": "m n"},
    "shift_in_place": {"Y.new": ""},
    "batch_norm": {"m": "c", "mu": "c", "d": "c", "v": "c"},
    "parallel_time": {"s": "i t"},
    "branches_cover": {"s": "i t"},
    "carried_state": {"s": ""},
    "cholesky": {"s": "j", "q": "i j"},
    "padded": {"p": "n"},
    "total": {"p": ""},
}


@pytest.mark.parametrize("name", PRIVATE)
def test_privacy(name: str) -> None:
    kernel = scheduled(name).kernel
    private = {b.name: " ".join(sorted(b.private)) for b in kernel.buffers if b.space == "arena"}
    assert private == PRIVATE[name]


@pytest.mark.parametrize("name", ORDERS)
def test_preserve_coincident_keeps_loops_parallel(name: str) -> None:
    """A shared loop is a reduction only if it is one for each of its statements."""
    s = scheduled(name, "preserve-coincident")
    for loop in tree_loops(s.tree):
        if loop.order == "reduction":
            for m in loop.members:
                assert m.value.variables() & s.scop.statement(m.statement).reduced


def test_min_shares_no_loop() -> None:
    for name in ORDERS:
        s = scheduled(name, "min")
        program_loops = {v for x in s.scop.statements for v in (r.variable for r in x.outer)}
        for loop in tree_loops(s.tree):
            if loop.variable not in program_loops:
                updates = [m for m in loop.members if not m.statement.endswith(".init")]
                assert len(updates) <= 1, (name, str(s.tree))
