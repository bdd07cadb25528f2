# SPDX-License-Identifier: Apache-2.0
"""What the plugins of serving engines share: the version check, the tenant, the commit."""
