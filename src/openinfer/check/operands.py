"""Types the operands of nodes, and reports problems of their indices and of the model tensors they name."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from openinfer.check.access import AccessType, PartialShape, StaticValue, access_type
from openinfer.check.bound import BoundVar, FromPattern
from openinfer.check.indices import Around, Ranges, pattern_name, spelled, spelling
from openinfer.check.links import GIVE_A_MODEL, Entry, model_entry
from openinfer.check.named import Named
from openinfer.check.problems import Problems, ReportedError
from openinfer.check.sizes import SizeError
from openinfer.errors import Code, GraphPlace
from openinfer.ir import Access, Index, Literal, ModelRef, Node, Operand, Single, Slice, VarDecl
from openinfer.ir.expr import Expr, Ref, names
from openinfer.ir.rules import part_problem
from openinfer.ops import TensorType
from openinfer.ops.types import I64

_MOST_MISSING = 3


class OperandTypes:
    """Types the operands of a graph one by one."""

    def __init__(self, named: Named, declared: Mapping[str, VarDecl], problems: Problems) -> None:
        self._named = named
        self._declared = declared
        self._problems = problems
        self._ranges = Ranges(named.settled)
        self._seen: dict[object, TensorType | None] = {}
        self._whole: dict[str, AccessType] = {}
        self._families: dict[str, list[str]] = {}
        self._reported: set[str] = set()
        self.broken: set[str] = set()
        """Temporaries that have no type because of a problem."""

    def type(self, operand: Operand, node: Node, loops: Around) -> AccessType:
        """The type of an operand; problems are reported."""
        assert not isinstance(operand, Literal), "the dtype of a literal depends on the other operands"
        if isinstance(operand, ModelRef):
            return self._model_ref(operand, operand.span or node.span, loops)
        span = operand.span or node.span
        if self.is_index(operand.base, loops):
            return AccessType(I64, ())
        if not operand.bracketed and operand.base in self._whole:
            return self._whole[operand.base]
        variable = self.variable(operand.base, span)
        self.require_indices(operand, variable, span, loops)
        found = access_type(operand, variable, self._named.shape(variable), self._outside(loops))
        if isinstance(variable.origin, FromPattern):
            entry = self._entry(operand, variable, variable.origin.pattern, span, loops)
            return replace(found, quant=None if entry is None else entry.quant)
        if not operand.bracketed:
            self._whole[operand.base] = found
        return found

    def is_index(self, name: str, loops: Around) -> bool:
        """Whether an operand is the index of an enclosing loop; a variable of that name takes precedence."""
        return not self._named.is_variable(name) and any(loop.index == name for loop in loops)

    def variable(self, name: str, span: GraphPlace | None) -> BoundVar:
        """A variable, which must be typed by now."""
        found = self._named.vars.get(name)
        if found is not None:
            return found
        if name not in self._declared and name not in self.broken:
            self.broken.add(name)
            message = f"{name!r} is used before anything gives it a type"
            self._problems.report(Code.USED_BEFORE_ASSIGN, message, span, f"write 'assign {name}: ...' first")
        raise ReportedError

    def binding(self, target: AccessType, dst: Access, sources: Iterable[Operand], found: PartialShape) -> AccessType:
        """The type that a value made of slices may have: their lengths bind dynamic sizes of the target variable."""
        variable = self._named.vars[dst.base]
        is_slice = any(
            isinstance(index, Slice) for source in sources if isinstance(source, Access) for index in source.indices
        )
        if not is_slice or dst.bracketed or not variable.is_dynamic or len(found) != len(target.shape):
            return target
        assert variable.dims is not None
        shape = tuple(
            None if self._can_bind(dim, extent) else own
            for dim, extent, own in zip(variable.dims, found, target.shape, strict=True)
        )
        return replace(target, shape=shape)

    def _can_bind(self, dim: Expr, extent: int | None) -> bool:
        """Whether a size in this dimension can give it the extent, as far as that is easy to tell."""
        sizes = self._named.sizes
        return sizes.is_dynamic(dim) and (extent is None or not isinstance(dim, Ref) or extent <= sizes.at_most(dim))

    # --- indices --------------------------------------------------------------------------------------------------

    def require_indices(self, access: Access, variable: BoundVar, span: GraphPlace | None, loops: Around) -> None:
        """Refuse indices that have no value, or are out of bounds in some iteration."""
        problem = part_problem(access, len(variable.shape)) if variable.decl is None else None
        if problem is not None:
            self._problems.report(Code.BAD_INDEXING, problem, span)
            raise ReportedError
        for index in access.indices:
            for expr in index_expressions(index):
                self.require_integers(expr, span, loops)
        for index, bound in self._bounded(access, variable):
            for expr in index_expressions(index):
                self._require_inside(access, index, expr, bound, span, loops)

    def require_integers(self, expr: Expr, span: GraphPlace | None, loops: Around) -> None:
        """Refuse names in an index or bound that are not loop indices, integer scalars or sizes."""
        indices = {loop.index for loop in loops}
        for name in names(expr):
            if name in indices:
                continue
            if self._named.is_variable(name):
                self._require_integer(name, span)
                continue
            try:
                self._named.size(name)
            except SizeError as error:
                self._problems.report(error.code, error.message, span, error.advice)
                raise ReportedError from error

    def _require_integer(self, name: str, span: GraphPlace | None) -> None:
        """Check the result of ``t = op``, whose type is known only now; declared variables were checked before."""
        found = self.variable(name, span)
        if found.shape or found.dtype.kind not in ("int", "uint"):
            message = f"{name!r} is used in an index, but it is {found.type}, not an integer scalar"
            self._problems.report(Code.BAD_INDEXING, message, span)
            raise ReportedError

    def _require_inside(
        self, access: Access, index: Index, expr: Expr, bound: int | None, span: GraphPlace | None, loops: Around
    ) -> None:
        is_slice = isinstance(index, Slice)
        last = None if bound is None else bound if is_slice else bound - 1
        value = self._ranges.outside(expr, loops, last, counts_back=is_slice)
        if value is None:
            return
        if value < 0:
            advice = "only the ends of slices count from the end"
            self._problems.report(Code.NEGATIVE_INDEX, f"the index {expr} of {access.base!r} is {value}", span, advice)
        else:
            large = f"about 2**{value.bit_length() - 1}" if value.bit_length() > 64 else str(value)
            message = f"the index {large} of {access.base!r} is outside its bound {bound}"
            self._problems.report(Code.INDEX_OUT_OF_RANGE, message, span)
        raise ReportedError

    def _bounded(self, access: Access, variable: BoundVar) -> Iterator[tuple[Index, int | None]]:
        """The indices of an access with their bounds; None for a table that grows without bound."""
        decl = variable.decl
        if decl is None or not decl.is_indexed:
            # A dynamic extent is known only at run time: for certain, only indices beyond its bound are outside.
            if self._named.is_at_bounds:
                yield from zip(access.indices, self._named.shape(variable), strict=False)
            return
        if decl.pattern is not None:
            return
        grown = dict(zip(decl.auto_dim, self._named.shape(variable), strict=False))
        by_name = dict(zip(decl.table_indices, access.indices, strict=False))
        all_single = all(isinstance(by_name.get(name), Single) for name in grown)
        for name, index in by_name.items():
            bound = variable.fixed.get(name)
            if bound is not None and name in grown:
                # A[i, j] grows by at most the bound; rows and slices reach up to the grown extent.
                bound = bound + 1 if all_single else grown[name] + bound
            yield index, bound

    def _outside(self, loops: Around) -> StaticValue:
        """The values of names that are the same in all iterations of the loops."""
        indices = {loop.index for loop in loops}
        return lambda name: None if name in indices else self._named.static(name)

    # --- tensors of the model -------------------------------------------------------------------------------------

    def _model_ref(self, operand: ModelRef, span: GraphPlace | None, loops: Around) -> AccessType:
        key = (str(operand), tuple(map(id, loops)))
        if key not in self._seen:
            self._seen[key] = self._common_type(operand, span, loops)
        found = self._seen[key]
        if found is None:
            raise ReportedError
        return AccessType(found.dtype, found.shape, found.quant)

    def _common_type(self, operand: ModelRef, span: GraphPlace | None, loops: Around) -> TensorType | None:
        """The common type of the tensors that ``model[...]`` names; if decided at run time, of all that it can name."""
        first: TensorType | None = None
        missing = 0
        chosen = self._ranges.all(None, loops if operand.formatted else (), operand.name)
        known = [spelled(operand.name, values) for values in chosen] if operand.formatted else [operand.name]
        for name in known or self._spelled_like(operand.name):
            entry = model_entry(self._named.model, name)
            if entry is None or not entry.has_data:
                self._report_missing(operand, name, entry, span)
                missing += 1
                if missing == _MOST_MISSING:
                    break
            elif first is None:
                first = entry.type
            elif entry.type.dtype is not first.dtype or entry.type.shape != first.shape:
                message = f"{operand} is {first} and {entry.type} ({name!r}): it has one type everywhere"
                self._problems.report(Code.LINK_TYPE, message, span)
                return None
        if first is None and not missing:
            self._problems.report(Code.UNKNOWN_LINK, f"{operand} names no tensor of the model", span)
        return first

    def _spelled_like(self, pattern: str) -> list[str]:
        """The tensors of the model that match a pattern."""
        if pattern not in self._families:
            tensors = self._named.model.tensors.values() if self._named.model is not None else ()
            like = spelling(pattern)
            self._families[pattern] = [info.name for info in tensors if info.has_data and like.fullmatch(info.name)]
        return self._families[pattern]

    def _report_missing(self, operand: Operand, name: str, entry: Entry | None, span: GraphPlace | None) -> None:
        """Report a tensor missing from the model, once for all operands that name it."""
        model = self._named.model
        key = name if model is not None else str(operand)
        if key in self._reported:
            return
        self._reported.add(key)
        message, advice = f"{operand} is the model tensor {name!r}, which does not exist", None
        if model is None:
            message, advice = f"{operand} is a tensor of the model, and none was given", GIVE_A_MODEL
        elif entry is not None:
            message = f"{operand} is the model tensor {name!r}, which has no data"
        else:
            advice = self._problems.nearest(name, model.tensors)
        self._problems.report(Code.UNKNOWN_LINK, message, span, advice)

    def _entry(
        self, access: Access, variable: BoundVar, pattern: str, span: GraphPlace | None, loops: Around
    ) -> TensorType | None:
        """The first model tensor that an access of a prefix table can name, as far as that is static."""
        key = (str(access), tuple(map(id, loops)))
        if key not in self._seen:
            self._seen[key] = self._first_entry(access, variable, pattern, span, loops)
        return self._seen[key]

    def _first_entry(
        self, access: Access, variable: BoundVar, pattern: str, span: GraphPlace | None, loops: Around
    ) -> TensorType | None:
        first: TensorType | None = None
        missing = 0
        for values in self._ranges.all(access, loops):
            name = pattern_name(variable, access, pattern, values, self._named.settled)
            if name is None:
                break
            entry = model_entry(self._named.model, name)
            if entry is None or not entry.is_tensor or not entry.has_data:
                self._report_missing(access, name, entry, span)
                missing += 1
                if missing == _MOST_MISSING:
                    break
            elif entry.type.dtype is not variable.dtype or entry.type.shape != variable.shape:
                self._report_other_type(variable, name, entry, span)
                break
            else:
                first = first or entry.type
        return first or self._possible_entry(variable, pattern)

    def _possible_entry(self, variable: BoundVar, pattern: str) -> TensorType | None:
        """A tensor that a prefix table can name at run time; each may be quantized differently."""
        found = (model_entry(self._named.model, name) for name in self._spelled_like(pattern))
        types = (entry.type for entry in found if entry is not None)
        return next((one for one in types if one.dtype is variable.dtype and one.shape == variable.shape), None)

    def _report_other_type(self, variable: BoundVar, name: str, entry: Entry, span: GraphPlace | None) -> None:
        if name not in self._reported:
            self._reported.add(name)
            message = f"{variable.name!r} is {variable.type}, but the entry {name!r} of the model is {entry.type}"
            self._problems.report(Code.LINK_TYPE, message, span)


def index_expressions(index: Index) -> Iterator[Expr]:
    """The expressions in an index."""
    for expr in (index.value,) if isinstance(index, Single) else (index.start, index.end):
        if expr is not None:
            yield expr
