# SPDX-License-Identifier: Apache-2.0
"""What the two ends of artifacts agree on: kinds of errors <-> codes, the manifest, its format."""

from __future__ import annotations

MANIFEST = "manifest.json"
FORMAT = 4

CODES = {
    "call": 1,
    "rank": 2,
    "type": 3,
    "size": 4,
    "bounds": 5,
    "init": 6,
    "device": 7,
    "layout": 8,
    "target": 9,
    "memory": 10,
    "immutable": 11,
}
KINDS = {code: kind for kind, code in CODES.items()}
