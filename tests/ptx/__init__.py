# SPDX-License-Identifier: Apache-2.0
"""PTX texts run: an interpreter of the instructions that NVPTX writes for our kernels.

It is made from the PTX ISA alone (NVIDIA, Parallel Thread Execution ISA, 9.2), not from what emits
the text and not from the twin. All threads of blocks are lanes of numpy arrays:

    text.py        PTX -> functions of basic blocks of instructions
    order.py       in which order threads that have parted run, so that they meet again
    values.py      instructions on values, by number of bits
    floats.py      those on numbers with fractions
    memory.py      global and shared memory: bounds, alignment, races
    copies.py      asynchronous copies, which land as late as they may
    warps.py       what a warp does together: shuffles, matrices
    machine.py     threads of blocks, barriers, a grid
    device.py      the interpreter in place of a device, for tcsym's calls
    cases.py       what is run three ways; told.py: one of them
    mutants.py     faults that are planted in texts
"""
