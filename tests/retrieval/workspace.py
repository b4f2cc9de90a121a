"""A small workspace on disk."""

from pathlib import Path

from foretype_retrieval.index import Index

FILES = {
    "shop/cart.py": "class Basket:\n    def total(self):\n        return sum(self.prices)\n",
    "shop/money.py": "def format_price(amount, currency):\n    return f'{amount} {currency}'\n",
    "web/view.ts": "export function showBasket(basket: Basket) { return basket.total() }\n",
}


def write_files(root: Path, files: dict[str, str] = FILES) -> Path:
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return root


def defining(index: Index, name: str) -> list[int]:
    """Numbers of the chunks that define this name."""
    return index.view().definitions([name], 50).chunks.tolist()
