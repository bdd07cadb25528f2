# SPDX-License-Identifier: Apache-2.0
"""mmd - memory that the daemon mmd lends, for LLM serving engines in Python

A Client is one connection to mmd on one device. One Model (tensors at addresses that never change)
and one Arena (KV memory that grows and shrinks by chunks) hang on it. Each forward pass is a Step,
and each layer of it is bracketed by Model.begin() and Model.end().

Any thread may call anything, unless a docstring says otherwise; calls release the GIL while they
wait. After fork() only the parent may use a client. What fails raises Error, an OSError with mmd's
own sentence. Importing the package loads libmm-client, and fails with a sentence where there is
none that fits.

mmd.aio has the events as an async iterator, mmd.torch what PyTorch needs, mmd.hf what transformers
needs. Documentation/engines.md of mmd explains how an engine is put on it.
"""

from mmd._arena import Arena, Owed
from mmd._client import Client, ClientInfo, Event, EventKind, TurnMode
from mmd._cold import Cold, ColdState, Piece, Swap, Swapped
from mmd._dlpack import Memory
from mmd._error import Error, StepVoid
from mmd._layout import Layout
from mmd._library import library_version
from mmd._mem import Allocation
from mmd._model import Model, ModelInfo, Pack, Tensor
from mmd._step import Running, Step, StepInfo
from mmd._version import VERSION as __version__

__all__ = ["Allocation", "Arena", "Client", "ClientInfo", "Cold", "ColdState", "Error", "Event",
           "EventKind", "Layout", "Memory", "Model", "ModelInfo", "Owed", "Pack", "Piece",
           "Running", "Step", "StepInfo", "StepVoid", "Swap", "Swapped", "Tensor", "TurnMode", "__version__", "library_version"]
