"""The same program gives the same code in every process."""

import os
import subprocess
import sys

import pytest

from tcsym import library

WRITE = """
import sys, tcsym
print(tcsym.define(sys.argv[1], target=sys.argv[2]).explain("llvm"))
"""

MAX_POOL = """def pool(float(N,C,H,W) I) -> (O) {
    O(n,c,y,x) max=! I(n,c,2*y + kh,2*x + kw) where kh in 0:3, kw in 0:3
}"""
TWO_PRODUCTS = """def both(float(B,M,K) A, float(B,K,N) C, float(B,N,L) D) -> (E, F) {
    E(b,i,j) +=! A(b,i,k) * C(b,k,j)
    F(b,i,l) +=! E(b,i,j) * D(b,j,l)
}"""

PROGRAMS = {
    "max_pool": MAX_POOL,
    "two_products": TWO_PRODUCTS,
    "norm": library.source("layer_norm"),
}


@pytest.mark.parametrize("target", ["cpu:avx2", "cuda:sm_80"])
@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_the_order_of_sets_does_not_show_in_the_code(text: str, target: str) -> None:
    assert len({code_under(seed, text, target) for seed in range(3)}) == 1


def code_under(seed: int, text: str, target: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-c", WRITE, text, target]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout
