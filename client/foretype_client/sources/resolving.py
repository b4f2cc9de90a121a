"""From an import to the file that it means, and the text of that file: of the workspace, or of an installed package."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from foretype_context.errors import NotSmallError
from foretype_context.folder.exclude import reason_to_exclude
from foretype_context.folder.small_files import read_small
from foretype_context.text.strings import plain_line_ends

from foretype_client.ports import Clock
from foretype_client.sources.naming import Import

_BYTES_MAX: Final = 400_000
_HEAD_BYTES: Final = 8_192
_KEPT: Final = 128
_FOLDERS_MAX: Final = 60
_TRUSTED_S: Final = 20.0
_SCRIPT_ENDINGS: Final = (
    ".ts",
    ".tsx",
    ".d.ts",
    ".js",
    ".jsx",
    ".mjs",
    "/index.ts",
    "/index.tsx",
    "/index.d.ts",
    "/index.js",
)
_PACKAGES: Final = frozenset({"site-packages", "node_modules"})
_ENVIRONMENTS: Final = (".venv", "venv", "env")


class ImportedFile(NamedTuple):
    """A file that an import means.

    Attributes:
        shown: its path as prompts show it.
        names: the imported ones that it may define.
        installed: it belongs to an installed package.
    """

    path: Path
    shown: str
    names: tuple[str, ...]
    installed: bool


class FileTexts:
    """Texts of files: what is open in the editor, else what is on disk, read again when it has changed."""

    def __init__(self) -> None:
        self.open: dict[Path, str] = {}
        self._read: OrderedDict[Path, tuple[tuple[int, int], str]] = OrderedDict()

    def hold(self, path: Path, text: str) -> None:
        """Takes an open document's text in place of the one on disk; nothing of it where it may not be shown."""
        head = text[:_HEAD_BYTES].encode("utf-8", "replace")
        reason = reason_to_exclude(path.as_posix(), len(text), head, limit_bytes=_BYTES_MAX, vendored=True)
        self.open[path] = text if reason is None else ""

    def text(self, path: Path, *, installed: bool = False) -> str:
        """The text; "" if there is no file, or it must not be shown."""
        if (text := self.open.get(path)) is not None:
            return text
        try:
            status = path.stat()
        except (OSError, ValueError):
            return ""
        state = status.st_mtime_ns, status.st_size
        known = self._read.get(path)
        if known is not None and known[0] == state:
            self._read.move_to_end(path)
            return known[1]
        try:
            text = self._shown(path, read_small(path, _BYTES_MAX, links=True), installed)
        except OSError as error:
            if not isinstance(error, NotSmallError):
                return ""
            text = ""
        self._read[path] = state, text
        if len(self._read) > _KEPT:
            self._read.popitem(last=False)
        return text

    def _shown(self, path: Path, data: bytes, installed: bool) -> str:
        reason = reason_to_exclude(
            path.as_posix(), len(data), data[:_HEAD_BYTES], limit_bytes=_BYTES_MAX, vendored=not installed
        )
        return "" if reason is not None else plain_line_ends(data.decode("utf-8", "replace"))


class Resolver:
    """Finds files of imports.

    Args:
        dependencies: look into installed packages too.
        clock: monotonic seconds; what was found is trusted for a while.
    """

    def __init__(self, *, dependencies: bool, clock: Clock) -> None:
        self.roots: tuple[Path, ...] = ()
        self._dependencies = dependencies
        self._clock = clock
        self._known: dict[tuple[Path, str, int], tuple[float, Path | None, bool]] = {}

    def forget(self) -> None:
        """Files have come or gone."""
        self._known.clear()

    def root_of(self, path: Path) -> Path | None:
        """The innermost open folder that a file lies in."""
        inside = [root for root in self.roots if path.is_relative_to(root)]
        return max(inside, key=lambda root: len(root.parts), default=None)

    def targets(self, path: Path, language: str, imports: Sequence[Import]) -> Iterator[ImportedFile]:
        """Files that the imports of a file mean, in their order; each once."""
        root = self.root_of(path)
        if root is None:
            return
        seen = {path}
        for one in imports:
            for module, names in _readings(one, language):
                found, installed = self._find(root, path.parent, module, one.level, language)
                if found is None or found in seen:
                    continue
                seen.add(found)
                yield ImportedFile(found, _shown(found, root), names, installed)

    def _find(self, root: Path, folder: Path, module: str, level: int, language: str) -> tuple[Path | None, bool]:
        key = folder, module, level
        known = self._known.get(key)
        now = self._clock()
        if known is None or now - known[0] > _TRUSTED_S:
            if len(self._known) > 4096:
                self._known.clear()
            found, installed = self._look(root, folder, module, level, language)
            if found is not None and _is_led_out(found, root, installed):
                found = None
            known = self._known[key] = now, found, installed
        return known[1], known[2]

    def _look(self, root: Path, folder: Path, module: str, level: int, language: str) -> tuple[Path | None, bool]:
        if language == "python":
            place = "/".join(module.split(".")) if module else ""
            bases = [_above(folder, level - 1)] if level else [*_python_bases(root, folder)]
            found = _first(_python_files(base, place) for base in bases)
            if found is None and not level and self._dependencies:
                return _first(_python_files(base, place) for base in _site_packages(root)), True
            return found, False
        if module.startswith("."):
            return _first([_script_files(folder, module)]), False
        if module.startswith(("@/", "~/")):
            return _first(_script_files(base, module[2:]) for base in (root / "src", root)), False
        return (_types_of(root, module), True) if self._dependencies else (None, False)


def _readings(one: Import, language: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """`from a import b` may mean a name of `a` or the module `a.b`."""
    yield one.module, one.names
    if language == "python" and (one.module or one.level):
        for name in one.names:
            yield f"{one.module}.{name}" if one.module else name, ()


def _first(candidates: Sequence[Iterator[Path]] | Iterator[Iterator[Path]]) -> Path | None:
    for some in candidates:
        for path in some:
            try:
                if path.is_file():
                    return Path(os.path.normpath(path))
            except (OSError, ValueError):
                continue
    return None


def _is_led_out(path: Path, root: Path, installed: bool) -> bool:
    """Whether a link in the folder leads out of it, to what is no installed package either."""
    real = Path(os.path.realpath(path))
    if not path.is_relative_to(root) or real.is_relative_to(os.path.realpath(root)):
        return False
    return not installed or _PACKAGES.isdisjoint(real.parts)


def _above(folder: Path, levels: int) -> Path:
    for _ in range(min(levels, 20)):
        folder = folder.parent
    return folder


def _python_bases(root: Path, folder: Path) -> Iterator[Path]:
    """Where absolute imports may begin: the folders from the file up to the root, then the root's own folders."""
    while folder.is_relative_to(root):
        yield folder
        if folder == root:
            break
        folder = folder.parent
    yield root / "src"
    try:
        children = sorted(one.name for one in os.scandir(root) if one.is_dir() and not one.name.startswith("."))
    except OSError:
        children = []
    yield from (root / name for name in children[:_FOLDERS_MAX])


def _python_files(base: Path, place: str) -> Iterator[Path]:
    yield from (
        (base / f"{place}.py", base / place / "__init__.py", base / f"{place}.pyi", base / place / "__init__.pyi")
        if place
        else (base / "__init__.py",)
    )


def _site_packages(root: Path) -> Iterator[Path]:
    for name in _ENVIRONMENTS:
        try:
            yield from sorted((root / name).glob("lib/python3*/site-packages"))
        except OSError:
            continue
        yield root / name / "Lib" / "site-packages"


def _script_files(base: Path, module: str) -> Iterator[Path]:
    plain = base / module
    yield plain
    stem = plain.with_suffix("") if plain.suffix in (".js", ".jsx", ".mjs") else plain
    yield from (Path(f"{stem}{ending}") for ending in _SCRIPT_ENDINGS)


def _types_of(root: Path, module: str) -> Path | None:
    """The type declarations of an installed package."""
    parts = module.split("/")
    name = "/".join(parts[:2]) if module.startswith("@") else parts[0]
    if ".." in parts or not name:
        return None
    folder = root / "node_modules" / name
    candidates: list[Callable[[], Path | None]] = [
        lambda: _declared(folder),
        lambda: folder / "index.d.ts",
        lambda: root / "node_modules" / "@types" / name.replace("@", "").replace("/", "__") / "index.d.ts",
    ]
    return next((found for make in candidates if (found := make()) is not None and found.is_file()), None)


def _declared(folder: Path) -> Path | None:
    try:
        said: object = json.loads(read_small(folder / "package.json", _BYTES_MAX, links=True))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    manifest = cast("dict[str, Any]", said)
    named = manifest.get("types") or manifest.get("typings")
    found = folder / named if isinstance(named, str) else None
    return found if found is not None and found.resolve().is_relative_to(folder.resolve()) else None


def _shown(path: Path, root: Path) -> str:
    for mark in ("site-packages", "node_modules"):
        if mark in path.parts:
            return "/".join(path.parts[path.parts.index(mark) + 1 :])
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
