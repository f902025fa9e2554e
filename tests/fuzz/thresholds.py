# SPDX-License-Identifier: Apache-2.0
"""Options and thresholds drawn at random: code for large sizes runs on small ones.

Much code is chosen by sizes that a generated program never has: blocks of thousands of rows,
results larger than the last cache. None of these bounds may change a result, so each is drawn anew
for a program, most of them far smaller than they are.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from tcsym.options import Options

PASSES = "tcsym.schedule."
CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {
    "order.coalesce": {"PARTS": (1, 3, 256), "PART_WORK": (1, 4096), "FEW_SHARED": (1, 8)},
    "order.interchange_scans": {
        "MOST_BLOCKS": (1, 3, 8),
        "LEAST_ROWS": (1, 5, 16),
        "FEW_ROWS": (0, 4, 32),
        "WHOLE_ROWS": (1, 8),
    },
    "order.wavefront": {
        "STEP_WORK": (1, 1 << 20),
        "TILE_WORK": (0, 0, 1),
        "TILE_ROWS": (0, 1, 2),
        "MOST_TILES": (1, 3, 16),
        "GAIN": ((0, 1), (5, 4)),
    },
    "split.guards": {"MOST_GUARDS": (1, 2, 4)},
    "split.quotients": {
        "LEAST_PIECE": (2, 8, 32),
        "LEAST_DIVISOR": (1, 3),
        "MOST_QUOTIENTS": (1, 3),
    },
    "split.row_parts": {"SHORTEST_ROW": (1, 16)},
    "ahead.stream_stores": {
        "LONG_ROW_BYTES": (16, 64, 2048),
        "LEAST_SHARE": (4, 64),
    },
    "version.finite_weights": {"LEAST_USES": (0, 1, 16)},
    "split.residues": {"MOST_SPLITS": (1, 6)},
}
OTHERS: dict[str, dict[str, tuple[Any, ...]]] = {
    "tcsym.codegen.scalar.share_loops": {"LEAST_STATEMENTS": (1, 3, 8)},
    "tcsym.mapping.carried": {"MOST_PATHS": (1, 8)},
    "tcsym.mapping.rows": {"THREAD_TERMS": (1, 3, 64), "FOLDED": (1, 4, 32)},
    "tcsym.mapping.scans": {"SIDE_BY_SIDE": (2, 8)},
    "tcsym.mapping.tree": {"STACK_BYTES": (0, 256, 16384)},
    "tcsym.compiler": {"MOST_LOOPS_AT_ONCE": (1, 400)},
    "tcsym.rewrite.reorder_chains": {"MOST_POINTS": ((3, 4), (9, 1))},
    "tcsym.target.names": {
        "cache_bytes": (
            lambda: (256, 1024, 2048),
            lambda: (1024, 8192, 16384),
            lambda: (32768, 524288, 1 << 25),
        )
    },
}
TARGETS = ("cpu", "cpu", "cpu:avx2", "cpu:novector")
OPTIONS: dict[str, tuple[Any, ...]] = {
    "scheduler": ("align", "align", "align", "isl"),
    "vectorize": (True, True, True, True, False),
    "fusion": ("max", "max", "preserve-coincident", "min"),
    "inner_fusion": ("same", "max", "preserve-coincident", "min"),
    "chains": (0, 1, 2, 3, 4),
    "plan": ("", "", "GroupedRows", "ScatterCopies"),
    "parallelize": (True, True, True, False),
    "parallel_loops": (1, 2, 3),
    "min_work_per_thread": (0, 0, 1000, 131072),
}


def random_options(rng: random.Random) -> Options:
    """Half of the options as they are, the others from what a tuner may try."""
    drawn = {name: rng.choice(values) for name, values in OPTIONS.items() if rng.random() < 0.5}
    return Options(**drawn)


@contextmanager
def random_thresholds(rng: random.Random) -> Iterator[None]:
    """Within, code is made by other thresholds (in this process; no code is cached)."""
    places = {PASSES + module: names for module, names in CHOICES.items()} | OTHERS
    with ExitStack() as stack:
        stack.enter_context(patch.dict("os.environ", {"TCSYM_CACHE": "0"}))
        for module, names in places.items():
            for name, values in names.items():
                value = rng.choice(values)
                if rng.random() < 0.8:
                    found = importlib.import_module(module)
                    stack.enter_context(patch.object(found, name, value))
        yield
