# SPDX-License-Identifier: Apache-2.0
"""The modules of tools/gpu-suite, which need only Python's standard library."""
