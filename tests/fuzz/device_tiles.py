# SPDX-License-Identifier: Apache-2.0
"""Small tiles of a device's plans, so that small sizes have several blocks, and ragged ends."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from tcsym.index.expr import TRUE
from tcsym.schedule import map_gpu
from tcsym.schedule.device import propose
from tcsym.schedule.device.plan import SplitSum, Stepped, Version
from tcsym.schedule.device.steps import ways

# rows and columns of a block, depth, stages; rows and columns of a thread, or of a warp
TILES = ((16, 64, 4, 3, 2, 8), (32, 16, 8, 2, 4, 1), (16, 64, 4, 4, 1, 8), (16, 16, 4, 2, 2, 2))
MATRICES = ((32, 16, 32, 3, 16, 8), (32, 32, 16, 2, 16, 16))
ROW_THREADS = (64, 32, 128)


@contextmanager
def small_tiles(rng: random.Random | None = None) -> Iterator[None]:
    """Within, blocks have few rows and columns, by the first choice or one that is drawn, and the
    twin checks all that it can. Tiles and rows are taken wherever they can be, whatever they cost,
    in an order that is drawn, too, as is how steps are taken. No code is cached."""
    tiles, matrices, threads = TILES[0], MATRICES[0], ROW_THREADS[0]
    if rng is not None:
        tiles, matrices = rng.choice(TILES), rng.choice(MATRICES)
        threads = rng.choice(ROW_THREADS)

    def wherever(found: Sequence[Version]) -> tuple[Version, ...]:
        some = [v for v in found if rng is not None or not isinstance(v.plan, SplitSum)]
        *first, last = some
        if rng is not None and rng.random() < 0.5:
            rng.shuffle(first)
        return (*first, last)

    def any_way(*given: Any) -> tuple[Stepped, ...]:
        found = ways(*given)
        return found if rng is None else (replace(rng.choice(found), when=TRUE),)

    chosen = {"SMALL": tiles, "WARPS_SMALL": matrices, "ROW_THREADS": threads}
    chosen |= {"LARGE": tiles, "WARPS_LARGE": matrices}
    with ExitStack() as stack:
        environment = {"TCSYM_CACHE": "0", "TCSYM_CHECK_TWIN": "1"}
        stack.enter_context(patch.dict("os.environ", environment))
        for name, value in chosen.items():
            stack.enter_context(patch.object(propose, name, value))
        stack.enter_context(patch.object(propose, "cheapest", wherever))
        stack.enter_context(patch.object(map_gpu, "ways", any_way))
        yield
