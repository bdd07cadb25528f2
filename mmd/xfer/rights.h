/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rights - what xfer may still do once its device is open
 *
 * Concept:   A driver is code of others, with threads and files of its own, so there is no list of
 *            all that it needs: the filter refuses what no driver needs after its start. xfer stops
 *            being root where the driver has proved that it works without: as another user it makes
 *            a page and exports it. Where it does not, or under MPS, whose server is per user, xfer
 *            stays root without capabilities.
 * Threading: the main thread, before the watch of the device starts; it reaches the driver's
 *            threads as mmd/common/rights.h says.
 */
#pragma once

#include "mmd/xfer/device.h"

/* Return: 0; -errno, and xfer must end. */
int mm_xrights_drop(struct mm_xdev *dev);
