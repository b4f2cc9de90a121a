"""What can go wrong with model files, in one tree. Each message names the file or the model, and the remedy.

* `ModelsError`
    * `ArtifactError`: a shipped file cannot be used; the gateway's start and the index tell it, commands end with it
        * `UnknownArtifactError`: no shipped file has this name
        * `BrokenIndexError`: `index.json` is missing, unreadable or lacks a field
        * `MissingArtifactError`: what `index.json` names is not there
        * `UnmadeArtifactError`: the model ships as an adapter, and is not made on this machine yet
        * `TruncatedArtifactError`: another size than the index says
        * `TamperedArtifactError`: another SHA-256 than the index says
    * `ExportFileError`: a file cannot be exported; told by `foretype models export`
    * `FetchError`: the network cannot be made on this machine; told by `foretype models fetch`, a gateway serves without it
    * `GgufError`: a file that cannot be read as GGUF; the gateway's reader and `identify` tell it
    * `IdentifyError`: it cannot be told what a file is; told by `foretype models identify`
    * `NoServerError`: no server of models answers at an address, or none that can be asked; told by `foretype use`
    * `PullError`: a checkpoint cannot be prepared; told by `foretype models pull`
    * `UseError`: a model cannot be used; told by `foretype use`, in the editor too
"""

from __future__ import annotations

from foretype_context.errors import ForetypeError


class ModelsError(ForetypeError):
    """Whatever goes wrong with model files."""


class ArtifactError(ModelsError):
    """A shipped model file cannot be used; the message says which and what to do."""


class UnknownArtifactError(ArtifactError):
    """No shipped model has this name."""


class BrokenIndexError(ArtifactError):
    """`index.json` is missing, unreadable or lacks a field."""


class MissingArtifactError(ArtifactError):
    """A file that `index.json` names is not there."""


class UnmadeArtifactError(ArtifactError):
    """A model that is made on the user's machine is not made yet."""


class TruncatedArtifactError(ArtifactError):
    """A file's size differs from the index, as after a broken copy or a full disk."""


class TamperedArtifactError(ArtifactError):
    """A file's SHA-256 differs from the index."""


class ExportFileError(ModelsError):
    """A model file cannot be written in another form: one sentence. Nothing was changed."""


class FetchError(ModelsError):
    """The network cannot be made here: one sentence with the remedy. What was there before still is."""


class GgufError(ModelsError):
    """A file that cannot be read as GGUF; the message names the file, the reason and the remedy."""


class IdentifyError(ModelsError):
    """It cannot be told what this is; the message names the file and the remedy."""


class NoServerError(ModelsError):
    """No server of models answers at an address, or it is of a kind that cannot be used."""


class PullError(ModelsError):
    """A model cannot be prepared; the message names the file and the remedy, and nothing was changed."""


class UseError(ModelsError):
    """A model cannot be used: one sentence that says why and what to do. What served before still does."""
