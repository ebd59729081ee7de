"""What an integer graph declares besides the variables of the float graph: constants, temporaries and their tensors."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from openinfer.check.bound import BoundGraph
from openinfer.dtypes import DTYPES, Array, DType
from openinfer.ir import Access, Assign, Graph, Loop, MemoryKind, Single, VarDecl
from openinfer.ir.expr import Expr, Num, Ref
from openinfer.ir.values import FloatValue, IntValue
from openinfer.oinf.authoring import TensorSpec
from openinfer.quantizing.calibrate import LoopPlace
from openinfer.quantizing.stored import StoredWeights

I8, I32, F32 = (DTYPES[name] for name in ("i8", "i32", "f32"))
Dims = tuple[Expr, ...]


class NewDeclarations:
    """Allocates free names and collects the declarations under them, with the tensors that the model must hold."""

    def __init__(self, bound: BoundGraph, stored: StoredWeights) -> None:
        graph = bound.source
        self._bound = bound
        self.stored = stored
        self._taken = {*bound.vars, *graph.blocks, *bound.sizes, *graph.sizes}
        self._taken |= {node.kind.index for node in graph.walk() if isinstance(node.kind, Loop)}
        if bound.model is not None:
            self._taken |= {*bound.model.tensors, *bound.model.metadata}
        self.is_in_entry = True
        """Whether the code being written is in the block where temporaries can be assigned."""
        self.inferred: set[str] = set()
        """Temporaries that take the type of their first write: ``t = op``."""
        self.changed: dict[str, VarDecl] = {}
        """Declarations that replace those of the same name."""
        self._added: dict[str | None, list[VarDecl]] = {}
        self._temporaries: dict[str, list[Assign]] = {}
        self._passing: dict[tuple[str, Dims], Access] = {}
        self.tensors: dict[str, TensorSpec] = {}
        """New tensors by name."""

    def fresh(self, name: str) -> str:
        """A free name like this one."""
        found, number = name, 2
        while found in self._taken:
            found, number = f"{name}{number}", number + 1
        self._taken.add(found)
        return found

    def rank(self, name: str) -> int:
        """The number of dimensions of a variable."""
        return len(self._bound.vars[name].shape)

    def dims(self, name: str) -> Dims:
        """The dimensions of a variable as declared, else its extents."""
        variable = self._bound.vars[name]
        return variable.dims if variable.dims is not None else tuple(Num(int(extent)) for extent in variable.shape)

    def passing(self, name: str, beside: str, dtype: DType, dims: Dims) -> Access:
        """A temporary for a value that is read before the next one is written, shared by equal names and shapes."""
        key = name, dims
        if key not in self._passing:
            self._passing[key] = self.temporary(name, beside, dtype, dims)
        return self._passing[key]

    def temporary(self, name: str, beside: str, dtype: DType, dims: Dims) -> Access:
        """A new temporary, assigned beside another variable."""
        found = self.fresh(name)
        variable = self._bound.vars[beside]
        if variable.is_temporary and variable.dims is None and self.is_in_entry:
            self.inferred.add(found)
        else:
            self._temporaries.setdefault(beside, []).append(Assign(found, dtype, dims))
        return Access(found)

    def assigned_beside(self, name: str) -> list[Assign]:
        """Take the temporaries that are assigned beside a variable."""
        return self._temporaries.pop(name, [])

    def others(self) -> list[Assign]:
        """Take the temporaries beside variables that are not assigned themselves."""
        found = [one for some in self._temporaries.values() for one in some]
        self._temporaries.clear()
        return found

    def constant(
        self, name: str, beside: str | None, path: tuple[str, ...], values: Mapping[LoopPlace, Array], dims: Dims = ()
    ) -> Access:
        """A new constant: a number in the text, a tensor of the model, or a table with an entry per layer."""
        found = self.fresh(name)
        arrays = {place: np.asarray(array) for place, array in values.items()}
        dtype = {"f": F32, "i": I8}[next(iter(arrays.values())).dtype.kind]
        if dtype is I8 and any(array.dtype == np.int32 for array in arrays.values()):
            dtype = I32
        decl = VarDecl(found, MemoryKind.CONSTANT, dtype, dims)
        if path:
            pattern = ".".join((found, *(f"{{{index}}}" for index in path)))
            decl = replace(decl, table_indices=path, pattern=pattern)
            for place, array in arrays.items():
                self.tensors[".".join((found, *map(str, place)))] = TensorSpec(array)
        elif dims:
            self.tensors[found] = TensorSpec(arrays[()])
        else:
            number: Any = arrays[()].item()
            value = FloatValue(float(str(np.float32(number)))) if dtype is F32 else IntValue(number)
            decl = replace(decl, init=value)
        self._added.setdefault(beside, []).append(decl)
        return Access(found, tuple(Single(Ref(index)) for index in path), bracketed=bool(path))

    def weights(self, access: Access, axis: int, *, in_place: bool, is_read_as_numbers: bool) -> Access:
        """Weights as codes: under their own name if nothing needs the numbers, otherwise under a new one."""
        decl = self._bound.source.vars[access.base]
        name = access.base
        if in_place and name in self.changed:
            return access
        entries = list(self.stored.entries(name))
        specs = {}
        for entry in entries:
            stored = self.stored.codes(entry, axis)
            specs[entry] = TensorSpec(stored.codes, quant=stored.params if is_read_as_numbers else None)
        if in_place:
            self.changed[name] = replace(decl, dtype=I8)
            self.tensors |= specs
            return access
        found = self.fresh(f"{name}_i8")
        same = decl.ref_name or name
        new = replace(decl, name=found, dtype=I8)
        linked = (
            replace(new, ref_name=f"{same}.{found}")
            if decl.pattern is None
            else replace(new, pattern=f"{decl.pattern}.{found}")
        )
        self._added.setdefault(name, []).append(linked)
        self.tensors |= {f"{entry}.{found}": spec for entry, spec in specs.items()}
        return replace(access, base=found)

    def bias(self, access: Access, values: Mapping[str, Array]) -> Access:
        """A bias in whole steps of the sums, under its own name; ``values`` are keyed by tensor."""
        self.changed[access.base] = replace(self._bound.source.vars[access.base], dtype=I32)
        self.tensors |= {entry: TensorSpec(array) for entry, array in values.items()}
        return access

    def variables(self, graph: Graph) -> list[VarDecl]:
        """All declarations of the integer graph, each new one after the variable it belongs to."""
        found: list[VarDecl] = []
        for name, decl in graph.vars.items():
            found += [self.changed.get(name, decl), *self._added.get(name, ())]
        known = {*graph.vars}
        rest = (decls for beside, decls in self._added.items() if beside not in known)
        return [*found, *(decl for decls in rest for decl in decls)]
