#!/bin/sh
# Mistral's tokenizer (Tekken): the end of a line and the slashes of a comment on the next one are one token.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install mistral-common==1.13.1
cat > "$folder/ask.py" <<'PY'
from importlib.metadata import version
from pathlib import Path

import mistral_common
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

print(f"mistral-common {version('mistral-common')}, tekken_240911: signs go on over the end of their line to the slashes that the next line begins with;")
print("most would expect that a line's tokens do not depend on the next line. So a prompt that ends behind a line is not how the model read one whose next line is a comment,")
print("and token counts of single lines do not add up:")
tokenizer = Tekkenizer.from_file(Path(mistral_common.__file__).parent / "data" / "tekken_240911.json")


def tokens(text: str) -> list[str]:
    return [tokenizer.decode([one]) for one in tokenizer.encode(text, bos=False, eos=False)]


for lines in (["f();\n", "// a\n"], ["x = 1;\n", "/* b */\n"], ["return;\n", "/path\n"], ["f()\n", "# a\n"]):
    whole, apart = tokens("".join(lines)), [one for line in lines for one in tokens(line)]
    print(f"{''.join(lines)!r:24} is {whole}, line by line {apart}")
    assert (whole == apart) is ("#" in lines[1])
assert "();\n//" in tokens("f();\n// a\n") and ";\n/*" not in tokens("x = 1;\n/* b */\n") and ";\n/" in tokens("x = 1;\n/* b */\n")
PY
"$folder/env/bin/python" "$folder/ask.py"
