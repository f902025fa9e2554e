"""The command line: `tcsym run`, `bench`, `show`, `tune`, `cache`, `doctor`."""
