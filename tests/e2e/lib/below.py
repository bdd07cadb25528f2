# SPDX-License-Identifier: Apache-2.0
"""Faults from below: orders to the library that is preloaded into mmd (tests/fault/below/below.h has the layout)."""

import mmap
import os
import pathlib
import signal
import struct
import tempfile

from programs import BUILD

LIBRARY = BUILD / "tests" / "libmm-below.so"
ROLES = ("keeper", "core", "xfer", "load", "spool", "log", "client")
FAIL, STICKY, STOP, KILL, KILL_AFTER = range(5)
MEMORY, FD, SOCKET, FILE, LOOP, PROCESS, DRIVER = (1 << i for i in range(7))
SITES = 1024
HEAD = struct.Struct("=QQQQIiqqQQQIIQ4Q")
SITE = struct.Struct("=QQ32s")
ROLE_BYTES = HEAD.size + SITES * SITE.size
# Byte offsets in HEAD.
NTH, SITE_KEY, COUNT, CLASSES, ACTION, VALUE, REALTIME, MONOTONIC, CALLS = 0, 8, 16, 24, 32, 36, 40, 48, 56
FIRED = 64


class Site:
    """A place in a role's program that calls the C library or the driver."""

    def __init__(self, role, key, calls, name):
        self.role, self.key, self.calls, self.name = role, key, calls, name

    @property
    def is_driver(self):
        return self.key >> 8 & 0xff == 0xff

    @property
    def is_ours(self):
        """Called by the program, not by a library of others within itself, which may not survive its failure."""
        return self.is_driver or not self.key >> 8 & 0xff

    def __str__(self):
        where = "driver" if self.is_driver else f"object {self.key >> 8 & 0xff}+{self.key >> 16:#x}"
        return f"{self.role}: {self.name} at {where}"


class Below:
    """The file of orders. Beside mmd the processes of a tenant have it, if they are given client_env()."""

    def __init__(self):
        # Roles of other users open it by its path: anybody may, and /dev/shm is a folder that all can enter.
        fd, path = tempfile.mkstemp(prefix="mm-below.", dir="/dev/shm")
        os.fchmod(fd, 0o666)
        os.ftruncate(fd, ROLE_BYTES * len(ROLES))
        self.path = pathlib.Path(path)
        self.map = mmap.mmap(fd, 0)
        os.close(fd)
        self.env = {"LD_PRELOAD": str(LIBRARY), "MM_BELOW": str(self.path)}

    def close(self):
        self.map.close()
        self.path.unlink()

    def client_env(self):
        return dict(self.env, MM_BELOW_ROLE="client")

    def _at(self, role):
        return ROLES.index(role) * ROLE_BYTES

    def _put(self, role, offset, kind, value):
        struct.pack_into(kind, self.map, self._at(role) + offset, value)

    def _get(self, role, offset, kind="=Q"):
        return struct.unpack_from(kind, self.map, self._at(role) + offset)[0]

    # ---- orders

    def arm(self, role, nth, action=FAIL, site=0, count=1, classes=0, value=0):
        """The nth call from now on, of all or at one site or of some classes, and what happens to it."""
        self.disarm(role)
        for offset, kind, field in ((SITE_KEY, "=Q", site), (COUNT, "=Q", count), (CLASSES, "=Q", classes),
                                    (ACTION, "=I", action), (VALUE, "=i", value), (CALLS, "=Q", 0), (FIRED, "=Q", 0)):
            self._put(role, offset, kind, field)
        self._put(role, NTH, "=Q", nth)

    def disarm(self, role=None):
        for each in [role] if role else ROLES:
            self._put(each, NTH, "=Q", 0)

    def jump(self, role, realtime_ns=0, monotonic_ns=0):
        """What this role's clocks are off by, from now on."""
        self._put(role, REALTIME, "=q", realtime_ns)
        self._put(role, MONOTONIC, "=q", monotonic_ns)

    # ---- what happened

    def calls(self, role):
        return self._get(role, CALLS)

    def fired(self, role):
        return self._get(role, FIRED)

    def fired_pid(self, role):
        return self._get(role, 80, "=I")

    def fired_site(self, role):
        key = self._get(role, 72)
        return next((str(s) for s in self.sites(role) if s.key == key), None)

    def sites(self, role):
        """All that were seen so far, those with the most calls last."""
        at = self._at(role) + HEAD.size
        found = [SITE.unpack_from(self.map, at + i * SITE.size) for i in range(SITES)]
        assert self._get(role, 88) == 0, "there are more sites than the file has room for"
        return sorted((Site(role, key, calls, name.rstrip(b"\0").decode()) for key, calls, name in found if key),
                      key=lambda s: (s.calls, s.key))

    def forget_counts(self):
        """Counts of sites begin anew; the sites stay."""
        for role in ROLES:
            at = self._at(role) + HEAD.size
            for i in range(SITES):
                struct.pack_into("=Q", self.map, at + i * SITE.size + 8, 0)

    def resume(self, role):
        """Lets the process go on that was stopped, if it is still there."""
        try:
            os.kill(self.fired_pid(role), signal.SIGCONT)
        except ProcessLookupError:
            pass
