"""A session: somebody types, a question is overtaken by a key, another is cancelled, and a suggestion is typed through."""

import asyncio

from foretype_client import Document, open_client

CODE = """def add(one, two):
    return one + two


def subtract(one, two):
    """


async def main() -> None:
    async with open_client() as client:
        await client.ready()
        with client.edit(Document("file:///demo/sums.py", CODE, path="sums.py")) as document:
            here = len(CODE)

            # A key overtakes a question: it ends at once with None, and nobody need cancel it.
            question = asyncio.create_task(document.suggest(here))
            await asyncio.sleep(0)
            here = document.edit(here, here, "r")
            print("overtaken:", await question)

            # A question that nobody waits for any more.
            question = asyncio.create_task(document.suggest(here))
            await asyncio.sleep(0)
            question.cancel()
            print("cancelled:", (await asyncio.gather(question, return_exceptions=True))[0].__class__.__name__)

            # Typing what the suggestion says keeps it: the same one, shorter, without asking the model.
            first = await document.suggest(here)
            assert first is not None, client.status().detail
            document.shown(first)
            here = document.edit(here, here, first.text[0])
            rest = await document.suggest(here)
            assert rest is not None
            print("typed through:", rest.id == first.id, rest.text.startswith(first.text[1:]))

            document.accept(rest, here)
            print(document.text)


asyncio.run(main())
