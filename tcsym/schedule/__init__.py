# SPDX-License-Identifier: Apache-2.0
"""Loop IR -> loop IR: loops become threads, tiles, vectors, panels; a folder for each mechanism."""
