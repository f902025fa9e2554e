# SPDX-License-Identifier: Apache-2.0
"""What processors need: vector memory, shuffles, blocks in registers, streams, tasks."""
