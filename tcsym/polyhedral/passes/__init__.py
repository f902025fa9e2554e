"""Loop IR -> loop IR: mapping passes. One pass a file; each keeps the kernel's meaning."""
