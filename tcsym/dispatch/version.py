# SPDX-License-Identifier: Apache-2.0
"""One version of a kernel: the sizes it is meant for, its options, and its compiled variants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from tcsym.index.expr import TRUE, Condition
from tcsym.index.text import condition_text
from tcsym.process.recursion import depth_checked
from tcsym.runtime.variants import Layouts, Variant, Variants
from tcsym.runtime.view import View
from tcsym.sizes.region import Region

if TYPE_CHECKING:
    from tcsym.dispatch.padding import Padding

Values = tuple[int, ...]
Kind = Literal["symbolic", "refined", "specialised", "bucket", "padded", "wide"]


class Version(Struct, eq=False):
    """Sizes that satisfy `context` are served by `variants`, made with the options of `region`.

    `fixed`: sizes that are numbers in its code. `calls`: served through Python so far (native
    entries count theirs); a version that `is_gone` counts no more. `compile_beside`: where calls
    must not wait for another variant, what has it compiled; they run on dense copies meanwhile.
    """

    kind: Kind
    context: Condition
    region: Region
    fixed: Mapping[str, int]
    variants: Variants
    padding: Padding | None = None
    calls: int = 0
    is_gone: bool = False
    compile_beside: Callable[[Variants, Layouts], None] | None = None

    def run(
        self,
        views: Sequence[View],
        sizes: Values,
        threads: int,
    ) -> tuple[Variant, int]:
        """Run on inputs and outputs in order; the variant that ran, and 0 or 1 + its fault."""
        if self.padding is not None:
            return self.padding.run(self.variants, views, sizes, threads)
        variants = self.variants
        variant, dense = variants.ready(views), variants.ready_dense
        if variant is None and dense is not None and self.compile_beside is not None:
            from tcsym.dispatch.copies import run_on_copies

            self.compile_beside(variants, variants.wanted(views))
            return run_on_copies(variants, dense, views, sizes, threads)
        if variant is None:
            return self._first_run(views, sizes, threads)
        return variants.run(variant, views, sizes, threads)

    @depth_checked
    def _first_run(self, views: Sequence[View], sizes: Values, threads: int) -> tuple[Variant, int]:
        """All that a first call makes: no search for garbage in between."""
        variant = self.variants.serving(views, sizes)
        return self.variants.run(variant, views, sizes, threads)

    def prepared(self, views: Sequence[View]) -> Variant:
        """The variant that would run on views of these shapes and layouts, compiled."""
        if self.padding is not None:
            return self.variants.made_for(self.variants.dense)
        return self.variants.made_for(self.variants.wanted(views))

    def __str__(self) -> str:
        if self.kind == "wide":
            return "wide, sizes whose formulas reach 2**48, loops as the program has them"
        if self.kind == "refined":
            return f"refined, sizes where {self.region.options} was measured to be the fastest"
        region = self.region
        where = "all sizes" if self.context == TRUE else condition_text(self.context)
        if self.context == region.context:
            where = region.where
        elif region.context != TRUE:
            where += f" (region {region.where})"
        return f"{self.kind}, {where}, options {self.region.origin}"
