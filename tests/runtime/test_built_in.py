"""Built-in functions of our own among what Python's collector frees."""

from __future__ import annotations

import subprocess
import sys

CYCLE = """
import ctypes, gc
from tcsym.runtime.built_in import Owner, built_in

taken = []

class Taker:
    def __del__(self):  # takes whatever memory was just freed
        taken.extend(ctypes.create_string_buffer(b"\\xff" * 31) for _ in range(4096))

def cycle():
    taker = Taker()
    gc.collect(), gc.collect()  # it is old: the young generation's collection frees it last
    owner = Owner("f", 4096, None)
    [bytes(3) + b"\\xff" * 44 for _ in range(4096)]  # what lies behind the function is no object
    owner.kept = ([built_in(owner)], taker)

for _ in range(20):
    cycle()
    gc.collect(0)
print("alive")
"""


def test_a_function_may_go_after_its_owner_was_cleared() -> None:
    found = subprocess.run([sys.executable, "-c", CYCLE], capture_output=True, text=True)
    assert (found.returncode, found.stdout.strip()) == (0, "alive"), found.stderr
