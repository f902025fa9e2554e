"""Index-set splitting and guards: pieces of a loop in which conditions are decided."""
