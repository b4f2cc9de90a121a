"""Training corpus: permissively licensed source with a manifest, built without running anybody's code.

Modules:
    licences: which licences pass, read from a package's own metadata
    never: what must not be trained on, by name, by folder and by content
    filters: per-file quality filters, each with the reason it reports
    duplicates: lexical shingles, MinHash signatures and a banded index
    sources: download and read source files from wheels and the standard library
    shards: kept text on disk, and the journal by which a stopped build goes on
    build: the pipeline and the manifest
    store: the text, file by file, as training samples from it
    verify: what a finished corpus must not hold, read back from the shards
"""
