# SPDX-License-Identifier: Apache-2.0
"""The native part of the run time, and the wheel's tag, which depends on the system that builds.

The wheel has machine code for Linux on x86-64 or AArch64 with glibc, of the version here and at
least that which the libraries below it need; or for macOS on Apple's processors, never run. What
is built elsewhere, from the source distribution, says at a kernel's first call that it cannot run
there. A compiler for the other of the processors builds for that one, if `_PYTHON_HOST_PLATFORM`
says so.
"""

import os
import platform
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

SOURCES = Path("tcsym/native")
SHARED = Path("tcsym/artifact/cuda_grids.h")  # with artifacts
LEAST_GLIBC = 28  # 2.28
LEAST_MACOS = "14.4"  # has os_sync_wait_on_address


def native() -> Extension:
    import numpy

    return Extension(
        "tcsym.runtime._native",
        sources=sorted(map(str, SOURCES.glob("*.c"))),
        depends=[*sorted(map(str, SOURCES.glob("*.h"))), str(SHARED)],
        include_dirs=[numpy.get_include()],
        extra_compile_args=["-std=gnu11", "-Werror=implicit", "-fno-strict-aliasing", "-pthread"],
        extra_link_args=["-pthread"],
        optional=True,  # without a compiler, Python serves the calls
    )


if sys.platform == "win32":  # else a failed build of islpy would be what is said
    sys.exit(
        "tcsym does not run on Windows, where islpy, which it needs, has no wheels: "
        "install it in a Linux of WSL (wsl --install), with x86-64 or AArch64 processors"
    )
machine = sysconfig.get_platform().removeprefix("linux-")
is_supported = sys.platform == "linux" and machine in ("x86_64", "aarch64")
library, version = platform.libc_ver()
if is_supported and library == "glibc":
    glibc = max(LEAST_GLIBC, int(version.split(".")[1]))
    tag = {"plat_name": f"manylinux_2_{glibc}_{machine}"}
    setup(ext_modules=[native()], options={"bdist_wheel": tag})
elif sys.platform == "darwin" and platform.machine() == "arm64":  # macOS: never run
    os.environ.setdefault("MACOSX_DEPLOYMENT_TARGET", LEAST_MACOS)
    setup(ext_modules=[native()])
else:
    setup()
