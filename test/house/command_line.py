# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command line of a check that looks at a checkout, and at itself: its exit status."""

import argparse


def run(description, what, check, self_test):
    """`what --root=FOLDER` is check(FOLDER), `self-test` is self_test()."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("what", choices=[what, "self-test"])
    parser.add_argument("--root")
    arguments = parser.parse_args()
    if arguments.what == "self-test":
        return self_test()
    if not arguments.root:
        parser.error(f"{what} wants --root")
    return check(arguments.root)
