# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The algorithms that a program adds to those of the library."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Optional, Union

from ._mscclpp import Algorithm, AlgorithmCollection, Selection, SelectionRequest
from .errors import InvalidUsage

__all__ = ["AlgorithmCollectionBuilder", "Algorithms"]


class Algorithms:
    """A collection, as a sequence of its algorithms under each of their names; `native` chooses between them."""

    def __init__(self, native: AlgorithmCollection):
        self.native = native
        self._all = native.list()

    def __iter__(self) -> Iterator[Algorithm]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: int) -> Algorithm:
        return self._all[index]

    def choose(self, *arguments: Any, **more: Any) -> Selection:
        """What execute() would take; see AlgorithmCollection.choose()."""
        return self.native.choose(*arguments, **more)

    def execute(self, *arguments: Any, **more: Any) -> None:
        """By the best algorithm for the call; see AlgorithmCollection.execute()."""
        self.native.execute(*arguments, **more)

    def get_by_collective(self, collective: str) -> list[Algorithm]:
        """Those of one collective, such as 'allreduce'."""
        return [each for each in self._all if each.collective == collective]


class AlgorithmCollectionBuilder:
    """Builds collections. There is one in a process: what is added to it is in all that are built later."""

    _instance: Optional[AlgorithmCollectionBuilder] = None
    _added: list[Algorithm]
    _selector: Optional[Callable[..., Any]]

    def __new__(cls) -> AlgorithmCollectionBuilder:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance._added = []
            cls._instance._selector = None
        return cls._instance

    @classmethod
    def reset(cls) -> None:
        """Forgets what was added."""
        for each in cls._instance._added if cls._instance is not None else ():
            each.unregister_from_nccl()
        cls._instance = None

    def add_algorithm_builder(self, algorithm: Algorithm) -> None:
        """Has later collections ask this algorithm first, and so NCCL's functions for communicators that are made later,
        where libmscclpp_nccl.so is preloaded."""
        if not isinstance(algorithm, Algorithm):
            raise InvalidUsage(f"add_algorithm_builder: {type(algorithm).__name__} is no mscclpp.Algorithm")
        algorithm.register_with_nccl()
        self._added.append(algorithm)

    def set_algorithm_selector(
        self,
        selector: Optional[Callable[[dict, SelectionRequest], Union[Algorithm, Selection, None]]],
    ) -> None:
        """`selector(algorithms, request)`, where algorithms[collective][name] are all that there are, names the one for
        a call, or None: what the library would choose. All ranks must be told the same."""
        self._selector = selector

    def build(self) -> Algorithms:
        """The library's algorithms, and ahead of them what was added."""
        native = AlgorithmCollection.defaults()
        for each in self._added:
            native.prefer(each)
        made = Algorithms(native)
        selector = self._selector
        if selector is not None:
            by_name: dict = {}
            for each in made:
                by_name.setdefault(each.collective, {})[each.name] = each
            native.set_selector(lambda request: selector(by_name, request))
        return made

    def build_default_algorithms(self, scratch_buffer: int = 0, scratch_buffer_size: int = 0, rank: int = 0) -> Algorithms:
        """As build(). The arguments are MSCCL++'s: algorithms here make what memory they need by themselves."""
        del scratch_buffer, scratch_buffer_size, rank
        return self.build()
