# SPDX-License-Identifier: Apache-2.0
"""Target that is a device -> what shared code generation asks of it, and where its code goes."""

from __future__ import annotations

from tcsym.codegen.device.instructions import Instructions, OfTwin
from tcsym.codegen.device.intrinsics import DeviceIntrinsics
from tcsym.codegen.device.launch import Grids, Twin, device_module
from tcsym.codegen.device.memory import ThreadMemory
from tcsym.codegen.device.nvptx import OfNvptx
from tcsym.codegen.scalar.backend import Backend
from tcsym.codegen.scalar.text import Module
from tcsym.target.cuda import TRIPLE as NVPTX
from tcsym.target.target import Target

TABLES: dict[str, Instructions] = {NVPTX: OfNvptx()}  # of devices, by LLVM's names


def device_backend(target: Target) -> tuple[Backend, Module | None]:
    """The module of what the device runs: None for the twin, which runs it on the host."""
    if target.kind == "twin":
        return _backend(OfTwin(), None), None
    module = device_module(target.triple)
    return _backend(TABLES[target.triple], module), module


def _backend(table: Instructions, device: Module | None) -> Backend:
    launcher = Twin(table) if device is None else Grids(device, table)
    memory = ThreadMemory(table)
    return Backend(lambda *_: memory, launcher, DeviceIntrinsics(table), has_lanes=False)
