"""How one file names what another one declares: by import statements that can mean that file and no other. Pure, on paths and trees.

Paths are relative to the repository, with slashes. What a build tool, a package manager or an alias would have to resolve is not resolved.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.syntax.parsing import node_text

_SOURCE_ROOTS: Final = frozenset({"src", "lib", "python"})
_SCRIPT_SUFFIXES: Final = (".d.ts", ".mjs", ".cjs", ".jsx", ".mts", ".cts", ".tsx", ".js", ".ts")


class Specifier(NamedTuple):
    """A name that an import statement brings in, in bytes of the source.

    Attributes:
        local: what it is called in this file, by a name at byte `bound`.
    """

    start: int
    end: int
    name: str
    local: str
    bound: int


class Imported(NamedTuple):
    """What one file has of another.

    Attributes:
        specifiers: names that were brought in one by one.
        modules: what stands for the other file as a whole: local `m` in `m.width`.
        whole: both are one package, whose names need no import.
        taken: names that it has of others, so that they mean nothing of a package.
    """

    specifiers: tuple[Specifier, ...] = ()
    modules: tuple[Specifier, ...] = ()
    whole: bool = False
    taken: frozenset[str] = frozenset()


def imported(root: Node, source: bytes, language: str, path: str, other: str) -> Imported:
    """What the file at `path` has of the file at `other`. Statements below the top of a file are not looked at."""
    found = _BY_LANGUAGE.get(language)
    return Imported() if found is None or path == other else found(root, source, path, other)


def _python(root: Node, source: bytes, path: str, other: str) -> Imported:
    specifiers: list[Specifier] = []
    modules: list[Specifier] = []
    module, _ = posixpath.splitext(other)
    module = module.removesuffix("/__init__")
    for statement in root.children:
        if statement.type == "import_from_statement":
            base = node_text(statement.child_by_field_name("module_name"), source)
            for one in _aliased(statement, source):
                if _is_python_module(base, module, path):
                    specifiers.append(one)
                elif _is_python_module(f"{base}.{one.name}" if base.strip(".") else base + one.name, module, path):
                    modules.append(one)
        elif statement.type == "import_statement":
            modules += [one for one in _aliased(statement, source) if _is_python_module(one.name, module, path)]
    return Imported(tuple(specifiers), tuple(modules))


def _is_python_module(name: str, module: str, path: str) -> bool:
    """Whether `name`, as the file at `path` imports it, is `module`: a path without its ending."""
    folder: str = posixpath.dirname(path)
    dots = len(name) - len(name.lstrip("."))
    if dots:
        for _ in range(dots - 1):
            if not folder:
                return False
            folder = posixpath.dirname(folder)
        return posixpath.join(folder, name[dots:].replace(".", "/")) == module if name[dots:] else folder == module
    tail = name.replace(".", "/")
    if module != tail and not module.endswith(f"/{tail}"):
        return False
    top = module[: len(module) - len(tail)].rstrip("/")  # where imports begin, if this is one
    if posixpath.basename(top) in _SOURCE_ROOTS:
        top = posixpath.dirname(top)
    return not top or (path.startswith(f"{top}/") and ("/" in tail or folder == posixpath.dirname(module)))


def _script(root: Node, source: bytes, path: str, other: str) -> Imported:
    specifiers: list[Specifier] = []
    modules: list[Specifier] = []
    for statement in root.children:
        if statement.type == "import_statement":
            if not _is_script(node_text(statement.child_by_field_name("source"), source), path, other):
                continue
            for node in _of_type(statement, {"import_specifier", "namespace_import"}, depth=3):
                if node.type == "namespace_import":
                    modules += [_specifier(child, None, source) for child in node.named_children]
                elif (name := node.child_by_field_name("name")) is not None:
                    specifiers.append(_specifier(name, node.child_by_field_name("alias"), source))
        elif statement.type in ("lexical_declaration", "variable_declaration"):
            for declarator in statement.named_children:
                value, target = declarator.child_by_field_name("value"), declarator.child_by_field_name("name")
                if value is None or target is None or not _is_required(value, source, path, other):
                    continue
                if target.type == "identifier":
                    modules.append(_specifier(target, None, source))
                specifiers += [
                    _specifier(one, None, source)
                    for one in target.named_children
                    if one.type == "shorthand_property_identifier_pattern"
                ]
    return Imported(tuple(specifiers), tuple(modules))


def _is_required(value: Node, source: bytes, path: str, other: str) -> bool:
    """`require("./…")` of that file."""
    arguments = value.child_by_field_name("arguments")
    if value.type != "call_expression" or node_text(value.child_by_field_name("function"), source) != "require":
        return False
    return arguments is not None and _is_script(node_text(arguments, source).strip("()"), path, other)


def _is_script(quoted: str, path: str, other: str) -> bool:
    name = quoted.strip("'\"`")
    if not name.startswith((".", "/")):
        return False  # a package, or an alias that a build tool knows
    meant = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    return _without_suffix(meant) in {_without_suffix(other), _without_suffix(other).removesuffix("/index")}


def _without_suffix(path: str) -> str:
    return next((path.removesuffix(suffix) for suffix in _SCRIPT_SUFFIXES if path.endswith(suffix)), path)


def _go(root: Node, source: bytes, path: str, other: str) -> Imported:
    folder = posixpath.dirname(other)
    if posixpath.dirname(path) == folder:
        return Imported(whole=not path.endswith("_test.go") or not _go_package(root, source).endswith("_test"))
    modules: list[Specifier] = []
    for spec in _of_type(root, {"import_spec"}, depth=3):
        where = node_text(spec.child_by_field_name("path"), source).strip('"`')
        if folder and where.endswith(f"/{folder}"):
            name = spec.child_by_field_name("name")
            local = posixpath.basename(where) if name is None else node_text(name, source)
            modules.append(Specifier(spec.start_byte, spec.end_byte, where, local, spec.start_byte))
    return Imported(modules=tuple(modules))


def _go_package(root: Node, source: bytes) -> str:
    clause = next((child for child in root.children if child.type == "package_clause"), None)
    return "" if clause is None else node_text(clause, source).removeprefix("package").strip()


def _java(root: Node, source: bytes, path: str, other: str) -> Imported:
    folder, ending = posixpath.dirname(other), posixpath.splitext(other)[1]
    specifiers: list[Specifier] = []
    taken: set[str] = set()
    whole = posixpath.dirname(path) == folder
    for statement in root.children:
        named = next((child for child in statement.named_children if child.type.endswith("identifier")), None)
        said = node_text(named, source).replace(".", "/")
        if named is None or ending != ".java":
            continue
        if statement.type == "package_declaration":
            whole = whole or _ends_with(folder, said)
        elif statement.type == "import_declaration" and any(child.type == "static" for child in statement.children):
            taken.add(posixpath.basename(said))
        elif statement.type == "import_declaration" and any(child.type == "asterisk" for child in statement.children):
            whole = whole or _ends_with(folder, said)
        elif statement.type == "import_declaration":
            if _ends_with(folder, posixpath.dirname(said)):
                specifiers.append(_specifier(named.child_by_field_name("name") or named, None, source))
            else:
                taken.add(posixpath.basename(said))
    return Imported(tuple(specifiers), whole=whole and not specifiers, taken=frozenset(taken))


def _ends_with(path: str, tail: str) -> bool:
    return path == tail or path.endswith(f"/{tail}")


def _aliased(statement: Node, source: bytes) -> Iterator[Specifier]:
    for child in statement.children_by_field_name("name"):
        yield _specifier(child.child_by_field_name("name") or child, child.child_by_field_name("alias"), source)


def _specifier(name: Node, alias: Node | None, source: bytes) -> Specifier:
    own = alias or name
    return Specifier(name.start_byte, name.end_byte, node_text(name, source), node_text(own, source), own.start_byte)


def _of_type(node: Node, types: set[str], *, depth: int) -> Iterator[Node]:
    for child in node.named_children:
        if child.type in types:
            yield child
        elif depth > 1 and (child.type.startswith("import") or child.type == "named_imports"):
            yield from _of_type(child, types, depth=depth - 1)


_BY_LANGUAGE: Final = MappingProxyType[str, Callable[[Node, bytes, str, str], Imported]](
    {
        "python": _python,
        "javascript": _script,
        "typescript": _script,
        "typescriptreact": _script,
        "go": _go,
        "java": _java,
    }
)
"""By LSP language id of the file that imports."""
