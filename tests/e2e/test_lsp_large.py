"""A file of twelve megabytes in a real language server: what is typed in the middle of it is answered, and memory is bounded."""

import psutil
import pytest
from e2e.lsp_support import editor

pytestmark = pytest.mark.slow  # whole processes

LINE = 'value_{:06d} = compute("naïve 😀", {:06d})\n'
LINES = 12_000_000 // len(LINE.format(0, 0))
MIDDLE = LINES // 2
MORE_MB_MAX = 200
"""The text as the message brings it, as lines, and what Python needs for each of these."""


@pytest.mark.timeout(300)
async def test_a_key_in_the_middle_of_twelve_megabytes_is_answered_with_what_stands_around_it(served, tmp_path):
    async with editor(tmp_path, "--gateway", served.url, "--no-retrieval") as it:

        async def typed(line, character, text):
            """What is suggested behind `text`; the scripted model says the line that its prompt ends with once more."""
            it.insert(line, character, text)
            item = await it.suggestion(line, character + len(text.rstrip("\n")), kind=1)
            assert item is not None and item.range.start.line == item.range.end.line == line
            return item.insert_text

        before_mb = psutil.Process(it.pid).memory_info().rss / 1e6
        it.open("".join(LINE.format(index, index) for index in range(LINES)))
        assert await typed(MIDDLE, 0, "value = \n") == "value = value =  # scripted"
        it.insert(2, 0, "# above\n# the window\n")
        # Two lines above, and one before: what stands there is that of 497 lines behind the first place. The face is two units.
        left = f'value_{MIDDLE + 497:06d} = compute("naïve 😀'
        # The prompt's last line begins with what stands behind the cursor; or the local candidate is sure of just that, number and all.
        ends = f'", {MIDDLE + 497:06d})'
        said = (await typed(MIDDLE + 500, len(left) + 1, "here")).removeprefix(f"{left}here")
        assert said in (f"{ends}{left}here  # scripted", ends.removesuffix(")"))
        for line, name in ((10, "first"), (LINES, "last"), (MIDDLE, "again")):  # far from one another
            assert await typed(line, 0, f"{name} = \n") == f"{name} = {name} =  # scripted"
        assert (await it.status())["detail"] == ""
        grown_mb = psutil.Process(it.pid).memory_info().rss / 1e6 - before_mb
        print(f"{grown_mb:.0f} MB more")
        assert grown_mb < MORE_MB_MAX, f"{grown_mb:.0f} MB more"
