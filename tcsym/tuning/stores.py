# SPDX-License-Identifier: Apache-2.0
"""Program, target -> regions of sizes with their options: the user's store, the shipped one, rules.

It never fails and never changes a result: whatever is wrong with a store means the analytic region.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tcsym.errors import OptionError
from tcsym.options import Options
from tcsym.process.config import CACHE_DIR, OPTIONS
from tcsym.process.threads import get_num_threads
from tcsym.runtime.cache import options_state
from tcsym.sizes.region import Origin, Region
from tcsym.target.target import Target
from tcsym.tuning.machine import machine_key, serves, similar
from tcsym.tuning.shipped import shipped
from tcsym.tuning.warn import untuned, warn_once, warn_untuned

if TYPE_CHECKING:
    from tcsym.tuning.database import Database
    from tcsym.tuning.rows import Tuned
    from tcsym.tuning.tree import Tree


def lookup(program_hash: str, target: Target, sizes: tuple[str, ...]) -> tuple[Region, ...]:
    """Regions for the program of that canonical hash, disjoint and covering all sizes.

    program_hash: `Program.canonical`. sizes: `Program.sizes`; contexts are over these names.
    The number of threads in force counts: what was tuned with one serves one.
    One region of default options (origin `analytic`) for a program that was never tuned.
    """
    if not OPTIONS.read():
        return (Region(Options()),)
    base = CACHE_DIR.read()
    machine = machine_key(target, get_num_threads())
    return _regions(program_hash, machine, sizes, base, options_state())


def user_database() -> Database | None:
    """The user's store; None if it is switched off or has no place."""
    from tcsym.tuning.database import Database

    return Database.at(CACHE_DIR.read()) if OPTIONS.read() else None


def sizes_database() -> Database | None:
    """Where choices for single sizes are kept; None as for `user_database`."""
    from tcsym.tuning.database import SIZES_FILE, Database

    return Database.at(CACHE_DIR.read(), SIZES_FILE) if OPTIONS.read() else None


def tuned_for(program_hash: str, machine: str) -> tuple[Origin, Tuned] | None:
    """The user's row for this machine, or the shipped one for it, or for one with such vectors."""
    base = CACHE_DIR.read()
    if options_state():
        from tcsym.tuning.database import Database
        from tcsym.tuning.rows import Tuned

        database = Database.at(base)
        rows = database.select(Tuned, "program = ?", (program_hash,)) if database else []
        rows = [row for row in rows if serves(row.machine, machine)]
        if rows:
            exact = [row for row in rows if row.machine == machine]
            return "user", (exact or rows)[-1]
    candidates = [row for row in shipped(program_hash) if similar(row.machine, machine)]
    candidates.sort(key=lambda row: not serves(row.machine, machine))
    return ("shipped", candidates[0]) if candidates else None


def machines_tuned_on(program_hash: str) -> tuple[str, ...]:
    """Keys of all machines and numbers of threads that the user tuned a program for, sorted."""
    from tcsym.tuning.rows import Tuned

    database = user_database() if options_state() else None
    rows = database.select(Tuned, "program = ?", (program_hash,)) if database else []
    return tuple(sorted({row.machine for row in rows}))


def candidates_for(program_hash: str, target: Target, n_sizes: int) -> tuple[Options, ...]:
    """What is worth measuring at single sizes: what serves some, and what else tuning kept."""
    if not OPTIONS.read():
        return ()
    machine = machine_key(target, get_num_threads())
    return _candidates(program_hash, machine, n_sizes, CACHE_DIR.read(), options_state())


@lru_cache(1024)
def _candidates(
    program_hash: str, machine: str, n_sizes: int, base: str | None, state: tuple[int, ...]
) -> tuple[Options, ...]:
    found = tuned_for(program_hash, machine)
    tree = None if found is None else tree_of(found[1], n_sizes)
    if found is None or tree is None:
        return ()
    import json

    from tcsym.tuning.tree import candidates_from_json

    try:
        return candidates_from_json(json.loads(found[1].tree), tree)
    except OptionError as error:
        warn_once(f"candidates of `{found[1].name}` are not used: {error}")
        return ()


@lru_cache(1024)
def _regions(
    program_hash: str,
    machine: str,
    sizes: tuple[str, ...],
    base: str | None,
    state: tuple[int, ...],
) -> tuple[Region, ...]:
    found = tuned_for(program_hash, machine)
    tree = None if found is None else tree_of(found[1], len(sizes))
    if found is None or tree is None:
        if state and found is None:
            _warn_of_others(program_hash, machine, len(sizes))
        return (Region(Options()),)
    from tcsym.tuning.tree import contexts

    return tuple(Region(options, context, found[0]) for context, options in contexts(tree, sizes))


def _warn_of_others(program_hash: str, machine: str, n_sizes: int) -> None:
    """Tuned, but for another machine or number of threads; not where that chose the default."""
    from tcsym.tuning.database import Database
    from tcsym.tuning.rows import Tuned
    from tcsym.tuning.tree import leaves_of

    database = Database.at(CACHE_DIR.read())
    rows = database.select(Tuned, "program = ?", (program_hash,)) if database else []
    trees = [(row, tree_of(row, n_sizes)) for row in rows]
    rows = [row for row, tree in trees if tree and {*leaves_of(tree)} != {Options()}]
    if rows:
        text = (
            f"`{rows[-1].name}` runs with default options: it was tuned for `{rows[-1].machine}`,"
            f" which does not serve `{machine}`; tune it here, too"
        )
        warn_untuned(program_hash, text)


def warn_beyond(
    program_hash: str, name: str, target: Target, names: tuple[str, ...], sizes: tuple[int, ...]
) -> None:
    """Once for each program: default options serve sizes that lie beyond all that it was tuned for.

    Between these the default was chosen; elsewhere nobody knows what is the fastest.
    """
    if program_hash in untuned:
        return
    machine = machine_key(target, get_num_threads())
    box = _tuned_box(program_hash, machine, CACHE_DIR.read(), options_state())
    if box and not all(low <= size <= high for size, (low, high) in zip(sizes, box)):
        told = ", ".join(f"{n}={v}" for n, v in zip(names, sizes))
        text = f"`{name}` runs with default options at {told}, beyond the sizes it was tuned for"
        warn_untuned(program_hash, f"{text}; tune it for such sizes, too")


@lru_cache(1024)
def _tuned_box(
    program_hash: str, machine: str, base: str | None, state: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """The least and the largest tuned value of each size; () where nothing was tuned."""
    import json

    found = tuned_for(program_hash, machine)
    if found is None or found[0] != "user":
        return ()
    return tuple((min(column), max(column)) for column in zip(*json.loads(found[1].measured)))


def tree_of(row: Tuned, n_sizes: int) -> Tree | None:
    """The tree of a row; None if this version does not know its options."""
    import json

    from tcsym.tuning.tree import tree_from_json

    try:
        return tree_from_json(json.loads(row.tree), n_sizes)
    except (OptionError, ValueError, RecursionError) as error:
        warn_once(f"tuned options of `{row.name}` are not used: {error}")
        return None
