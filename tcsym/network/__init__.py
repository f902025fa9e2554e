"""Programs as graphs of kernels, with memory that is planned once for declared bounds."""
