# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The current program as text."""

from .program import current_program

__all__ = ["JSON"]


def JSON() -> str:  # pylint: disable=invalid-name
    """The program whose `with` block is being run, as a plan in JSON. Warns where it is wrong."""
    return current_program().to_json()
