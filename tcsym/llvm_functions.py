"""Names and types of the functions of LLVM that are called, as llvmlite declares them.

A call by other types would be undefined. So a version of llvmlite that was not compared with these
is asked for its own, by an import of its binding, before the first call.
"""

from __future__ import annotations

import ctypes
import os
import re
from ctypes import c_bool, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any

from tcsym.errors import TargetError

OLDEST, NEWEST = (0, 45), (0, 50)  # of llvmlite, whose declarations were compared

_TEXT_OUT = ctypes.POINTER(c_char_p)
_REFERENCE = c_void_p  # to a thing of LLVM's

# Name -> result, arguments.
QUICK: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "GetVersionInfo": (c_uint, ()),
    "GetHostCPUName": (None, (_TEXT_OUT,)),
    "GetHostCPUFeatures": (c_int, (_TEXT_OUT,)),
    "GetDefaultTargetTriple": (None, (_TEXT_OUT,)),
    "SetCommandLine": (None, (c_char_p, c_char_p)),
    "ContextCreate": (_REFERENCE, ()),
    "SetTarget": (None, (_REFERENCE, c_char_p)),
    "SetDataLayout": (None, (_REFERENCE, c_char_p)),
    "GetTargetFromTriple": (_REFERENCE, (c_char_p, _TEXT_OUT)),
    "GetTargetMachineTriple": (None, (_REFERENCE, _TEXT_OUT)),
    "CreateTargetMachineData": (_REFERENCE, (_REFERENCE,)),
    "CopyStringRepOfTargetData": (None, (_REFERENCE, _TEXT_OUT)),
    "DisposeTargetData": (None, (_REFERENCE,)),
    "CreatePipelineTuningOptions": (_REFERENCE, ()),
    "PTOSetLoopVectorization": (None, (_REFERENCE, c_bool)),
    "PTOSetSLPVectorization": (None, (_REFERENCE, c_bool)),
    "DisposePipelineTuningOptions": (None, (_REFERENCE,)),
    "CreatePassBuilder": (_REFERENCE, (_REFERENCE, _REFERENCE)),
    "DisposePassBuilder": (None, (_REFERENCE,)),
    "CreateNewModulePassManager": (_REFERENCE, ()),
    "buildPerModuleDefaultPipeline": (_REFERENCE, (_REFERENCE, c_int, c_int)),  # one before 0.48
    "module_AddSROAPass": (None, (_REFERENCE,)),
    "module_AddInstCombinePass": (None, (_REFERENCE,)),
    "module_AddSimplifyCFGPass": (None, (_REFERENCE,)),
    "DisposeNewModulePassManger": (None, (_REFERENCE,)),
    "GetBufferStart": (_REFERENCE, (_REFERENCE,)),
    "GetBufferSize": (c_size_t, (_REFERENCE,)),
    "DisposeMemoryBuffer": (None, (_REFERENCE,)),
    "DisposeString": (None, (c_char_p,)),
}
LONG: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "InitializeNativeTarget": (None, ()),
    "InitializeNativeAsmPrinter": (None, ()),
    "CreateTargetMachine": (
        _REFERENCE,
        (_REFERENCE, *(c_char_p,) * 3, c_int, *(c_char_p,) * 2, c_int, c_int, c_char_p),
    ),
    "DisposeTargetMachine": (None, (_REFERENCE,)),
    "ParseAssembly": (_REFERENCE, (_REFERENCE, c_char_p, _TEXT_OUT)),
    "VerifyModule": (c_bool, (_REFERENCE, _TEXT_OUT)),
    "PrintModuleToString": (None, (_REFERENCE, _TEXT_OUT)),
    "RunNewModulePassManager": (None, (_REFERENCE, _REFERENCE, _REFERENCE)),
    "TargetMachineEmitToMemory": (_REFERENCE, (_REFERENCE, _REFERENCE, c_int, _TEXT_OUT)),
    "DisposeModule": (None, (_REFERENCE,)),
    "ContextDispose": (None, (_REFERENCE,)),
}
_VALUES = (c_bool, c_int, c_uint, c_size_t)
# A last argument more than a function takes is ignored, by all C conventions that LLVM has.
_LONGER = "buildPerModuleDefaultPipeline"


def require_known(library: str) -> None:
    """TargetError if the llvmlite of this library declares its functions otherwise."""
    found = _version(library)
    if found is not None and OLDEST <= found <= NEWEST:
        return
    differing = differing_functions()
    if differing:
        installed = "of this version" if found is None else f"{found[0]}.{found[1]}"
        oldest, newest = (f"{x[0]}.{x[1]}" for x in (OLDEST, NEWEST))
        raise TargetError(
            f"llvmlite {installed} declares `{differing[0]}` as this version of tcsym does not",
            hint=f"install llvmlite>={oldest},<={newest}.* or a newer tcsym",
        )


def _version(library: str) -> tuple[int, int] | None:
    """From the text beside llvmlite's modules: importing it would import all of them."""
    path = os.path.join(os.path.dirname(os.path.dirname(library)), "_version.py")
    try:
        with open(path, encoding="utf-8") as file:
            found = re.search(r"version_version = '(\d+)\.(\d+)", file.read())
    except OSError:
        return None
    return None if found is None else (int(found[1]), int(found[2]))


def differing_functions() -> tuple[str, ...]:
    """Those of the installed llvmlite with other types, or missing."""
    from llvmlite.binding import ffi

    return tuple(n for n in sorted(QUICK | LONG) if not _is_same(ffi.lib, n))


def _is_same(library: Any, name: str) -> bool:
    result, arguments = (QUICK | LONG)[name]
    try:
        function = getattr(library, f"LLVMPY_{name}")
    except AttributeError:
        return False
    said, takes = function.restype, function.argtypes
    if takes is None:  # llvmlite declares none for some
        same = len(arguments) <= 1
    else:
        ours, theirs = [_kind(x) for x in arguments], [_kind(x) for x in takes]
        same = ours == theirs or (name == _LONGER and ours[:-1] == theirs)
    # what ctypes takes where nothing is said is int
    return same and (_kind(said) == _kind(result) or (said is c_int and result is None))


def _kind(declared: object) -> object:
    """A C type as far as calls depend on it: pointers to anything are one."""
    return declared if declared is None or declared in _VALUES else "pointer"
