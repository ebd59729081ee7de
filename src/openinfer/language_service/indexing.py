"""Builds the index of names from a syntax tree and its tokens."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from lark import Tree

from openinfer.lang.literals import Syntax
from openinfer.lang.parser import RecoveredTree
from openinfer.lang.tokens import SourceToken
from openinfer.lang.trees import STree, word
from openinfer.language_service.declared import Declared, declared_in, extent_of, place_of
from openinfer.language_service.outline import SourceBodies, outline_of
from openinfer.language_service.symbols import Occurrence, SourceSymbol, SymbolIndex, SymbolKind, SymbolRole
from openinfer.language_service.text import TextRange

_READ, _WRITE, _DECLARE = SymbolRole.READ, SymbolRole.WRITE, SymbolRole.DECLARE


def index_of(recovered: RecoveredTree) -> SymbolIndex:
    """The names of a text, including those in invalid statements."""
    tree = recovered.tree
    if tree is None:
        found = _Indexing(Declared(), recovered.tokens)
        return SymbolIndex(tuple(found.rest(recovered.tokens, frozenset())))
    found = _Indexing(declared_in(tree), recovered.tokens)
    found.walk(tree)
    seen = {one.range.start for one in found.occurrences}
    is_complete = all(one.type != "IDENT" or one.start_pos in seen for one in recovered.tokens)
    rest = () if is_complete else tuple(found.rest(recovered.tokens, seen))
    ordered = sorted((*found.occurrences, *rest), key=lambda one: one.range)
    return SymbolIndex(tuple(ordered), outline_of(tree, recovered.tokens))


@dataclass(frozen=True)
class _Around:
    """The context of a place: the block, and the indices of the loops."""

    block: str = ""
    indices: tuple[SourceSymbol, ...] = ()


class _Indexing:
    """Collects occurrences, with one method per kind of tree."""

    def __init__(self, declared: Declared, tokens: Sequence[SourceToken]) -> None:
        self._declared = declared
        self._bodies = SourceBodies(tokens)
        self.occurrences: list[Occurrence] = []
        self._covered: list[tuple[TextRange, _Around]] = []

    def walk(self, tree: STree) -> None:
        """Collect all sections and blocks below a tree."""
        for child in tree.children:
            if not isinstance(child, Tree):
                continue
            match child.data:
                case "sizes":
                    for size in child.children[1:]:
                        assert isinstance(size, Tree)
                        self._add(size.children[0], self._declared.sizes[word(size.children[0])], _DECLARE)
                        self._sizes(size.children[2:])
                case "memory" | "state":
                    for variable in child.children[1:]:
                        assert isinstance(variable, Tree)
                        self._variable(variable)
                case "block":
                    self._block(child)
                case _:
                    self.walk(child)

    # --- declarations ---------------------------------------------------------------------------------------------

    def _variable(self, tree: STree) -> None:
        name = tree.children[0]
        self._add(name, self._declared.variables[word(name)], _DECLARE)
        own: dict[str, SourceSymbol] = {}
        for part in (one for one in tree.children if isinstance(one, Tree)):
            match part.data:
                case "table_indices":
                    for token in part.children:
                        symbol = SourceSymbol(
                            word(token), SymbolKind.INDEX, place_of(token), within=extent_of(tree), detail=word(name)
                        )
                        own.setdefault(symbol.name, symbol)
                        self._add(token, own[symbol.name], _DECLARE)
                case "dims":
                    self._sizes(part.children)
                case "attribute":
                    self._attribute(part, own)

    def _attribute(self, tree: STree, own: dict[str, SourceSymbol]) -> None:
        name, *arguments = tree.children
        self._add(name, SourceSymbol(word(name), SymbolKind.ATTRIBUTE))
        for given in arguments:
            assert isinstance(given, Tree)
            for argument in given.children:
                assert isinstance(argument, Tree)
                for token in _idents(argument):
                    self._add(token, own.get(token.value) or self._size(token.value))
                if word(name) in ("ref", "pattern"):
                    self._entries(argument)

    def _sizes(self, trees: Sequence[Syntax]) -> None:
        for token in _idents(*trees):
            self._add(token, self._size(token.value))

    def _size(self, name: str) -> SourceSymbol:
        return self._declared.sizes.get(name) or SourceSymbol(name, SymbolKind.SIZE)

    # --- blocks ---------------------------------------------------------------------------------------------------

    def _block(self, tree: STree) -> None:
        name = tree.children[1]
        around = _Around(word(name))
        self._covered.append((extent_of(tree), around))
        self._add(name, self._declared.blocks[word(name)], _DECLARE)
        for part in (one for one in tree.children if isinstance(one, Tree)):
            if part.data == "params":
                self._params(part, around)
            elif part.data == "constraints":
                self._constraints(part, around)
            else:
                self._statement(part, around)

    def _params(self, tree: STree, around: _Around) -> None:
        for param in tree.children:
            assert isinstance(param, Tree)
            self._add(param.children[0], self._declared.own[around.block][word(param.children[0])], _DECLARE)
            for dims in (one for one in param.children if isinstance(one, Tree)):
                self._sizes(dims.children)

    def _statement(self, tree: STree, around: _Around) -> None:
        parts = [one for one in tree.children if isinstance(one, Tree)]
        match tree.data:
            case "assign":
                self._name(tree.children[1], around, _DECLARE)
                for dims in parts:
                    self._sizes(dims.children)
            case "op" | "inferred_op" | "effect_read" | "effect_write":
                self._op(tree, parts, around)
            case "loop":
                self._loop(tree, around)
            case "scope":
                for part in parts:
                    self._statement(part, around)
            case "branch":
                *condition, one = tree.children[1:2] if len(tree.children) == 2 else tree.children[1:-1]
                blocks = [one] if len(tree.children) == 2 else [one, tree.children[-1]]
                for token in condition:
                    self._name(token, around)
                for token in blocks:
                    self._called(token)
            case "call":
                self._called(tree.children[1])
                for part in parts:
                    self._operands(part, around, _WRITE if part.data == "accesses" else _READ)
            case "transfer" | "cache_read" | "cache_write":
                self._operands(parts[0], around, _READ)
                self._operands(parts[1], around, _WRITE)
            case "cache_reset":
                self._operands(parts[0], around, _WRITE)
            case "cache_increment" | "cache_decrement":
                self._integers(tree.children[1:-1], around)
                self._name(tree.children[-1], around, _WRITE)
            case "dep":
                self._ops_named(parts)
            case _:
                for part in parts:
                    self._operands(part, around, _READ)

    def _op(self, tree: STree, parts: Sequence[STree], around: _Around) -> None:
        tokens = [one for one in tree.children if isinstance(one, SourceToken) and one.type == "IDENT"]
        op = tokens[0]
        if tree.data in ("op", "inferred_op"):
            self._add(op, SourceSymbol(op.value, SymbolKind.OP))
        for part in parts:
            match part.data:
                case "names":
                    for token in part.children:
                        known = self._variable_called(word(token), around)
                        is_first = known.declared == place_of(token)
                        self._add(token, known, _DECLARE if is_first else _WRITE)
                case "arguments":
                    for argument in part.children:
                        assert isinstance(argument, Tree)
                        self._argument(argument, op.value, around)
                case "accesses":
                    self._operands(part, around, _WRITE)
                case "constraints":
                    self._constraints(part, around)

    def _argument(self, tree: STree, op: str, around: _Around) -> None:
        *label, value = tree.children
        if label:
            self._add(label[0], SourceSymbol(word(label[0]), SymbolKind.PARAMETER, detail=op))
            self._integers([value], around)
        else:
            self._operands_of([value], around, _READ)

    def _constraints(self, tree: STree, around: _Around) -> None:
        for constraint in tree.children:
            assert isinstance(constraint, Tree)
            key, value = constraint.children
            self._add(key, SourceSymbol(word(key), SymbolKind.CONSTRAINT))
            self._operands_of([value], around, _READ)

    def _loop(self, tree: STree, around: _Around) -> None:
        _, name, index, start, _, end, body = tree.children
        self._add(name, SourceSymbol(word(name), SymbolKind.LOOP, place_of(name)), _DECLARE)
        self._integers([start, end], around)
        within = TextRange(place_of(name).start, self._bodies.end_behind(place_of(index).end))
        known = SourceSymbol(word(index), SymbolKind.INDEX, place_of(index), around.block, within, detail=word(name))
        self._add(index, known, _DECLARE)
        assert isinstance(body, Tree)
        inner = _Around(around.block, (*around.indices, known))
        self._covered.append((within, inner))
        for part in (one for one in body.children if isinstance(one, Tree)):
            self._statement(part, inner)

    # --- operands -------------------------------------------------------------------------------------------------

    def _operands(self, tree: STree, around: _Around, role: SymbolRole) -> None:
        self._operands_of(tree.children if tree.data != "indexed" else [tree], around, role)

    def _operands_of(self, trees: Sequence[Syntax], around: _Around, role: SymbolRole) -> None:
        for one in trees:
            if isinstance(one, SourceToken):
                if one.type == "IDENT":
                    self._name(one, around, role)
            elif one.data == "indexed":
                self._name(one.children[0], around, role)
                self._integers(one.children[1:], around)
            elif one.data == "model":
                self._entries(one)
            else:
                self._operands_of(one.children, around, role)

    def _integers(self, trees: Sequence[Syntax], around: _Around) -> None:
        """Bounds, indices and values of parameters, where an undeclared name is a size of the model."""
        for one in trees:
            if isinstance(one, SourceToken):
                if one.type == "IDENT":
                    known = self._resolved(one.value, around)
                    self._add(one, self._size(one.value) if known.kind is SymbolKind.UNKNOWN else known)
            elif one.data in ("indexed", "model"):
                self._operands_of([one], around, _READ)
            else:
                self._integers(one.children, around)

    def _name(self, token: object, around: _Around, role: SymbolRole = _READ) -> None:
        assert isinstance(token, SourceToken)
        self._add(token, self._resolved(token.value, around), role)

    def _resolved(self, name: str, around: _Around) -> SourceSymbol:
        """What a name refers to in a block: a loop index, a variable or a size."""
        known = next((one for one in reversed(around.indices) if one.name == name), None)
        return known or self._variable_called(name, around)

    def _variable_called(self, name: str, around: _Around) -> SourceSymbol:
        own = self._declared.own.get(around.block, {})
        known = own.get(name) or self._declared.variables.get(name) or self._declared.sizes.get(name)
        return known or SourceSymbol(name, SymbolKind.UNKNOWN)

    def _called(self, token: object) -> None:
        assert isinstance(token, SourceToken)
        self._add(token, self._declared.blocks.get(token.value) or SourceSymbol(token.value, SymbolKind.UNKNOWN))

    def _ops_named(self, parts: Sequence[STree]) -> None:
        for part in parts:
            for token in part.children:
                if isinstance(token, SourceToken) and token.type == "IDENT":
                    self._add(token, SourceSymbol(token.value, SymbolKind.OP))

    def _entries(self, tree: STree) -> None:
        for token in tree.scan_values(lambda one: isinstance(one, SourceToken) and one.type == "STRING"):
            place = TextRange(token.start_pos + 1, token.end_pos - 1)
            self.occurrences.append(Occurrence(place, SourceSymbol(token.value[1:-1], SymbolKind.ENTRY)))

    def _add(self, token: object, symbol: SourceSymbol, role: SymbolRole = _READ) -> None:
        self.occurrences.append(Occurrence(place_of(token), symbol, role))

    # --- invalid statements ---------------------------------------------------------------------------------------

    def rest(self, tokens: Sequence[SourceToken], seen: Set[int]) -> Iterator[Occurrence]:
        """The names among tokens that are not in ``seen``, classified by the tokens around them."""
        depth = 0
        op = ""
        for number, token in enumerate(tokens):
            before = tokens[number - 1].type if number else ""
            after = tokens[number + 1].type if number + 1 < len(tokens) else ""
            if token.type in ("_SEMICOLON", "_LBRACE", "_RBRACE"):
                depth, op = 0, ""
            depth += (token.type == "_LPAR") - (token.type == "_RPAR")
            if before == "OP":
                op = token.value
            if token.type != "IDENT" or token.start_pos in seen:
                continue
            if before == "OP":
                symbol = SourceSymbol(op, SymbolKind.OP)
            elif op and depth > 0 and after == "_EQUALS":
                symbol = SourceSymbol(token.value, SymbolKind.PARAMETER, detail=op)
            elif before == "_AT":
                symbol = SourceSymbol(token.value, SymbolKind.ATTRIBUTE)
            else:
                symbol = self._guessed(token)
            yield Occurrence(place_of(token), symbol)

    def _guessed(self, token: SourceToken) -> SourceSymbol:
        inside = [around for place, around in self._covered if place.touches(token.start_pos)]
        known = self._resolved(token.value, inside[-1] if inside else _Around())
        if known.kind is SymbolKind.UNKNOWN:
            return self._declared.blocks.get(token.value) or known
        return known


def _idents(*trees: Syntax) -> Iterable[SourceToken]:
    for tree in trees:
        if isinstance(tree, SourceToken):
            if tree.type == "IDENT":
                yield tree
        else:
            yield from _idents(*tree.children)
