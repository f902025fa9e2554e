"""Program, target -> regions of sizes with their options: the user's store, the shipped one, rules.

It never fails and never changes a result: whatever is wrong with a store means the analytic region.
"""

from __future__ import annotations

from tcsym.options import Options
from tcsym.region import Region
from tcsym.target import Target


def lookup(program_hash: str, target: Target, sizes: tuple[str, ...]) -> tuple[Region, ...]:
    """Regions for the program of that canonical hash, disjoint and covering all sizes.

    program_hash: `Program.canonical`. sizes: `Program.sizes`; contexts are over these names.
    One region of default options (origin `analytic`) for a program that was never tuned.
    """
    return (Region(Options()),)
