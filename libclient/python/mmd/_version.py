# SPDX-License-Identifier: Apache-2.0
"""The package's version: the release of mmd that it is of."""

from typing import Final

VERSION: Final = "0.1.0"
