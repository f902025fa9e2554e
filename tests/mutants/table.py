"""All planted bugs."""

from __future__ import annotations

from tests.mutants import analysis, code, passes, serving
from tests.mutants.model import Mutant

MUTANTS: dict[str, Mutant] = {
    m.name: m for table in (analysis, passes, code, serving) for m in table.MUTANTS
}
