# SPDX-License-Identifier: Apache-2.0
"""Finds libmm-client, checks that it fits this package, and has its functions for the others."""

import os
import pathlib
from typing import Any, Final

import cffi

from mmd import _cdef

NAME: Final = f"libmm-client.so.{_cdef.MM_CLIENT_ABI_MAJOR}"
VARIABLE: Final = "MM_CLIENT_LIB"

ffi: Final[Any] = cffi.FFI()
ffi.cdef(_cdef.CDEF)


def _path() -> str:
    """The variable's file, then one beside the package, then what the dynamic linker finds."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    beside = pathlib.Path(__file__).resolve().parent / NAME
    return str(beside) if beside.exists() else NAME


def abi_refusal(abi: int) -> str:
    """Why a library with this number of mm_client_abi() cannot be used; "" if it can."""
    major, minor = abi >> 16, abi & 0xFFFF
    if major != _cdef.MM_CLIENT_ABI_MAJOR:
        other = "the library's own" if major > _cdef.MM_CLIENT_ABI_MAJOR else "an older"
        return (f"it has the interface {major}.{minor}, and this package is for "
                f"{_cdef.MM_CLIENT_ABI_MAJOR}.{_cdef.MM_CLIENT_ABI_MINOR}: install {other} release "
                f"of the package mmd")
    if minor < _cdef.MM_CLIENT_ABI_MINOR:
        return (f"it has the interface {major}.{minor}, and this package needs "
                f"{_cdef.MM_CLIENT_ABI_MAJOR}.{_cdef.MM_CLIENT_ABI_MINOR}: install a later release "
                f"of mmd")
    return ""


def load() -> Any:
    """Opens the library. ImportError has the sentence that says why it cannot be used."""
    path = _path()
    try:
        library = ffi.dlopen(path)
    except OSError as error:
        raise ImportError(f"mmd: {path} cannot be loaded: {error}; {VARIABLE} names the file where "
                          f"the dynamic linker does not find it") from None
    try:
        abi = int(library.mm_client_abi())
    except AttributeError:
        raise ImportError(f"mmd: {path} is not libmm-client 0.2 or later: it has no "
                          f"mm_client_abi()") from None
    why = abi_refusal(abi)
    if why:
        raise ImportError(f"mmd: {path} cannot be used: {why}")
    return library


lib: Final[Any] = load()


def library_version() -> str:
    """The release that the loaded library is of, such as "0.1.0". Any thread; never blocks."""
    return str(ffi.string(lib.mm_client_version()).decode())
