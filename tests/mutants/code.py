# SPDX-License-Identifier: Apache-2.0
"""Planted bugs in code generation: arithmetic, masks, memory, threads."""

from __future__ import annotations

from tests.mutants.model import Mutant

MUTANTS = (
    # ---- arithmetic
    Mutant(
        "quotient-truncates",
        "the quotient of integers of different signs is rounded towards zero",
        "_divided",
        'quotient = code.binary("sub", truncated, code.convert("zext", down, a.kind))',
        "quotient = truncated",
    ),
    Mutant(
        "remainder-of-dividend",
        "a remainder has the sign of the dividend",
        "_divided",
        'remainder = code.select(down, code.binary("add", rest, safe), rest)',
        "remainder = rest",
    ),
    Mutant(
        "signs-ignored-in-comparisons",
        "signed and unsigned integers are compared as if both had the left one's sign",
        "compare",
        "if left is right or left.is_signed == right.is_signed:",
        "if left.is_integer and (right.bits < 64 or left is right):",
    ),
    Mutant(
        "maximum-loses-nan",
        "the maximum of lanes forgets NaN in all but its first operand",
        "extremum",
        "_any_nan(code, rest[: len(rest) - known] if known < len(values) else [])",
        "_any_nan(code, [])",
    ),
    Mutant(
        "fmax-propagates-nan",
        "fmax gives NaN where one operand is",
        "LLVM",
        '"fmax": "maxnum"',
        '"fmax": "maximum"',
    ),
    Mutant(
        "nan-differs-not",
        "x != NaN is false",
        "_ORDERED",
        '"ne": "une"',
        '"ne": "one"',
    ),
    Mutant(
        "float-remainder-of-dividend",
        "a floating remainder has the sign of the dividend",
        "float_modulo",
        "moved = where(differ, where(zero, rest, rest + b), rest)",
        "moved = rest",
    ),
    Mutant(
        "bfloat16-ties-up",
        "a number between two of bfloat16 is rounded up",
        "_to_bfloat",
        "_int(0x7FFF)), odd)",
        "_int(0x7FFF)), _int(1))",
    ),
    Mutant(
        "beside-ties-is-a-tie",
        "a long number just beside the middle of two short floats is taken for the middle",
        "_to_odd_float",
        'bits = code.binary("or", bits, code.convert("zext", inexact, "i32"))',
        "bits = bits",
    ),
    Mutant(
        "widening-keeps-no-sign",
        "integers are widened as if they had signs",
        "_resize",
        '"sext" if signed else "zext"',
        '"sext"',
    ),
    Mutant(
        "nan-cast-is-lowest",
        "NaN as a short integer is its lowest number",
        "_clamped",
        'a = code.select(code.compare("fcmp uno", a, a), constant(0, a.kind), a)',
        'a = code.select(code.compare("fcmp uno", a, a), lowest, a)',
    ),
    # ---- conditions and checks
    Mutant(
        "gather-one-beyond",
        "an index one beyond the end is in range",
        "_inside",
        '"icmp ult"',
        '"icmp ule"',
    ),
    Mutant(
        "checks-in-idle-lanes",
        "a check fails for lanes that do not run",
        "fail_if",
        "bad = context.code.and_(context.mask, bad) or bad",
        "bad = bad",
    ),
    Mutant(
        "idle-lanes-load",
        "an element is loaded that no lane wants",
        "may_be_idle",
        "return lanes.guarded or not names.isdisjoint(lanes.ragged)",
        "return False",
    ),
    Mutant(
        "choice-arms-unguarded",
        "both arms of a choice read memory",
        "_may_touch_or_fail",
        "return not is_register or v.unwritten is not None or any(v.checked)",
        "return v.unwritten is not None or any(v.checked)",
    ),
    Mutant(
        "lane-mask-one-short",
        "a condition on a lane's number fails in the last lane where it holds",
        "_lanes_at_least_zero",
        "linear(context, rest, i.constant + 1)",
        "linear(context, rest, i.constant)",
    ),
    # ---- loops
    Mutant(
        "unrolled-loop-leaves-rest",
        "an unrolled loop leaves out what is behind its last whole step",
        "serial_loop",
        "_counted(context, loop, middle, upper, 1)",
        "_counted(context, loop, upper, upper, 1)",
    ),
    Mutant(
        "counted-remainder-wraps-late",
        "the remainder that counts along with a loop wraps one late",
        "next_quotients",
        "icmp sge i64 {up}, {divisor}",
        "icmp sgt i64 {up}, {divisor}",
    ),
    Mutant(
        "threads-leave-the-last",
        "the threads' shares leave out the last iteration",
        "_chunk_text",
        '"  %following = mul i64 %next, %count\\n"',
        '"  %fewer = sub i64 %count, 1\\n  %following = mul i64 %next, %fewer\\n"',
    ),
    Mutant(
        "threads-share-scratch",
        "all threads use the first one's scratch memory",
        "_share_text",
        "%skip = mul i64 %task, %arena_bytes",
        "%skip = mul i64 0, %arena_bytes",
    ),
    # ---- memory
    Mutant(
        "buffers-share-memory",
        "buffers that are in use together lie in the same scratch memory",
        "_bytes",
        "_bytes(kernel, body, used + own, offsets)",
        "_bytes(kernel, body, used, offsets)",
    ),
    Mutant(
        "every-second-beyond",
        "loads of every second element end one element late",
        "_load_every_second",
        'constant(width - 1, "i64")',
        'constant(width, "i64")',
    ),
    Mutant(
        "clipped-block-is-whole",
        "a square block that ends before its last column is moved as a whole one",
        "is_whole",
        "all_of([ge(n.rows, n.block), ge(n.columns, n.block)])",
        "all_of([ge(n.rows, n.block)])",
    ),
)
