# SPDX-License-Identifier: Apache-2.0
"""Mapped kernels compute what naive kernels do, at ragged sizes, for every target."""

from __future__ import annotations

import pytest

from tcsym.ir.loops import Kernel
from tcsym.ir.verify import verify
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tests.schedule import naive
from tests.schedule.compare import assert_same
from tests.schedule.targets import AVX2, TARGETS, some_sizes

# others than the first version read rows of a copy that do not exist, for sums that go nowhere
UNSET = "computed_operands"


def legal(kernel: Kernel, sizes: dict[str, int]) -> bool:
    return not (kernel.name == "lut" and sizes["V"] == 0)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", naive.ALL)
def test_mapped_kernel_keeps_the_results(name: str, target: str) -> None:
    kernel = naive.ALL[name]()
    mapped = map_cpu(kernel, TARGETS[target], Options())
    verify(mapped.kernel)
    for sizes in some_sizes(kernel)[:: 2 if target == "scalar" else 1]:  # no borders of lanes
        if legal(kernel, sizes):
            assert_same(kernel, mapped.kernel, sizes, name != UNSET)


VARIANTS = {
    "no vectors": Options(vectorize=False),
    "no threads": Options(parallelize=False),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "name", ["matmul_bias_relu", "matmul_atbt", "softmax", "convolution3", "attention", "pooling"]
)
def test_options_keep_the_results(name: str, variant: str) -> None:
    kernel = naive.ALL[name]()
    mapped = map_cpu(kernel, AVX2, VARIANTS[variant])
    verify(mapped.kernel)
    for sizes in some_sizes(kernel)[-6:]:
        assert_same(kernel, mapped.kernel, sizes)


# Sizes of versions with panels: what few rows or columns read in place has none.
IN_PANELS = (
    {"M": 29, "N": 29, "K": 13},
    {"B": 1, "F": 29, "C": 2, "H": 2, "W": 3, "P": 2, "Q": 2},
)
