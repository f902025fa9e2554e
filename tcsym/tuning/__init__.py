# SPDX-License-Identifier: Apache-2.0
"""Options: which serve which sizes. Finding them is `tune`; keeping them is the options store.

`lookup` and `candidates_for` are all that calls need, and cheap; everything else here is loaded by
`kernel.tune` only.
"""

from tcsym.tuning.stores import candidates_for, lookup

__all__ = ["candidates_for", "lookup"]
