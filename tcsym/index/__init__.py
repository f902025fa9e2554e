# SPDX-License-Identifier: Apache-2.0
"""Integer index expressions and conditions: the one integer language of all stages."""
