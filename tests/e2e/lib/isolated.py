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
import traceback

from programs import DeadlineError, limit


def _child(test, args, options, out):
    try:
        test(*args, **options)
    except BaseException:  # everything is told to the parent, which judges
        os.write(out, traceback.format_exc().encode()[-60000:])
        os._exit(1)
    os._exit(0)


def alone(body, *args):
    """
    In a process that ends with what it does. One that goes on without the connection that its pages came
    by has two seconds to end: that is enough for most, not for every machine.
    """
    pid = os.fork()
    if pid == 0:
        try:
            body(*args)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, f"{body.__name__} ended with {status}"


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
