"""Leaf schedule `windows`: windows that slide over an operand, and borders of the operand."""
