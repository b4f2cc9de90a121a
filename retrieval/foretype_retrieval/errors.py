"""What goes wrong with an index.

::

    ForetypeError                       (foretype_context.errors)
    └── RetrievalError                  of this package
        ├── UnusableIndexError          the file cannot be used and the index has to be made anew
        │   ├── AbsentIndexError        there is none yet
        │   ├── OutdatedIndexError      another format, another chunker, another embedder
        │   └── DamagedIndexError       cut short, or a checksum differs
        ├── UnsavedIndexError           the disk is full or the folder cannot be written; what is in memory goes on
        ├── BusyIndexError              another process writes the index of this workspace
        ├── UnreadableVectorsError      a stored FAISS index is not for these vectors
        ├── EmbedderError               an embedder cannot be loaded
        ├── WorkspaceGoneError          the folder is not there
        ├── IndexingCancelledError      it was asked to stop
        └── WorkerError                 the indexing process ended without a report
"""

from __future__ import annotations

from foretype_context.errors import ForetypeError


class RetrievalError(ForetypeError):
    """What `foretype_retrieval` raises."""


class UnusableIndexError(RetrievalError):
    """A stored index cannot be used; it is made anew."""


class AbsentIndexError(UnusableIndexError):
    """No index is stored."""


class OutdatedIndexError(UnusableIndexError):
    """Made by another version or with another embedder."""


class DamagedIndexError(UnusableIndexError):
    """Cut short or changed."""


class UnsavedIndexError(RetrievalError):
    """The index could not be written; the old one is untouched, and the new one goes on in memory."""


class BusyIndexError(RetrievalError):
    """Another process writes this index."""


class UnreadableVectorsError(RetrievalError):
    """The installed FAISS cannot read a serialised index, or the index belongs to other vectors."""


class EmbedderError(RetrievalError):
    """An embedder cannot be loaded. The message says why and what to do; lexical search does not need one."""


class WorkspaceGoneError(RetrievalError):
    """The folder of a workspace is not there, or is no folder."""


class IndexingCancelledError(RetrievalError):
    """Indexing was cancelled; the stored index is the old one."""


class WorkerError(RetrievalError):
    """The indexing process ended without a report; the message is its own."""
