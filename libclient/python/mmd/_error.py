# SPDX-License-Identifier: Apache-2.0
"""What calls of this package raise."""

import errno


class Error(OSError):
    """A call failed: errno is one of those that mm/client.h lists, strerror is mmd's sentence."""


class StepVoid(Error):
    """mmd aborted the gates of a step: its results are void, and it is to be repeated."""

    def __init__(self, sentence: str) -> None:
        super().__init__(errno.ECANCELED, sentence)


def error_of(number: int, sentence: str) -> Error:
    """The exception for a positive errno."""
    if number == errno.ECANCELED:
        return StepVoid(sentence)
    return Error(number, sentence)
