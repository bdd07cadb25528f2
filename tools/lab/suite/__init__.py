# SPDX-License-Identifier: Apache-2.0
"""What tools/gpu-suite is made of. Python's standard library only."""
