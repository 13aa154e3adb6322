# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collective programs in Python: steps are recorded by the library's own builder, proved, and run as plans.

    from mscclpp.language import *
"""

from .channel import *
from .collectives import *
from .general import *
from .loop import *
from .program import *
from .rank import *
from .spec import *
from .thread_block_group import *
