# SPDX-License-Identifier: Apache-2.0
"""The modules of mmevaluate. They need Python's standard library, and matplotlib for plots."""
