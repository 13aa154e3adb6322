# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where MSCCL++ has AlgoSpec."""

from .spec import AlgoSpec, ReplicationPolicy

__all__ = ["AlgoSpec", "ReplicationPolicy"]
