#!/bin/sh
# tokenizers: a character that a BPE vocabulary has no token for vanishes from the text.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install tokenizers==0.22.2
cat > "$folder/ask.py" <<'PY'
import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

print(f"tokenizers {tokenizers.__version__}: where a BPE vocabulary has neither the character nor an unknown token, encode leaves it out, with no error and no trace in the ids;")
print("most would expect an error, or a token that stands for it. A byte-level tokenizer trained with the trainer's defaults is such a one: its alphabet is what the training text had.")
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer.train_from_iterator(["total = price * count\n"] * 9, trainers.BpeTrainer(vocab_size=60, show_progress=False))
lost = {}
for text in ("total = price * count", "total = price + count", "if price > count: price -= 1"):
    lost[text] = tokenizer.decode(tokenizer.encode(text).ids)
    print(f"{text!r:32} comes back as {lost[text]!r}")
assert list(lost.values()) == ["total = price * count", "total = price  count", "i price  count price = "]
PY
"$folder/env/bin/python" "$folder/ask.py"
