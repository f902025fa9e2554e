"""Options: which serve which sizes. Finding them is `tune`; keeping them is the options store.

`lookup` is all that a call needs, and cheap; everything else here is loaded by `kernel.tune` only.
"""

from tcsym.tuning.stores import lookup

__all__ = ["lookup"]
