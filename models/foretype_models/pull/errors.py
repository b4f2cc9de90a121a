"""What can go wrong with a checkpoint that is pulled."""


class PullError(Exception):
    """A model cannot be prepared; the message names the file and the remedy, and nothing was changed."""
