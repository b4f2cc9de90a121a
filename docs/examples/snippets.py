"""A source of snippets of your own: the model sees what your program knows of other files."""

import asyncio
from collections.abc import Sequence

from foretype_client import ClientOptions, Document, FlowOptions, Snapshot, Snippet, open_client


class Conventions:
    """Shows the helpers of a house wherever a document has to do with money."""

    name = "conventions"

    def snippets(self, snapshot: Snapshot, offset: int, *, limit: int) -> Sequence[Snippet]:
        """Asked in a thread of its own while the user waits: answer from memory, and nothing rather than late."""
        if "money" not in snapshot.text:
            return []
        helper = "def round_to_cents(amount):\n    return round(amount, 2)\n"
        return [Snippet(path="house/money.py", text=helper, source_name=self.name)][:limit]


CODE = """from house.money import round_to_cents


def with_tax(amount):
    tax = amount * 0.19
    return """


# No user waits behind this program, so a source may take a second; and every answer shall be the model's.
OPTIONS = ClientOptions(local=False, flow=FlowOptions(snippets_ms=1000.0))


async def main() -> None:
    async with open_client(OPTIONS, sources=[Conventions()]) as client:
        await client.ready()
        with client.edit(Document("file:///demo/tax.py", CODE, path="tax.py")) as document:
            suggestion = await document.suggest(len(CODE))
            assert suggestion is not None, client.status().detail
            print(repr(suggestion.text))
            for piece in client.explain(suggestion)["plan"]["segments"]:
                print(piece["kind"], piece["source"]["path"], piece["tokens"], "tokens")


asyncio.run(main())
