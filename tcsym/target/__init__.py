"""What code is made for: processors and their caches, and LLVM's machines."""
