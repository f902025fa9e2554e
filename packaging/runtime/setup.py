# SPDX-License-Identifier: Apache-2.0
"""The native part of the run time. The rest is in pyproject.toml."""

from pathlib import Path

import numpy
from setuptools import Extension, setup

NATIVE = Path("native")

setup(
    ext_modules=[
        Extension(
            "tcsym_runtime.runtime._native",
            sources=sorted(map(str, NATIVE.glob("*.c"))),
            depends=sorted(map(str, NATIVE.glob("*.h"))),
            include_dirs=[numpy.get_include()],
            extra_compile_args=["-std=gnu11", "-fno-strict-aliasing", "-pthread"],
            extra_link_args=["-pthread"],
            optional=True,  # without a compiler, Python serves the calls, on one thread
        )
    ]
)
