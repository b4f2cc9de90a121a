"""What each language needs, as one table: file endings, grammar wheel, and the shape of its blocks.

A syntax (tree-sitter's grammar; by that word we mean how a model is asked) is loaded the first time a document needs it; a language
whose wheel is not installed has no tree and falls back to indentation. `tree-sitter-language-pack` must not be used: it fetches grammars at run time.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final, cast

from tree_sitter import Language, Parser

from foretype_context.folder.path_parts import parts_of, suffix_of

PLAINTEXT: Final = "plaintext"


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageSpec:
    """One language.

    Attributes:
        id: LSP language id.
        suffixes, names: what a path must end with, or be called.
        wheel, entry: module of the grammar wheel and the function in it that gives the grammar.
        fragment_entry: the function that gives the grammar of what is cut out of a file, where that is another one.
        comments, strings: node types that hold text, not code.
        scopes: node types that hold a body (functions, classes).
        blocks: node types of a body itself.
        definitions: query that captures `@definition` and, inside it, `@name` and `@body`.
        opens_block: what a line ends with when a block begins below it.
        closes_block: lines that end a block and belong to it, at the indentation of the line that opened it.
        continues_block: words with which a line goes on with a block, at that same indentation: only what closes it ends it.
        line_comment: what a comment starts with.
        signature_ends_with: what stands behind a function's head where its body is left out.
    """

    id: str
    suffixes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    wheel: str = ""
    entry: str = "language"
    fragment_entry: str = ""
    comments: frozenset[str] = frozenset({"comment", "line_comment", "block_comment"})
    strings: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    blocks: frozenset[str] = frozenset()
    definitions: str = ""
    opens_block: tuple[str, ...] = ("{",)
    closes_block: tuple[str, ...] = ("}",)
    continues_block: tuple[str, ...] = ()
    line_comment: str = "//"
    signature_ends_with: str = ";"

    @property
    def comment_marks(self) -> tuple[str, ...]:
        """What comments behind code begin with."""
        return (self.line_comment, "/*") if self.line_comment == "//" else (self.line_comment,)


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_JAVASCRIPT_SCOPES: Final = _set(
    "function_declaration function_expression generator_function_declaration arrow_function method_definition "
    "class_declaration class"
)
_TYPESCRIPT_SCOPES: Final = _JAVASCRIPT_SCOPES | _set("interface_declaration")
_JAVASCRIPT_DEFINITIONS: Final = (
    "(function_declaration name: (_) @name body: (_) @body) @definition "
    "(class_declaration name: (_) @name body: (_) @body) @definition "
    "(method_definition name: (_) @name body: (_) @body) @definition"
)
_C_DEFINITIONS: Final = "(function_definition declarator: (_) @name body: (_) @body) @definition"

_ALL: Final = (
    LanguageSpec(id=PLAINTEXT, opens_block=("{", ":"), closes_block=("}",), line_comment="#"),
    LanguageSpec(
        id="python",
        suffixes=(".py", ".pyi", ".pyw"),
        wheel="tree_sitter_python",
        comments=_set("comment"),
        strings=_set("string concatenated_string"),
        scopes=_set("function_definition class_definition"),
        blocks=_set("block"),
        definitions=(
            "(function_definition name: (identifier) @name body: (block) @body) @definition "
            "(class_definition name: (identifier) @name body: (block) @body) @definition"
        ),
        opens_block=(":",),
        closes_block=(),
        line_comment="#",
        signature_ends_with="",
    ),
    LanguageSpec(
        id="javascript",
        suffixes=(".js", ".mjs", ".cjs", ".jsx"),
        wheel="tree_sitter_javascript",
        comments=_set("comment"),
        strings=_set("string template_string regex"),
        scopes=_JAVASCRIPT_SCOPES,
        blocks=_set("statement_block class_body switch_body"),
        definitions=_JAVASCRIPT_DEFINITIONS,
    ),
    LanguageSpec(
        id="typescript",
        suffixes=(".ts", ".mts", ".cts"),
        wheel="tree_sitter_typescript",
        entry="language_typescript",
        comments=_set("comment"),
        strings=_set("string template_string regex"),
        scopes=_TYPESCRIPT_SCOPES,
        blocks=_set("statement_block class_body switch_body interface_body"),
        definitions=_JAVASCRIPT_DEFINITIONS,
    ),
    LanguageSpec(
        id="typescriptreact",
        suffixes=(".tsx",),
        wheel="tree_sitter_typescript",
        entry="language_tsx",
        comments=_set("comment"),
        strings=_set("string template_string regex"),
        scopes=_TYPESCRIPT_SCOPES,
        blocks=_set("statement_block class_body switch_body interface_body"),
        definitions=_JAVASCRIPT_DEFINITIONS,
    ),
    LanguageSpec(
        id="go",
        suffixes=(".go",),
        wheel="tree_sitter_go",
        comments=_set("comment"),
        strings=_set("interpreted_string_literal raw_string_literal"),
        scopes=_set("function_declaration method_declaration func_literal type_declaration"),
        blocks=_set("block"),
        definitions=(
            "(function_declaration name: (_) @name body: (_) @body) @definition "
            "(method_declaration name: (_) @name body: (_) @body) @definition"
        ),
        signature_ends_with="",
    ),
    LanguageSpec(
        id="rust",
        suffixes=(".rs",),
        wheel="tree_sitter_rust",
        strings=_set("string_literal raw_string_literal"),
        scopes=_set("function_item impl_item struct_item enum_item trait_item mod_item closure_expression"),
        blocks=_set("block declaration_list field_declaration_list enum_variant_list match_block"),
        definitions="(function_item name: (_) @name body: (_) @body) @definition",
    ),
    LanguageSpec(
        id="java",
        suffixes=(".java",),
        wheel="tree_sitter_java",
        strings=_set("string_literal"),
        scopes=_set("method_declaration constructor_declaration class_declaration interface_declaration"),
        blocks=_set("block class_body interface_body constructor_body switch_block"),
        definitions=(
            "(method_declaration name: (_) @name body: (_) @body) @definition "
            "(class_declaration name: (_) @name body: (_) @body) @definition"
        ),
    ),
    LanguageSpec(
        id="c",
        suffixes=(".c", ".h"),
        wheel="tree_sitter_c",
        strings=_set("string_literal char_literal"),
        scopes=_set("function_definition struct_specifier"),
        blocks=_set("compound_statement field_declaration_list"),
        definitions=_C_DEFINITIONS,
    ),
    LanguageSpec(
        id="cpp",
        suffixes=(".cpp", ".cc", ".cxx", ".hpp", ".hh", ".hxx"),
        wheel="tree_sitter_cpp",
        strings=_set("string_literal raw_string_literal char_literal"),
        scopes=_set("function_definition struct_specifier class_specifier namespace_definition lambda_expression"),
        blocks=_set("compound_statement field_declaration_list declaration_list"),
        definitions=_C_DEFINITIONS,
    ),
    LanguageSpec(
        id="csharp",
        suffixes=(".cs",),
        wheel="tree_sitter_c_sharp",
        strings=_set("string_literal verbatim_string_literal interpolated_string_expression raw_string_literal"),
        scopes=_set("method_declaration constructor_declaration class_declaration struct_declaration"),
        blocks=_set("block declaration_list switch_body"),
        definitions="(method_declaration name: (_) @name body: (_) @body) @definition",
    ),
    LanguageSpec(
        id="ruby",
        suffixes=(".rb", ".rake"),
        names=("Rakefile", "Gemfile"),
        wheel="tree_sitter_ruby",
        comments=_set("comment"),
        strings=_set("string heredoc_body"),
        scopes=_set("method singleton_method class module do_block block"),
        blocks=_set("body_statement do_block"),
        definitions="(method name: (_) @name body: (_) @body) @definition",
        opens_block=("do", "|", "then", "else", "begin", "ensure"),
        closes_block=("end", "}"),
        continues_block=("else", "elsif", "rescue", "ensure", "when", "in"),
        line_comment="#",
        signature_ends_with="",
    ),
    LanguageSpec(
        id="php",
        suffixes=(".php",),
        wheel="tree_sitter_php",
        entry="language_php",
        fragment_entry="language_php_only",
        comments=_set("comment"),
        strings=_set("string encapsed_string heredoc nowdoc"),
        scopes=_set("function_definition method_declaration class_declaration"),
        blocks=_set("compound_statement declaration_list"),
        definitions=(
            "(function_definition name: (_) @name body: (_) @body) @definition "
            "(method_declaration name: (_) @name body: (_) @body) @definition"
        ),
    ),
    LanguageSpec(
        id="shellscript",
        suffixes=(".sh", ".bash", ".zsh"),
        names=(".bashrc", ".zshrc", ".profile"),
        wheel="tree_sitter_bash",
        comments=_set("comment"),
        strings=_set("string raw_string heredoc_body"),
        scopes=_set("function_definition"),
        blocks=_set("compound_statement do_group"),
        definitions="(function_definition name: (_) @name body: (_) @body) @definition",
        opens_block=("{", "do", "then", "else"),
        closes_block=("}", "done", "fi"),
        continues_block=("else", "elif"),
        line_comment="#",
        signature_ends_with="",
    ),
    LanguageSpec(
        id="lua",
        suffixes=(".lua", ".rockspec"),
        wheel="tree_sitter_lua",
        comments=_set("comment"),
        strings=_set("string"),
        scopes=_set("function_declaration function_definition"),
        blocks=_set("block"),
        definitions="(function_declaration name: (_) @name body: (_) @body) @definition",
        opens_block=("then", "do", "else", "repeat"),
        closes_block=("end", "until", "}"),
        continues_block=("else", "elseif"),
        line_comment="--",
        signature_ends_with="",
    ),
)

LANGUAGES: Final = MappingProxyType({spec.id: spec for spec in _ALL})
_BY_SUFFIX: Final = {suffix: spec.id for spec in _ALL for suffix in spec.suffixes}
_BY_NAME: Final = {name: spec.id for spec in _ALL for name in spec.names}
_ALIASES: Final = {"javascriptreact": "javascript", "bash": "shellscript", "sh": "shellscript", "c++": "cpp"}


def language_of(path: str) -> str:
    """LSP language id of a path or URI by its name; `plaintext` where it is not known."""
    parts = parts_of(path)
    name = parts[-1] if parts else ""
    return _BY_NAME.get(name) or _BY_SUFFIX.get(suffix_of(name).lower(), PLAINTEXT)


def language_spec(language: str) -> LanguageSpec:
    """The table's entry for an LSP language id; an unknown language is treated as plain text."""
    return LANGUAGES.get(_ALIASES.get(language, language), LANGUAGES[PLAINTEXT])


@cache
def syntax_of(language: str, *, fragment: bool = False) -> Language | None:
    """The syntax of a language, or None where its wheel is not installed or is too old or new for tree-sitter.

    Args:
        fragment: of text from the middle of a file.
    """
    spec = language_spec(language)
    entry = (fragment and spec.fragment_entry) or spec.entry
    if not spec.wheel:
        return None
    try:
        # The wheel gives a capsule; the stub's other overload, an int, is the deprecated one.
        pointer = cast("object", getattr(importlib.import_module(spec.wheel), entry)())
        return Language(pointer)
    except (ImportError, AttributeError, ValueError):
        return None


def missing_syntaxes() -> dict[str, str]:
    """The languages of the table that have no syntax tree here, and the distribution whose wheel would give them one."""
    return {
        language: spec.wheel.replace("_", "-")
        for language, spec in LANGUAGES.items()
        if spec.wheel and syntax_of(language) is None
    }


def parser_for(language: str, *, fragment: bool = False) -> Parser | None:
    """A parser of one's own (parsers are not shared between threads), or None. `fragment`: as for :func:`syntax_of`."""
    syntax = syntax_of(language, fragment=fragment)
    return None if syntax is None else Parser(syntax)
