"""What users hold: modules, kernels, executables; how a call finds what serves it."""
