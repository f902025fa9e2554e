# SPDX-License-Identifier: Apache-2.0
"""The same program gives the same code in every process."""

import itertools
import json
import os
import subprocess
import sys

from tcsym import library

WRITE = """
import itertools, json, sys, tcsym
programs, targets = json.loads(sys.argv[1])
print(json.dumps([
    tcsym.define(programs[name], target=target).explain("llvm")
    for name, target in itertools.product(programs, targets)
]))
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


TARGETS = ("cpu:avx2", "cuda:sm_80")


def test_the_order_of_sets_does_not_show_in_the_code() -> None:
    one, other = code_under(0), code_under(1)
    assert len(one) == len(PROGRAMS) * len(TARGETS)
    for name, code, again in zip(itertools.product(PROGRAMS, TARGETS), one, other, strict=True):
        assert len(code) > 1000 and code == again, name


def code_under(seed: int) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-c", WRITE, json.dumps([PROGRAMS, TARGETS])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    codes: list[str] = json.loads(done.stdout)
    return codes
