# SPDX-License-Identifier: Apache-2.0
"""Kernels in torch: layers from texts. Kernels themselves take tensors without any of this."""

from tcsym.torch.layer import Layer
from tcsym.torch.operator import operator

__all__ = ["Layer", "operator"]
