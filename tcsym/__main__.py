# SPDX-License-Identifier: Apache-2.0
"""`python -m tcsym`: the command line."""

from tcsym.cli.main import main

if __name__ == "__main__":
    main(prog_name="tcsym")
