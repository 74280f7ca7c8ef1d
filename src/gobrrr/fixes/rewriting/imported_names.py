"""What the names in a script stand for, as far as its imports tell, and where it uses them."""

from __future__ import annotations

import libcst as cst
from libcst import matchers as m
from libcst.metadata import (
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    QualifiedNameProvider,
)
from libcst.metadata import QualifiedNameSource as Source

# They look at a class or a package and make nothing of it.
_LOOKS = m.Call(func=m.OneOf(*map(m.Name, ("isinstance", "issubclass", "hasattr"))))
_GETS = m.Call(
    func=m.Name("getattr"), args=[m.Arg(), m.Arg(value=m.SimpleString()), m.ZeroOrMore()]
)
# What is in them may run more than once.
_REPEATS = (cst.For, cst.While, cst.BaseComp, cst.Lambda, cst.ClassDef)


class ImportedNames:
    """The full names of what a script imports, wherever it uses them.

    Attributes:
        tree: the script. Only its own nodes have names here.
    """

    def __init__(self, tree: cst.Module) -> None:
        wrapper = MetadataWrapper(tree)
        self.tree = wrapper.module
        self._names = wrapper.resolve(QualifiedNameProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)
        self._places = wrapper.resolve(PositionProvider)
        stars = m.findall(self.tree, m.ImportFrom(module=m.DoNotCare(), names=m.ImportStar()))
        self._stars = [
            cst.helpers.get_full_name_for_node(cst.ensure_type(one, cst.ImportFrom).module or "")
            for one in stars
        ]

    def of(self, node: cst.CSTNode) -> set[str]:
        """Full names that it may have; empty where it comes from no import."""
        # Worked out when they are asked for.
        lazy = self._names.get(node, ())
        found = lazy() if callable(lazy) else lazy
        if not found and isinstance(node, cst.Name):
            return {f"{module}.{node.value}" for module in self._stars}
        return {one.name for one in found if one.source is Source.IMPORT}

    def line(self, node: cst.CSTNode) -> int:
        """Where it stands."""
        return int(self._places[node].start.line)

    def runs_once(self, node: cst.CSTNode, inside: frozenset[str] = frozenset()) -> bool:
        """Whether it runs once at the most: in no loop or class, nor in a function of several uses.

        ``inside``: functions that it is known to be in.
        """
        around = self._parents.get(node)
        while around is not None:
            if isinstance(around, _REPEATS):
                return False
            if isinstance(around, cst.FunctionDef):
                return self._runs_once(around, inside)
            around = self._parents.get(around)
        return True

    def _runs_once(self, function: cst.FunctionDef, inside: frozenset[str]) -> bool:
        name = function.name.value
        uses = [one for one in m.findall(self.tree, m.Name(name)) if one is not function.name]
        if len(uses) != 1 or function.decorators or name in inside:
            return False
        call = self._parents[uses[0]]
        called = isinstance(call, cst.Call) and call.func is uses[0]
        return called and self.runs_once(call, inside | {name})

    def are(self, node: cst.CSTNode, home: str, wanted: tuple[str, ...]) -> bool:
        """Whether it is one of these names of a package, whichever way it was imported."""
        found = self.of(node)
        return bool(found) and all(
            name.startswith(f"{home}.") and name.endswith(tuple(f".{one}" for one in wanted))
            for name in found
        )


class UsesOf(cst.CSTVisitor):
    """Where a script uses some functions or classes of a package other than by calling them.

    Attributes:
        elsewhere: nodes by which it may call them where that cannot be seen: a name of its own, a
            call of ``partial`` or ``getattr``; as a base of a class, where ``bases`` count.
        strangers: calls of what has such a name and may come from another package.
    """

    def __init__(
        self, names: ImportedNames, home: str, wanted: tuple[str, ...], *, bases: bool
    ) -> None:
        super().__init__()
        self._names, self._home, self._wanted, self._bases = names, home, wanted, bases
        self._last = {one.rpartition(".")[2] for one in wanted if "." not in one}
        self.elsewhere: list[cst.CSTNode] = []
        self.strangers: list[cst.CSTNode] = []
        # What is called in sight, and bases that do not count.
        self._known: set[cst.CSTNode] = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Whether there may be more in it."""
        if isinstance(node, (cst.Import, cst.ImportFrom, cst.Annotation, cst.Comparison)):
            return False
        if m.matches(node, _LOOKS) or node in self._known or self._gets_another(node):
            return False
        if isinstance(node, cst.ClassDef) and not self._bases:
            self._known |= {base.value for base in node.bases}
        if isinstance(node, cst.Call):
            self._called(node.func)
        if isinstance(node, (cst.Name, cst.Attribute)):
            return self._named(node)
        return True

    def _gets_another(self, node: cst.CSTNode) -> bool:
        """Whether it is ``getattr`` of the package, with a name that is none of these."""
        if not m.matches(node, _GETS):
            return False
        package, name, *_ = cst.ensure_type(node, cst.Call).args
        value = cst.ensure_type(name.value, cst.SimpleString).evaluated_value
        return self._names.of(package.value) == {self._home} and value not in self._last

    def _called(self, function: cst.BaseExpression) -> None:
        last = function.attr if isinstance(function, cst.Attribute) else function
        if self._names.are(function, self._home, self._wanted):
            self._known.add(function)
        elif isinstance(last, cst.Name) and last.value in self._last:
            self.strangers.append(function)
            self._known.add(function)

    def _named(self, node: cst.Name | cst.Attribute) -> bool:
        whole = self._names.of(node) == {self._home}
        if whole or self._names.are(node, self._home, self._wanted):
            self.elsewhere.append(node)
            return False
        # ``torch.optim`` in ``torch.optim.Adam`` is not handed to anything.
        part = isinstance(node, cst.Attribute) and self._names.of(node.value) == {self._home}
        return not part or cst.ensure_type(node, cst.Attribute).attr.value == "__dict__"
