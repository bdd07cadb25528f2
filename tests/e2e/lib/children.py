# SPDX-License-Identifier: Apache-2.0
"""Children of a test that run as another user, or in another group."""

import json
import os
import select

from programs import limit


def spawn(body, gid=None):
    """A child of another group; its exit status tells. What @body returns ends with the child, not before."""
    pid = os.fork()
    if pid == 0:
        try:
            if gid is not None:
                os.setgroups([])
                os.setgid(gid)
            _kept = body()
        except BaseException as e:  # noqa: B902
            os.write(2, f"child: {e!r}\n".encode())
            os._exit(1)
        os._exit(0)
    return pid


def joined(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def told(fd, most=65536):
    """What the other process wrote; nothing here waits for ever."""
    assert select.select([fd], [], [], limit(60))[0], "the other process does not say a word"
    return os.read(fd, most)


def as_user(uid, body, *args):
    """A child of another user; what it returns, and the child, which lives until its pipe is closed."""
    said, say = os.pipe()
    wait, let_go = os.pipe()

    def run():
        os.close(let_go)
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        os.write(say, json.dumps(body(*args)).encode())
        os.read(wait, 1)

    pid = spawn(run)
    os.close(say)
    os.close(wait)
    text = told(said)
    os.close(said)
    return json.loads(text), pid, let_go


def ended(*children):
    for _, _, let_go in children:  # all first: a later child has copies of the earlier ones' ends
        os.close(let_go)
    for _, pid, _ in children:
        assert joined(pid) == 0
