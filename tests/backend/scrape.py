"""Figures of a gateway's `/metrics`."""

from prometheus_client.parser import text_string_to_metric_families


def samples(text: bytes | str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = text.decode() if isinstance(text, bytes) else text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(text: bytes | str, name: str, **labels: str) -> float:
    """Over all samples of the name that have these labels."""
    return sum(value for (one, of), value in samples(text).items() if one == name and of >= labels.items())
