const BEFORE = `"""Items of a shop, and what they cost."""

from dataclasses import dataclass


@dataclass
class Item:
    name: str
    price: float
    quantity: int = 1


class Cart:
    def __init__(self, items=None):
        self.items = items or []

    def add(self, item):
        self.items.append(item)

    def total(self):
        return sum(item.price * item.quantity for item in self.items)

    def names(self):
        return [item.name for item in self.items]

    def prices(self):
        return [`;

const AFTER = `

    def count(self):
        return len(self.items)
`;

/** What the editor holds at first, and where its cursor is: a suggestion can be seen before a key was pressed. */
export const SAMPLE = BEFORE + AFTER;
export const CURSOR = BEFORE.length;
