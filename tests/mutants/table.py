# SPDX-License-Identifier: Apache-2.0
"""All planted bugs."""

from __future__ import annotations

from tests.mutants import analysis, code, device, passes, serving
from tests.mutants.model import Mutant

PARTS = {
    "analysis": analysis.MUTANTS,
    "passes": passes.MUTANTS,
    "code": code.MUTANTS,
    "serving": serving.MUTANTS,
    "device": device.MUTANTS,
}
MUTANTS: dict[str, Mutant] = {m.name: m for part in PARTS.values() for m in part}
