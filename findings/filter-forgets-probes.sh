#!/bin/sh
# FAISS: a search with a filter looks at one list, whatever the index's nprobe says.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install faiss-cpu==1.15.1 numpy==2.3.5
cat > "$folder/ask.py" <<'PY'
import faiss
import numpy as np

print(f"faiss {faiss.__version__}: SearchParametersIVF(sel=...) carries an nprobe of 1 of its own, which replaces that of the index;")
print("most would expect that a filter leaves the rest of the search as it is set: one that lets everything through loses most of the neighbours, without a word.")
random = np.random.default_rng(0)
vectors, questions = (random.standard_normal((count, 32)).astype(np.float32) for count in (5_000, 50))
exact = faiss.IndexFlatIP(32)
exact.add(vectors)
index = faiss.IndexIVFFlat(faiss.IndexFlatIP(32), 32, 64, faiss.METRIC_INNER_PRODUCT)
index.train(vectors)
index.add(vectors)
index.nprobe = 64
_, right = exact.search(questions, 10)

def recall(**more):
    _, found = index.search(questions, 10, **more)
    return float(np.mean([len(set(one) & set(other)) / 10 for one, other in zip(right, found)]))

every = faiss.IDSelectorRange(0, len(vectors))
plain, filtered = recall(), recall(params=faiss.SearchParametersIVF(sel=every))
said = recall(params=faiss.SearchParametersIVF(sel=every, nprobe=index.nprobe))
print(f"of the ten nearest found with nprobe 64 of 64 lists: {plain:.2f}; with a filter that lets all through: {filtered:.2f}; with nprobe said again: {said:.2f}")
assert faiss.SearchParametersIVF().nprobe == 1 and plain == said == 1.0 and filtered < 0.4
PY
"$folder/env/bin/python" "$folder/ask.py"
