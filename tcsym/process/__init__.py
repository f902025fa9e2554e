"""The process around kernels: its settings, threads, forks, recursion."""
