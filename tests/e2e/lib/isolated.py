# SPDX-License-Identifier: Apache-2.0
"""
Hostile clients live in a process of their own: mmd kills a process that keeps pages without a
connection, and that must not be the one that runs the tests.
"""

import functools
import os
import select
import signal
import sys
import time
import traceback

from programs import DeadlineError, limit

KEEPS_PAGES_S = 2  # MM_REVOKE_NS


def _child(test, args, options, out):
    try:
        test(*args, **options)
    except BaseException:  # everything is told to the parent, which judges
        os.write(out, traceback.format_exc().encode()[-60000:])
        os._exit(1)
    os._exit(0)


def alone(body, *args):
    """
    In a process that ends with what it does, and with it the connection that @body returns: not before the pages
    that came by it. One whose connection mmd has ended is killed if it keeps pages for two seconds more; on a slow
    machine that may come before its own end.
    """
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            kept = body(*args)
            assert kept is not None
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    killed = status == -signal.SIGKILL and time.monotonic() - begun >= KEEPS_PAGES_S
    assert status == 0 or killed, f"{body.__name__} ended with {status}"


def isolated(seconds=60):
    def decorate(test):
        @functools.wraps(test)
        def wrapper(*args, **options):
            read_end, write_end = os.pipe()
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                _child(test, args, options, write_end)
            os.close(write_end)
            text = b""
            try:
                while True:
                    if not select.select([read_end], [], [], limit(seconds))[0]:
                        raise DeadlineError(f"{test.__name__} hangs")
                    part = os.read(read_end, 65536)
                    if not part:
                        break
                    text += part
            except DeadlineError:
                os.kill(pid, signal.SIGKILL)
                raise
            finally:
                os.close(read_end)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert not text, text.decode()
            assert status == 0, f"the client ended with {status}"
        return wrapper
    return decorate
