"""How each language writes strings, comments and brackets, as data: what the reader in :mod:`foretype_context.syntax.reading` reads by.

A language that is not in the table, and prose, have no strings, no comments and no brackets: nothing of theirs is cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Within(StrEnum):
    """Text that is no code."""

    COMMENT = "comment"
    STRING = "string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoted:
    """One way to write what is no code.

    Attributes:
        opens: regular expression of its opener; its named groups may stand in `closes`, as `{name}`.
        closes: what ends it, literally; empty: nothing does.
        pattern: regular expression of what ends it, where that is more than `closes`.
        name: by which others let it begin inside them.
        within: what text in it is; None: neither string nor comment (a page around code, a parameter of a shell).
        escapes: regular expression of what never ends it.
        holes: openers of code inside it, as regular expressions, each with what ends that code.
        inner: names of what may begin inside it.
        lined: it ends with its line, if nothing ended it before.
        nests: its opener opens it again inside it.
        heredoc: it begins on the next line.
        operand: it begins only where a value may stand, told by what is left of it; "argument": also behind a name and a blank.
        not_behind: regular expression of what stands left of it, on its line, where it is something else.
        in_hole: it begins only in a hole, outside of brackets.
        in_text: it begins only inside other text.
    """

    opens: str
    closes: str = ""
    pattern: str = ""
    name: str = ""
    within: Within | None = Within.STRING
    escapes: str = r"\\(?:\r\n|.)"
    holes: tuple[tuple[str, str], ...] = ()
    inner: tuple[str, ...] = ()
    lined: bool = False
    nests: bool = False
    heredoc: bool = False
    operand: str = ""
    not_behind: str = ""
    in_hole: bool = False
    in_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Markup:
    """Tags.

    Attributes:
        hole: opener of code in tags and between them, closed by `}`; empty for none.
        page: the file is markup from its beginning; else an element begins where a value may stand.
        opens: regular expression of what opens an element.
        void: elements without an end tag.
        raw: elements whose content is no markup.
    """

    hole: str = ""
    page: bool = False
    opens: str = r"<(?=[A-Za-z_>])"
    void: frozenset[str] = frozenset()
    raw: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lexis:
    """One language.

    Attributes:
        signs: characters at which something of the below may begin, besides brackets: at no other is anything looked for.
        quoted: what is no code; the first that fits is taken.
        skips: regular expressions of code that looks like a quote, a comment or a bracket and is none.
        brackets: the pairs, opener and closer by turns.
        value_words: words behind which a value may stand.
        directives: lines that begin with `#` are the preprocessor's: branches and definitions are read each by itself.
        arms: regular expressions of what begins a list of arms, in which a closing bracket behind a pattern needs no opener, what ends it,
            and what ends one arm.
        outside: name of the text that a file begins in, where it has an end of that text at all.
        markup: tags, or None.
        angles: `<` and `>` stand around type arguments.
    """

    signs: str = ""
    quoted: tuple[Quoted, ...] = ()
    skips: tuple[str, ...] = ()
    brackets: str = "()[]{}"
    value_words: frozenset[str] = frozenset()
    directives: bool = False
    arms: tuple[str, str, str] | None = None
    outside: str = ""
    markup: Markup | None = None
    angles: bool = False


def _line_comment(opens: str, pattern: str = r"(?=[\r\n])") -> Quoted:
    return Quoted(opens=opens, pattern=pattern, within=Within.COMMENT, escapes="")


def _comment(opens: str, closes: str, *, nests: bool = False) -> Quoted:
    return Quoted(opens=opens, closes=closes, within=Within.COMMENT, escapes="", nests=nests)


_CONTINUED: Final = _line_comment("//", r"(?<!\\)(?<!\\\r)(?=[\r\n])")
"""Of languages that put lines together first."""
_BLOCK: Final = _comment(r"/\*", "*/")
_SLASHES: Final = (_line_comment("//"), _BLOCK)
_CHARACTER: Final = Quoted(opens="'", closes="'", lined=True)
_DOUBLE: Final = Quoted(opens='"', closes='"', lined=True)
_SEPARATED_DIGITS: Final = r"(?<=[0-9a-fA-F])(?<!u8)'(?=[0-9a-fA-F])"

_PY_ESCAPES: Final = r"\\N\{[^}\n]*\}|\\(?:\r\n|[^{}])|\{\{|\}\}"
_PY_F: Final = r"(?i:(?<=[ft])|(?<=[ft]r))"
_PY_HOLE: Final = ((r"\{", "}"),)
_PYTHON: Final = Lexis(signs="#\"'",
    quoted=(
        _line_comment("#"),
        Quoted(opens=_PY_F + r"(?P<q>\"\"\"|''')", closes="{q}", escapes=_PY_ESCAPES, holes=_PY_HOLE),
        Quoted(opens=_PY_F + r"(?P<q>[\"'])", closes="{q}", escapes=_PY_ESCAPES, holes=_PY_HOLE, lined=True),
        Quoted(opens=r"(?P<q>\"\"\"|''')", closes="{q}"),
        Quoted(opens=r"(?P<q>[\"'])", closes="{q}", lined=True),
        # How a value is written, behind a colon in a hole: text again, up to the hole's end.
        Quoted(opens=r":(?!=)", pattern=r"(?=\})", escapes="", holes=_PY_HOLE, lined=True, in_hole=True),
    ),
)  # fmt: skip

_JS_WORDS: Final = frozenset(
    [
        "return",
        "typeof",
        "case",
        "in",
        "of",
        "delete",
        "void",
        "throw",
        "new",
        "do",
        "else",
        "yield",
        "await",
        "instanceof",
        "default",
        "extends",
    ]
)
_JS_CLASS: Final = r"\\.|\[(?:\\.|[^\]\\\r\n])*\]"
"""Of a regular expression: what hides its end."""
_JS_QUOTED: Final = (
    *_SLASHES,
    Quoted(opens=r"(?P<q>[\"'])", closes="{q}", lined=True),
    Quoted(opens="`", closes="`", holes=((r"\$\{", "}"),)),
    # Behind a bracket nobody knows whether a value has ended; but these are methods of no quotient.
    Quoted(
        opens=r"(?<=[)}\s])/(?=(?:\\[^\r\n]|\[(?:\\[^\r\n]|[^\]\\\r\n]){0,80}+\]|[^/\\\[\r\n]){1,200}+/[dgimsuvy]{0,8}\.(?:test|exec)\()",
        closes="/",
        escapes=_JS_CLASS,
        lined=True,
    ),
    Quoted(opens="/", closes="/", escapes=_JS_CLASS, lined=True, operand="value"),
)
_JAVASCRIPT: Final = Lexis(signs="/\"'`<", quoted=_JS_QUOTED, value_words=_JS_WORDS, markup=Markup(hole=r"\{"))
_TYPESCRIPT: Final = Lexis(signs="/\"'`", quoted=_JS_QUOTED, value_words=_JS_WORDS, angles=True)
_TYPE_PARAMETERS: Final = (
    r"(?:const\s|\w+\s*(?:,|=|\bextends\b)"
    # Of a type: a raw `>` stands nowhere between tags, so that the arrow decides.
    r"|\w+>\((?:[^()\r\n]{1,400}+|\([^()\r\n]{0,400}+\)){0,40}+\)[ \t]*=>"
    # Not written to the arrow yet, or over more than one line: told by the name and by what a parameter begins with.
    r"|(?:[A-Z]\d?|T[A-Z][a-z]\w*)>\((?:\.\.\.|\w+\??:|[ \t]*$))"
)
_TSX: Final = Lexis(
    signs="/\"'`<",
    quoted=_JS_QUOTED,
    value_words=_JS_WORDS,
    angles=True,
    markup=Markup(hole=r"\{", opens=rf"(?<!\bnew )<(?!{_TYPE_PARAMETERS})(?=[A-Za-z_>])"),
)

_GO: Final = Lexis(signs="/\"'`", quoted=(*_SLASHES, _DOUBLE, _CHARACTER, Quoted(opens="`", closes="`", escapes="")))
_RUST: Final = Lexis(
    signs="/\"'#",
    quoted=(
        _line_comment("//"),
        _comment(r"/\*", "*/", nests=True),
        Quoted(opens=r"(?<=r)(?P<h>#*)\"", closes='"{h}', escapes=""),
        Quoted(opens='"', closes='"'),
    ),
    # A character, else the quote of a lifetime or a label, which nothing closes.
    skips=(r"'(?:\\(?:u\{[^}'\r\n]*\}|x\w\w|.)|[^'\\\r\n])'", "'"),
    angles=True,
)
_JAVA: Final = Lexis(
    signs="/\"'", quoted=(*_SLASHES, Quoted(opens='"""', closes='"""'), _DOUBLE, _CHARACTER), angles=True
)
_C: Final = Lexis(
    signs="/\"'#", quoted=(_CONTINUED, _BLOCK, _DOUBLE, _CHARACTER), skips=(_SEPARATED_DIGITS,), directives=True
)
_CPP: Final = Lexis(
    signs="/\"'#",
    quoted=(
        _CONTINUED,
        _BLOCK,
        Quoted(opens=r"(?<=R)\"(?P<d>[^()\\\s]{0,16})\(", closes=")" + '{d}"', escapes=""),
        _DOUBLE,
        _CHARACTER,
    ),
    skips=(_SEPARATED_DIGITS,),
    directives=True,
    angles=True,
)
_CS_HOLE: Final = ((r"\{", "}"),)
_CSHARP: Final = Lexis(
    signs="/\"'#$@",
    quoted=(
        *_SLASHES,
        Quoted(opens=r"\$\$(?P<q>\"{3,})", closes="{q}", escapes="", holes=((r"\{\{", "}}"),)),
        Quoted(opens=r"\$(?P<q>\"{3,})", closes="{q}", escapes="", holes=_CS_HOLE),
        Quoted(opens=r"(?P<q>\"{3,})", closes="{q}", escapes=""),
        Quoted(opens=r"(?:\$@|@\$)\"", closes='"', escapes=r'""|\{\{|\}\}', holes=_CS_HOLE),
        Quoted(opens=r"@\"", closes='"', escapes='""'),
        Quoted(opens=r"\$\"", closes='"', escapes=r"\\.|\{\{|\}\}", holes=_CS_HOLE, lined=True),
        _DOUBLE,
        _CHARACTER,
        Quoted(opens=r"(?<!:):(?![:=])", pattern=r"(?=[}\"])", escapes=r"\\\"", lined=True, in_hole=True),
    ),
    directives=True,
    angles=True,
)

_RUBY_HOLE: Final = ((r"#\{", "}"),)
_RUBY_WORDS: Final = frozenset(
    [
        "if",
        "elsif",
        "unless",
        "while",
        "until",
        "when",
        "and",
        "or",
        "not",
        "return",
        "then",
        "do",
        "else",
        "case",
        "in",
        "puts",
        "raise",
        "begin",
        "yield",
        "rescue",
    ]
)
_PAIRS: Final = (("[", "]"), ("(", ")"), ("{", "}"), ("<", ">"))
_RUBY: Final = Lexis(signs="/\"'#`%<=?$E",
    quoted=(
        Quoted(opens=r"^=begin\b", closes="\n=end", pattern=r"^=end\b", within=Within.COMMENT, escapes=""),
        Quoted(opens=r"(?<=\n__)END__$", within=None, escapes=""),
        _line_comment("#"),
        Quoted(opens=r"(?<![\w)\]}])<<[~-]?(?P<s>')(?P<w>[A-Za-z_]\w*)'", closes="\n{w}", pattern=r"^[ \t]*{w}\b", escapes="", heredoc=True),
        Quoted(opens=r"(?<![\w)\]}])<<(?:[~-](?P<s>[\"`]?)|(?P<t>[\"`]?)(?=[A-Z]))(?P<w>[A-Za-z_]\w*)[\"`]?", closes="\n{w}", pattern=r"^[ \t]*{w}\b", holes=_RUBY_HOLE, heredoc=True),
        *(Quoted(opens=rf"(?<![\w)\]}}])%[wiqs]\{opener}", closes=closer, nests=True) for opener, closer in _PAIRS),
        *(Quoted(opens=rf"(?<![\w)\]}}])%[WIQrx]\{opener}", closes=closer, nests=True, holes=_RUBY_HOLE) for opener, closer in _PAIRS),
        *(Quoted(opens=rf"%\{opener}", closes=closer, nests=True, holes=_RUBY_HOLE, operand="value") for opener, closer in _PAIRS),
        Quoted(opens=r"(?<![\w)\]}])%[wWiIqQrsx](?P<q>[|!/,])", closes="{q}", holes=_RUBY_HOLE),
        Quoted(opens='(?P<q>["`])', closes="{q}", holes=_RUBY_HOLE),
        Quoted(opens="'", closes="'"),
        Quoted(opens="/", closes="/", holes=_RUBY_HOLE, operand="argument"),
    ),
    skips=(r"\$[^\w\s{(]", r"(?<![^\s(\[,=])\?[^\s\w](?=[\s,)\].]|\Z)", r"(?<=def )[`/]"),
    value_words=_RUBY_WORDS,
)  # fmt: skip

_PHP_HOLES: Final = ((r"\{(?=\$)", "}"), (r"\$\{", "}"))
_PHP_END: Final = r"(?=[\r\n]|\?>)"
_PHP: Final = Lexis(signs="/\"'#`<?",
    quoted=(
        Quoted(opens=r"\?>", closes="<?php", pattern=r"<\?(?:php\b|=)", within=None, escapes="", name="page"),
        _line_comment("//", _PHP_END),
        _comment(r"/\*", "*/"),
        _line_comment(r"#(?!\[)", _PHP_END),
        Quoted(opens=r"<<<[ \t]*'(?P<w>\w+)'", closes="\n{w}", pattern=r"^[ \t]*{w}\b", escapes="", heredoc=True),
        Quoted(opens=r"<<<[ \t]*\"?(?P<w>\w+)\"?", closes="\n{w}", pattern=r"^[ \t]*{w}\b", holes=_PHP_HOLES, heredoc=True),
        Quoted(opens='(?P<q>["`])', closes="{q}", holes=_PHP_HOLES),
        Quoted(opens="'", closes="'"),
    ),
    outside="page",
)  # fmt: skip

_SH_HOLES: Final = ((r"\$\(", ")"), ("`", "`"))
_SH_HEREDOC: Final = r"(?<!<)<<(?P<dash>-?)[ \t]*"
_SH_SHIFT: Final = r"(?:^|[;&|({]|\b(?:do|then|else))[ \t]*let[ \t][^;&|]*\Z|[\w$]\[[^\[\]\"'` \t]*\Z"
"""A sum, or the index of an array."""
_SHELL: Final = Lexis(signs="#\"'`$<\\s;",
    quoted=(
        _line_comment(r"(?<![^\s;&|()`])#"),
        Quoted(opens=r"\$'", closes="'"),
        Quoted(opens="'", closes="'", escapes="", name="single"),
        Quoted(opens=r'\$?"', closes='"', holes=_SH_HOLES, inner=("parameter in a string",), name="double"),
        Quoted(opens=r"\$\{", closes="}", within=None, holes=_SH_HOLES, inner=("parameter", "double", "single"), name="parameter"),
        Quoted(opens=r"\$\{", closes="}", within=None, holes=_SH_HOLES, inner=("parameter in a string", "double"), name="parameter in a string", in_text=True),
        Quoted(opens=_SH_HEREDOC + r"(?P<s>['\"\\])(?P<w>[^\s'\"\\]+)['\"]?", closes="\n{w}", pattern=r"^\t*{w}$", escapes="", heredoc=True, not_behind=_SH_SHIFT),
        Quoted(opens=_SH_HEREDOC + r"(?P<w>[A-Za-z_]\w*)", closes="\n{w}", pattern=r"^\t*{w}$", holes=_SH_HOLES, inner=("parameter in a string",), heredoc=True, not_behind=_SH_SHIFT),
    ),
    # A closer behind the sign that a command goes on in the next line is one too many, and no sign of a command's.
    skips=(r"(?<=\s)\\(?![\]}][ \t]*(?:\n|\Z)).|(?<!\s)\\.", r"\$[#?!$@*-]", r"<<<"),
    arms=(r"(?<=ca)(?<![\w$./-]ca)se(?=\s[^\n]*\sin\b)", r"(?<=e)(?<![\w$./-]e)sac(?![\w./-])", r";;&?|;&"),
)  # fmt: skip

_LUA: Final = Lexis(
    signs="-\"'[",
    quoted=(
        Quoted(opens=r"--\[(?P<e>=*)\[", closes="]{e}]", within=Within.COMMENT, escapes=""),
        _line_comment("--"),
        Quoted(opens=r"\[(?P<e>=*)\[", closes="]{e}]", escapes=""),
        Quoted(opens=r"(?P<q>[\"'])", closes="{q}", escapes=r"\\z\s*|\\(?:\r\n|.)", lined=True),
    ),
)

_CSS: Final = Lexis(
    signs="/\"'",
    quoted=(
        _BLOCK,
        Quoted(opens=r"(?P<q>[\"'])", closes="{q}", lined=True),
        Quoted(opens=r"(?i:(?<=\burl))\((?!\s*[\"'])", closes=")", lined=True),
    ),
)
_HTML: Final = Lexis(
    brackets="",
    markup=Markup(
        page=True,
        void=frozenset(
            ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
        ),
        raw=frozenset(("script", "style")),
    ),
)

LEXES: Final = MappingProxyType(
    {
        "python": _PYTHON,
        "javascript": _JAVASCRIPT,
        "typescript": _TYPESCRIPT,
        "typescriptreact": _TSX,
        "go": _GO,
        "rust": _RUST,
        "java": _JAVA,
        "c": _C,
        "cpp": _CPP,
        "csharp": _CSHARP,
        "ruby": _RUBY,
        "php": _PHP,
        "shellscript": _SHELL,
        "lua": _LUA,
        "json": Lexis(signs='"', quoted=(_DOUBLE,)),
        "jsonc": Lexis(signs='/"', quoted=(*_SLASHES, _DOUBLE)),
        "css": _CSS,
        "html": _HTML,
        "xml": Lexis(brackets="", markup=Markup(page=True)),
    }
)
"""By LSP language id."""
