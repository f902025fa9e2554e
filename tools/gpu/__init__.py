# SPDX-License-Identifier: Apache-2.0
"""What a CUDA device has to show in minutes: results first, then speeds, then costs of launches."""
