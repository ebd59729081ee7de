"""Types calls of blocks: arguments against parameters, results against their targets."""

from openinfer.check.access import AccessType
from openinfer.check.bound import BoundVar, FromInit
from openinfer.check.indices import Around
from openinfer.check.links import require_rank
from openinfer.check.literals import require_value
from openinfer.check.named import Named
from openinfer.check.operands import OperandTypes
from openinfer.check.problems import Problems, ReportedError
from openinfer.dtypes import DType
from openinfer.errors import Code, Diagnostic, GraphPlace
from openinfer.ir import (
    Access,
    Block,
    BlockCall,
    BlockParam,
    BlockParamKind,
    CallArgument,
    Literal,
    MemoryKind,
    ModelRef,
    Node,
    Return,
)
from openinfer.ir.call_rules import declared_at, own_name
from openinfer.ops import OpError


class CallTypes:
    """Types the parameters of blocks, and calls of blocks."""

    def __init__(self, named: Named, operands: OperandTypes, problems: Problems) -> None:
        self._named = named
        self._operands = operands
        self._problems = problems

    def call(self, node: Node, kind: BlockCall, block: Block, loops: Around) -> None:
        """Type a call of a block whose parameters are all tensors and indices."""
        assert block.params is not None
        for param, given in zip(block.params, kind.args, strict=True):
            span: GraphPlace | None = getattr(given, "span", None) or node.span
            if param.kind is BlockParamKind.INDEX:
                assert not isinstance(given, Access | ModelRef | Literal)
                self._operands.require_integers(given, span, loops)
            else:
                self._argument(node, block, param, given, loops)
        self._results(node, kind, block, loops)

    def declare(self, param: BlockParam) -> None:
        """Declare a tensor parameter as a variable."""
        assert param.dtype is not None
        require_rank(param.name, len(param.dims))
        shape = tuple(self._named.dimension(dim) for dim in param.dims)
        is_dynamic = any(self._named.sizes.is_dynamic(dim) for dim in param.dims)
        origin = FromInit(None)
        self._named.vars[param.name] = BoundVar(
            param.name, MemoryKind.VOLATILE, param.dtype, param.dims, shape, origin, is_dynamic=is_dynamic
        )

    def _argument(self, node: Node, block: Block, param: BlockParam, given: CallArgument, loops: Around) -> None:
        assert isinstance(given, Access | ModelRef | Literal)
        span = given.span or node.span
        own = Access(param.name)
        wanted = self._operands.type(own, node, ())
        name = own_name(param.name)
        if isinstance(given, Literal):
            if wanted.shape:
                message = f"{given} is a scalar, but the parameter {name!r} is {wanted}"
                self._report(Code.SHAPE_MISMATCH, message, span, block)
            self._require_value(given, wanted.dtype, span)
            return
        found = self._operands.type(given, node, loops)
        if found.quant is not None:
            message = f"{given} is quantized, and a parameter that is a tensor takes plain numbers"
            advice = "pass the prefix table and an index, or what it stands for: t = op dequantize(...);"
            self._report(Code.BAD_CALL, message, span, block, advice)
        elif not found.agrees_with(self._operands.binding(wanted, own, (given,), found.shape)):
            code = Code.WRONG_DTYPE if found.dtype is not wanted.dtype else Code.SHAPE_MISMATCH
            message = f"{given} is {found}, but the parameter {name!r} of {block.name!r} is {wanted}"
            self._report(code, message, span, block)

    def _require_value(self, given: Literal, dtype: DType, span: GraphPlace | None) -> None:
        try:
            require_value(given, dtype)
        except OpError as error:
            self._problems.report(error.code, error.message, span, error.advice)
            raise ReportedError from error

    def _results(self, node: Node, kind: BlockCall, block: Block, loops: Around) -> None:
        last = block.nodes[-1]
        assert isinstance(last.kind, Return)
        for name, output in zip(last.kind.vars, kind.outputs, strict=True):
            found = self._result(name, last)
            target = self._operands.type(output, node, loops)
            if not found.agrees_with(self._operands.binding(target, output, (), found.shape)):
                own = own_name(name)
                message = f"{block.name!r} returns {own!r}, which is {found}, but {output} is {target}"
                self._report(Code.RESULT_TYPE, message, output.span or node.span, block)

    def _result(self, name: str, last: Node) -> AccessType:
        return self._operands.type(Access(name), last, ())

    def _report(
        self, code: Code, message: str, span: GraphPlace | None, block: Block, advice: str | None = None
    ) -> None:
        self._problems.found.append(Diagnostic(code, message, span, advice, (declared_at(block),)))
        raise ReportedError
