"""One load of a register tile -> a packed panel, laid out as the tile reads it, zero-filled."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcsym.frontend.program import Const, Read, Select
from tcsym.index import ONE, ZERO, Index, ceildiv, ge, index, substitute, var
from tcsym.loop_ir import (
    Branch,
    Buffer,
    Holds,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Value,
    block,
    map_node,
    renamed if False else substitute_node,
    walk,
)
