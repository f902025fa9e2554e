"""Register tiles, vectors, blocks of rows and columns, unroll-and-jam, transposition."""
